"""The output is passed, as to the kernel itself."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


x, y = torch.ones(4), torch.zeros(4)
double(x, y)
print(y)

# Message:
# tinsmith.ArgumentError: op `double` got too many arguments
#   expected  1: x
#   got       2
# Call it as `double(x)`; the op allocates outputs and scratch.
# Fix:
# - double(x, y)
# + y = double(x)
