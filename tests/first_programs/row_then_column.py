"""An element of a matrix is indexed as in a list of lists."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n, m] -> y[n]")
@ti.kernel
def total(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        for j in range(x.shape[1]):
            y[i] += x[i][j]


print(total(torch.ones(4, 3)))

# Message:
# tinsmith.KernelError: the kernel of op `total` does not compile
#   kernel  total at row_then_column.py:12
#   at      row_then_column.py:15: y[i] += x[i][j]
#   taichi  Array with dim 2 accessed with indices of dim 1
# Write one index for each dim in the spec, `x[i, j]` in place of `x[i][j]`, and `y[None]` for an array `y[]`. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - x[i][j]
# + x[i, j]
