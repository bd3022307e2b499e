"""No engine is started."""

import taichi as ti
import tinsmith as ts
import torch


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.EngineError: engine 'taichi' has not been started for op `double`
# Call `ts.init()` once, at the start of the program and below `import taichi`: it starts each engine that is imported. `ti.init()` starts taichi alone.
# Fix:
# - import torch
# -
# + import torch
# +
# + ts.init("cpu")
# +
