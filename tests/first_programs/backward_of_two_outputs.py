"""Gradients are asked of two outputs at once."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n], z[n]")
@ti.kernel
def split(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]
        z[i] = 3.0 * x[i]


x = torch.ones(4, requires_grad=True)
split(x).backward()

# Message:
# AttributeError: 'split_outputs' object has no attribute 'backward': op `split` returns a named tuple of 2 tensors, `.y`, `.z`. Gradients are those of one number: `(out.y.sum() + out.z.sum()).backward()`
# Fix:
# - split(x).backward()
# + out = split(x)
# + (out.y.sum() + out.z.sum()).backward()
