"""Pitfall 37: a learnable scale passed as a scalar argument gets no gradient (taichi #7780).

Written `a[]` in the spec, the scalar parameter takes a 0-d tensor and is differentiable. Without
that, a tensor is refused: `.item()` would cut the graph in silence.
"""

import pytest
import torch

import tinsmith as ts


def scale_kernel(lang):
    @lang.kernel
    def scale(a: lang.f64, x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = a * x[i] + lang.sin(a)

    return scale


def test_a_scalar_in_the_spec_is_differentiable(lang64):
    op = ts.op("a[], x[n] -> y[n]")(scale_kernel(lang64))
    a = torch.nn.Parameter(torch.randn((), dtype=torch.float64))
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = op(a, x)
    torch.testing.assert_close(y, a * x + torch.sin(a))
    y.sum().backward()
    torch.testing.assert_close(a.grad, (x.sum() + 5 * torch.cos(a)).detach())
    torch.testing.assert_close(x.grad, a.detach().expand(5))


def test_a_tensor_for_a_plain_scalar_is_refused_with_what_to_write(lang64):
    op = ts.op("x[n] -> y[n]")(scale_kernel(lang64))
    x = torch.randn(3, dtype=torch.float64)
    with pytest.raises(ts.ArgumentError, match=r"(?s)`a`.*`scale`.*a\[\]"):
        op(torch.randn((), dtype=torch.float64, requires_grad=True), x)
    torch.testing.assert_close(op(2.0, x), 2 * x + torch.sin(torch.tensor(2.0, dtype=torch.float64)))
