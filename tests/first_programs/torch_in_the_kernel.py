"""A kernel calls a function of torch."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def sine(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = torch.sin(x[i])


print(sine(torch.ones(4)))

# Message:
# tinsmith.KernelError: the kernel of op `sine` does not compile
#   kernel  sine at torch_in_the_kernel.py:12
#   at      torch_in_the_kernel.py:14: y[i] = torch.sin(x[i])
#   taichi  TypeError when calling `sin`: sin(): argument 'input' (position 1) must be Tensor, not Taichi Expression.
# In the kernel, write the engine's function, `ti.exp` for `torch.exp`: a kernel has numbers, not tensors. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - torch.sin(x[i])
# + ti.sin(x[i])
