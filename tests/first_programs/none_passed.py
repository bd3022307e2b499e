"""An argument is None."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n], w[n] -> y[n]")
@ti.kernel
def weigh(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = w[i] * x[i]


print(weigh(torch.ones(4), None))

# Message:
# tinsmith.ArgumentError: argument `w` of op `weigh` must be a tensor
#   got  NoneType None
# Pass a tensor: an op has no optional arrays. Make a second op for calls without it, or pass zeros.
# Fix:
# - torch.ones(4), None
# + torch.ones(4), torch.zeros(4)
