"""A NumPy array is passed."""

import numpy as np
import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(np.ones(4)))

# Message:
# tinsmith.ArgumentError: argument `x` of op `double` must be a tensor
#   got  ndarray array([1., 1., 1., 1.])
# Pass a tensor: `torch.as_tensor(x)`.
# Fix:
# - double(np.ones(4))
# + double(torch.as_tensor(np.ones(4)))
