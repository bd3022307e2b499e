"""The arrow is written as in JavaScript."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] => y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.SpecError: `=>` has no meaning in a spec
#   x[n] => y[n]
#        ^
# Write the arrow as `->`.
# Fix:
# - =>
# + ->
