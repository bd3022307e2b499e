"""The older interface: `register_weight_field`, and `set_kernel_args` of the one kernel. Stannum 0.9.1 dropped it."""

import stannum
import taichi as ti
import torch

ti.init(arch=ti.cpu, default_fp=ti.f64)


@ti.data_oriented
class Scale:
    def __init__(self):
        self.x = ti.field(ti.f64, shape=3, needs_grad=True)
        self.y = ti.field(ti.f64, shape=3, needs_grad=True)
        self.w = ti.field(ti.f64, shape=3, needs_grad=True)

    @ti.kernel
    def run(self, shift: ti.f64):
        for i in self.x:
            self.y[i] = self.w[i] * self.x[i] + shift


scale = Scale()
scale.w.from_torch(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
tin = stannum.Tin(scale, torch.device("cpu"))
tin.register_input_field(scale.x).register_output_field(scale.y).register_weight_field(scale.w, name="w")
tin.register_kernel(scale.run, 0.0).finish()
tin.set_kernel_args(0.5)
x = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64, requires_grad=True)
y = tin(x)
y.sum().backward()
print(y.tolist(), x.grad.tolist(), scale.w.grad.to_torch().tolist())
