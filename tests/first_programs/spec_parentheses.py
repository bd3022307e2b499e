"""Dims are written in round brackets."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x(n) -> y(n)")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.SpecError: `x` has its dims in round brackets
#   x(n) -> y(n)
#    ^
# Write them in square ones: `x[n]`.
# Fix:
# - x(n) -> y(n)
# + x[n] -> y[n]
