"""Programs in the style of DiffTaichi as rollouts: values and gradients are those of torch."""

import numpy as np
import pytest
import torch

import tinsmith as ts
from tinsmith.passes.adjoint.emit import _assembly

D = torch.float64
STEPS, N = 7, 5


def check(run, twin, *inputs):
    """Assert that values and gradients of two calls are those of a torch function with the same order of results."""
    for _ in range(2):
        ours, theirs = run(*inputs), twin(*inputs)
        ours = (ours,) if isinstance(ours, torch.Tensor) else tuple(ours)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
        seeds = [torch.randn_like(one) for one in theirs]
        gradients, wanted = torch.autograd.grad(ours, inputs, seeds), torch.autograd.grad(theirs, inputs, seeds)
        torch.testing.assert_close(gradients, wanted, rtol=1e-9, atol=1e-11)


def draw_leaf(*shape):
    return torch.randn(*shape, dtype=D, requires_grad=True)


def mass_spring(lang):
    x, v, force = (lang.Vector.field(2, lang.f64) for _ in range(3))
    first, second = lang.field(lang.i32), lang.field(lang.i32)
    length, loss = lang.field(lang.f64), lang.field(lang.f64)
    lang.root.dense(lang.i, STEPS).dense(lang.j, N).place(x, v, force)
    lang.root.dense(lang.i, N).place(first, second, length)
    lang.root.place(loss)
    lang.root.lazy_grad()
    first.from_numpy(np.arange(N, dtype=np.int32))
    second.from_numpy((np.arange(N, dtype=np.int32) + 2) % N)

    @lang.kernel
    def pull(t: lang.i32):
        for i in range(N):
            a, b = first[i], second[i]
            apart = x[t - 1, a] - x[t - 1, b]
            far = apart.norm() + 1e-4
            pull = (far - length[i]) * 3.0 * apart / far
            lang.atomic_add(force[t, a], -pull)
            lang.atomic_add(force[t, b], pull)

    @lang.kernel
    def move(t: lang.i32):
        for i in range(N):
            now = 0.9 * v[t - 1, i] + 0.1 * force[t, i]
            if now[0] > 0.2:
                now[1] = 0.5 * now[1]
            v[t, i] = now
            x[t, i] = x[t - 1, i] + 0.1 * now

    @lang.kernel
    def compare(t: lang.i32):
        between = x[t, 0] - x[t, 1]
        loss[None] = (between[0] * between[1] - 0.1) ** 2

    def forward():
        force.fill(0)
        for t in range(1, STEPS):
            pull(t)
            move(t)
        compare(STEPS - 1)

    def twin(start, lengths):
        x, v = start, torch.zeros_like(start)
        ends = (torch.arange(N) + 2) % N
        for _ in range(1, STEPS):
            apart = x - x[ends]
            far = apart.norm(dim=1) + 1e-4
            pull = ((far - lengths) * 3.0 / far)[:, None] * apart
            now = 0.9 * v + 0.1 * (-pull).index_add(0, ends, pull)
            scale = torch.stack([torch.ones(N, dtype=D), torch.where(now[:, 0] > 0.2, 0.5, 1.0)], 1)
            v = now * scale
            x = x + 0.1 * v
        between = x[0] - x[1]
        return (between[0] * between[1] - 0.1) ** 2, x

    run = ts.rollout(forward, {"start": (x, 0), "length": length}, {"loss": loss, "end": (x, -1)})
    return run, twin, draw_leaf(N, 2), draw_leaf(N)


