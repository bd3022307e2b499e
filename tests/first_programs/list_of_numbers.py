"""A list is passed."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double([1.0, 2.0]))

# Message:
# tinsmith.ArgumentError: argument `x` of op `double` must be a tensor
#   got  list [1.0, 2.0]
# Pass a tensor: `torch.as_tensor(x)`.
# Fix:
# - double([1.0, 2.0])
# + double(torch.as_tensor([1.0, 2.0]))
