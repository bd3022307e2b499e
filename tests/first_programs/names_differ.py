"""The spec has other names than the kernel's parameters."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("input[n] -> output[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.SpecError: the spec of op `double` names `input`, which is not a parameter of the kernel
#   spec        input[n]
#   parameters  x, y
# Use the names of the kernel's parameters.
# Fix:
# - input[n] -> output[n]
# + x[n] -> y[n]