def grid_cleared_in_each_step(lang):  # noqa: C901  # kernels are functions inside
    """Build a program of particles on a grid, which is cleared and used again in each step."""
    cells = 4
    x, v = (lang.field(lang.f64, (STEPS, N), needs_grad=True) for _ in range(2))
    mass, flow = (lang.field(lang.f64, cells, needs_grad=True) for _ in range(2))
    weight, loss = lang.field(lang.f64, N, needs_grad=True), lang.field(lang.f64, (), needs_grad=True)

    @lang.kernel
    def clear():
        for i in mass:
            mass[i] = 0.0
            flow[i] = 0.0
            mass.grad[i] = 0.0

    @lang.kernel
    def give(t: lang.i32):
        for p in range(N):
            cell = lang.cast(lang.floor(x[t, p]), lang.i32) % cells
            mass[cell] += weight[p]
            flow[cell] += weight[p] * v[t, p]

    @lang.kernel
    def level():
        for i in mass:
            flow[i] = flow[i] / (mass[i] + 2.0)

    @lang.kernel
    def take(t: lang.i32):
        for p in range(N):
            cell = lang.cast(lang.floor(x[t, p]), lang.i32) % cells
            v[t + 1, p] = 0.5 * v[t, p] + lang.sin(flow[cell])
            x[t + 1, p] = x[t, p] + 0.3 * v[t + 1, p]

    @lang.kernel
    def compare():
        for p in range(N):
            loss[None] += x[STEPS - 1, p] ** 2

    def advance(t):
        clear()
        give(t)
        level()
        take(t)

    def forward():
        for t in range(STEPS - 1):
            advance(t)
        loss[None] = 0
        compare()

    def twin(x, v, weight):
        for _ in range(STEPS - 1):
            cell = x.detach().floor().long() % cells
            mass = torch.zeros(cells, dtype=D).index_add(0, cell, weight)
            flow = torch.zeros(cells, dtype=D).index_add(0, cell, weight * v) / (mass + 2.0)
            v = 0.5 * v + flow[cell].sin()
            x = x + 0.3 * v
        return ((x**2).sum(),)

    run = ts.rollout(forward, {"x": (x, 0), "v": (v, 0), "weight": weight}, {"loss": loss})
    return run, twin, draw_leaf(N), draw_leaf(N), torch.rand(N, dtype=D, requires_grad=True)


def fields_and_numbers_as_templates(lang):
    v, smoke = (lang.field(lang.f64, (STEPS, N), needs_grad=True) for _ in range(2))

    @lang.kernel
    def carry(source: lang.template(), target: lang.template(), before: lang.template(), t: lang.i32):
        for i in range(N):
            target[t, i] = source[t - before, i] + 0.1 * lang.sin(v[t - 1, i]) * source[t - before, (i + 1) % N]

    def forward():
        for t in range(1, STEPS):
            carry(v, v, 1, t)
            carry(smoke, smoke, t=t, before=1)

    def twin(v, smoke):
        for _ in range(1, STEPS):
            by = 0.1 * v.sin()
            v, smoke = v + by * v.roll(-1), smoke + by * smoke.roll(-1)
        return v, smoke

    ends = {"v": (v, STEPS - 1), "smoke": (smoke, STEPS - 1)}
    return ts.rollout(forward, {"v": (v, 0), "smoke": (smoke, 0)}, ends), twin, draw_leaf(N), draw_leaf(N)


def methods_in_place(lang):
    @lang.data_oriented
    class Pendulums:
        def __init__(self, pull):
            self.angle, self.speed = (lang.field(lang.f64, N, needs_grad=True) for _ in range(2))
            self.pull = pull

        @lang.kernel
        def swing(self, dt: lang.f64):
            for i in self.angle:
                self.speed[i] -= dt * self.pull * lang.sin(self.angle[i])
                self.angle[i] += dt * self.speed[i]

    one, other = Pendulums(1.0), Pendulums(2.0)

    def forward():
        for t in range(STEPS):
            one.swing(0.1)
            other.swing(0.1 * t)

    def twin(a, b):
        v, w = torch.zeros_like(a), torch.zeros_like(b)
        for t in range(STEPS):
            v = v - 0.1 * a.sin()
            w = w - 0.1 * t * 2.0 * b.sin()
            a, b = a + 0.1 * v, b + 0.1 * t * w
        return a, b

    def both():
        one.speed.fill(0.0)
        other.speed.fill(0.0)
        forward()

    fields = {"a": one.angle, "b": other.angle}
    return ts.rollout(both, fields, fields), twin, draw_leaf(N), draw_leaf(N)


