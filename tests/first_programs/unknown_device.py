"""The device has another name."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("gpu0")


@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.EngineError: ts.init got an unknown `arch`
#   got  'gpu0'
# Did you mean 'cuda'? Use 'auto', 'cpu' or 'cuda'.
# Fix:
# - "gpu0"
# + "cpu"
