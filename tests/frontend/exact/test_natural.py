"""Kernels as users write them, on which the engines' own reverse modes crash, refuse or lie."""

import pytest
import torch

import tinsmith as ts
from cases import assert_close, assert_same_values_and_gradients
from support.interpreted import interpret_op
from tinsmith import kernels, reference

GENERATOR = torch.Generator().manual_seed(3)


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=GENERATOR)


def compositing(lang):
    @ts.op("alpha[rays, samples], color[rays, samples] -> y[rays]")
    @lang.kernel
    def compositing(alpha: lang.types.ndarray(), color: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(alpha.shape[0]):
            through = 1.0
            total = 0.0
            for j in range(alpha.shape[1]):
                if through < 0.05:
                    break
                if alpha[i, j] < 0.1:
                    continue
                total += through * alpha[i, j] * color[i, j]
                through *= 1.0 - alpha[i, j]
            y[i] = total

    return compositing


def compositing_twin(alpha, color):
    rows = []
    for a, c in zip(alpha, color, strict=True):
        through, total = torch.ones(()).double(), torch.zeros(()).double()
        for one, shade in zip(a, c, strict=True):
            if through < 0.05:
                break
            if one >= 0.1:
                total, through = total + through * one * shade, through * (1 - one)
        rows.append(total)
    return torch.stack(rows)


def average(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def average(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = x[i]
            if i > 0:
                y[i] = 0.9 * y[i - 1] + 0.1 * lang.tanh(y[i] * y[i - 1])

    return average


def average_twin(x):
    y = [x[0]]
    for one in x[1:]:
        y.append(0.9 * y[-1] + 0.1 * torch.tanh(one * y[-1]))
    return torch.stack(y)


def springs(lang):
    @ts.op("x[n], v[n] -> p[n]", scratch="q[n], f[n]")
    @lang.kernel
    def springs(
        x: lang.types.ndarray(),
        v: lang.types.ndarray(),
        p: lang.types.ndarray(),
        q: lang.types.ndarray(),
        f: lang.types.ndarray(),
    ):
        for i in x:
            p[i] = x[i]
            q[i] = v[i]
        for _ in range(1):
            for _step in range(6):
                for i in range(x.shape[0]):
                    force = -0.2 * p[i] * p[i] * p[i]
                    if i > 0:
                        force += p[i - 1] - p[i]
                    f[i] = force
                for i in range(x.shape[0]):
                    q[i] += 0.1 * f[i]
                    p[i] += 0.1 * q[i]

    return springs


def springs_twin(x, v):
    for _ in range(6):
        force = -0.2 * x**3 + torch.cat([x.new_zeros(1), x[:-1] - x[1:]])
        v = v + 0.1 * force
        x = x + 0.1 * v
    return x


def softmax(lang):
    @ts.op("x[h, w] -> y[h]")
    @lang.kernel
    def softmax(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            top = -1e30
            total = 0.0
            for j in range(x.shape[1]):
                above = lang.max(top, x[i, j])
                total = total * lang.exp(top - above) + lang.exp(x[i, j] - above)
                top = above
            y[i] = top + lang.log(total)

    return softmax


def marching(lang):
    """Build a kernel that marches along a ray to a sphere with vectors and a function with two results."""

    @lang.func
    def towards(p, radius):
        distance = p.norm() - radius
        return distance, p / p.norm()

    @ts.op("start[n, 3], radius[] -> y[n, 3]")
    @lang.kernel
    def marching(start: lang.types.ndarray(), radius: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(start.shape[0]):
            p = lang.Vector([start[i, 0], start[i, 1], start[i, 2]])
            steps = 0
            distance = 1.0
            while lang.abs(distance) > 1e-2 and steps < 20:
                distance, normal = towards(p, radius[None])
                p = p - 0.5 * distance * normal.cross(lang.Vector([0.1, 0.2, 0.3])) - 0.7 * distance * normal
                steps += 1
            for k in lang.static(range(3)):
                y[i, k] = p[k]

    return marching


def marching_twin(start, radius):
    rows = []
    for p in start:
        distance, steps = torch.ones(()), 0
        while distance.abs() > 1e-2 and steps < 20:
            distance, normal = p.norm() - radius, p / p.norm()
            side = torch.linalg.cross(normal, torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
            p, steps = p - 0.5 * distance * side - 0.7 * distance * normal, steps + 1
        rows.append(p)
    return torch.stack(rows)


def greatest(lang):
    @ts.op("x[n] -> y[1]")
    @lang.kernel
    def greatest(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            lang.atomic_max(y[0], lang.round(x[i] * 4.0) * 0.25 + x[i] * x[i])

    return greatest


TABLE = {
    "compositing": (compositing, compositing_twin, lambda: (rand(4, 12), rand(4, 12))),
    "average": (average, average_twin, lambda: (rand(9) - 0.5,)),
    "springs": (springs, springs_twin, lambda: (rand(6) - 0.5, rand(6))),
    "softmax": (softmax, lambda x: x.logsumexp(1), lambda: (8 * rand(3, 10) - 4,)),
    "marching": (marching, marching_twin, lambda: (rand(5, 3) + 0.5, rand(1)[0])),
    "greatest": (
        greatest,
        lambda x: ((x * 4).detach().round() * 0.25 + x * x).amax().reshape(1),
        lambda: (torch.tensor([-0.7, 0.9, 0.1, 0.9, 0.3, 0.9]).double(),),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_natural(lang64, name):
    build, twin, inputs = TABLE[name]
    op, inputs = build(lang64), inputs()
    assert_same_values_and_gradients(lambda *given: interpret_op(op, *given), twin, inputs, rtol=1e-11, atol=1e-12)
    assert_close(interpret_op(op, *inputs), op(*inputs), rtol=1e-11, atol=1e-12)


def test_splatting(lang64):
    """Bounding boxes of their own, three functions deep."""
    op = ts.op("pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]")(
        kernels.splat(lang64, serial=True)
    )
    inputs = (6 * rand(3, 2), 0.5 + rand(3, 2), 3 * rand(3), rand(3, 3), 0.3 + 0.6 * rand(3))
    assert_same_values_and_gradients(
        lambda *given: interpret_op(op, *given, h=6, w=7), lambda *given: reference.splat(*given, h=6, w=7), inputs
    )
