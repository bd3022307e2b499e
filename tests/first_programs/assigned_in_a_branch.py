"""A variable is first assigned in branches."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def bend(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        if x[i] < 0.0:
            slope = 0.1
        else:
            slope = 1.0
        y[i] = slope * x[i]


print(bend(torch.ones(4)))

# Message:
# tinsmith.KernelError: the kernel of op `bend` does not compile
#   kernel  bend at assigned_in_a_branch.py:12
#   at      assigned_in_a_branch.py:18: y[i] = slope * x[i]
#   taichi  Name "slope" is not defined
# Define the name before the kernel. A variable that is first assigned in a branch or a loop ends there: give it a value before it. The engine's full report is this error's cause (`__cause__`).
# Fix:
# -         if x[i] < 0.0:
# +         slope = 0.0
# +         if x[i] < 0.0:
