"""Arrays whose elements are not written after they were read: their reverse keeps nothing."""

import pytest
import torch

import tinsmith as ts
from support.written import written

FORMS = {  # what the loop does, and whether the array is settled
    "forward in time": ("x[t + 1, i] = lang.sin(x[t, i]) * a[i]", True),
    "two steps back": ("x[t + 2, i] = lang.sin(x[t, i]) * x[t + 1, i]", True),
    "neighbours": ("x[t + 1, i] = lang.sin(x[t, i]) * x[t, (i + 1) % n] * a[i]", True),
    "what was just written": ("x[t + 1, i] = x[t, i] * a[i]; x[t + 2, i] = lang.sin(x[t + 1, i])", True),
    "in place": ("x[t, i] = lang.sin(x[t, i]) + a[i]", False),
    "backwards": ("x[t, i] = lang.sin(x[t + 1, i]) + a[i]", False),
    "always the same row": ("x[0, i] = lang.sin(x[0, i]) + a[i]", False),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_and_gradients(lang64, form):
    line, is_settled = FORMS[form]
    source = f"""
def kernel(a: lang.types.ndarray(), x: lang.types.ndarray()):
    n = a.shape[0]
    for i in a:
        x[0, i] = a[i]
        x[1, i] = a[i] * a[i]
    lang.loop_config(serialize=True)
    for t in range(x.shape[0] - 2):
        for i in range(n):
            {line}
"""
    kernel = written(lang64, source)
    op = ts.op("a[n] -> x[t, n]", adjoint="source")(kernel)
    a = torch.rand(4, dtype=torch.float64).requires_grad_()
    x = op(a, t=7)
    c = torch.rand(7, 4, dtype=torch.float64)
    (found,) = torch.autograd.grad(x, a, c)
    answer = ts.oracle(op, a, cotangents=c, t=7)
    torch.testing.assert_close(x.detach(), answer.outputs["x"])
    torch.testing.assert_close(found, answer.gradients["a"])
    assert ("what stores to `x` overwrite" not in op.explain()) == is_settled


def test_a_recursion_along_rows(lang64):
    """Each thread its own row; the element before is final when it is read."""

    @ts.op("x[n, m], a[] -> y[n, m]", adjoint="source")
    @lang64.kernel
    def recursion(x: lang64.types.ndarray(), a: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            y[i, 0] = x[i, 0]
            for j in range(1, x.shape[1]):
                y[i, j] = lang64.tanh(a[None] * y[i, j - 1] + x[i, j])

    x, a = (
        torch.rand(3, 6, dtype=torch.float64).requires_grad_(),
        torch.tensor(0.7, dtype=torch.float64).requires_grad_(),
    )
    assert torch.autograd.gradcheck(recursion, (x, a))
    assert torch.autograd.gradgradcheck(recursion, (x, a))
    assert "tape: none" in recursion.explain()
