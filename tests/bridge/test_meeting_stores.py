"""Parallel iterations that store to one element, at an index that memory holds: one of them has its gradient."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

D = torch.float64
VALUES = {  # what is stored to y[s[i]], in an engine's words and in torch's
    "the same for all that meet": ("w[s[i]] * w[s[i]]", lambda w, v, s: w[s] ** 2),
    "each its own": ("w[s[i]] * v[i]", lambda w, v, s: w[s] * v),
    "by functions": ("lang.exp(w[s[i]]) * lang.sin(v[i])", lambda w, v, s: w[s].exp() * v.sin()),
}


def make_op(lang, value, before="", options=""):
    kernel = compile_text(
        lang,
        f"""
def kernel(w: lang.types.ndarray(ndim=1), v: lang.types.ndarray(ndim=1), s: lang.types.ndarray(dtype=lang.i32, ndim=1),
           y: lang.types.ndarray(ndim=1)):
    for i in range(s.shape[0]):
        {before}
        y[s[i]] = {value}
""",
    )
    return ts.op("w[m], v[n], s[n]: i32 -> y[m]", adjoint="source", races="allow")(kernel)


def find_last_iterations(places, size):
    """Return the last iteration that writes each element."""
    return torch.tensor([max(i for i, place in enumerate(places) if place == k) for k in range(size)])


@pytest.mark.parametrize("value", VALUES)
def test_on_one_thread_the_last_store_has_the_gradient(lang64, value):
    text, twin = VALUES[value]
    op = make_op(lang64, text)
    places = [0, 1, 1, 2, 0, 3, 3, 3]
    s, w = torch.tensor(places, dtype=torch.int32), torch.rand(4, dtype=D, requires_grad=True)
    v, seed = torch.rand(8, dtype=D, requires_grad=True), torch.rand(4, dtype=D)
    last = find_last_iterations(places, 4)
    wanted = twin(w, v, s.long())[last]
    actual = op(w, v, s)
    torch.testing.assert_close(actual, wanted)
    ours, theirs = (torch.autograd.grad(one, (w, v), seed, materialize_grads=True) for one in (actual, wanted))
    torch.testing.assert_close(ours, theirs)
    assert torch.autograd.gradgradcheck(lambda w, v: op(w, v, s), (w, v))
    assert torch.autograd.gradcheck(lambda w, v: op(w, v, s), (w, v), check_forward_ad=True)


def test_a_regular_store_and_one_at_an_index_from_memory(lang64):
    """Neither engine compiles an atomic product that it finds no use for."""
    op = make_op(lang64, "w[s[i]] * v[i]", before="y[i] = v[i] * v[i]")
    s = torch.tensor([3, 2, 2, 3], dtype=torch.int32)
    w, v = (torch.rand(4, dtype=D, requires_grad=True) for _ in range(2))
    seed = torch.rand(4, dtype=D)
    rows = [v[k] ** 2 for k in range(4)]  # in order, row 2 and row 3 are stored to after memory's places were
    wanted = torch.stack([rows[0], rows[1], w[2] * v[2], w[3] * v[3]])
    actual = op(w, v, s)
    torch.testing.assert_close(actual, wanted)
    ours, theirs = (torch.autograd.grad(one, (w, v), seed) for one in (actual, wanted))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("count", [8, 200_000])
def test_no_adjoint_is_used_twice(lang64, count):
    """Many threads store the same value to an element: there is no race, and the gradient is that of one store."""
    op = make_op(lang64, "w[s[i]] * w[s[i]] + 0 * v[i] if s[i] < 0 else w[s[i]] * w[s[i]]")
    w = torch.rand(3, dtype=D, requires_grad=True)
    s, v = torch.arange(count, dtype=torch.int32) % 3, torch.rand(count, dtype=D)
    for _ in range(5):
        (gradient,) = torch.autograd.grad(op(w, v, s).sum(), w)
        torch.testing.assert_close(gradient, 2 * w.detach())


def test_the_adjoint_is_read_and_cleared_atomically(lang64):
    op = make_op(lang64, "w[s[i]] * w[s[i]]")
    s, w = torch.tensor([0, 0], dtype=torch.int32), torch.rand(1, dtype=D, requires_grad=True)
    op(w, torch.rand(2, dtype=D), s).sum().backward()
    assert "atomic_mul(grad_y[s_at], 0.0)" in op.explain("all")


@pytest.mark.compiled_engine
@pytest.mark.parametrize("place", ["before the inner loop", "inside it"])
def test_restoring_values_does_not_disturb_other_iterations(lang64, place):
    """Each iteration marks an element that others mark too, and inner loops read the mark."""
    mark = "mark[k[i]] = 3.0"
    before, inside = (mark, "pass") if place == "before the inner loop" else ("pass", mark)
    kernel = compile_text(
        lang64,
        f"""
def kernel(x: lang.types.ndarray(ndim=2), k: lang.types.ndarray(dtype=lang.i32, ndim=1),
           mark: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in range(x.shape[0]):
        s = 0.0
        {before}
        for j in range(x.shape[1]):
            {inside}
            s = s * mark[k[i]] * x[i, j] + x[i, j]
        y[i] = s
""",
    )
    op = ts.op("x[n, m], k[n]: i32 -> y[n]", scratch="mark[p]", adjoint="source")(kernel)
    x, k = 0.1 * torch.rand(200_000, 8, dtype=D), torch.zeros(200_000, dtype=torch.int32)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    wanted = torch.zeros(len(x), dtype=D)
    for column in leaves[0].T:
        wanted = wanted * 3 * column + column
    (expected,) = torch.autograd.grad(wanted.sum(), leaves[0])
    for _ in range(10):
        (gradient,) = torch.autograd.grad(op(leaves[1], k, p=1).sum(), leaves[1])
        torch.testing.assert_close(gradient, expected)
    explained = op.explain("all")
    assert "forward, `kernel`: several threads (" in explained
    assert "`kernel_adjoint_0`: one thread (it has no parallel loop)\n" in explained
    reason = "because its iterations restore elements of `mark` that other iterations read"
    assert f"in order: the loop in line 4, {reason}\n" in explained
