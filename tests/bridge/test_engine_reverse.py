"""The engines' own reverse modes, which no covered kernel uses unless it is told to: the whole table by them too."""

import pytest
import torch

import cases
import tinsmith as ts
from support.adjoints import with_adjoint
from support.engine_keeper import Configuration

pytestmark = pytest.mark.thinned(8)

REFUSED = {
    "own_backward",  # a `while`
    "returned",  # loops that add to a local outside of them
    "returned_several",
}
"""Rows that no engine differentiates."""
DIFFERENTIATED = [case for case in cases.ALL if cases.select_differentiable(case.inputs(torch.float64))]


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", [case for case in DIFFERENTIATED if case.name not in REFUSED], ids=str)
def test_gradients_by_the_engines_own_adjoint(lang64, case):
    op, inputs = with_adjoint("engine", case.raw_op(lang64, torch.float64)), case.inputs(torch.float64, seed=2)

    def ours(*given):
        return op(*given, **case.keywords)

    cases.assert_same_values_and_gradients(ours, case.expected, inputs)


def handed_on(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i + 1] = y[i] + x[i]

    return kernel


def shifted_back(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = 2.0 * y[i + 1]

    return kernel


def last_one_wins(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[0] = x[i]

    return kernel


def in_time(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
        lang.loop_config(serialize=True)
        for _ in range(3):
            for i in range(x.shape[0]):
                y[i] = 0.5 * y[i]

    return kernel


TWINS = {
    handed_on: lambda x: torch.cat([x.new_zeros(1), x.cumsum(0)]),
    shifted_back: lambda x: torch.cat([2 * x[1:], x.new_zeros(2)]),
    last_one_wins: lambda x: torch.cat([x[-1:], x.new_zeros(len(x))]),
    in_time: lambda x: torch.cat([x / 8, x.new_zeros(1)]),
}


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", TWINS, ids=lambda make: make.__name__)
def test_an_outermost_serial_loop_that_carries_values_is_refused(lang64, make):
    """No engine runs its iterations backwards: refused there, right by the generated adjoint."""
    kernel, x = make(lang64), torch.randn(5, dtype=torch.float64)
    cases.assert_same_values_and_gradients(ts.op("x[n] -> y[n + 1]")(kernel), TWINS[make], (x,))
    with pytest.raises(ts.GradientError, match=r"(?s)cannot reverse the loop.*`y`.*test_engine_reverse\.py:\d+"):
        ts.op("x[n] -> y[n + 1]", adjoint="engine")(kernel)(x.requires_grad_()).sum().backward()


def kept_apart(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, j + 1] = y[i, j] * 0.5 + x[i, j]

    return kernel


def added_up(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[0, j + 1] += x[i, j] * x[i, j]

    return kernel


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", [kept_apart, added_up], ids=lambda make: make.__name__)
def test_an_outermost_serial_loop_without_carried_values_is_right(lang64, make):
    kernel, x = make(lang64), torch.randn(3, 4, dtype=torch.float64)
    ops = [ts.op("x[n, m] -> y[n, m + 1]", adjoint=adjoint)(kernel) for adjoint in ("engine", "source")]
    cases.assert_same_values_and_gradients(*ops, (x,))


@pytest.mark.compiled_engine
@pytest.mark.each_engine
def test_sums_over_lists_that_are_longer_than_taichis_stack(lang64):
    """How long a list is the launch alone tells; past 32 elements Taichi's stack was written beyond its end."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def sums(x: array, starts: array, y: array):
        for r in y:
            total = 0.0
            for s in range(starts[r], starts[r + 1]):
                total += x[s] * x[s]
            y[r] = total

    starts = torch.tensor([0, 90, 91, 300, 1000], dtype=torch.int32)
    x = torch.rand(1000, dtype=torch.float64)
    ops = [ts.op("x[n], starts[t]: i32 -> y[t - 1]", adjoint=adjoint)(sums) for adjoint in ("engine", "source")]
    cases.assert_same_values_and_gradients(*ops, (x, starts))


def sum_beside_a_load(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in range(x.shape[0]):
            z[i] = x[i]
            for j in range(x.shape[0]):
                y[i] += x[j] * x[j]

    return kernel


def sum_before_an_addition(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                w = x[j]
                w = w * w
                w = w * w + x[j]
                y[i] += w * w
            z[i] += 2.0

    return kernel


def addition_after_a_nested_loop(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in range(x.shape[0]):
            for j in range(x.shape[0]):
                for m in range(3):
                    y[i] += x[j] * x[m]
                z[i] += x[j] * x[j]

    return kernel


@pytest.mark.thinned(1)
@pytest.mark.parametrize("make", [sum_beside_a_load, sum_before_an_addition, addition_after_a_nested_loop])
def test_loops_beside_elements_that_are_longer_than_taichis_stack(engine_keeper, make):
    """Taichi keeps the values of all their iterations: of the default 32 entries, the process ended."""
    kernel = make(engine_keeper.ensure("taichi", Configuration(default_fp="f64")))
    x, c = torch.rand(62, dtype=torch.float64), torch.rand(2, 62, dtype=torch.float64)

    def slope(**options):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(ts.op("x[n] -> y[n], z[n]", **options)(kernel)(leaf), leaf, tuple(c))[0]

    torch.testing.assert_close(slope(adjoint="engine"), slope())
