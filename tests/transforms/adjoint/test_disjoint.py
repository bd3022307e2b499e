"""Segments: what a kernel's own plain stores say of the samples of two rays, and where they say nothing."""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import written
from tinsmith.bridge import adjoint_source

FORMS = {  # what a ray does, and whether the gradient of `w` is added atomically
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
    "the neighbour": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1] - 1):
            y[s] = t * w[s] * w[s + 1]
            t *= 0.5 + w[s]
        """,
        True,
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
        True,
    ),
    "what all would store": (
        """
        t = 1.0
        for s in range(start[r], start[r + 1]):
            y[s] = 2.0 * w[s]
            t *= 0.5 + w[s]
        z[r] = t
        """,
        True,
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
        True,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_segments(lang64, form):
    body, is_atomic = FORMS[form]
    kernel = written(
        lang64,
        f"""
def kernel(
    w: lang.types.ndarray(ndim=1), start: lang.types.ndarray(lang.i32, ndim=1), k: lang.types.ndarray(lang.i32, ndim=1),
    y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1)
):
    for r in range(start.shape[0] - 1):
        z[r] = 1.0
        {textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip()}
""",
    )
    op = ts.op("w[n], start[r]: i32, k[n]: i32 -> y[n], z[r - 1]", adjoint="source")(kernel)
    torch.manual_seed(0)
    w = torch.rand(9, dtype=torch.float64)
    start, k = (torch.tensor(one, dtype=torch.int32) for one in ([0, 4, 4, 9], [3, 1, 0, 2, 8, 5, 7, 6, 4]))
    c = [torch.rand(9, dtype=torch.float64), torch.rand(3, dtype=torch.float64)]
    leaf = w.clone().requires_grad_()
    (found,) = torch.autograd.grad(op(leaf, start, k), leaf, c)
    torch.testing.assert_close(found, ts.oracle(op, w, start, k, cotangents=c).gradients["w"], rtol=1e-11, atol=1e-13)
    source = adjoint_source(op)
    assert ("atomic_add(grad_w" in source) == is_atomic, source
