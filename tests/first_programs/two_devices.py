"""Tensors are on two devices."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n], w[n] -> y[n]")
@ti.kernel
def weigh(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = w[i] * x[i]


print(weigh(torch.ones(4), torch.ones(4, device="meta")))

# Message:
# tinsmith.DeviceError: the tensors of op `weigh` are on different devices
#   x  cpu
#   w  meta
# Move them to one device with `.to(device)`.
# Fix:
# - torch.ones(4, device="meta")
# + torch.ones(4)
