"""The spec has no arrow."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n], y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4), torch.zeros(4)))

# Message:
# tinsmith.SpecError: The spec has no `->`
#   x[n], y[n]
#             ^
# Write the inputs left of `->` and the outputs right of it: `x[n], k[m] -> y[n - m + 1]`.
# Fix:
# - x[n], y[n]"
# + x[n] -> y[n]"
# - double(torch.ones(4), torch.zeros(4))
# + double(torch.ones(4))
