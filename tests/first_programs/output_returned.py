"""A kernel returns its output."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]
    return y


print(double(torch.ones(4)))

# Message:
# tinsmith.KernelError: the kernel of op `double` does not compile
#   kernel  double at output_returned.py:12
#   at      output_returned.py:15: return y
#   taichi  A kernel with a return value must be annotated with a return type, e.g. def func() -> ti.f32
# Leave the `return` out if it returns an array: the op returns its outputs. A number that a kernel returns needs its type, `-> ti.f32`. The engine's full report is this error's cause (`__cause__`).
# Fix:
# -         y[i] = 2.0 * x[i]
# -     return y
# +         y[i] = 2.0 * x[i]
