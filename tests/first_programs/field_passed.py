"""A field is passed to an op."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


field = ti.field(ti.f32, shape=4)


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(field))

# Message:
# tinsmith.ArgumentError: argument `x` of op `double` must be a tensor
#   got  ScalarField <ti.field>
# Pass a tensor, `torch.from_numpy(x.to_numpy())`. For kernels on fields: ts.EmptyTin, ts.rollout.
# Fix:
# - double(field)
# + double(torch.from_numpy(field.to_numpy()))
