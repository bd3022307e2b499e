"""An op is made of an op."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


batched = ts.op("x[*b, n] -> y[*b, n]")(double)
print(batched(torch.ones(3, 4)))

# Message:
# tinsmith.ArgumentError: ts.op takes a kernel, and was given an op
#   got  <tinsmith op `double`: x[n] -> y[n], on taichi, gradient from auto>
# Pass its kernel: `double.kernel`.
# Fix:
# - (double)
# + (double.kernel)
