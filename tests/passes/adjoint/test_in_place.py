"""Loops that work in place: what is logged, what is run again, and which order the reverse keeps."""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

FORMS = {  # the body of a loop over time, and what a log holds: places too, values alone, or nothing
    "linear updates": (
        """
        for i in range(n):
            v[i] += 0.1 * x[i] * w[i]
        for i in range(n):
            x[i] += 0.1 * v[i]
        """,
        "values",
    ),
    "a sum of what was summed": (
        """
        for i in range(1, n):
            x[i] += 0.5 * x[i - 1]
        """,
        "nothing",
    ),
    "a product of what was multiplied": (
        """
        for i in range(1, n):
            x[i] = x[i] * (1.0 + 0.1 * x[i - 1])
        """,
        "values",
    ),
    "two stores to an element": (
        """
        for i in range(n):
            x[i] = x[i] * w[i]
            x[i] = lang.sin(x[i])
        """,
        "places",
    ),
    "every second": (
        """
        for i in range(n // 2):
            x[2 * i + 1] = x[2 * i + 1] * x[2 * i]
        """,
        "values",
    ),
    "under a branch": (
        """
        for i in range(n):
            if x[i] > 0.6:
                x[i] = x[i] * w[i]
        """,
        "places",
    ),
    "by a list": (
        """
        for i in range(n):
            x[k[i]] = x[k[i]] * w[i]
        """,
        "places",
    ),
    "a triangle": (
        """
        for i in range(n):
            for j in range(i):
                x[i] = x[i] * (1.0 + 0.1 * x[j])
        """,
        "places",
    ),
    "one element": (
        """
        x[t % 2] = x[t % 2] * x[3]
        """,
        "values",
    ),
    "two loops": (
        """
        for i in range(n):
            x[i] = x[i] * w[i]
        for i in range(n - 1):
            x[i + 1] = x[i + 1] * lang.cos(x[i])
        """,
        "values",
    ),
    "a loop that reads what another left": (
        """
        for i in range(n):
            v[i] = x[i] * x[i]
        for i in range(n):
            x[i] = v[i] * w[i]
        """,
        "values",
    ),
    "a sum of what is stored": (
        """
        s = 0.0
        for i in range(1, n):
            s += x[i - 1]
            x[i] = 0.5 * x[i - 1] + x[i]
        v[0] += s * s
        """,
        "values",
    ),
    "nothing is read again": (
        """
        for i in range(n):
            x[i] = 0.5 * x[i] + w[i]
        """,
        "nothing",
    ),
    "until it is small": (
        """
        for i in range(n):
            x[i] = x[i] * w[i]
        if x[0] < 0.2:
            break
        """,
        "values",
    ),
}


@pytest.mark.thinned(8)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_loop_in_place(lang64, form, is_nested):
    body, logged = FORMS[form]
    body = textwrap.dedent(body).strip()
    outer = "for _ in range(2):\n" if is_nested else ""
    inside = textwrap.indent(outer + textwrap.indent(body, "    " if is_nested else ""), " " * 8).strip()
    kernel = compile_text(
        lang64,
        f"""
def kernel(
    start: lang.types.ndarray(ndim=1), w: lang.types.ndarray(ndim=1), k: lang.types.ndarray(lang.i32, ndim=1),
    x: lang.types.ndarray(ndim=1), v: lang.types.ndarray(ndim=1)
):
    n = start.shape[0]
    for i in range(start.shape[0]):
        x[i] = start[i]
        v[i] = 0.3 * start[i]
    lang.loop_config(serialize=True)
    for t in range(3):
        {inside}
""",
    )
    op = ts.op("start[n], w[n], k[n]: i32 -> x[n], v[n]", adjoint="source")(kernel)
    torch.manual_seed(2)
    x, w = (torch.rand(6, dtype=torch.float64) * 0.5 + 0.4 for _ in range(2))
    k = torch.tensor([2, 0, 2, 5, 0, 1], dtype=torch.int32)
    c = [torch.rand(6, dtype=torch.float64) for _ in range(2)]
    leaves = [one.clone().requires_grad_() for one in (x, w)]
    gradients = torch.autograd.grad(op(*leaves, k), leaves, c, allow_unused=True)
    expected = ts.oracle(op, x, w, k, cotangents=c).gradients
    for name, one in zip(("start", "w"), gradients, strict=True):
        torch.testing.assert_close(torch.zeros_like(x) if one is None else one, expected[name], rtol=1e-11, atol=1e-13)
    source = adjoint_source(op)
    if not is_nested:
        kept = "places" if "_where" in source else "values" if "_was" in source else "nothing"
        assert kept == logged, source


def test_numbers_of_vectors_are_put_back_in_place(lang64):
    @ts.op("start[n, 2] -> x[n, 2]", adjoint="source")
    @lang64.kernel
    def kernel(
        start: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
        x: lang64.types.ndarray(dtype=lang64.math.vec2, ndim=1),
    ):
        for i in range(start.shape[0]):
            x[i] = start[i]
        lang64.loop_config(serialize=True)
        for _ in range(3):
            for i in range(start.shape[0]):
                x[i] = x[i] * x[i].yx + 0.1

    x = (torch.rand(4, 2, dtype=torch.float64) * 0.5).requires_grad_()
    assert torch.autograd.gradcheck(kernel, (x,))
    assert torch.autograd.gradgradcheck(kernel, (x,))
