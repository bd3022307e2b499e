"""A kernel reads a Python list."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


WEIGHTS = [1.0, 2.0, 3.0]


@ts.op("x[n] -> y[n]")
@ti.kernel
def weigh(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = WEIGHTS[i] * x[i]


print(weigh(torch.ones(3)))

# Message:
# tinsmith.KernelError: the kernel of op `weigh` does not compile
#   kernel  weigh at list_from_outside.py:15
#   at      list_from_outside.py:17: y[i] = WEIGHTS[i] * x[i]
#   taichi  TypeError: list indices must be integers or slices, not Expr
# Pass the numbers in a tensor: make it a parameter of the kernel and list it in the spec. Only constants index a Python list or a NumPy array, as the variable of `for i in ti.static(range(3))`. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - "x[n] -> y[n]"
# + "x[n], w[n] -> y[n]"
# - y: ti.types.ndarray()
# + w: ti.types.ndarray(), y: ti.types.ndarray()
# - WEIGHTS[i]
# + w[i]
# - torch.ones(3)
# + torch.ones(3), torch.tensor(WEIGHTS)
