"""Segments: samples of one ray alone where the spec promises it, and of any ray where it does not."""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

FORMS = {  # what a ray does; whether the gradient of `w` is added atomically where `offsets start` is promised
    "stores along the way": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[s] = t * w[s]
            t *= 0.5 + w[s]
        """,
        False,
    ),
    "first and count": (
        """
        first = start[r]
        t = 1.0
        for j in range(start[r + 1] - first):
            y[first + j] = t * w[j + first] * w[first + j]
            t *= 0.5 + w[first + j]
        """,
        False,
    ),
    "two loops over one range": (
        """
        t = 0.0
        for s in range(start[r], start[r + 1]):
            t += w[s] * w[s]
        for s in range(start[r], start[r + 1]):
            y[s] = t * w[s]
        """,
        False,
    ),
    "the neighbor": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1] - 1):
            y[s] = t * w[s] * w[s + 1]
            t *= 0.5 + w[s]
        """,
        False,
    ),
    "another range": (
        """
        t = 0.0
        for s in range(start[r], start[r + 1]):
            y[s] = t
            t += 1.0
        for s in range(start[0], start[r + 1]):
            y[start[r]] += w[s] * w[s] if start[r] < start[r + 1] else 0.0
        """,
        True,
    ),
    "under a branch": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            if w[s] > 0.5:
                y[s] = t
            t *= 0.5 + w[s]
        y[start[r]] = t
        """,
        False,
    ),
    "what all would store": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[s] = 2.0 * w[s]
            t *= 0.5 + w[s]
        z[r] = t
        """,
        False,
    ),
    "by a list": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[k[s]] = t * w[k[s]]
            t *= 0.5 + w[k[s]]
        """,
        True,
    ),
    "windows that overlap, where all would store the same": (
        """
        for j in range(4):
            y[2 * r + j] = 2.0 * w[2 * r + j]
            z[r] += w[2 * r + j] * w[2 * r + j]
        """,
        True,
    ),
    "windows that overlap, with a chain that the place tells": (
        """
        t = 1.0
        for s in range(0, start[r + 1]):
            y[s] = t
            z[r] += t * w[s]
            t *= 0.9
        """,
        True,
    ),
    "by the ray's own number": (
        """
        for s in range(start[r], start[r + 1]):
            y[s] = w[s] * v[r]
        """,
        False,
    ),
    "segments of two rays, and half the ray's number": (
        """
        for s in range(start[r // 2], start[r // 2 + 1]):
            y[s] = w[s] * v[r // 2]
            z[r] += w[s] * w[s]
        """,
        True,
    ),
    "segments of two rays, along the way": (
        """
        t = 1.0
        for s in range(start[r // 2], start[r // 2 + 1]):
            y[s] = t * w[s]
            z[r] += w[s] * w[s]
            t *= 0.5 + w[s]
        """,
        True,
    ),
    "segments by a list, along the way": (
        """
        t = 1.0
        for s in range(start[k[r] % 3], start[k[r] % 3 + 1]):
            y[s] = t * w[s]
            z[r] += w[s] * w[s]
            t *= 0.5 + w[s]
        """,
        True,
    ),
    "segments by a remainder": (
        """
        for s in range(start[r % 2], start[r % 2 + 1]):
            y[s] = w[s] * v[r % 2]
            z[r] += w[s] * w[s]
        """,
        True,
    ),
    "a multiple that is 0": (
        """
        for s in range(start[0], start[1]):
            y[s] = w[s] * v[k[r] * 0]
            z[r] += w[s] * w[s]
        """,
        True,
    ),
    "the sign of the ray's own number": (
        """
        for s in range(start[r], start[r + 1]):
            y[s] = w[s] * (1.0 if v[r] > 0.5 else 2.0)
            z[r] += w[s] * w[s]
        """,
        False,
    ),
    "the ray's own number, on one way": (
        """
        t = 1.0
        if v[r] > 0.5:
            t = v[r]
        for s in range(start[r], start[r + 1]):
            y[s] = w[s] * t
            z[r] += w[s] * w[s]
        """,
        False,
    ),
    "nothing behind what is dense": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            weight = 0.0
            if t > 0.3:
                weight = t * w[s]
                t *= 0.5 + w[s]
            y[s] = weight
        """,
        False,
    ),
    "from the last to the first": (
        """
        first = lang.max(start[r], 0)
        last = first + lang.min(start[r + 1] - first, w.shape[0] - first)
        t = 0.0
        for back in range(last - first):
            y[last - 1 - back] = t
            t += w[last - 1 - back] * w[last - 1 - back]
        """,
        False,
    ),
    "how many samples there are": (
        """
        t = 0.0
        for s in range(start[r], start[r + 1]):
            t += 1.0
        for s in range(start[r], start[r + 1]):
            y[s] = w[s] * t
            z[r] += w[s] * w[s]
        """,
        False,
    ),
    "windows that begin at one place": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[s - start[r]] = t
            z[r] += w[s - start[r]] * w[s - start[r]]
            t *= 0.5 + w[s]
        """,
        True,
    ),
    "windows by the ray's number, along the way": (
        """
        t = 1.0
        for s in range(3 * r, 3 * r + 3):
            y[s] = t * w[s]
            z[r] += w[s] * w[s]
            t *= 0.5 + w[s]
        """,
        True,
    ),
    "stops, and goes on": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[s] = t * w[s]
            t *= 0.5 + w[s]
            if t < 0.3:
                break
        for s in range(start[r], start[r + 1]):
            z[r] += w[s] * w[s]
        """,
        False,
    ),
}


WORDS = {"": "", "promised": "offsets "}


@pytest.mark.thinned(12)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("form", FORMS)
def test_segments(lang64, form, word):
    body, is_atomic = FORMS[form]
    kernel = compile_text(
        lang64,
        f"""
def kernel(
    w: lang.types.ndarray(ndim=1), start: lang.types.ndarray(lang.i32, ndim=1), k: lang.types.ndarray(lang.i32, ndim=1),
    v: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1)
):
    for r in range(start.shape[0] - 1):
        z[r] = 1.0
        {textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip()}
""",
    )
    spec = f"w[n], {WORDS[word]}start[r]: i32, k[n]: i32, v[r] -> y[n], z[r - 1]"
    op = ts.op(spec, adjoint="source", races="allow")(kernel)
    torch.manual_seed(0)
    w = torch.rand(9, dtype=torch.float64)
    start, k = (torch.tensor(one, dtype=torch.int32) for one in ([0, 4, 4, 9], [3, 1, 0, 2, 8, 5, 7, 6, 4]))
    c = [torch.rand(9, dtype=torch.float64), torch.rand(3, dtype=torch.float64)]
    v = torch.rand(4, dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf, start, k, v), leaf, c)
    torch.testing.assert_close(
        gradient, ts.oracle(op, w, start, k, v, cotangents=c).gradients["w"], rtol=1e-11, atol=1e-13
    )
    source = adjoint_source(op)
    assert ("atomic_add(grad_w" in source) == (is_atomic or not word), source


def test_two_rays_may_have_the_same_samples(lang64):
    """Both store the same values to them, which is no race: their parts of the gradient add up."""
    kernel = compile_text(
        lang64,
        """
def kernel(
    w: lang.types.ndarray(ndim=1), rays: lang.types.ndarray(lang.i32, ndim=2), y: lang.types.ndarray(ndim=1),
    z: lang.types.ndarray(ndim=1)
):
    for r in range(rays.shape[0]):
        t = 1.0
        for s in range(rays[r, 0], rays[r, 1]):
            y[s] = t * w[s]
            t *= 0.5 + w[s]
        z[r] = t
""",
    )
    op = ts.op("w[n], rays[r, 2]: i32 -> y[n], z[r]", adjoint="source", races="allow")(kernel)
    w, other = (torch.rand(4, generator=torch.Generator().manual_seed(0)).double().requires_grad_() for _ in range(2))
    op(w, torch.tensor([[0, 4]] * 9, dtype=torch.int32))[1].sum().backward()
    (9 * (0.5 + other).prod()).backward()
    torch.testing.assert_close(w.grad, other.grad)
    assert "atomic_add(grad_w" in adjoint_source(op)


def test_rays_with_equal_numbers_may_have_the_same_samples(lang64):
    """What a ray stores is made of a number of its own, which another ray may have too: no race either."""
    kernel = compile_text(
        lang64,
        """
def kernel(
    w: lang.types.ndarray(ndim=1), rays: lang.types.ndarray(lang.i32, ndim=2), v: lang.types.ndarray(ndim=1),
    y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1)
):
    for r in range(rays.shape[0]):
        z[r] = 1.0
        for s in range(rays[r, 0], rays[r, 1]):
            y[s] = w[s] * v[r]
            z[r] += w[s] * w[s]
""",
    )
    op = ts.op("w[n], rays[r, 2]: i32, v[r] -> y[n], z[r]", adjoint="source", races="allow")(kernel)
    w = torch.rand(4, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    op(w, torch.tensor([[0, 4]] * 9, dtype=torch.int32), torch.ones(9, dtype=torch.float64))[1].sum().backward()
    torch.testing.assert_close(w.grad, 18 * w.detach())
    assert "atomic_add(grad_w" in adjoint_source(op)


HEADS = (
    """
def first(
    w: lang.types.ndarray(ndim=1), start: lang.types.ndarray(lang.i32, ndim=1), v: lang.types.ndarray(ndim=1),
    y: lang.types.ndarray(ndim=1)
):
    for r in range(start.shape[0] - 1):
        t = v[r]
        for s in range({first}, start[r + 1]):
            y[s] = t * w[s]
            t *= 0.5 + w[s]
""",
    """
def second(
    w: lang.types.ndarray(ndim=1), start: lang.types.ndarray(lang.i32, ndim=1), y: lang.types.ndarray(ndim=1),
    z: lang.types.ndarray(ndim=1){argument}
):
    for ray in range({rays}):
        total = 0.0
        {body}
        z[ray] = total
""",
)
V = torch.tensor([0.7, 1.1, 0.9, 1.3], dtype=torch.float64)
OTHERS = {  # what the second kernel does; whether `grad_y` is added atomically where `offsets start` is promised
    "the same range": ("for k in range(start[ray], start[ray + 1]):\n total += y[k] * y[k]", False),
    "from the range's first": (
        "for k in range(start[ray + 1] - start[ray]):\n total += y[start[ray] + k] * y[k + start[ray]]",
        False,
    ),
    "ends early": (
        "for k in range(start[ray], start[ray + 1]):\n total += y[k] * y[k]\n if total > 0.2:\n  break",
        False,
    ),
    "one more": ("for k in range(start[ray], start[ray + 1] + 1):\n total += y[k % 9] * y[k % 9]", True),
    "with what is added": ("for k in range(start[ray], start[ray + 1]):\n total += y[k] * y[k] + y[8]", True),
    "pairs": (
        "for k in range(start[ray], start[ray + 1]):\n for j in range(start[ray], start[ray + 1]):\n"
        "  total += y[k] * y[j]",
        False,
    ),
    "sums of pairs": (
        "for k in range(start[ray], start[ray + 1]):\n for j in range(start[ray], start[ray + 1]):\n"
        "  total += y[(k + j) // 2] * y[k]",
        True,
    ),
}


def chained(lang, body, *, first="start[r]", rays="start.shape[0] - 1", argument="", changes=None):
    body = textwrap.indent(body, " " * 8).strip()
    texts = [one.format(first=first, body=body, rays=rays, argument=argument) for one in HEADS]
    kernels = [compile_text(lang, one) for one in texts]
    if changes is not None:
        kernels.insert(1, compile_text(lang, changes))
    return kernels


def assert_chain_is_right(op, *, is_atomic, **named):
    torch.manual_seed(0)
    w = torch.rand(9, dtype=torch.float64)
    start = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    c = torch.rand(3, dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf, start, V, **named), leaf, c)
    wanted = ts.oracle(op, w, start, V, cotangents=c, **named).gradients["w"]
    torch.testing.assert_close(gradient, wanted, rtol=1e-11, atol=1e-13)
    source = adjoint_source(op)
    assert ("atomic_add(grad_y" in source) == is_atomic, source


@pytest.mark.thinned(4)
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("form", OTHERS)
def test_segments_of_values_that_another_kernel_stores(lang64, form, word):
    body, is_atomic = OTHERS[form]
    spec = f"w[n], {WORDS[word]}start[r]: i32, v[r] -> z[r - 1]"
    op = ts.chain(spec, chained(lang64, body), scratch="y[n]", adjoint="source")
    assert_chain_is_right(op, is_atomic=is_atomic or not word)
