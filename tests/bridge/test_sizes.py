"""Calls that differ in sizes alone: one set of compiled kernels, and what follows from sizes worked out again."""

import random

import pytest
import torch

import tinsmith as ts
from tinsmith._config import Config


def scaled(lang, **options):
    @ts.op("x[n], w[m] -> y[n], z[n - 1]", **options)
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            t = 1.0
            for k in range(w.shape[0]):
                t *= lang.exp(-w[k] * x[i])
            y[i] = t
        for i in z:
            z[i] = y[i] * x[i + 1]

    def twin(x, w):
        y = torch.exp(-x * w.sum())
        return y, y[:-1] * x[1:]

    return op, twin, lambda n: (torch.rand(n), torch.rand(n % 5 + 1))


def batched(lang, **options):
    @ts.op("x[*b, n], w[n, 2] -> y[*b, 2]", **options)
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for k in y:
            for i in range(x.shape[0]):
                y[k] += x[i] ** 2 * w[i, k]

    return op, lambda x, w: ((x**2) @ w,), lambda n: (torch.rand(n % 3, n % 4 + 1, n % 7 + 1), torch.rand(n % 7 + 1, 2))


def of_vectors(lang, **options):
    vector = lang.types.vector(3, lang.f64)

    @ts.op("x[n, 3], k[n]: i32 -> y[n], s[]", **options)
    @lang.kernel
    def op(
        x: lang.types.ndarray(dtype=vector, ndim=1),
        k: lang.types.ndarray(),
        y: lang.types.ndarray(),
        s: lang.types.ndarray(),
    ):
        for i in x:
            y[i] = x[k[i]].dot(x[i])
            s[None] += y[i] ** 2

    def twin(x, k):
        y = (x[k.long()] * x).sum(1)
        return y, (y**2).sum()

    return op, twin, lambda n: (torch.rand(n, 3), torch.randint(0, n, (n,), dtype=torch.int32))


def sized_by_an_argument(lang, **options):
    @ts.op("x[n] -> y[count]", **options)
    @lang.kernel
    def op(x: lang.types.ndarray(), count: int, y: lang.types.ndarray()):
        for j in range(count):
            for i in range(x.shape[0]):
                y[j] += lang.sin(x[i] * j)

    def twin(x, count):
        return (torch.sin(x[None, :] * torch.arange(count)[:, None]).sum(1),)

    return op, twin, lambda n: (torch.rand(n), n % 6 + 1)


def by_hand(lang, **options):
    @ts.op("x[n, m] -> y[n]", **options)
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i] += x[i, j] ** 3

    @op.backward
    @lang.kernel
    def back(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i, j in x:
            grad_x[i, j] = 3.0 * x[i, j] ** 2 * grad_y[i]

    return op, lambda x: ((x**3).sum(1),), lambda n: (torch.rand(n, n % 3 + 1),)


def make_drawing_op(lang, **options):
    @ts.op("x[n] -> y[n]", **options)
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2 * (1.0 + 0.0 * lang.random())

    return op, lambda x: (x**2,), lambda n: (torch.rand(n),)


def doubled(one):
    is_real = isinstance(one, torch.Tensor) and one.is_floating_point()
    return one.double().requires_grad_() if is_real else one


def compute_gradients(function, given, seed):
    made = function(*given)
    made = made if isinstance(made, tuple) else (made,)
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.rand(one.shape, generator=generator, dtype=one.dtype) for one in made]
    leaves = [one for one in given if isinstance(one, torch.Tensor) and one.requires_grad]
    return [*made, *torch.autograd.grad(made, leaves, cotangents)]


PROGRAMS = [scaled, batched, of_vectors, sized_by_an_argument, by_hand, make_drawing_op]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("serial_below", ["65536", "40"])
def test_calls_of_changing_sizes_are_right(lang64, program, serial_below, configure):
    """Also where some of the sizes run on one thread, and others on several."""
    configure(SERIAL_BELOW=serial_below)
    op, twin, inputs = program(lang64)
    sizes = random.Random(5)
    for seed in range(30):
        given = tuple(map(doubled, inputs(sizes.randint(2, 40))))
        torch.testing.assert_close(compute_gradients(op, given, seed), compute_gradients(twin, given, seed))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("program", [batched, of_vectors])
def test_any_size_is_right_with_an_engine_s_gradient(lang64, program):
    op, twin, inputs = program(lang64, adjoint="engine", trust_engine=True)
    for seed, n in enumerate((5, 9, 3, 17)):
        given = tuple(map(doubled, inputs(n)))
        torch.testing.assert_close(compute_gradients(op, given, seed), compute_gradients(twin, given, seed))


@pytest.mark.parametrize("program", PROGRAMS[:5])
def test_a_new_size_looks_up_no_kernel(lang64, program, monkeypatch):
    op, _, inputs = program(lang64)
    compute_gradients(op, tuple(map(doubled, inputs(8))), 0)
    for name in ("_steps.StageLaunch.step", "_steps.ensure_compiled"):
        monkeypatch.delattr(f"tinsmith.calls.{name}")
    monkeypatch.delattr("tinsmith.calls.backward._generated_kernel.GeneratedKernel.step")
    for n in (9, 3, 31):
        compute_gradients(op, tuple(map(doubled, inputs(n))), n)


