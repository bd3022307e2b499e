"""A kernel makes a tensor."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        pair = torch.zeros(2)
        pair[0] = x[i]
        y[i] = pair[0] + x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.KernelError: the kernel of op `double` does not compile
#   kernel  double at tensor_made_in_the_kernel.py:12
#   at      tensor_made_in_the_kernel.py:14: pair = torch.zeros(2)
#   taichi  Invalid constant scalar data type: <class 'torch.Tensor'>
# Write a few numbers as a vector, `ti.Vector([0.0, 0.0])`, and make a larger array a parameter of the kernel that `scratch=` of the op lists: a kernel has numbers, not tensors. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - torch.zeros(2)
# + ti.Vector([0.0, 0.0])
