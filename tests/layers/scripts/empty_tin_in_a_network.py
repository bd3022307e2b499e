"""Fields of a module in an EmptyTin between two torch layers, trained by an optimizer of torch."""

import stannum
import taichi as ti
import torch
from torch import nn

ti.init(arch=ti.cpu, default_fp=ti.f64)
torch.manual_seed(1)

features = ti.Vector.field(3, ti.f64, shape=(4,), needs_grad=True)
scale = ti.field(ti.f64, shape=(), needs_grad=True)
norms = ti.field(ti.f64, shape=(4,), needs_grad=True)
count = ti.field(ti.i32, shape=(4,))


@ti.kernel
def norm(power: ti.f64):
    for i in features:
        norms[i] = scale[None] * (features[i].dot(features[i]) + 1e-3) ** power
        count[i] = i


tin = (
    stannum.EmptyTin(torch.device("cpu"), True)
    .register_input_field(features)
    .register_input_field(scale)
    .register_output_field(norms)
    .register_output_field(count, needs_grad=False)
    .register_kernel(norm, 0.5)
    .finish()
)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 3, dtype=torch.float64)
        self.scale = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
        self.tin = tin

    def forward(self, x):
        y, places = self.tin(self.first(x), self.scale)
        assert not places.requires_grad
        return y, places


network = Network()
optimizer = torch.optim.Adam(network.parameters(), lr=0.05)
x, target = torch.randn(4, 2, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
for step in range(4):
    if step == 2:
        tin.set_kernel_args(norm, 1.0)
    optimizer.zero_grad()
    y, places = network(x)
    loss = (y - target).square().sum()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), places.tolist(), network.scale.item(), network.first.weight.tolist())
