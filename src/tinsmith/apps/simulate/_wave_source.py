"""Wave inversion: sensors around a pond hear waves. What did the pond look like when they began?

    u' = u + (1 - damping) (u - u_before) + SPEED^2 lap(u)

The pulse is the initial state of a scan and the record of the sensors its output. What geophysics calls the adjoint
state method, to run the misfit backward through the wave equation, is the gradient of that scan.
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...operation import op
from ...time import scan
from ._drawing import colorize, draw_text
from ._simulation import Look, Simulation

SIDE = 64  # cells
RIM = 8  # cells that swallow waves, so that few come back
SENSORS = 120
SPEED = 0.5  # cells a step. This scheme explodes above 0.7, the condition of Courant, Friedrichs and Lewy.


def build_kernel(ti: Any) -> Any:
    """One step of the wave equation, and what the sensors hear."""
    array = ti.types.ndarray()

    @ti.kernel
    def ripple(u: array, before: array, damping: array, sensors: array, u_next: array, u_now: array, heard: array):
        for i, j in u:
            up, down = u[ti.max(i - 1, 0), j], u[ti.min(i + 1, u.shape[0] - 1), j]
            left, right = u[i, ti.max(j - 1, 0)], u[i, ti.min(j + 1, u.shape[1] - 1)]
            bend = up + down + left + right - 4.0 * u[i, j]
            u_next[i, j] = u[i, j] + (1.0 - damping[i, j]) * (u[i, j] - before[i, j]) + SPEED * SPEED * bend
            u_now[i, j] = u[i, j]
        for s in heard:
            heard[s] = u[sensors[s, 0], sensors[s, 1]]

    return ripple


class WaveSource(Simulation):
    """Find the pulse that waves came from, `pulse` (SIDE, SIDE), from what sensors heard."""

    steps, iterations, rate = 96, 250, 0.1
    damping: Tensor
    sensors: Tensor
    truth: Tensor
    figure = "error of the pulse {:.1%}"

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        spec = "u[n, n], before[n, n], damping[n, n], sensors[s, 2]: i32 -> u_next[n, n], u_now[n, n], heard[s]"
        self.ripple = op(spec)(build_kernel(get(engine).lang))
        depth = (RIM - torch.arange(SIDE).minimum(SIDE - 1 - torch.arange(SIDE))).clamp(min=0) / RIM
        angle = torch.arange(SENSORS) * 2 * math.pi / SENSORS
        ring = SIDE / 2 + (SIDE / 2 - RIM) * torch.stack([angle.sin(), angle.cos()], 1)
        self.keep_constants(
            damping=0.3 * torch.maximum(depth[:, None], depth[None, :]) ** 2,
            sensors=ring.round().int().clamp(0, SIDE - 1),
            truth=draw_text("tin", SIDE, 30),
        )
        self.pulse = torch.nn.Parameter(torch.zeros(SIDE, SIDE))

    def record(self, pulse: Tensor, **how: Any) -> tuple[Tensor, Tensor]:
        """The pond over time, and what the sensors hear (steps, SENSORS), of a pulse at rest."""
        (u, _), heard = scan(
            self.ripple, (pulse, pulse), length=self.steps, parameters=(self.damping, self.sensors), **how
        )
        return u, heard

    def loss(self) -> Tensor:
        """The mean squared misfit of the records, relative to the one that was heard."""
        misfit = self.record(self.pulse)[1] - self.heard
        return misfit.square().sum() / self.heard.square().sum()

    @cached_property
    def heard(self) -> Tensor:
        """What the sensors recorded of the true pulse: everything that the search knows."""
        return self.record(self.truth)[1]

    def look(self) -> Look:
        """The pond as it was, and as it would be with the pulse that was found."""
        ponds = [self.record(pulse, keep=self.every)[0] for pulse in (self.truth, self.pulse)]
        error = (self.pulse - self.truth).norm() / self.truth.norm()
        begin = [torch.cat([pulse[None], pond]) for pulse, pond in zip((self.truth, self.pulse), ponds, strict=True)]
        frames = [colorize(torch.cat(pair, 1), -0.8, 0.8, zoom=2) for pair in zip(*begin, strict=True)]
        return Look(frames, error.item())
