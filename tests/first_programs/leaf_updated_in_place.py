"""A leaf that requires a gradient is updated in place."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("inout x[n] ->")
@ti.kernel
def double(x: ti.types.ndarray()):
    for i in x:
        x[i] = 2.0 * x[i]


print(double(torch.ones(4, requires_grad=True)))

# Message:
# tinsmith.GradientError: op `double` updates `x` in place, but it is a leaf that requires a gradient
#   x  (4,) torch.float32
# Call the op under `torch.no_grad()`, or `double.functional`, which returns the new values and changes nothing, or pass `x.clone()`.
# Fix:
# - double(torch.ones
# + double.functional(torch.ones
