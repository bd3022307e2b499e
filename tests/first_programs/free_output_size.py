"""Nothing says how large the output is."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[m]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.ArgumentError: Nothing gives the size of `m` in op `double`
#   y  [m]
# Pass m=... with the call.
# Fix:
# - double(torch.ones(4))
# + double(torch.ones(4), m=4)
