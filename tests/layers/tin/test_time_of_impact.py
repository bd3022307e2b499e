"""A bouncing mass: a local that is set before a branch, changed in it, and used beside vectors after it.

Taichi 1.7.4's own reverse mode loses such a local's gradient in a serial outermost loop, and in single precision
in an inner loop too. A small layer must not be given either, and where a user writes them they must come out right.
"""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

COUNT, STEPS, DT, GRAVITY = 3, 6, 0.1, -9.8


def parallel(lang):
    @lang.kernel
    def step(x: lang.template(), v: lang.template(), y: lang.template(), w: lang.template()):
        for i in range(COUNT):
            old_v = 0.9 * v[i] + DT * GRAVITY * lang.Vector([0.0, 1.0])
            old_x = x[i]
            new_x = old_x + DT * old_v
            impact = 0.0
            new_v = old_v
            if new_x[1] < 0.0 and old_v[1] < -1e-4:
                impact = -old_x[1] / old_v[1]
                new_v = lang.Vector([old_v[0], -0.8 * old_v[1]])
            y[i] = old_x + impact * old_v + (DT - impact) * new_v
            w[i] = new_v

    return step


def serial(lang):
    @lang.kernel
    def step(x: lang.template(), v: lang.template(), y: lang.template(), w: lang.template()):
        lang.loop_config(serialize=True)
        for i in range(COUNT):
            old_v = 0.9 * v[i] + DT * GRAVITY * lang.Vector([0.0, 1.0])
            old_x = x[i]
            new_x = old_x + DT * old_v
            impact = 0.0
            new_v = old_v
            if new_x[1] < 0.0 and old_v[1] < -1e-4:
                impact = -old_x[1] / old_v[1]
                new_v = lang.Vector([old_v[0], -0.8 * old_v[1]])
            y[i] = old_x + impact * old_v + (DT - impact) * new_v
            w[i] = new_v

    return step


def inner(lang):
    @lang.kernel
    def step(x: lang.template(), v: lang.template(), y: lang.template(), w: lang.template()):
        for _ in range(1):
            for i in range(COUNT):
                old_v = 0.9 * v[i]
                impact = 0.0
                if old_v[1] < -0.3:
                    impact = old_v[1]
                y[i] = impact * old_v
        for i in range(COUNT):
            w[i] = x[i]

    return step


def stepped(x, v):
    """Compute `parallel` and `serial` in torch."""
    old_v = 0.9 * v + DT * GRAVITY * x.new_tensor([0.0, 1.0])
    hits = (x[:, 1] + DT * old_v[:, 1] < 0) & (old_v[:, 1] < -1e-4)
    impact = torch.where(hits, -x[:, 1] / old_v[:, 1], 0.0)[:, None]
    bounced = old_v * x.new_tensor([1.0, -0.8])
    new_v = torch.where(hits[:, None], bounced, old_v)
    return x + impact * old_v + (DT - impact) * new_v, new_v


def stepped_inside(x, v):
    """Compute `inner` in torch."""
    old_v = 0.9 * v
    return torch.where(old_v[:, 1] < -0.3, old_v[:, 1], 0.0)[:, None] * old_v, x


KERNELS = {"parallel": (parallel, stepped), "serial": (serial, stepped), "inner": (inner, stepped_inside)}


# Each way makes a function of (x, v) that gives (x, v) a step later.
def as_op(lang, fp, make):
    return ts.op("x[n, 2], v[n, 2] -> y[n, 2], w[n, 2]", adjoint="engine")(make(lang))


def as_tin(lang, fp, make):
    fields = [lang.Vector.field(2, fp, COUNT, needs_grad=True) for _ in range(4)]
    return registered(ts.EmptyTin(), fields).register_kernel(make(lang), *fields).finish()


def as_tin_of_object(lang, fp, make):
    kernel = make(lang)

    @lang.data_oriented
    class Bounce:
        def __init__(self):
            self.fields = [lang.Vector.field(2, fp, COUNT, needs_grad=True) for _ in range(4)]

    scene = Bounce()
    return registered(ts.Tin(scene), scene.fields).register_kernel(kernel, *scene.fields).finish()


def registered(layer, fields):
    x, v, y, w = fields
    layer.register_input_field(x).register_input_field(v)
    return layer.register_output_field(y).register_output_field(w)


def as_tube(lang, fp, make):
    """Make a Tube on fields, since one of them has a manager."""
    dtype = torch.float64 if fp == lang.f64 else torch.float32

    class Dense(ts.FieldManager):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            field = lang.Vector.field(2, fp, needs_grad=needs_grad)
            fields_builder.dense(lang.i, COUNT).place(field, field.grad)
            return field

        def to_tensor(self, field):
            return field.to_torch()

        def from_tensor(self, field, tensor):
            field.from_torch(tensor)

        grad_to_tensor, grad_from_tensor = to_tensor, from_tensor

    tube = ts.Tube()
    for name in "xv":
        tube.register_input_tensor((COUNT, 2), dtype, name, field_manager=Dense())
    for name in "yw":
        tube.register_output_tensor((COUNT, 2), dtype, name, True, field_manager=Dense())
    return tube.register_kernel(make(lang), list("xvyw")).finish()


WAYS = [as_op, as_tin, as_tin_of_object, as_tube]


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.filterwarnings("ignore:.*was not checked")
@pytest.mark.parametrize("loops", KERNELS)
@pytest.mark.parametrize("way", WAYS)
def test_in_double_precision(lang64, way, loops):
    check(lang64, lang64.f64, way, loops)


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.filterwarnings("ignore:.*was not checked")
@pytest.mark.parametrize("loops", KERNELS)
@pytest.mark.parametrize("way", WAYS)
def test_in_single_precision(lang, way, loops):
    check(lang, lang.f32, way, loops)


def check(lang, fp, way, loops):
    make, reference = KERNELS[loops]
    dtype = torch.float64 if fp == lang.f64 else torch.float32
    generator = torch.Generator().manual_seed(5)
    x, v = (torch.rand(COUNT, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    v = 4.0 * v - 3.0
    exact = [x.requires_grad_(), v.requires_grad_()]
    given = [t.detach().to(dtype).requires_grad_() for t in exact]
    result, wanted = simulated(way(lang, fp, make), given), simulated(reference, exact)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-3
    gradients, right = torch.autograd.grad(result, given), torch.autograd.grad(wanted, exact)
    for mine, other in zip(gradients, right, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=tolerance, atol=tolerance)


def simulated(step, state):
    """Compute a number that depends on all of a few steps."""
    for _ in range(STEPS):
        state = step(*state)
    x, v = state
    return (x * x.new_tensor([1.0, 0.3])).sum() + (v * x).sum()
