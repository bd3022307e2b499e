"""A loop over a matrix names one index."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n, m] -> y[n]")
@ti.kernel
def first(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i, 0]


print(first(torch.ones(4, 3)))

# Message:
# tinsmith.KernelError: the kernel of op `first` does not compile
#   kernel  first at one_index_for_two_dims.py:12
#   `x`     2 dims, and `for i in x` names 1 index, at one_index_for_two_dims.py:13
#   at      one_index_for_two_dims.py:13: for i in x:
#   taichi  Ndrange for loop with number of the loop variables not equal to the dimension of the ndrange is not supported. Please check if the number of arguments of ti.ndrange() is equal to the number of the loop variables.
# Write one loop variable for each dim, or give `x` 1 dim in the spec, after `*b` for a batch. If its elements are vectors, annotate them: `x: ndarray(dtype=types.vector(k, f32), ndim=1)`. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - for i in x:
# -         y[i] = x[i, 0]
# + for i, j in x:
# +         if j == 0:
# +             y[i] = x[i, j]
