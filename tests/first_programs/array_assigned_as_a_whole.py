"""An output is assigned as if it were a tensor."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    y = x * 2


print(double(torch.ones(4)))

# Message:
# tinsmith.KernelError: no kernel of op `double` writes its output `y`
#   spec         x[n] -> y[n]
#   `y = x * 2`  at array_assigned_as_a_whole.py:13      <- gives the name `y` to another value
# Write the elements, in a loop: `for i in y: y[i] = ...`.
# Fix:
# - y = x * 2
# + for i in y:
# +         y[i] = x[i] * 2
