"""A data-oriented object in a Tin; its weights are read from its field's gradient and set by hand."""

import stannum
import taichi as ti
import torch

ti.init(arch=ti.cpu, default_fp=ti.f64)


@ti.data_oriented
class Polynomial:
    def __init__(self, samples, degree):
        self.degree = degree
        self.x = ti.field(ti.f64, shape=samples, needs_grad=True)
        self.y = ti.field(ti.f64, shape=samples, needs_grad=True)
        self.weights = ti.field(ti.f64, shape=degree + 1, needs_grad=True)

    @ti.kernel
    def clear(self):
        for i in self.y:
            self.y[i] = 0.0

    @ti.kernel
    def evaluate(self, stretch: ti.f64):
        for i in self.x:
            power = 1.0
            for k in ti.static(range(self.degree + 1)):
                self.y[i] += self.weights[k] * power
                power = power * stretch * self.x[i]


polynomial = Polynomial(samples=8, degree=2)
layer = stannum.Tin(polynomial, torch.device("cpu"), auto_clear_grad=True)
layer.register_input_field(polynomial.x, name="x")
layer.register_output_field(polynomial.y, name="y")
layer.register_internal_field(polynomial.weights, needs_grad=True, name="weights")
layer.register_kernel("clear").register_kernel("evaluate", 1.0)
layer.finish()

x = torch.linspace(-1, 1, 8, dtype=torch.float64, requires_grad=True)
target = 0.5 - x.detach() + 2 * x.detach() ** 2
weights = torch.zeros(3, dtype=torch.float64)
for _ in range(5):
    layer.set_internal_field("weights", weights)
    loss = (layer(x) - target).square().mean()
    x.grad = None
    loss.backward()
    weights = weights - 0.3 * polynomial.weights.grad.to_torch()
    print(loss.item(), weights.tolist(), x.grad.tolist())
layer.set_kernel_args("evaluate", 0.5)
print(layer(x).tolist())
