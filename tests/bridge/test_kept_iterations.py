"""The forward pass keeps what iterations of loops were handed, and values of functions, where an array is as long.

The reference is torch in float64. `find_kept_memory` says which memory a forward pass kept, by the names in the kernel.
"""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

pytestmark = pytest.mark.compiled_engine

SPEC = "density[r, s], step[r, s], color[r, s, 3] -> light[r, 3]"


def find_kept_memory(op, *active):
    """Return the memory that a forward pass keeps for a gradient by these inputs."""
    (at,) = op._core.reverse.source.specializations
    results = at.results(frozenset(active))
    return [] if results is None else sorted(results.names)


def assert_agree(op, reference, inputs, rtol=1e-10):
    """Compare values and gradients with torch in float64, the backward pass run twice."""
    leaves = [one.detach().clone().requires_grad_(one.is_floating_point()) for one in inputs]
    exact = [one.detach().double().requires_grad_() if one.is_floating_point() else one for one in inputs]
    ours, wanted = op(*leaves), reference(*exact)
    ours, wanted = ([one] if isinstance(one, torch.Tensor) else [*one] for one in (ours, wanted))
    weights = [torch.randn(one.shape, dtype=torch.float64) for one in wanted]
    floats, exacts = ([one for one in group if one.requires_grad] for group in (leaves, exact))
    expected = torch.autograd.grad(wanted, exacts, weights, allow_unused=True, materialize_grads=True)
    for _ in range(2):
        gradients = torch.autograd.grad(ours, floats, [w.to(o.dtype) for w, o in zip(weights, ours, strict=True)], True)
        for one, other in zip((*ours, *gradients), (*wanted, *expected), strict=True):
            torch.testing.assert_close(one.double(), other.detach(), rtol=rtol, atol=rtol)


def compositing(lang, fp):
    array, real = lang.types.ndarray(), getattr(lang, fp)

    @lang.kernel
    def compositing(density: array, step: array, color: array, light: array):
        for r in range(density.shape[0]):
            through = real(1.0)
            for s in range(density.shape[1]):
                e = lang.exp(-density[r, s] * step[r, s])
                for c in lang.static(range(3)):
                    light[r, c] += through * (real(1.0) - e) * color[r, s, c]
                through *= e

    return compositing


def composited(density, step, color):
    e = torch.exp(-density * step)
    through = torch.cat([torch.ones_like(e[:, :1]), e[:, :-1]], 1).cumprod(1)
    return ((through * (1 - e))[..., None] * color).sum(1)


def draw_rays(dtype, r=7, s=70):
    return torch.rand(r, s, dtype=dtype), torch.rand(r, s, dtype=dtype) * 0.1, torch.randn(r, s, 3, dtype=dtype)


@pytest.mark.parametrize("fp", ["f32", "f64"])
@pytest.mark.parametrize("below", [0, 10**9])
@pytest.mark.parametrize("shape", [(7, 70), (3, 5), (4, 0), (0, 6)])
def test_compositing(lang, fp, below, shape, configure):
    """On several threads and on one, in strips and in loops that are too short for them, and without samples."""
    configure(serial_below=str(below))
    op = ts.op(SPEC)(compositing(lang, fp))
    dtype = {"f32": torch.float32, "f64": torch.float64}[fp]
    assert_agree(op, composited, draw_rays(dtype, *shape), {"f32": 1e-5, "f64": 1e-11}[fp])
    assert find_kept_memory(op, "density", "step", "color") == ["was_e", "was_through"]


def test_explain_lists_the_saved_loop_values(lang):
    op = ts.op(SPEC)(compositing(lang, "f32"))
    op(*(one.requires_grad_() for one in draw_rays(torch.float32)))
    text = op.explain("all")
    assert "an eager call keeps what its backward pass needs of loops, for each parallel iteration" in text
    assert "was_through: 4 bytes times max(density.shape[1], 0)" in text


def test_the_backward_pass_has_one_loop_and_no_function(lang):
    op = ts.op(SPEC)(compositing(lang, "f64"))
    op(*(one.requires_grad_() for one in draw_rays(torch.float64)))
    (at,) = op._core.reverse.source.specializations
    results = at.results(frozenset({"density", "step", "color"}))
    lines = [line.strip() for line in at.emit(next(iter(results.backward.runs))).readable]
    code = [line for line in lines if not line.startswith("#")]
    assert not any("exp(" in line or "tape" in line for line in code)
    assert sum(line.startswith("for ") for line in code) == 2


def test_one_input_and_other_ways_to_differentiate(lang):
    """A backward pass for less than was kept, second derivatives, `torch.func`, and checkpoints of torch."""
    op = ts.op(SPEC)(compositing(lang, "f64"))
    density, step, color = (one.requires_grad_() for one in draw_rays(torch.float64, 3, 9))
    wanted = torch.autograd.grad(composited(density, step, color).square().sum(), (density, step, color))
    for place, one in enumerate((density, step, color)):
        (gradient,) = torch.autograd.grad(op(density, step, color).square().sum(), one)
        torch.testing.assert_close(gradient, wanted[place])

    def total(*given):
        return op(*given).square().sum()

    plain = [one.detach() for one in (density, step, color)]
    torch.testing.assert_close(torch.func.grad(total, (0, 1, 2))(*plain), wanted)
    again = torch.utils.checkpoint.checkpoint(total, density, step, color, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(again, (density, step, color)), wanted)
    assert torch.autograd.gradgradcheck(op, (density, step, color))


