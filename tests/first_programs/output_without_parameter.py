"""The kernel has no parameter for the output."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray()):
    for i in x:
        x[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.SpecError: the spec of op `double` names `y`, which is not a parameter of the kernel, and not returned
#   spec        y[n]
#   parameters  x
#   returned    nothing
# Use the names of the kernel's parameters. For an array that the kernel fills, add `y: ti.types.ndarray()` to them. What a kernel returns is an output too: `return y`, with its type after `->`.
# Fix:
# - x: ti.types.ndarray()
# + x: ti.types.ndarray(), y: ti.types.ndarray()
# -         x[i] =
# +         y[i] =
