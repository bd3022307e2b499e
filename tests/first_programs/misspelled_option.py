"""An option is misspelled."""

import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")


@ts.op("x[n] -> y[n]", adjiont="source")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]


print(double(torch.ones(4)))

# Message:
# tinsmith.ArgumentError: ts.op has no option `adjiont`
#   options  spec, scratch, init, adjoint, backward, engine, trust_engine, check_bounds, half, name, order, returns, deterministic, races
# Did you mean `adjoint`?
# Fix:
# - adjiont
# + adjoint
