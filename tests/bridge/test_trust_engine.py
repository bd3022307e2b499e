"""What lint says an engine gets wrong is refused where the gradient is the engine's, unless the user trusts it."""

import copy

import pytest
import torch

import tinsmith as ts
from support.engine_keeper import Configuration

pytestmark = pytest.mark.compiled_engine

SPEC = "x[n] -> y[n]"


def exponentials(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            s = 0.0
            for j in range(x.shape[0]):
                s += lang.exp(x[j] * x[i])
            y[i] = s

    return kernel


def running_maximum(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            s = x[i]
            for j in range(x.shape[0]):
                s = s * s * 0.5 + lang.max(x[j], s * 0.1)
            y[i] = s

    return kernel


def rebuilt_vector(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            v = lang.Vector([x[i], 1.0])
            for j in range(3):
                v = lang.Vector([v[0] * v[1], v[1] * x[j]])
            y[i] = v[0]

    return kernel


def greatest(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            lang.atomic_max(y[0], x[i])

    return kernel


def exponentials_beside_a_load(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i]
            for j in range(x.shape[0]):
                y[i] += lang.exp(x[j])

    return kernel


WRONG = {  # the rule, and the engines that get it wrong
    exponentials: ("TS404", {"taichi"}),
    running_maximum: ("TS405", {"taichi"}),
    exponentials_beside_a_load: ("TS404", {"taichi"}),
    greatest: ("TS401", {"taichi", "quadrants"}),
}


def compute_gradient(op, x, c):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(op(leaf), leaf, c)[0]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_wrong_engine_gradients_are_refused_unless_trusted(lang64, engine, make):
    rule, engines = WRONG[make]
    kernel = make(lang64)
    x, c = torch.rand(5, dtype=torch.float64) + 0.2, torch.rand(5, dtype=torch.float64)
    right = ts.oracle(ts.op(SPEC)(kernel), x, cotangents=c).gradients["x"]
    torch.testing.assert_close(compute_gradient(ts.op(SPEC)(kernel), x, c), right)
    op = ts.op(SPEC, adjoint="engine")(kernel)
    trusted = compute_gradient(ts.op(SPEC, adjoint="engine", trust_engine=True)(kernel), x, c)
    if engine in engines:
        with pytest.raises(ts.GradientError, match=rf"(?s){rule}.*test_trust_engine\.py:\d+.*trust_engine=True"):
            compute_gradient(op, x, c)
        assert not torch.allclose(trusted, right)
    else:
        torch.testing.assert_close(compute_gradient(op, x, c), right)
        torch.testing.assert_close(trusted, right)


@pytest.mark.each_engine
def test_a_branch_beside_a_load(lang64, engine):
    """Taichi's gradient is right here, but TS412 refuses it: with more iterations, or a loop, it would be wrong."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            for j in range(x.shape[0]):
                if j % 2 == 0:
                    y[i] += x[j] * x[j]
            y[i] += x[i]

    x, c = torch.rand(5, dtype=torch.float64) + 0.2, torch.rand(5, dtype=torch.float64)
    right = 2.0 * x * c.sum() * torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64) + c
    trusted = ts.op(SPEC, adjoint="engine", trust_engine=True)(kernel)
    torch.testing.assert_close(compute_gradient(trusted, x, c), right)
    op = ts.op(SPEC, adjoint="engine")(kernel)
    if engine == "taichi":
        with pytest.raises(ts.GradientError, match=r"(?s)TS412.*test_trust_engine\.py:\d+.*trust_engine=True"):
            compute_gradient(op, x, c)
    else:
        torch.testing.assert_close(compute_gradient(op, x, c), right)


def branch_around_a_loop(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(x.shape[0]):
                if x[j] > 0.5:
                    y[i] += x[j]
                    for m in range(3):
                        y[i] += x[j] * x[m]
            y[i] += x[i]

    return kernel


def branch_in_a_kernel_that_reads_what_it_writes(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in y:
            z[i] = 0.5 * x[i]
            for j in range(x.shape[0]):
                if j % 2 == 0:
                    y[i] += x[j] * x[j]
            y[i] += z[i]

    return kernel


@pytest.mark.parametrize(
    ("make", "spec"),
    [(branch_around_a_loop, SPEC), (branch_in_a_kernel_that_reads_what_it_writes, "x[n] -> y[n], z[n]")],
)
def test_branches_beside_a_load_that_taichi_gets_wrong(engine_keeper, make, spec):
    """The first however it is compiled, the second because it is compiled without the optimization of control flow."""
    taichi64 = engine_keeper.ensure("taichi", Configuration(default_fp="f64"))
    x, c = torch.tensor([0.2, 0.9, 0.6, 0.4, 0.7], dtype=torch.float64), torch.rand(5, dtype=torch.float64)

    def slope(**options):
        leaf = x.clone().requires_grad_()
        outputs = ts.op(spec, **options)(make(taichi64))(leaf)
        return torch.autograd.grad(outputs if spec == SPEC else outputs[0], leaf, c)[0]

    with pytest.raises(ts.GradientError, match="TS412"):
        slope(adjoint="engine")
    assert not torch.allclose(slope(adjoint="engine", trust_engine=True), slope())


@pytest.mark.parametrize(("make", "rule"), [(exponentials, "TS404"), (branch_around_a_loop, "TS412")])
def test_what_taichi_gets_wrong_is_refused_of_kernels_for_quadrants(engine_keeper, make, rule):
    engine_keeper.ensure("taichi", Configuration(default_fp="f64"))
    kernel = make(engine_keeper.ensure("quadrants", Configuration(default_fp="f64")))
    x = torch.rand(5, dtype=torch.float64)
    with pytest.raises(ts.GradientError, match=rf"(?s)taichi's reverse mode.*{rule}"):
        compute_gradient(ts.op(SPEC, adjoint="engine", engine="taichi")(kernel), x, x)


def changed_vector(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            v = lang.Vector([x[i], 0.5])
            for _ in range(3):
                a = v[0]
                v[0] *= v[1]
                v[1] = a + x[i]
            y[i] = v.sum()

    return kernel


def normalized_vector(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            v = lang.Vector([x[i], 0.5, 0.2])
            m = lang.Matrix([[0.9, -0.1, 0.0], [0.1, 0.9, 0.3], [0.0, -0.3, 1.0]])
            for _ in range(4):
                v = m @ v + v * v.norm()
            y[i] = v.dot(lang.Vector([1.0, 2.0, 3.0]))

    return kernel


@pytest.mark.parametrize("make", [rebuilt_vector, changed_vector, normalized_vector])
def test_a_vector_that_a_loop_rebuilds_is_right(lang64, make):
    """Taichi's own `kernel.grad()` gets these wrong (TS406), and Quadrants' the last."""
    kernel = make(lang64)
    x, c = torch.rand(5, dtype=torch.float64) + 0.2, torch.rand(5, dtype=torch.float64)
    right = ts.oracle(ts.op(SPEC)(kernel), x, cotangents=c).gradients["x"]
    torch.testing.assert_close(compute_gradient(ts.op(SPEC, adjoint="engine")(kernel), x, c), right)


def test_unused_wrong_gradients_are_not_refused(lang64):
    op = ts.op(SPEC, adjoint="engine")(greatest(lang64))
    assert op(torch.tensor([0.2, 0.7, 0.1], dtype=torch.float64))[0] == 0.7


def test_a_kernel_that_is_right_by_the_engine_is_not_refused(lang64):
    @ts.op(SPEC, adjoint="engine")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = lang64.Vector([x[i], 2.0 * x[i]])
            y[i] = lang64.exp(v.dot(v)) + lang64.max(x[i], 0.5)
        for i in x:
            for j in range(x.shape[0]):
                e = lang64.exp(x[j] * x[i])
                y[i] += e * e

    assert torch.autograd.gradcheck(kernel, (torch.rand(5, dtype=torch.float64).requires_grad_(),))


def test_copies_keep_trust_engine(lang64):
    op = ts.op(SPEC, adjoint="engine", trust_engine=True)(greatest(lang64))
    assert copy.deepcopy(op)._core.signature.trusts_engine


def test_outer_locals_used_in_an_inner_loop(lang64):
    """Both engines count the gradient of one iteration alone: 2 where four times 2 is right."""

    @lang64.kernel
    def spread(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for b in range(x.shape[0]):
            r = 2.0 * x[b]
            for i in range(4):
                y[b, i] = r

    def slope(**options):
        x = torch.rand(3, dtype=torch.float64, requires_grad=True)
        ts.op("x[n] -> y[n, 4]", **options)(spread)(x).sum().backward()
        return None if x.grad is None else x.grad.tolist()

    assert slope() == [8.0] * 3
    with pytest.raises(ts.GradientError, match="TS411"):
        slope(adjoint="engine")
    assert slope(adjoint="engine", trust_engine=True) == [2.0] * 3
