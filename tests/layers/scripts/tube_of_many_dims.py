"""Names imported one by one; a batch, matching dims, a calculator, an intermediate, extra arguments."""

import taichi as ti
import torch
from stannum import AnyDim, BatchDim, DimensionCalculator, MatchDim, Tube

ti.init(arch=ti.cpu, default_fp=ti.f64)


@ti.kernel
def blend(picture: ti.template(), mask: ti.template(), mixed: ti.template(), gain: ti.f64, background: ti.f64):
    for i, j in picture:
        mixed[i, j] = gain * mask[j] * picture[i, j] + (1.0 - mask[j]) * background


@ti.kernel
def shrink(mixed: ti.template(), small: ti.template(), factor: int):
    for i, j in mixed:
        small[i // factor, j] += mixed[i, j] / factor


class Halved(DimensionCalculator):
    def calc_dimension(self, field_name, input_dimensions, input_tensor_shapes):
        return (None, input_tensor_shapes["picture"][1] // 2, input_tensor_shapes["picture"][2])


def tube(persistent):
    made = Tube(torch.device("cpu"), persistent_field=persistent)
    made.register_input_tensor((BatchDim, 4, MatchDim("width")), torch.float64, "picture")
    made.register_input_tensor((MatchDim("width"),), torch.float64, "mask")
    made.register_intermediate_field((BatchDim, 4, MatchDim("width")), ti.f64, "mixed", needs_grad=True)
    made.register_output_tensor(Halved(), torch.float64, "small", requires_grad=True)
    made.register_kernel(blend, ["picture", "mask", "mixed"], 2.0, 0.25)
    made.register_kernel(shrink, ["mixed", "small"], 2, name="half")
    return made.finish()


torch.manual_seed(2)
layer = tube(persistent=True)
for width in (3, 1):
    picture = torch.rand(2, 4, width, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(width, dtype=torch.float64, requires_grad=True)
    small = layer(picture, mask)
    (small**3).sum().backward()
    print(small.tolist(), picture.grad.tolist(), mask.grad.tolist())
    layer.set_kernel_extra_args(blend, -1.0, 0.5)


@ti.kernel
def rotated(z: ti.template(), by: ti.template(), out: ti.template()):
    for i in z:
        out[i][0] = z[i][0] * by[None][0] - z[i][1] * by[None][1]
        out[i][1] = z[i][0] * by[None][1] + z[i][1] * by[None][0]


wave = Tube(persistent_field=False).register_input_tensor((AnyDim,), torch.cdouble, "z")
wave = wave.register_input_tensor((), torch.cdouble, "by")
wave = wave.register_output_tensor(lambda name, dims, shapes: shapes["z"], torch.cdouble, "out", True)
wave = wave.register_kernel(rotated, ["z", "by", "out"]).finish()
z = torch.randn(3, dtype=torch.cdouble, requires_grad=True)
by = torch.randn((), dtype=torch.cdouble, requires_grad=True)
out = wave(z, by)
out.abs().sum().backward()
print(*(torch.view_as_real(t).tolist() for t in (out.detach(), z.grad, by.grad)))
