"""The spec is written like einsum's."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("n -> n")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.SpecError: `n` has no brackets
#   n -> n
#   ^
# Write `n[]` for a 0-d tensor, `n[n]` for one dim; leave plain scalars out of the spec.
# Fix:
# - "n -> n"
# + "x[n] -> y[n]"
