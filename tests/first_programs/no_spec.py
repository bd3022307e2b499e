"""The decorator has no spec."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.ArgumentError: A spec must be a string, and got a function or kernel
# Write the spec first: `@ts.op("x[n], k[m] -> y[n - m + 1]")`.
# Fix:
# - @ts.op
# -
# + @ts.op("x[n] -> y[n]")
# +
