"""The order of a reverse's iterations: where it is free, all threads run them, and memory is met in one direction."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

SERIAL = {  # what a serial loop over i does, and whether its reverse may run in parallel
    "adds up in one place": ("y[0] += lang.sin(x[i]) * x[i]", True),
    "gathers": ("y[k[i]] += x[i] * x[i]", True),
    "its own elements": ("y[i] = x[i] * x[i]; y[i] += lang.sin(x[i]); y[i] *= x[i]", True),
    "scatters over what is there": ("y[k[i]] = x[i] * x[i]", False),
    "reads other elements": ("y[i] += x[i] * x[k[i]]", False),
    "reads what it adds to": ("y[0] += x[i] * x[i]; y[i] += x[i] * y[0]", False),
    "hands on": ("s = s * 0.5 + x[i]; y[i] = s", False),
    "multiplies in one place": ("y[0] += x[i]; y[0] *= x[i]", False),
}


@pytest.mark.parametrize("form", SERIAL)
def test_a_serial_loop(lang64, form):
    line, is_parallel = SERIAL[form]
    kernel = compile_text(
        lang64,
        f"""
def kernel(x: lang.types.ndarray(ndim=1), k: lang.types.ndarray(lang.i32, ndim=1), y: lang.types.ndarray(ndim=1)):
    {"s = 0.0" if form == "hands on" else ""}
    lang.loop_config(serialize=True)
    for i in range(x.shape[0]):
        {line}
""",
    )
    op = ts.op("x[n], k[n]: i32 -> y[n]", adjoint="source")(kernel)
    x = torch.rand(6, dtype=torch.float64).requires_grad_()
    k = torch.tensor([2, 0, 2, 5, 0, 1], dtype=torch.int32)
    c = torch.rand(6, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(op(x, k), x, c)
    torch.testing.assert_close(gradient, ts.oracle(op, x, k, cotangents=c).gradients["x"])
    source = adjoint_source(op)
    assert ("for once" not in source) == is_parallel, source
    assert "atomic" not in source  # one thread takes none, and what is parallel now needs none


def test_a_value_from_before_the_loop_is_summed_by_one_thread(lang64):
    @ts.op("x[n], a[] -> y[]", adjoint="source")
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), a: lang64.types.ndarray(), y: lang64.types.ndarray()):
        scale = a[None] * a[None]
        lang64.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[None] += scale * x[i] * x[i]

    x = torch.rand(6, dtype=torch.float64).requires_grad_()
    a = torch.tensor(0.7, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(kernel, (x, a))


@pytest.mark.parametrize("is_carried", [True, False])
def test_reversed_rows_follow_the_order_of_memory(lang64, is_carried):
    kernel = compile_text(
        lang64,
        f"""
def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
    for i in range(2, x.shape[0]):
        t = 1.0
        for j in range(x.shape[1]):
            {"t *= x[i, j]" if is_carried else "t += x[i, j] * x[i, j]"}
        y[i] = t
""",
    )
    op = ts.op("x[n, m] -> y[n]", adjoint="source")(kernel)
    x = torch.rand(5, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(op, (x,))
    assert ("for i_back in range(x.shape[0] - 2)" in adjoint_source(op)) == is_carried
