"""The value that a kernel returns has no declared type."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> energy[]")
@ti.kernel
def norm(x: ti.types.ndarray()):
    total = 0.0
    for i in x:
        total += x[i] * x[i]
    return total


print(norm(torch.ones(4)))

# Message:
# tinsmith.SpecError: the spec of op `norm` names `energy`, which is not a parameter of the kernel, and not returned
#   spec        energy[]
#   parameters  x
#   returned    nothing
# Use the names of the kernel's parameters. What a kernel returns is an output if its type is declared: `-> ti.f32` after the parameters.
# Fix:
# - ndarray()):
# + ndarray()) -> ti.f32:
