"""Atomics that are no mere sums: what they return, and arrays that are added to and then clamped in place."""

import pytest
import torch

import tinsmith as ts
from tinsmith import GradientError

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
N = 6


def clamped(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] += x[i] * x[i]
            lang.atomic_min(y[i], 0.5)
            y[i] -= 0.2
            lang.atomic_max(y[i], 0.0)

    return op, lambda x: ((x * x).clamp(max=0.5) - 0.2).clamp(min=0.0)


def clamped_in_an_inner_loop(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for _ in range(3):
                y[i] += x[i]
                lang.atomic_min(y[i], 1.2)

    def reference(x):
        y = torch.zeros_like(x)
        for _ in range(3):
            y = (y + x).clamp(max=1.2)
        return y

    return op, reference


def clamped_by_another_loop(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i // 2] += x[i] * x[i]
        for i in x:
            lang.atomic_min(y[i], 0.7)

    def reference(x):
        y = torch.zeros_like(x).index_add(0, torch.arange(len(x)) // 2, x * x)
        return y.clamp(max=0.7)

    return op, reference


def fetched(lang):
    @ts.op("x[n] -> y[n], z[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
            old = lang.atomic_add(y[i], 1.0)
            z[i] = old * old

    return op, lambda x: x * x + 1.0 + 3.0 * x**4


def fetched_from_scratch(lang):
    @ts.op("x[n] -> y[n], z[n]", scratch="w[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), w: lang.types.ndarray()):
        for i in x:
            w[i] = x[i]
        for i in x:
            a = lang.atomic_add(w[i], x[i] * x[i])
            b = lang.atomic_sub(w[i], 2.0 * x[i])
            c = lang.atomic_max(w[i], -0.3)
            y[i] = a * b + c
        for i in x:
            z[i] = lang.atomic_min(w[i], 0.0)

    def reference(x):
        c = x * x - x
        last = c.clamp(min=-0.3)
        return x * (x + x * x) + c + 3.0 * last

    return op, reference


def fetched_in_order(lang):
    @ts.op("x[n] -> y[n], z[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            if lang.atomic_add(y[0], x[i] * x[i]) > 0.4:
                z[i] = x[i] * lang.atomic_sub(y[1], x[i])

    def reference(x):
        total = (x * x).cumsum(0)
        holds = (total - x * x > 0.4).double()
        spent = (holds * x).cumsum(0) - holds * x
        return total[-1] - (holds * x).sum() - 3.0 * (holds * x * spent).sum()

    return op, reference


def counted(lang):
    @ts.op("x[n] -> y[n], z[n]", scratch="count[]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), count: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            if x[i] > 0.4:
                y[lang.atomic_add(count[None], 1)] = x[i] * x[i]
        for i in range(count[None]):
            z[i] = y[i] * y[i]

    def reference(x):
        kept = x[x > 0.4]
        return (kept * kept).sum() + 3.0 * (kept**4).sum()

    return op, reference


def fetched_at_the_top(lang):
    @ts.op("x[n] -> y[], z[n]", scratch="end[]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), end: lang.types.ndarray()):
        end[None] = x.shape[0] - 2
        first = lang.atomic_add(y[None], x[0] * x[1])
        last = lang.atomic_sub(end[None], 1)
        for i in range(last):
            z[i] = (x[i] + first) * y[None]

    return op, lambda x: x[0] * x[1] + 3.0 * (x[:-2] * x[0] * x[1]).sum()


def fetched_in_a_function(lang):
    @lang.func
    def grown(a: lang.template(), i: int, by: float) -> float:
        old = lang.atomic_add(a[i], by)
        return old * old

    @ts.op("x[n] -> y[n], z[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
            z[i] = grown(y, i, x[i] * x[i]) + grown(y, i, 1.0)

    def reference(x):
        second = x + x * x
        return second + 1.0 + 3.0 * (x * x + second * second)

    return op, reference


PROGRAMS = {
    build.__name__: build
    for build in (
        clamped,
        clamped_in_an_inner_loop,
        clamped_by_another_loop,
        fetched,
        fetched_from_scratch,
        fetched_in_order,
        counted,
        fetched_at_the_top,
        fetched_in_a_function,
    )
}


def weighted(results):
    """Sum all outputs with weights of their own."""
    results = (results,) if isinstance(results, torch.Tensor) else results
    return sum((1.0 + 2.0 * place) * one.sum() for place, one in enumerate(results) if one.is_floating_point())


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_and_tangents(name, lang64):
    op, reference = PROGRAMS[name](lang64)
    x = torch.rand(N, dtype=torch.float64)
    direction = torch.rand(N, dtype=torch.float64) - 0.5
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    outputs = op(mine)
    outputs = (outputs,) if isinstance(outputs, torch.Tensor) else tuple(outputs)
    before = [one.detach().clone() for one in outputs]
    weighted(outputs).backward()
    expected = reference(theirs).sum()
    expected.backward()
    assert torch.allclose(weighted(before), expected.detach())
    assert torch.allclose(mine.grad, theirs.grad)
    assert all(torch.equal(one, kept) for one, kept in zip(outputs, before, strict=True))
    moved = torch.func.jvp(lambda value: weighted(op(value)), (x,), (direction,))[1]
    assert torch.allclose(moved, theirs.grad @ direction)


def test_atomics_in_loops_of_unknown_length_have_a_gradient_but_no_tangent(lang):
    """A gradient reads slots that were stored; a tangent is refused with the line: a second run gives out others."""
    array = lang.types.ndarray()

    @ts.op("x[n], times[n]: i32 -> y[n]", scratch="slot[n]: i32, count[]: i32", adjoint="source")
    @lang.kernel
    def packed(x: array, times: array, y: array, slot: array, count: array):
        for i in x:
            for _ in range(times[i]):
                slot[i] = lang.atomic_add(count[None], 1)  # here
        for i in x:
            y[slot[i]] = x[i] * x[i]

    with open(__file__) as file:
        line = next(number for number, text in enumerate(file, 1) if text.rstrip().endswith("# here"))
    x, once = torch.rand(N, requires_grad=True), torch.ones(N, dtype=torch.int32)
    packed(x, once).sum().backward()
    assert torch.allclose(x.grad, 2.0 * x.detach())
    words = "the return value of `atomic_add` in a parallel loop, which depends on the order of the iterations"
    with pytest.raises(GradientError, match=words) as caught:
        torch.func.jvp(lambda x: packed(x, once), (x.detach(),), (torch.ones(N),))
    assert f"test_atomics.py:{line}" in str(caught.value)


def test_a_counter_that_no_tangent_needs_does_not_prevent_tangents(lang64):
    @ts.op("x[n] -> y[n], log[n]: i32", scratch="count[]: i32")
    @lang64.kernel
    def traced(
        x: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        log: lang64.types.ndarray(),
        count: lang64.types.ndarray(),
    ):
        for i in x:
            log[lang64.atomic_add(count[None], 1)] = i
            y[i] = x[i] * x[i]

    x = torch.rand(N, dtype=torch.float64)
    moved = torch.func.jvp(lambda value: traced(value).y, (x,), (torch.ones_like(x),))[1]
    assert torch.allclose(moved, 2.0 * x)


def test_maximum_in_an_array_of_one_vector(lang64):
    """Both engines ended the process: statements of the top level and a loop used the same vector."""
    vec = lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1)
    one = lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=0)

    @ts.op("x[n, 3] -> y[3]")
    @lang64.kernel
    def largest(x: vec, y: one):
        for i in x:
            lang64.atomic_max(y[None], x[i])

    x, along = torch.rand(5, 3, dtype=torch.float64), torch.rand(5, 3, dtype=torch.float64)
    moved = torch.func.jvp(largest, (x,), (along,))[1]
    assert torch.equal(moved, along.gather(0, x.argmax(0, keepdim=True))[0])


@pytest.mark.compiled_engine
def test_threads_of_a_maximum_share_no_local(lang64):
    """The loop of a maximum runs twice in the tangent; its locals were declared once, before both."""

    @ts.op("x[n], k[n]: i32 -> y[m]")
    @lang64.kernel
    def largest(x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_max(y[k[i]], lang64.sin(x[i]) + 2.0)

    x = torch.rand(200_000, dtype=torch.float64)
    k = torch.randint(0, 1000, x.shape, dtype=torch.int32)
    along = torch.rand_like(x)

    def reference(value):
        filled = torch.zeros(1000, dtype=torch.float64)
        return filled.scatter_reduce(0, k.long(), value.sin() + 2.0, "amax", include_self=False)

    moved = torch.func.jvp(lambda value: largest(value, k, m=1000), (x,), (along,))[1]
    assert torch.allclose(moved, torch.autograd.functional.jvp(reference, (x,), (along,))[1])


def test_scratch_whose_size_is_an_argument(lang64):
    """Forward mode kept the memory of the first call's size, and wrote beyond its end."""

    @ts.op("x[n] -> y[n]", scratch="w[m]")
    @lang64.kernel
    def summed(x: lang64.types.ndarray(), y: lang64.types.ndarray(), w: lang64.types.ndarray(), m: lang64.i32):
        for j in range(m):
            w[j] = x[0] * j
        for i in x:
            s = 0.0
            for j in range(m):
                s += w[j]
            y[i] = x[i] * s

    x = torch.rand(4, dtype=torch.float64)
    for m in (4, 4000, 4):
        total = m * (m - 1) / 2

        def mine(value, m=m):
            return torch.func.jvp(lambda one: summed(one, m).sum(), (value,), (torch.ones_like(x),))[1]

        def theirs(value, total=total):
            return torch.func.jvp(lambda one: (one * one[0]).sum() * total, (value,), (torch.ones_like(x),))[1]

        assert torch.allclose(mine(x), theirs(x))
        assert torch.allclose(torch.func.grad(mine)(x), torch.func.grad(theirs)(x))
        assert torch.allclose(torch.func.jvp(mine, (x,), (x,))[1], torch.func.jvp(theirs, (x,), (x,))[1])


def test_scratch_whose_size_is_a_keyword(lang64):
    """Forward mode forgot sizes that no array with a tangent is made of."""

    @ts.op("x[n] -> y[n], seen[m]: i32", scratch="w[k]")
    @lang64.kernel
    def scaled(
        x: lang64.types.ndarray(), y: lang64.types.ndarray(), seen: lang64.types.ndarray(), w: lang64.types.ndarray()
    ):
        for j in range(w.shape[0]):
            w[j] = x[0] * j
        for i in x:
            seen[i % seen.shape[0]] = 1
            y[i] = x[i] * w[w.shape[0] - 1]

    x = torch.rand(4, dtype=torch.float64)
    for m, k in ((2, 3), (5, 4000)):

        def mine(value, m=m, k=k):
            return scaled(value, m=m, k=k).y.sum()

        def theirs(value, k=k):
            return (value * value[0]).sum() * (k - 1)

        assert torch.allclose(torch.func.jvp(mine, (x,), (x,))[1], torch.func.jvp(theirs, (x,), (x,))[1])
        assert torch.allclose(torch.func.hessian(mine)(x), torch.func.hessian(theirs)(x))


def test_a_product_of_many_iterations_is_not_made_serial(lang64):
    """Both engines end the process where an atomic product runs in order."""

    @ts.op("x[n] -> y[]")
    @lang64.kernel
    def halved(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        y[None] = 8.0
        for i in x:
            lang64.atomic_mul(y[None], 0.5 * x[i])

    assert halved(torch.full((3,), 2.0, dtype=torch.float64)) == 8.0
    assert halved(torch.ones(3, dtype=torch.float64)) == 1.0


def greatest(lang64):
    @ts.op("x[n], k[n]: i32, w[q] -> y[s]")
    @lang64.kernel
    def greatest(
        x: lang64.types.ndarray(),
        k: lang64.types.ndarray(),
        w: lang64.types.ndarray(),
        m: lang64.i32,
        y: lang64.types.ndarray(),
    ):
        q = w.shape[0]
        for i in x:
            for j in range(q):
                for t in range(m):
                    lang64.atomic_max(y[k[i]], lang64.sin(x[i] * w[j]) + x[i] * (0.5 + t))

    return greatest


def greatest_by_torch(x, k, w, m):
    t = torch.arange(m, dtype=torch.float64)[:, None, None]
    v = torch.sin(x * w[:, None]) + x * (0.5 + t)
    empty = torch.zeros(3, dtype=torch.float64)
    return empty.scatter_reduce(0, k.long().expand(v.shape).reshape(-1), v.reshape(-1), "amax")


def _moved(f, along):
    return lambda x: torch.func.jvp(f, (x,), (along,))[1]


DERIVATIVES = (
    lambda f, x, u, v: _moved(f, u)(x),
    lambda f, x, u, v: torch.func.jacfwd(f)(x),
    lambda f, x, u, v: torch.func.jacrev(f)(x),
    lambda f, x, u, v: torch.func.hessian(lambda one: f(one).square().sum())(x),
    lambda f, x, u, v: _moved(_moved(f, u), v)(x),
    lambda f, x, u, v: torch.func.grad(lambda one: _moved(f, u)(one).square().sum())(x),
    lambda f, x, u, v: torch.func.vmap(_moved(f, u))(torch.stack([x, u, v])),
    lambda f, x, u, v: torch.func.vmap(torch.func.grad(lambda one: f(one).square().sum()))(torch.stack([x, u, v])),
)


@pytest.mark.compiled_engine
def test_candidates_that_are_calculated_have_every_derivative(lang64):
    """Forward mode keeps them too; how many follows from sizes and an argument, and changes from call to call."""
    op = greatest(lang64)
    generator = torch.Generator().manual_seed(2)
    for n, q, m in ((5, 2, 3), (40, 7, 1), (3, 1, 8)):
        x, w, u, v = (torch.rand(size, generator=generator, dtype=torch.float64) for size in (n, q, n, n))
        k = torch.randint(0, 3, (n,), generator=generator, dtype=torch.int32)

        def mine(x, w=w, k=k, m=m):
            return op(x, k, w, m, s=3)

        def theirs(x, w=w, k=k, m=m):
            return greatest_by_torch(x, k, w, m)

        for derivative in DERIVATIVES:
            torch.testing.assert_close(derivative(mine, x, u, v), derivative(theirs, x, u, v))


def test_ties_share_evenly_where_the_loop_uses_what_won(lang64):
    """The gradient went by halves of halves, and was neither the tangent nor `ts.oracle`'s."""

    @ts.op("w[n, m] -> z[n], y[n]", adjoint="source")
    @lang64.kernel
    def rows(w: lang64.types.ndarray(), z: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            y[i] = -5.0
            for j in range(w.shape[1]):
                lang64.atomic_max(y[i], w[i, j])
            z[i] = y[i] * y[i]

    w = torch.tensor([[1.0, 1.0, 1.0, 0.0], [2.0, 1.0, 2.0, 3.0]], dtype=torch.float64)
    wanted = torch.func.jacrev(lambda w: w.amax(1) ** 2)(w)
    assert torch.allclose(torch.func.jacrev(lambda w: rows(w).z)(w), wanted)
    assert torch.allclose(torch.func.jacfwd(lambda w: rows(w).z)(w), wanted)


def test_the_value_before_a_loop_counts_once_among_the_candidates(lang64):
    """As for torch in two steps, in every mode: forward mode and `ts.oracle` counted the candidates of both loops."""

    @ts.op("a[n], b[n] -> y[1]", adjoint="source")
    @lang64.kernel
    def greatest(a: lang64.types.ndarray(), b: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in a:
            lang64.atomic_max(y[0], a[i])
        for i in b:
            lang64.atomic_max(y[0], b[i])

    def by_torch(a, b):
        first, zeros = torch.zeros(1, dtype=torch.float64), torch.zeros(2, dtype=torch.int64)
        return first.scatter_reduce(0, zeros, a, "amax").scatter_reduce(0, zeros, b, "amax")

    a, b = torch.ones(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    wanted = torch.func.jacrev(by_torch, (0, 1))(a, b)
    for jacobians in (torch.func.jacrev(greatest, (0, 1))(a, b), torch.func.jacfwd(greatest, (0, 1))(a, b)):
        torch.testing.assert_close(jacobians, wanted)
    oracle = ts.oracle(greatest, a, b, cotangents=torch.ones(1, dtype=torch.float64)).gradients
    torch.testing.assert_close((oracle["a"][None], oracle["b"][None]), wanted)


def test_candidates_of_samples_that_run_one_by_one(lang64):
    """A kernel that no batch can be written for: each sample keeps its own candidates."""

    @ts.op("x[n], k[n]: i32 -> y[s]")
    @lang64.kernel
    def weighted(x: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        total = 0.0
        for i in x:
            total += x[i]
        for i in x:
            lang64.atomic_max(y[k[i]], lang64.sin(x[i]) * total)

    x, u, v = (torch.rand(6, dtype=torch.float64) + 0.1 for _ in range(3))
    k = torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32)

    def theirs(x):
        return torch.zeros(3, dtype=torch.float64).scatter_reduce(0, k.long(), x.sin() * x.sum(), "amax")

    for derivative in DERIVATIVES:
        torch.testing.assert_close(derivative(lambda x: weighted(x, k, s=3), x, u, v), derivative(theirs, x, u, v))
