"""Smoke control: which initial velocity makes smoke end in a given shape?

    velocity' = project(advect(velocity)),   smoke' = advect(smoke)

Advection looks upstream and interpolates (semi-Lagrangian: stable for any step). Projection makes the velocity free of
divergence: it subtracts the gradient of a pressure, which a few sweeps of Jacobi's method compute. Edges wrap around.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...operation import chain
from ...time import scan
from ._drawing import colorize, draw_text
from ._simulation import Look, Simulation

SIDE = 64  # cells
SWEEPS = 8  # sweeps of Jacobi's method


def build_kernels(ti: Any) -> list[Any]:
    """Build the kernels of one step: advect the velocity, compute the pressure, then project the velocity and advect
    the smoke.
    """
    array = ti.types.ndarray()

    @ti.func
    def sample(field: ti.template(), x, y, k: ti.template()):
        """Return component k of a field at (x, y), by bilinear interpolation."""
        n = field.shape[0]
        i, j = ti.cast(ti.floor(x), ti.i32), ti.cast(ti.floor(y), ti.i32)
        a, b = x - i, y - j
        i, j = i % n, j % n
        right, up = (i + 1) % n, (j + 1) % n
        low = (1 - a) * field[i, j, k] + a * field[right, j, k]
        high = (1 - a) * field[i, up, k] + a * field[right, up, k]
        return (1 - b) * low + b * high

    @ti.kernel
    def advect_velocity(v: array, carried: array):
        for i, j in ti.ndrange(v.shape[0], v.shape[1]):
            x, y = i - v[i, j, 0], j - v[i, j, 1]
            for k in ti.static(range(2)):
                carried[i, j, k] = sample(v, x, y, k)

    @ti.kernel
    def find_pressure(carried: array, divergence: array, p: array):
        n = carried.shape[0]
        for i, j in divergence:
            along = carried[(i + 1) % n, j, 0] - carried[(i - 1) % n, j, 0]
            divergence[i, j] = 0.5 * (along + carried[i, (j + 1) % n, 1] - carried[i, (j - 1) % n, 1])
        for sweep in ti.static(range(SWEEPS)):  # a task each: cells of one sweep need all of the one before
            for i, j in divergence:
                around = p[sweep, (i - 1) % n, j] + p[sweep, (i + 1) % n, j]
                around += p[sweep, i, (j - 1) % n] + p[sweep, i, (j + 1) % n]
                p[sweep + 1, i, j] = 0.25 * (around - divergence[i, j])

    @ti.kernel
    def advect_smoke(carried: array, p: array, smoke: array, v_next: array, smoke_next: array):
        n = carried.shape[0]
        for i, j in ti.ndrange(n, n):
            v_next[i, j, 0] = carried[i, j, 0] - 0.5 * (p[SWEEPS, (i + 1) % n, j] - p[SWEEPS, (i - 1) % n, j])
            v_next[i, j, 1] = carried[i, j, 1] - 0.5 * (p[SWEEPS, i, (j + 1) % n] - p[SWEEPS, i, (j - 1) % n])
        for i, j in ti.ndrange(n, n):
            smoke_next[i, j, 0] = sample(smoke, i - v_next[i, j, 0], j - v_next[i, j, 1], 0)

    return [advect_velocity, find_pressure, advect_smoke]


class Smoke(Simulation):
    """Find the initial velocity, `push` (SIDE, SIDE, 2), in cells per step, that gives the smoke a shape."""

    steps, iterations, rate = 40, 100, 0.05
    begin: Tensor
    target: Tensor
    figure = "error of the form {:.1%}"
    caption = "Left: the smoke. Right: the form in which it should end."

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        scratch = f"carried[n, n, 2], divergence[n, n], p[{SWEEPS + 1}, n, n]"
        spec = "v[n, n, 2], smoke[n, n, 1] -> v_next[n, n, 2], smoke_next[n, n, 1]"
        self.flow = chain(spec, build_kernels(get(engine).lang), scratch=scratch, deterministic=True)
        target = draw_text("tin", SIDE, 30)
        row, column = (torch.arange(SIDE) - SIDE / 2 + 0.5).expand(2, SIDE, SIDE).unbind()
        # A disc with the same amount of smoke: the flow creates none and loses little.
        radius = (target.sum() / math.pi).sqrt()
        begin = (radius - torch.hypot(row.T, column) + 0.5).clamp(0, 1)
        self.keep_constants(begin=begin[..., None], target=target)
        self.push = torch.nn.Parameter(torch.zeros(SIDE, SIDE, 2))

    def run(self, **how: Any) -> tuple[Tensor, Tensor]:
        """Simulate the smoke; return velocity and smoke at the end."""
        return scan(self.flow, (self.push, self.begin), length=self.steps, **how)[0]

    def loss(self) -> Tensor:
        """Return the squared difference of the final smoke from the target, relative to the target."""
        return self.error(self.run()[1])

    def error(self, smoke: Tensor) -> Tensor:
        return (smoke[..., 0] - self.target).square().sum() / self.target.square().sum()

    def look(self) -> Look:
        """Draw the smoke of each shown step beside the target."""
        smoke = torch.cat([self.begin[None], self.run(keep=self.every)[1]])
        frames = [colorize(torch.cat([one[..., 0], self.target], 1), 0, 1, zoom=4, colors="magma") for one in smoke]
        return Look(frames, self.error(smoke[-1]).item())
