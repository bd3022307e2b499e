"""An argument is missing."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n], w[n] -> y[n]")
@ti.kernel
def weigh(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = w[i] * x[i]


print(weigh(torch.ones(4)))

# Message:
# tinsmith.ArgumentError: op `weigh` is missing `w`
#   expected  x, w
# Call it as `weigh(x, w)`; the op allocates outputs and scratch.
# Fix:
# - weigh(torch.ones(4))
# + weigh(torch.ones(4), torch.ones(4))
