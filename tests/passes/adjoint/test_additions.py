"""Additions to one element of an adjoint: an element that is loaded several times is added to once."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

HEAD = "def kernel(x: lang.types.ndarray(), j: lang.types.ndarray(), y: lang.types.ndarray()):\n"
FORMS = {  # a kernel, and how many additions to the gradient of `x` stand in its adjoint
    "plain": ("for i in y:\n y[i] = x[i] * x[i] * 3.0 + lang.sin(x[i]) + x[i]", 1),
    "atomic": ("for i in y:\n y[i] = x[j[i]] * x[j[i]] + lang.sin(x[j[i]])", 1),
    "two elements": ("for i in y:\n y[i] = x[j[i]] * x[0] + x[j[i]]", 2),
    "a branch between": (
        "for i in y:\n a = x[j[i]]\n v = a * a\n if v > 0.3:\n  v += x[j[i]] * 2.0\n y[i] = v + x[j[i]] * v",
        1,
    ),
    "in a loop": ("for i in y:\n v = 0.0\n for k in range(3):\n  v += x[i] * x[i] * k\n y[i] = v", 1),
    "in place": ("for i in y:\n y[i] = x[i] * 2.0\n y[i] = y[i] * x[i] + y[i]", 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_element_gets_what_is_added_to_it_at_once(lang64, form):
    body, count = FORMS[form]
    kernel = compile_text(lang64, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    op = ts.op("x[n], j[n]: i32 -> y[n]", adjoint="source")(kernel)
    torch.manual_seed(0)
    x, j = torch.rand(9, dtype=torch.float64), torch.tensor([3, 3, 1, 0, 8, 8, 8, 2, 4], dtype=torch.int32)
    c = torch.rand(9, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf, j), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(op, x, j, cotangents=c).gradients["x"], rtol=1e-11, atol=1e-13)
    source = adjoint_source(op)
    lines = [line.strip() for line in source.splitlines() if not line.strip().startswith("#")]
    added = [line for line in lines if line.startswith(("grad_x[", "ti.atomic_add(grad_x", "qd.atomic_add(grad_x"))]
    assert len(added) == count, source
