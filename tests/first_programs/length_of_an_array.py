"""The length of an array is asked for with `len`."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in range(len(x)):
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.KernelError: input `x` of op `double` is used as a whole, in a way that cannot be analyzed
#   at       length_of_an_array.py:13
#   because  tinsmith cannot analyze `len` of the array `x` as a whole
# Write `.shape[0]`.
# Fix:
# - len(x)
# + x.shape[0]