def mixed_by_torch(x, y):
    rows = [x.new_zeros(())]
    for i in range(1, len(x)):
        state, count, is_high = torch.tensor(0.5, dtype=torch.float64), 0, False
        for j in range(1, x.shape[1] - 1):
            if is_high:
                state = torch.sin(state * x[i, j, 0]) + x[i, j + 1, 1]
            else:
                state = state * state + x[i, j - 1, 2] * count
            is_high = bool(state > 0.3)
            count += 1 + is_high
            if count > 9:
                break
        product = state
        for j in range(y.shape[1]):
            for k in range(1, y.shape[2]):
                product = product * torch.cos(y[i, j, k]) + torch.exp(-product * product)
        rows.append(product)
    return torch.stack(rows)


def test_loops_of_all_kinds(lang64):
    """Two loops in a row, bounds that are not sizes, two variables, a `break`, whole numbers, a truth."""
    array, f64 = lang64.types.ndarray(), lang64.f64

    @lang64.kernel
    def mixed(x: array, y: array, z: array):
        for i in range(1, x.shape[0]):
            state, count, is_high = f64(0.5), 0, False
            for j in range(1, x.shape[1] - 1):
                if is_high:
                    state = lang64.sin(state * x[i, j, 0]) + x[i, j + 1, 1]
                else:
                    state = state * state + x[i, j - 1, 2] * count
                is_high = state > 0.3
                count += 1 + lang64.cast(is_high, lang64.i32)
                if count > 9:
                    break
            product = state
            for j, k in lang64.ndrange(y.shape[1], (1, y.shape[2])):
                product = product * lang64.cos(y[i, j, k]) + lang64.exp(-product * product)
            z[i] = product

    op = ts.op("x[n, m, 3], y[n, p, q] -> z[n]")(mixed)
    draw = torch.Generator().manual_seed(5)
    x = torch.rand(9, 12, 3, generator=draw, dtype=torch.float64) * 1.4
    y = torch.randn(9, 3, 4, generator=draw, dtype=torch.float64)
    assert_agree(op, mixed_by_torch, (x, y))
    names = find_kept_memory(op, "x", "y")
    assert {"was_state", "was_product"} <= {*names}, names


def test_no_more_is_saved_than_the_arrays_have_room_for(lang64):
    """One array of that length has room for one number of each iteration, of two that the reverse needs."""
    array, f64 = lang64.types.ndarray(), lang64.f64

    def chain(x):
        a, b = torch.ones((), dtype=torch.float64), torch.full((), 0.5, dtype=torch.float64)
        rows = []
        for row in x:
            a, b = a * 0 + 1, b * 0 + 0.5
            for one in row:
                a, b = torch.sin(a * b + one), a * b * one
            rows.append(a + b)
        return torch.stack(rows)

    @lang64.kernel
    def two(x: array, y: array):
        for i in y:
            a, b = f64(1.0), f64(0.5)
            for j in range(x.shape[1]):
                a, b = lang64.sin(a * b + x[i, j]), a * b * x[i, j]
            y[i] = a + b

    @lang64.kernel
    def with_room(x: array, weights: array, y: array):
        for i in y:
            a, b = f64(1.0), f64(0.5)
            for j in range(x.shape[1]):
                a, b = lang64.sin(a * b + x[i, j]), a * b * x[i, j]
            y[i] = (a + b) * weights[i, 0]

    x = torch.randn(5, 6, dtype=torch.float64)
    op = ts.op("x[n, m] -> y[n]")(two)
    assert_agree(op, chain, (x,))
    assert find_kept_memory(op, "x") == []
    op = ts.op("x[n, m], weights[n, m] -> y[n]")(with_room)
    assert_agree(op, lambda x, weights: chain(x) * weights[:, 0], (x, torch.randn(5, 6, dtype=torch.float64)))
    assert {"was_a", "was_b"} <= {*find_kept_memory(op, "x", "weights")}


def test_loops_longer_than_any_array_save_nothing(lang64):
    """Steps by an argument, or by numbers in memory, are not kept: they may be many more than the op's numbers."""
    array, f64 = lang64.types.ndarray(), lang64.f64

    @lang64.kernel
    def steps(x: array, n: lang64.i32, counts: array, y: array):
        for i in y:
            a = x[i]
            for _ in range(n):
                a = lang64.sin(a) * x[i]
            for _ in range(counts[i]):
                a = lang64.sin(a) + f64(0.1)
            y[i] = a

    def reference(x, n, counts):
        rows = []
        for one, count in zip(x, counts.tolist(), strict=True):
            a = one
            for _ in range(n):
                a = torch.sin(a) * one
            for _ in range(count):
                a = torch.sin(a) + 0.1
            rows.append(a)
        return torch.stack(rows)

    op = ts.op("x[k], counts[k]: i32 -> y[k]")(steps)
    x, counts = torch.randn(6, dtype=torch.float64), torch.tensor([0, 1, 5, 3, 2, 9]).int()
    assert_agree(lambda x: op(x, 4, counts=counts), lambda x: reference(x, 4, counts), (x,))
    assert find_kept_memory(op, "x") == []