def test_a_size_that_does_not_fit_is_refused_after_one_that_did(lang64):
    op, _, _ = of_vectors(lang64)
    k = torch.zeros(4, dtype=torch.int32)
    op(torch.rand(4, 3, dtype=torch.float64), k)
    with pytest.raises(ts.ShapeError, match="expected 3, got 2"):
        op(torch.rand(4, 2, dtype=torch.float64), k)
    with pytest.raises(ts.ShapeError, match="n"):
        op(torch.rand(5, 3, dtype=torch.float64), k)
    with pytest.raises(ts.ShapeError, match="z"):
        scaled(lang64)[0](torch.rand(0, dtype=torch.float64), torch.rand(2, dtype=torch.float64))


def test_dims_by_keyword_change(lang64):
    @ts.op("x[n] -> y[n, count]")
    @lang64.kernel
    def spread(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in y:
            y[i, j] = x[i] ** 2 * (j + 1)

    for n, count in [(3, 2), (4, 2), (3, 5), (3, 2), (7, 1), (2, 0)]:
        x = torch.rand(n, dtype=torch.float64, requires_grad=True)
        y = spread(x, count=count)
        torch.testing.assert_close(y, x[:, None] ** 2 * torch.arange(1, count + 1))
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, 2 * x.detach() * count * (count + 1) / 2)
    with pytest.raises(ts.ArgumentError, match="count"):
        spread(torch.rand(5, dtype=torch.float64))
    with pytest.raises(ts.ShapeError, match="-1"):
        spread(torch.rand(6, dtype=torch.float64), count=-1)


def test_half_precision_of_other_sizes(lang):
    op, twin, inputs = batched(lang)
    for n in (5, 9, 3, 17, 8):
        given = [one.bfloat16().requires_grad_() for one in inputs(n)]
        (made,) = [op(*given)]
        assert made.dtype == torch.bfloat16
        (expected,) = twin(*[one.float() for one in given])
        torch.testing.assert_close(made.float(), expected, rtol=1e-2, atol=1e-2)
        slopes = torch.autograd.grad(made.sum(), given)
        for one, other in zip(slopes, torch.autograd.grad(expected.sum(), given), strict=True):
            torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-2)


def test_a_negative_size_is_refused_after_one_that_fits(lang64):
    op, _, _ = scaled(lang64)
    w = torch.rand(2, dtype=torch.float64)
    op(torch.rand(5, dtype=torch.float64), w)
    with pytest.raises(ts.ShapeError, match="n - 1"):
        op(torch.rand(0, dtype=torch.float64), w)


def test_other_scalars_and_other_sizes_in_turn(lang64):
    """Scalars that no plan depends on: a call of old sizes has its own, and its gradient too."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def weigh(x: lang64.types.ndarray(), weight: float, y: lang64.types.ndarray()):
        for i in x:
            y[i] = weight * x[i] ** 2

    calls = []
    for n, weight in [(3, 2.0), (3, 5.0), (4, 7.0), (3, 11.0), (4, 0.5)]:
        x = torch.rand(n, dtype=torch.float64, requires_grad=True)
        calls.append((x, weight, weigh(x, weight)))
    for x, weight, y in calls:
        torch.testing.assert_close(y, weight * x**2)
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        torch.testing.assert_close(slope, 2 * weight * x)
        (bend,) = torch.autograd.grad(slope.sum(), x)
        torch.testing.assert_close(bend, torch.full_like(x, 2 * weight))


@pytest.mark.parametrize("program", PROGRAMS)
def test_sizes_leave_nothing_in_caches(lang64, program):
    op, twin, inputs = program(lang64)
    for n in range(2, 12):
        given = tuple(map(doubled, inputs(n)))
        torch.testing.assert_close(compute_gradients(op, given, n), compute_gradients(twin, given, n))
    assert len(op._programs._known) == len(op._core.programs) == len(op._core.conversions) == 1


def test_caches_per_kind_of_call_are_bounded_and_keep_the_newest(lang64, monkeypatch):
    monkeypatch.setattr("tinsmith._cache.config", lambda: Config(plan_cache=4))

    @ts.op("x[...] -> y[...]")
    @lang64.kernel
    def triple(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in lang64.grouped(x):
            y[i] = 3 * x[i]

    for rank in range(1, 8):
        x = torch.rand(rank * (2,), dtype=torch.float64)
        torch.testing.assert_close(triple(x), 3 * x)
        assert len(triple._programs._known) <= 4
    newest = triple._programs._known[next(reversed(triple._programs._known))]
    assert triple._programs.find(triple._bind((x,), {})) is newest


def test_inputs_in_another_order_than_the_spec_s(lang64):
    """Shapes come in the order of the call's arguments."""

    @ts.op("x[n], k[m] -> y[n - m + 1]", order="kernel")
    @lang64.kernel
    def conv(k: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    for n, m in [(5, 2), (9, 3), (4, 4)]:
        x, k = (torch.rand(size, dtype=torch.float64, requires_grad=True) for size in (n, m))
        wanted = torch.nn.functional.conv1d(x[None, None], k[None, None])[0, 0]
        torch.testing.assert_close(conv(k, x), wanted)
        torch.testing.assert_close(
            torch.autograd.grad(conv(k, x).sum(), (x, k)), torch.autograd.grad(wanted.sum(), (x, k))
        )
