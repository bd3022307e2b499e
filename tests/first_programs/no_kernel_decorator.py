"""The function is not a kernel."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.ArgumentError: ts.op takes a kernel of Taichi or Quadrants
#   got  function double
# Decorate the function with @ti.kernel (or @qd.kernel) below @ts.op(...).
# Fix:
# - x[n] -> y[n]")
# -
# + x[n] -> y[n]")
# + @ti.kernel
# +
