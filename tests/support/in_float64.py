"""A float32 op beside the same function of torch in float64."""

import torch


def compare_with_float64(call, twin, inputs, *, rtol, atol):
    """Compare values and gradients of `call` on float32 inputs with those of `twin`, a torch function, in float64."""
    inputs = [one.requires_grad_() for one in inputs]
    exact = [one.detach().double().requires_grad_() for one in inputs]
    y, wanted = call(*inputs), twin(*exact)
    cotangent = torch.rand(y.shape)
    gradients = torch.autograd.grad(y, inputs, cotangent)
    exact_gradients = torch.autograd.grad(wanted, exact, cotangent.double())
    for one, other in zip((y, *gradients), (wanted, *exact_gradients), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=rtol, atol=atol)
