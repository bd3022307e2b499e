"""A tensor that shares a field's memory and is used between the kernels of a rollout."""

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import get

N = 4


def share(field):
    """Return a tensor that shares a field's or an ndarray's memory."""
    return torch.utils.dlpack.from_dlpack(field.to_dlpack())


class Scene:
    """Kernels that move `x` and add a multiple of it to `y`; fields, or ndarrays."""

    def __init__(self, qd, backend):
        make = {"field": lambda: qd.field(qd.f64, N), "ndarray": lambda: qd.ndarray(qd.f64, N)}[backend]
        x, y, k = self.x, self.y, self.k = make(), make(), make()
        self.unused = make()
        k.fill(3.0)
        parameter = {"field": qd.template(), "ndarray": qd.types.ndarray()}[backend]

        @qd.kernel
        def scale(x: parameter):
            for i in range(N):
                x[i] = 2.0 * x[i]

        @qd.kernel
        def add(x: parameter, k: parameter, y: parameter):
            for i in range(N):
                y[i] = k[i] * x[i]

        self.scale, self.add = lambda: scale(x), lambda: add(x, k, y)

    def rollout(self, between, before=lambda: None):
        def forward():
            before()
            self.scale()
            between()
            self.add()

        return ts.rollout(forward, {"x": self.x}, {"y": self.y})


@pytest.fixture(params=["field", "ndarray"])
def scene(request):
    qd = pytest.importorskip("quadrants")
    get("quadrants").start("cpu", default_fp=qd.f64)
    return Scene(qd, request.param)


def test_a_write_between_kernels_is_refused(scene):
    view = share(scene.x)
    run = scene.rollout(lambda: view.mul_(10.0))
    with pytest.raises(ts.KernelError, match=r"writes the memory of `x`[\s\S]*test_shared_memory.py:") as caught:
        run(torch.ones(N, dtype=torch.float64))
    assert "field.from_torch" in str(caught.value) or "from_torch" in str(caught.value)


def test_a_write_of_one_element_is_refused(scene):
    view = share(scene.k)[1:]

    def between():
        scene.add()
        view[2] = 0.0

    with pytest.raises(ts.KernelError, match="writes the memory of `k`"):
        scene.rollout(between)(torch.ones(N, dtype=torch.float64))


@pytest.mark.parametrize("read", [torch.Tensor.tolist, torch.sum, lambda t: t[0].item(), lambda t: t.numpy().sum()])
def test_a_read_of_what_kernels_change_is_refused(scene, read):
    view = share(scene.x)
    with pytest.raises(ts.KernelError, match="reads the memory of `x`"):
        scene.rollout(lambda: read(view))(torch.ones(N, dtype=torch.float64))


def test_a_kernel_given_such_a_tensor_is_refused(scene):
    qd = get("quadrants").lang
    view, y = share(scene.x), scene.y
    takes = qd.types.ndarray(dtype=qd.f64, ndim=1)

    @qd.kernel
    def add_array(by: takes, y: takes):
        for i in range(N):
            y[i] += by[i]

    if hasattr(y, "arr"):
        with pytest.raises(ts.KernelError, match="reads the memory of `x`"):
            scene.rollout(lambda: add_array(view, y))(torch.ones(N, dtype=torch.float64))


def test_constants_views_and_other_tensors_are_allowed(scene):
    x, k, unused, own = share(scene.x), share(scene.k), share(scene.unused), torch.arange(4.0)
    seen = []

    def between():
        seen.append(k.sum().item())
        unused.add_(own).mul_(2.0)
        seen.append((own @ own).tolist())
        seen.append(tuple(x[1:].reshape(-1, 1).shape))

    run = scene.rollout(between)
    start = torch.rand(N, dtype=torch.float64, requires_grad=True)
    out = run(start)
    (gradient,) = torch.autograd.grad(out.sum(), start)
    assert torch.equal(out, 6.0 * start)
    assert torch.equal(gradient, torch.full((N,), 6.0, dtype=torch.float64))
    assert seen[:3] == [12.0, 14.0, (3, 1)]


def test_a_write_before_the_first_kernel_that_uses_a_field_comes_in_order(scene):
    view = share(scene.k)
    run = scene.rollout(lambda: None, before=lambda: view.fill_(5.0))
    start = torch.rand(N, dtype=torch.float64, requires_grad=True)
    out = run(start)
    (gradient,) = torch.autograd.grad(out.sum(), start)
    assert torch.equal(out, 10.0 * start)
    assert torch.equal(gradient, torch.full((N,), 10.0, dtype=torch.float64))


def test_members_of_structs_are_distinguished():
    qd = pytest.importorskip("quadrants")
    get("quadrants").start("cpu", default_fp=qd.f64)
    part = qd.types.struct(pos=qd.f64, mark=qd.f64).field(shape=N, layout=qd.Layout.SOA)

    @qd.kernel
    def scale():
        for i in range(N):
            part[i].pos = 2.0 * part[i].pos

    pos, mark = share(part.pos), share(part.mark)

    def run(view):
        return ts.rollout(lambda: [scale(), view.add_(1.0), scale()], {"pos": part.pos}, {"out": part.pos})

    start = torch.ones(N, dtype=torch.float64)
    assert torch.equal(run(mark)(start), 4.0 * start)
    with pytest.raises(ts.KernelError, match="writes the memory of"):
        run(pos)(start)