def test_a_length_in_a_local(lang64):
    """A bound that an iteration computes from sizes is one that sizes tell."""
    array, f64 = lang64.types.ndarray(), lang64.f64

    @lang64.kernel
    def rows(x: array, y: array):
        for i in y:
            n = x.shape[1]
            a = f64(1.0)
            for j in range(n - 1):
                a = lang64.sin(a * x[i, j])
            y[i] = a

    def reference(x):
        a = torch.ones(len(x), dtype=torch.float64)
        for column in x.T[:-1]:
            a = torch.sin(a * column)
        return a

    op = ts.op("x[n, m] -> y[n]")(rows)
    assert_agree(op, reference, (torch.randn(4, 6, dtype=torch.float64),))
    assert find_kept_memory(op, "x") == ["was_a"]


SEGMENTS = {  # the loop of a ray; the spec of the rays; rays of 4, 0, 5 and 2 samples of 13, not in order
    "segments": ("range(rays[r, 0], rays[r, 0] + rays[r, 1])", "rays[r, 2]", [[9, 4], [2, 0], [3, 5], [0, 2]]),
    "ranges": ("range(rays[r, 0], rays[r, 1])", "rays[r, 2]", [[9, 13], [2, 2], [3, 8], [0, 2]]),
    "offsets": ("range(rays[r], rays[r + 1])", "rays[k]", [1, 5, 5, 10, 12]),
}


def make_kernel(lang, loop, body):
    text = f"""
def along(x: lang.types.ndarray(), w: lang.types.ndarray(), rays: lang.types.ndarray(), y: lang.types.ndarray()):
    for r in y:
        a = 0.5
        for s in {loop}:
{textwrap.indent(textwrap.dedent(body), " " * 12)}
        y[r] = a
"""
    return compile_text(lang, text)


def make_reference(step):
    """Return the same in torch, given the step from one sample to the next."""

    def reference(x, w, rays):
        rows = []
        pairs = rays.tolist() if rays.ndim == 2 else list(zip(rays[:-1].tolist(), rays[1:].tolist(), strict=True))
        for first, second in pairs:
            a = torch.full((), 0.5, dtype=torch.float64)
            for s in range(first, second):
                a = step(a, x[s], w[s])
            rows.append(a)
        return torch.stack(rows)

    return reference


@pytest.mark.parametrize("below", [0, 10**9])
@pytest.mark.parametrize("word", SEGMENTS)
def test_places_in_segments(lang64, word, below, configure):
    """A sample in a segment belongs to one ray, so what is kept of it has its place; else it has none."""
    configure(serial_below=str(below))
    loop, item, numbers = SEGMENTS[word]
    kernel = make_kernel(lang64, loop, "a = lang.sin(a * x[s]) + w[s] * a * a")
    x, w, rays = torch.randn(13, dtype=torch.float64), torch.rand(13, dtype=torch.float64), torch.tensor(numbers).int()
    reference = make_reference(lambda a, x, w: torch.sin(a * x) + w * a * a)
    ends = rays.clone()
    if word == "segments":
        ends[:, 1] += ends[:, 0]
    for promise, names in ((f"{word} ", ["was_a"]), ("", [])):
        op = ts.op(f"x[n], w[n], {promise}{item}: i32 -> y[{'k - 1' if word == 'offsets' else 'r'}]")(kernel)
        assert_agree(lambda *given, op=op: op(*given, rays), lambda *given: reference(*given, ends), (x, w))
        assert find_kept_memory(op, "x", "w") == names


def test_places_that_may_not_exist(lang64):
    """Where a branch alone reads at a place, a segment may reach beyond the array, and nothing is kept of it."""
    loop, item, _ = SEGMENTS["segments"]
    body = """
        if s < 13:
            a = lang.sin(a * x[s]) + w[s] * a * a
        else:
            a = lang.sin(a)
    """
    op = ts.op(f"x[n], w[n], segments {item}: i32 -> y[r]")(make_kernel(lang64, loop, body))
    x, w = torch.randn(13, dtype=torch.float64), torch.rand(13, dtype=torch.float64)
    rays = torch.tensor([[11, 9]]).int()

    def reference(x, w):
        a = torch.full((), 0.5, dtype=torch.float64)
        for s in range(11, 20):
            a = torch.sin(a * x[s]) + w[s] * a * a if s < 13 else torch.sin(a)
        return a[None]

    assert_agree(lambda *given: op(*given, rays), reference, (x, w))
    assert find_kept_memory(op, "x", "w") == []
