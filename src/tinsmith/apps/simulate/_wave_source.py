"""Wave inversion: sensors around a pond record waves. What did the pond look like at the start?

    u' = u + (1 - damping) (u - u_before) + SPEED^2 lap(u)

The pulse is the initial state of a scan, and the sensors' record is its output. The gradient of that scan is what
geophysics calls the adjoint state method: the misfit runs backward through the wave equation.
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
RIM = 8  # cells at the edge that absorb waves, so that few are reflected
SENSORS = 120
SPEED = 0.5  # cells a step. The scheme is unstable above 0.7 (Courant-Friedrichs-Lewy condition).


def build_kernel(ti: Any) -> Any:
    """Build the kernel of one step of the wave equation, which also reads the sensors."""
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
    """Find the pulse that waves came from, `pulse` (SIDE, SIDE), from what sensors recorded."""

    steps, iterations, rate = 96, 250, 0.1
    damping: Tensor
    sensors: Tensor
    truth: Tensor
    figure = "error of the pulse {:.1%}"
    caption = "Left: the true waves. Right: those of the pulse that was found."

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
        """Simulate the waves of a pulse that starts at rest; return the pond over time, and the sensors' record (steps,
        SENSORS).
        """
        (u, _), heard = scan(
            self.ripple, (pulse, pulse), length=self.steps, parameters=(self.damping, self.sensors), **how
        )
        return u, heard

    def loss(self) -> Tensor:
        """Return the squared misfit of the pulse's record from the true one, relative to the true one."""
        misfit = self.record(self.pulse)[1] - self.heard
        return misfit.square().sum() / self.heard.square().sum()

    @cached_property
    def heard(self) -> Tensor:
        """The sensors' record of the true pulse: everything that the search knows."""
        return self.record(self.truth)[1]

    def look(self) -> Look:
        """Draw the true pond over time beside the pond of the current pulse."""
        ponds = [self.record(pulse, keep=self.every)[0] for pulse in (self.truth, self.pulse)]
        error = (self.pulse - self.truth).norm() / self.truth.norm()
        begin = [torch.cat([pulse[None], pond]) for pulse, pond in zip((self.truth, self.pulse), ponds, strict=True)]
        frames = [colorize(torch.cat(pair, 1), -0.8, 0.8, zoom=4) for pair in zip(*begin, strict=True)]
        return Look(frames, error.item())
