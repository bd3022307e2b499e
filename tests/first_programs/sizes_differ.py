"""Two tensors have different sizes where the spec says one."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n], w[n] -> y[n]")
@ti.kernel
def weigh(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = w[i] * x[i]


print(weigh(torch.ones(4), torch.ones(3)))

# Message:
# tinsmith.ShapeError: `w` does not fit `x` in op `weigh`
#   x  [n] = (4,)
#   w  [n] = (3,)      <- n was 4
# Pass one size wherever the spec says `n`.
# Fix:
# - torch.ones(3)
# + torch.ones(4)
