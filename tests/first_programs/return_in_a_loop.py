"""An iteration ends with `return`."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]")
@ti.kernel
def root(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        if x[i] <= 0.0:
            return
        y[i] = ti.sqrt(x[i])


print(root(torch.randn(4)))

# Message:
# tinsmith.KernelError: the kernel of op `root` does not compile
#   kernel  root at return_in_a_loop.py:12
#   at      return_in_a_loop.py:15: return
#   taichi  Return inside non-static if/for is not supported
# Write `continue` to go on with the next iteration, or an `if` around what `return` skips. The engine's full report is this error's cause (`__cause__`).
# Fix:
# - return
# + continue
