"""A matrix is passed where the spec says one dim."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4, 4)))

# Message:
# tinsmith.ShapeError: `x` does not fit its spec in op `double`
#   x  [n] = (4, 4)      <- expected 1 dim, got 2
# Pass `x` with 1 dim; to run a batch, write `x[*b, n]` and `*b` in every output.
# Fix:
# - x[n] -> y[n]
# + x[*b, n] -> y[*b, n]
