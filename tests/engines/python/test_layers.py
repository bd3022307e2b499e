"""Layers, rollouts, scans and transforms whose kernels Python runs."""

import pytest
import torch

import tinsmith as ts
from support.pythonic import use_python_engine

D = torch.float64


def step_and_fields(lang, steps):
    x, y = (lang.field(lang.f64, shape=(steps + 1, 3), needs_grad=True) for _ in range(2))

    @lang.kernel
    def step(t: int):
        for i in range(3):
            y[t, i] = lang.sin(x[t, i]) * 2.0
            x[t + 1, i] = x[t, i] + 0.5 * y[t, i]

    return step, x, y


def twin(start, steps):
    x = start
    for _ in range(steps):
        x = x + torch.sin(x)
    return x


def test_a_layer_launches_its_kernels_one_after_the_other(lang64):
    step, x, y = step_and_fields(lang64, 3)
    with use_python_engine():
        layer = ts.EmptyTin().register_input_field(x).register_internal_field(y).register_output_field(x)
        for t in range(3):
            layer = layer.register_kernel(step, t, kernel_name=f"step {t}")
        layer = layer.finish()
        given = torch.zeros(4, 3, dtype=D)
        given[0] = torch.tensor([0.1, -0.4, 1.2])
        given.requires_grad_()
        result = layer(given)
        (gradient,) = torch.autograd.grad(result[3].sum(), given)
    start = given.detach()[0].requires_grad_()
    expected = twin(start, 3)
    torch.testing.assert_close(result[3], expected)
    torch.testing.assert_close(gradient[0], torch.autograd.grad(expected.sum(), start)[0])


def test_a_scan_and_its_tangent(lang64):
    @lang64.kernel
    def advance(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + lang64.sin(x[i])

    op = ts.op("x[n] -> y[n]", engine="python")(advance)
    start = torch.tensor([0.1, -0.4], dtype=D, requires_grad=True)

    def run(value):
        return ts.scan(lambda carry, _: (op(carry), carry), value, length=4)[0]

    result, expected = run(start), twin(start, 4)
    torch.testing.assert_close(result, expected)
    pair = [torch.autograd.grad(one.sum(), start, retain_graph=True)[0] for one in (result, expected)]
    torch.testing.assert_close(*pair)
    tangents = [torch.func.jvp(f, (start.detach(),), (torch.ones(2, dtype=D),))[1] for f in (op, lambda x: twin(x, 1))]
    torch.testing.assert_close(*tangents)
    batches = [torch.func.vmap(f)(torch.rand(3, 2, dtype=D).fill_(0.3)) for f in (op, lambda x: twin(x, 1))]
    torch.testing.assert_close(*batches)


def test_a_rollout(lang64):
    step, x, y = step_and_fields(lang64, 2)

    def simulate():
        for t in range(2):
            step(t)

    with use_python_engine():
        rollout = ts.rollout(simulate, inputs={"x": x}, outputs={"x": x})
        given = torch.zeros(3, 3, dtype=D)
        given[0] = torch.tensor([0.1, -0.4, 1.2])
        result = rollout(given.requires_grad_())
        result = result if isinstance(result, torch.Tensor) else result[0]
        (gradient,) = torch.autograd.grad(result[2].sum(), given)
    start = given.detach()[0].requires_grad_()
    expected = twin(start, 2)
    torch.testing.assert_close(result[2], expected)
    torch.testing.assert_close(gradient[0], torch.autograd.grad(expected.sum(), start)[0])


def test_a_changed_number_is_the_one_of_the_forward_pass(lang64):
    """As on compiled engines, which write it into the kernel."""
    settings = {"gain": 2.0}

    class Holder:
        gain = 3.0

    holder = Holder()

    @lang64.kernel
    def forward(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * holder.gain

    @lang64.kernel
    def backward(grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in grad_x:
            grad_x[i] = grad_y[i] * holder.gain

    op = ts.op("x[n] -> y[n]", engine="python", backward=backward)(forward)
    x = torch.ones(2, dtype=D, requires_grad=True)
    y = op(x)
    holder.gain = settings["gain"]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [3.0, 3.0]
    assert op(x).tolist() == [2.0, 2.0]


def test_two_objects_of_one_class_keep_their_own_numbers(lang64):
    @lang64.data_oriented
    class Lens:
        def __init__(self, power):
            self.power = power

        @lang64.func
        def bend(self, angle):
            return angle * self.power

    weak, strong = Lens(2.0), Lens(5.0)

    @lang64.kernel
    def bends(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = weak.bend(x[i]) + 10.0 * strong.bend(x[i])

    op = ts.op("x[n] -> y[n]", engine="python")(bends)
    x = torch.ones(2, dtype=D, requires_grad=True)
    y = op(x)
    assert y.tolist() == [52.0, 52.0]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [52.0, 52.0]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_local_that_stands_for_one_of_two_functions(lang64, is_first):
    @lang64.func
    def add(total: lang64.template(), value):
        total += value

    @lang64.func
    def leave(total: lang64.template(), value):
        product = total * value  # noqa: F841

    @lang64.kernel
    def sums(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            total = 0.5
            n = lang64.static(2)
            n = 3
            if lang64.static(is_first):
                change = lang64.static(add)
                change(total, x[i])
            else:
                change = lang64.static(leave)
                change(total, x[i])
            y[i] = total * n

    op = ts.op("x[n] -> y[n]", engine="python")(sums)
    assert op(torch.ones(2, dtype=D)).tolist() == [4.5 if is_first else 1.5] * 2


def test_a_layer_runs_its_author_s_source(lang, capsys):
    """Prints, breakpoints and names are there, of fields in any place; what is recorded for a gradient is the same."""
    ray = lang.types.struct(at=lang.f32, towards=lang.math.vec2)

    @lang.data_oriented
    class World:
        def __init__(self):
            self.gain = 2.0
            self.x = lang.field(lang.f32, shape=3, needs_grad=True)
            self.v = lang.Vector.field(2, lang.f32, shape=3, offset=-1, needs_grad=True)
            self.rays = ray.field(shape=3, needs_grad=True)

        @lang.kernel
        def move(self, step: lang.f32, scaled: lang.template()):
            for i in self.x:
                reach = self.gain * step
                print("at", i, self.x[i], reach)  # noqa: T201  # what is tested
                self.x[i] += reach * self.v[i - 1].y
                scaled[i] = self.x[i] * self.rays[i].at + self.rays[i].towards.x

    world, scaled = World(), lang.field(lang.f32, shape=3, needs_grad=True)
    world.rays.at.fill(3.0)
    world.rays.towards.from_torch(torch.full((3, 2), 0.5))

    def build():
        layer = ts.Tin(world).register_input_field(world.x).register_input_field(world.v)
        return layer.register_output_field(scaled).register_kernel(world.move, 0.25, scaled).finish()

    x, v = torch.rand(3, requires_grad=True), torch.rand(3, 2, requires_grad=True)
    wanted = build()(x, v)
    with use_python_engine():
        by_python = build()(x, v)
    assert capsys.readouterr().out.splitlines()[-3:] == [
        f"at {i} {one!s} 0.5" for i, one in enumerate(x.detach().numpy())
    ]
    torch.testing.assert_close(by_python, wanted)
    for one, other in zip(
        torch.autograd.grad(by_python.sum(), (x, v)), torch.autograd.grad(wanted.sum(), (x, v)), strict=True
    ):
        torch.testing.assert_close(one, other)
