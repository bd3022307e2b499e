"""The sample of Stannum's README: a kernel on templates in a Tube."""

import stannum
import taichi as ti
import torch


@ti.kernel
def mul(arr: ti.template(), out: ti.template()):
    for i in arr:
        out[i] = arr[i] * 2.0


if __name__ == "__main__":
    ti.init(ti.cpu)
    a = torch.ones(10, requires_grad=True)
    tube = (
        stannum.Tube()
        .register_input_tensor((10,), torch.float32, "arr")
        .register_output_tensor((10,), torch.float32, "out", True)
        .register_kernel(mul, ["arr", "out"])
        .finish()
    )
    out = tube(a)
    loss = out.sum()
    loss.backward()
    assert torch.allclose(out, torch.ones_like(out) * 2)
    assert torch.allclose(a.grad, torch.ones_like(a) * 2)
    print(loss.item(), a.grad.tolist())
