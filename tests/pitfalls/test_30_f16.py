"""Pitfall 30: a float16 gradient summed by atomics stops at 2048.

Adding 1 to 2048 in float16 gives 2048; so half precision is computed through float32 and cast back.
"""

import torch

import tinsmith as ts


def test_a_sum_in_half_precision_does_not_stall(lang):
    @ts.op("x[1] -> y[4096]")
    @lang.kernel
    def spread(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[0] * 1.0

    x = torch.ones(1, dtype=torch.float16, requires_grad=True)
    y = spread(x)
    y.sum(dtype=torch.float32).backward()
    assert y.dtype == torch.float16 and x.grad.dtype == torch.float16
    assert x.grad.item() == 4096


def test_values_and_gradients_are_those_of_float32_rounded_once(lang):
    @ts.op("x[n], k[n] -> s[]")
    @lang.kernel
    def dot(x: lang.types.ndarray(), k: lang.types.ndarray(), s: lang.types.ndarray(ndim=0)):
        for i in x:
            s[None] += x[i] * k[i]

    x, k = (torch.rand(3000, dtype=torch.float64).half() for _ in range(2))
    x.requires_grad_()
    s = dot(x, k)
    s.backward()
    assert s.item() == (x.double() * k.double()).sum().half().item()
    assert torch.equal(x.grad, k)
