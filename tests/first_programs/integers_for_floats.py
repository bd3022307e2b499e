"""A tensor of integers is passed where the kernel is annotated for floats."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.arange(4)))

# Message:
# tinsmith.DtypeError: tensor `x` of op `double` has the wrong dtype
#   expected  float32      <- annotated types.ndarray(dtype=f32, ndim=1)
#   got       int64
# Pass `x.to(torch.float32)`; or leave the dtype out of the annotation, which then allows any dtype.
# Fix:
# - torch.arange(4)
# + torch.arange(4).to(torch.float32)
