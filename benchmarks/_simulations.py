"""Simulations for `rollout.py`: each on fields, with the engine's tape and as a rollout, and on arrays as a scan.

A function of the engine's module and the number of steps gives the ways by name. Each returns its loss and gradients.
"""

from collections.abc import Callable
from typing import Any

import torch

import tinsmith as ts

Ways = dict[str, Callable[[], list[torch.Tensor]]]


def differentiated(call: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
    """Return a function that runs a call forward and backward."""
    leaves = [one.clone().requires_grad_() for one in inputs]

    def run() -> list[torch.Tensor]:
        loss = call(*leaves)
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    return run


def taped(
    lang: Any, loss: Any, forward: Callable[[], None], *fields: Any, clear: Callable[[], None] = lambda: None
) -> Any:
    """Return a function that runs a simulation on the engine's tape; its gradients are those of `fields`."""

    def run() -> list[torch.Tensor]:
        clear()
        with lang.ad.Tape(loss):
            forward()
        return [loss.to_torch().reshape(()), *(one.grad.to_torch() for one in fields)]

    return run


def springs(lang: Any, steps: int, masses: int = 256) -> Ways:  # noqa: C901  # kernels are functions inside
    """Build the ways to simulate masses in a row, each held by springs to its neighbors."""
    x, v, force = (lang.Vector.field(2, lang.f32) for _ in range(3))
    begin, length, loss = lang.Vector.field(2, lang.f32), lang.field(lang.f32), lang.field(lang.f32)
    lang.root.dense(lang.i, steps + 1).dense(lang.j, masses).place(x, v, force)
    lang.root.dense(lang.i, masses).place(begin, length)
    lang.root.place(loss)
    lang.root.lazy_grad()

    @lang.kernel
    def start():
        for i in begin:
            x[0, i] = begin[i]

    @lang.kernel
    def pull(t: lang.i32):
        for i in range(masses - 1):
            apart = x[t - 1, i] - x[t - 1, i + 1]
            far = apart.norm() + 1e-4
            by = 20.0 * (far - length[i]) * apart / far
            lang.atomic_add(force[t, i], -by)
            lang.atomic_add(force[t, i + 1], by)

    @lang.kernel
    def move(t: lang.i32):
        for i in range(masses):
            now = 0.999 * v[t - 1, i] + 0.004 * force[t, i]
            v[t, i] = now
            x[t, i] = x[t - 1, i] + 0.004 * now

    @lang.kernel
    def compare(t: lang.i32):
        for i in range(masses):
            loss[None] += x[t, i].norm_sqr() / masses

    def forward() -> None:
        for t in range(1, steps + 1):
            pull(t)
            move(t)
        compare(steps)

    def with_start() -> None:
        start()
        forward()

    def cleared() -> None:
        force.fill(0.0)
        forward()

    step = _springs_on_arrays(lang)
    torch.manual_seed(0)
    given = torch.randn(masses, 2), torch.full((masses,), 0.5)
    begin.from_torch(given[0])
    length.from_torch(given[1])

    def scanned(x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        (x, _), _ = ts.scan(step, (x, torch.zeros_like(x)), length=steps, parameters=length)
        return x.square().sum() / masses

    rolled = ts.rollout(cleared, {"start": (x, 0), "length": length}, {"loss": loss})
    return {
        "tape": taped(lang, loss, with_start, begin, length, clear=lambda: force.fill(0.0)),
        "rollout": differentiated(rolled, *given),
        "scan": differentiated(scanned, *given),
    }


def _springs_on_arrays(lang: Any) -> Any:
    """Build a step of the springs as an op."""
    vectors = lang.types.ndarray(dtype=lang.types.vector(2, lang.f32), ndim=1)

    @lang.kernel
    def pull(x: vectors, length: lang.types.ndarray(), force: vectors):
        for i in range(x.shape[0] - 1):
            apart = x[i] - x[i + 1]
            far = apart.norm() + 1e-4
            by = 20.0 * (far - length[i]) * apart / far
            force[i] += -by
            force[i + 1] += by

    @lang.kernel
    def move(x: vectors, v: vectors, force: vectors, x_next: vectors, v_next: vectors):
        for i in x:
            now = 0.999 * v[i] + 0.004 * force[i]
            v_next[i] = now
            x_next[i] = x[i] + 0.004 * now

    spec = "x[n, 2], v[n, 2], length[n] -> x_next[n, 2], v_next[n, 2]"
    return ts.chain(spec, [pull, move], scratch="force[n, 2]", order="spec")


def mpm(lang: Any, steps: int, particles: int = 4096, cells: int = 64) -> Ways:  # noqa: C901  # kernels are functions inside
    """Build the ways to simulate elastic particles that fall onto the ground, on a grid that is cleared in
    each step.
    """
    x, v = (lang.Vector.field(2, lang.f32) for _ in range(2))
    C, F = (lang.Matrix.field(2, 2, lang.f32) for _ in range(2))
    momentum, speed = (lang.Vector.field(2, lang.f32) for _ in range(2))
    mass, loss, begin = lang.field(lang.f32), lang.field(lang.f32), lang.Vector.field(2, lang.f32)
    lang.root.dense(lang.i, steps + 1).dense(lang.j, particles).place(x, v, C, F)
    lang.root.dense(lang.ij, cells).place(momentum, mass, speed)
    lang.root.dense(lang.i, particles).place(begin)
    lang.root.place(loss)
    lang.root.lazy_grad()
    dt, width, wide = 2e-4, 1.0 / cells, float(cells)
    stiffness = 50.0

    @lang.kernel
    def start():
        for p in begin:
            v[0, p] = begin[p]

    @lang.kernel
    def clear():
        for i, j in mass:
            momentum[i, j] = [0.0, 0.0]
            mass[i, j] = 0.0
            momentum.grad[i, j] = [0.0, 0.0]
            mass.grad[i, j] = 0.0
            speed.grad[i, j] = [0.0, 0.0]

    @lang.func
    def stress(now):
        turned, _ = lang.polar_decompose(now)
        grown = now.determinant()
        inner = 2.0 * stiffness * (now - turned) @ now.transpose()
        inner += lang.Matrix([[1.0, 0.0], [0.0, 1.0]]) * stiffness * (grown - 1.0) * grown
        return -(dt * 4.0 * wide * wide * 1e-3) * inner

    @lang.kernel
    def give(t: lang.i32):
        for p in range(particles):
            base = lang.cast(x[t, p] * wide - 0.5, lang.i32)
            off = x[t, p] * wide - lang.cast(base, lang.f32)
            w = [0.5 * (1.5 - off) ** 2, 0.75 - (off - 1.0) ** 2, 0.5 * (off - 0.5) ** 2]
            now = F[t, p] + dt * C[t, p] @ F[t, p]
            F[t + 1, p] = now
            affine = stress(now) + 1e-3 * C[t, p]
            for i in lang.static(range(3)):
                for j in lang.static(range(3)):
                    apart = (lang.Vector([float(i), float(j)]) - off) * width
                    weight = w[i][0] * w[j][1]
                    momentum[base + lang.Vector([i, j])] += weight * (1e-3 * v[t, p] + affine @ apart)
                    mass[base + lang.Vector([i, j])] += weight * 1e-3

    @lang.kernel
    def level():
        for i, j in mass:
            out = momentum[i, j] / (mass[i, j] + 1e-10)
            out[1] -= dt * 9.8
            if i < 3 and out[0] < 0.0:
                out[0] = 0.0
            if i > cells - 3 and out[0] > 0.0:
                out[0] = 0.0
            if j < 3 and out[1] < 0.0:
                out[1] = 0.0
            if j > cells - 3 and out[1] > 0.0:
                out[1] = 0.0
            speed[i, j] = out

    @lang.kernel
    def take(t: lang.i32):
        for p in range(particles):
            base = lang.cast(x[t, p] * wide - 0.5, lang.i32)
            off = x[t, p] * wide - lang.cast(base, lang.f32)
            w = [0.5 * (1.5 - off) ** 2, 0.75 - (off - 1.0) ** 2, 0.5 * (off - 0.5) ** 2]
            new_v = lang.Vector([0.0, 0.0])
            new_C = lang.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i in lang.static(range(3)):
                for j in lang.static(range(3)):
                    apart = lang.Vector([float(i), float(j)]) - off
                    weight = w[i][0] * w[j][1]
                    node_speed = speed[base + lang.Vector([i, j])]
                    new_v += weight * node_speed
                    new_C += 4.0 * wide * weight * node_speed.outer_product(apart)
            v[t + 1, p] = new_v
            x[t + 1, p] = x[t, p] + dt * new_v
            C[t + 1, p] = new_C

    @lang.kernel
    def compare(t: lang.i32):
        for p in range(particles):
            loss[None] += x[t, p].norm_sqr() / particles

    def step_once(t: int) -> None:
        clear()
        give(t)
        level()
        take(t)

    # Of the tape alone: a rollout needs no gradient that its author wrote, and would use it.
    advance = lang.ad.grad_replaced(step_once)

    @lang.ad.grad_for(advance)
    def advance_back(t):
        clear()
        give(t)
        level()
        take.grad(t)
        level.grad()
        give.grad(t)

    def forward() -> None:
        for t in range(steps):
            step_once(t)
        compare(steps)

    def with_start() -> None:
        start()
        for t in range(steps):
            advance(t)
        compare(steps)

    torch.manual_seed(0)
    place = torch.rand(particles, 2) * 0.4 + torch.tensor([0.3, 0.1])
    given = torch.randn(particles, 2) * 0.1 - torch.tensor([0.0, 2.0])
    whole = torch.zeros(steps + 1, particles, 2)
    whole[0] = place
    x.from_torch(whole)
    whole = torch.zeros(steps + 1, particles, 2, 2)
    whole[0] = torch.eye(2)
    F.from_torch(whole)
    begin.from_torch(given)
    step = mpm_on_arrays(lang, stress, dt, cells)

    def scanned(velocity: torch.Tensor) -> torch.Tensor:
        state = place, velocity, torch.zeros(particles, 2, 2), torch.eye(2).repeat(particles, 1, 1)
        (x, *_), _ = ts.scan(step, state, length=steps)
        return x.square().sum() / particles

    rolled = ts.rollout(forward, {"velocity": (v, 0)}, {"loss": loss})
    return {
        "tape": taped(lang, loss, with_start, begin),
        "rollout": differentiated(rolled, given),
        "scan": differentiated(scanned, given),
    }


def mpm_on_arrays(lang: Any, stress: Any, dt: float, cells: int) -> Any:  # noqa: C901  # kernels are functions inside
    """Build a step of the elastic particles as an op."""
    vector, matrix = lang.types.vector(2, lang.f32), lang.types.matrix(2, 2, lang.f32)
    vectors, matrices = (lang.types.ndarray(dtype=one, ndim=1) for one in (vector, matrix))
    grid, numbers = lang.types.ndarray(dtype=vector, ndim=2), lang.types.ndarray(dtype=lang.f32, ndim=2)
    width, wide = 1.0 / cells, float(cells)

    @lang.kernel
    def give(x: vectors, v: vectors, C: matrices, F: matrices, F_next: matrices, momentum: grid, mass: numbers):
        for p in x:
            base = lang.cast(x[p] * wide - 0.5, lang.i32)
            off = x[p] * wide - lang.cast(base, lang.f32)
            w = [0.5 * (1.5 - off) ** 2, 0.75 - (off - 1.0) ** 2, 0.5 * (off - 0.5) ** 2]
            now = F[p] + dt * C[p] @ F[p]
            F_next[p] = now
            affine = stress(now) + 1e-3 * C[p]
            for i in lang.static(range(3)):
                for j in lang.static(range(3)):
                    apart = (lang.Vector([float(i), float(j)]) - off) * width
                    weight = w[i][0] * w[j][1]
                    momentum[base + lang.Vector([i, j])] += weight * (1e-3 * v[p] + affine @ apart)
                    mass[base + lang.Vector([i, j])] += weight * 1e-3

    @lang.kernel
    def level(momentum: grid, mass: numbers, speed: grid):
        for i, j in mass:
            out = momentum[i, j] / (mass[i, j] + 1e-10)
            out[1] -= dt * 9.8
            if i < 3 and out[0] < 0.0:
                out[0] = 0.0
            if i > cells - 3 and out[0] > 0.0:
                out[0] = 0.0
            if j < 3 and out[1] < 0.0:
                out[1] = 0.0
            if j > cells - 3 and out[1] > 0.0:
                out[1] = 0.0
            speed[i, j] = out

    @lang.kernel
    def take(x: vectors, speed: grid, x_next: vectors, v_next: vectors, C_next: matrices):
        for p in x:
            base = lang.cast(x[p] * wide - 0.5, lang.i32)
            off = x[p] * wide - lang.cast(base, lang.f32)
            w = [0.5 * (1.5 - off) ** 2, 0.75 - (off - 1.0) ** 2, 0.5 * (off - 0.5) ** 2]
            new_v = lang.Vector([0.0, 0.0])
            new_C = lang.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i in lang.static(range(3)):
                for j in lang.static(range(3)):
                    apart = lang.Vector([float(i), float(j)]) - off
                    weight = w[i][0] * w[j][1]
                    node_speed = speed[base + lang.Vector([i, j])]
                    new_v += weight * node_speed
                    new_C += 4.0 * wide * weight * node_speed.outer_product(apart)
            v_next[p] = new_v
            x_next[p] = x[p] + dt * new_v
            C_next[p] = new_C

    spec = "x[n, 2], v[n, 2], C[n, 2, 2], F[n, 2, 2]"
    spec += " -> x_next[n, 2], v_next[n, 2], C_next[n, 2, 2], F_next[n, 2, 2]"
    scratch = f"momentum[{cells}, {cells}, 2], mass[{cells}, {cells}], speed[{cells}, {cells}, 2]"
    return ts.chain(spec, [give, level, take], scratch=scratch, order="spec")


def wave(lang: Any, steps: int, cells: int = 256) -> Ways:  # noqa: C901  # kernels are functions inside
    """Build the ways to simulate a wave on a grid, from an initial pulse."""
    p, begin, loss = (lang.field(lang.f32) for _ in range(3))
    lang.root.dense(lang.i, steps + 2).dense(lang.jk, cells).place(p)
    lang.root.dense(lang.ij, cells).place(begin)
    lang.root.place(loss)
    lang.root.lazy_grad()

    @lang.kernel
    def start():
        for i, j in begin:
            p[1, i, j] = begin[i, j]

    @lang.func
    def at(t, i, j):
        return p[t, i, j] if 0 <= i < cells and 0 <= j < cells else 0.0

    @lang.kernel
    def swing(t: lang.i32):
        for i, j in lang.ndrange(cells, cells):
            around = at(t - 1, i - 1, j) + at(t - 1, i + 1, j) + at(t - 1, i, j - 1) + at(t - 1, i, j + 1)
            p[t, i, j] = 2.0 * p[t - 1, i, j] - p[t - 2, i, j] + 0.25 * (around - 4.0 * p[t - 1, i, j])

    @lang.kernel
    def compare(t: lang.i32):
        for i, j in lang.ndrange(cells, cells):
            loss[None] += p[t, i, j] ** 2 / (cells * cells)

    def forward() -> None:
        for t in range(2, steps + 2):
            swing(t)
        compare(steps + 1)

    def with_start() -> None:
        start()
        forward()

    numbers = lang.types.ndarray(dtype=lang.f32, ndim=2)

    @lang.func
    def of(now: lang.template(), i, j):
        return now[i, j] if 0 <= i < cells and 0 <= j < cells else 0.0

    @lang.kernel
    def step(now: numbers, before: numbers, following: numbers, kept: numbers):
        for i, j in now:
            around = of(now, i - 1, j) + of(now, i + 1, j) + of(now, i, j - 1) + of(now, i, j + 1)
            following[i, j] = 2.0 * now[i, j] - before[i, j] + 0.25 * (around - 4.0 * now[i, j])
            kept[i, j] = now[i, j]

    kept = {"following": "empty", "kept": "empty"}
    op = ts.op("now[n, m], before[n, m] -> following[n, m], kept[n, m]", init=kept)(step)

    def scanned(now: torch.Tensor) -> torch.Tensor:
        (now, _), _ = ts.scan(op, (now, torch.zeros_like(now)), length=steps)
        return now.square().sum() / (cells * cells)

    torch.manual_seed(0)
    given = torch.randn(cells, cells)
    begin.from_torch(given)
    rolled = ts.rollout(forward, {"pulse": (p, 1)}, {"loss": loss})
    return {
        "tape": taped(lang, loss, with_start, begin),
        "rollout": differentiated(rolled, given),
        "scan": differentiated(scanned, given),
    }
