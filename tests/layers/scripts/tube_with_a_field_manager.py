"""A picture that is kept in tiles."""

import stannum
import taichi as ti
import torch

ti.init(arch=ti.cpu, default_fp=ti.f64)


class Tiled(stannum.FieldManager):
    def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
        field = ti.field(ti.f64, needs_grad=needs_grad)
        tiles = fields_builder.dense(ti.ij, tuple(size // 2 for size in concrete_tensor_shape)).dense(ti.ij, (2, 2))
        if needs_grad:
            tiles.place(field, field.grad)
        else:
            tiles.place(field)
        return field

    def to_tensor(self, field):
        return field.to_torch()

    def grad_to_tensor(self, grad_field):
        return grad_field.to_torch()

    def from_tensor(self, field, tensor):
        field.from_torch(tensor)

    def grad_from_tensor(self, grad_field, tensor):
        grad_field.from_torch(tensor)


@ti.kernel
def difference(picture: ti.template(), out: ti.template()):
    for i, j in out:
        out[i, j] = picture[i, j] * picture[i, j + 1]


tube = stannum.Tube()
tube.register_input_tensor((stannum.AnyDim, 4), torch.float64, "picture", field_manager=Tiled())
tube.register_output_tensor(lambda name, dims, shapes: (shapes["picture"][0], 3), torch.float64, "out", True)
tube.register_kernel(difference, ["picture", "out"])
tube.finish()

torch.manual_seed(3)
for height in (2, 4):
    picture = torch.rand(height, 4, dtype=torch.float64, requires_grad=True)
    products = tube(picture)
    products.sin().sum().backward()
    print(products.tolist(), picture.grad.tolist())
