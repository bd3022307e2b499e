"""The kernel changes its input."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def clamp(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        if x[i] < 0.0:
            x[i] = 0.0
        y[i] = x[i]


print(clamp(torch.ones(4)))

# Message:
# tinsmith.KernelError: kernel `clamp` of op `clamp` writes its input `x`
#   at  input_written.py:15
# Make `x` an output, or write to one: inputs are the caller's and are never changed. To update the caller's tensor in place, write `inout x[n]`.
# Fix:
# - "x[n] -> y[n]"
# + "inout x[n] -> y[n]"