def writes_from_python(lang):
    """Build a program in which Python writes numbers between two kernels."""
    x, y = lang.field(lang.f64, N, needs_grad=True), lang.Vector.field(2, lang.f64, N, needs_grad=True)
    m, k = lang.Matrix.field(2, 2, lang.f64, (), needs_grad=True), lang.field(lang.i32, ())
    numbers = np.arange(2.0 * N).reshape(N, 2)

    @lang.kernel
    def add():
        for i in x:
            y[i] += m[None] @ lang.Vector([x[i], x[i] ** 2]) * k[None]

    def forward():
        m[None] = [[1, 2], [3, 4]]
        k[None] = 1
        y.fill(0.5)
        add()
        y[1] = [7.0, 8.0]
        k[None] = -2
        add()
        y.from_torch(torch.from_numpy(numbers)) if k.shape else y.from_numpy(numbers)
        x[2] = 3
        m[None] = lang.Matrix([[0.0, 1.0], [1.0, 0.0]])
        add()

    def twin(x):
        kept = torch.ones(N, dtype=D)
        kept[2] = 0.0
        x = x * kept + 3.0 * (1.0 - kept)
        return (torch.from_numpy(numbers) - 2 * torch.stack([x**2, x], 1),)

    return ts.rollout(forward, {"x": x}, {"y": y}), twin, draw_leaf(N)


PROGRAMS = [
    mass_spring,
    grid_cleared_in_each_step,
    fields_and_numbers_as_templates,
    methods_in_place,
    writes_from_python,
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_gradients_are_those_of_torch(lang64, program):
    check(*program(lang64))


def test_only_what_is_overwritten_is_run_again(lang64, monkeypatch):
    """Of a step on a grid that is cleared, `take` is not run again: `x[t]` and `v[t]` stay as they are."""
    names = set()

    def noting(kernel, name, *others):
        names.add(name)
        return kernel_of(kernel, name, *others)

    kernel_of = _assembly.kernel_of
    monkeypatch.setattr(_assembly, "kernel_of", noting)
    run, _, *inputs = grid_cleared_in_each_step(lang64)
    run(*inputs).backward()
    again = {name.partition("_again_")[0] for name in names if "_again_" in name}
    assert {"clear", "give", "level"} <= again
    assert "take" not in again


def test_fields_that_a_kernel_fills(lang64):
    """`x.fill(value)` inside a kernel, of a field of numbers and of vectors, named or handed to a function."""
    x, y, total = (lang64.field(lang64.f64, shape=N) for _ in range(3))
    v = lang64.Vector.field(2, lang64.f64, shape=N)

    @lang64.func
    def clear(field: lang64.template(), value):
        field.fill(value)

    @lang64.kernel
    def step(into: lang64.template()):
        v.fill(2.0)
        y.fill(x[0] * x[1])
        clear(into, 1.0)
        for i in x:
            into[i] += y[i] * x[i] * v[i][1]
        x.fill(0.0)

    def twin(x):
        return 1 + x[0] * x[1] * x * 2, torch.zeros(N, dtype=D), torch.full((N, 2), 2.0, dtype=D)

    run = ts.rollout(lambda: step(total), {"start": x}, {"total": total, "x": x, "v": v})
    start = draw_leaf(N)
    for ours, theirs in zip(run(start), twin(start), strict=True):
        torch.testing.assert_close(ours, theirs)
    seed = torch.randn(N, dtype=D)
    (gradient,) = torch.autograd.grad(run(start).total, start, seed)
    (wanted,) = torch.autograd.grad(twin(start)[0], start, seed)
    torch.testing.assert_close(gradient, wanted)
