"""Rigid billiards: how must the cue ball be struck so that one ball of the rack reaches the pocket?

Contacts are branches: balls that touch and approach exchange momentum; all others keep moving. The gradient goes
through the branch that was taken. It is useful because a collision happens at its exact time within the step: if
collisions happened at the ends of steps, their places would jump, and a derivative tells nothing of jumps.
"""

from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...operation import op
from ...time import scan
from ._drawing import Canvas
from ._simulation import FRAME_WIDTH, Look, Simulation

RATE = 4e-3  # seconds a step
RADIUS, LENGTH, WIDTH = 0.03, 1.5, 1.0
BOUNCE, DRAG = 0.9, 0.25  # velocity kept in a collision; velocity lost per second
ROWS = 4
POCKET, SUNK = (0.75, 0.97), 6  # the pocket's position, and the number of the ball that must reach it
SHOTS = 32  # tried at once: a single one would end in the nearest local minimum


def build_kernel(ti: Any) -> Any:
    """Build the kernel of one step: contacts with the other balls and the cushions, each at its time within
    the step.
    """
    array = ti.types.ndarray()

    @ti.kernel
    def roll(x: array, v: array, x_next: array, v_next: array):
        for i in range(x.shape[0]):
            place, speed = ti.Vector([x[i, 0], x[i, 1]]), ti.Vector([v[i, 0], v[i, 1]])
            change, late = ti.Vector([0.0, 0.0]), ti.Vector([0.0, 0.0])
            for j in range(x.shape[0]):
                if i != j:
                    apart = place - ti.Vector([x[j, 0], x[j, 1]])
                    closing = speed - ti.Vector([v[j, 0], v[j, 1]])
                    ahead = apart + RATE * closing
                    gap = ahead.norm() - 2.0 * RADIUS
                    if gap < 0.0:
                        n = ahead.normalized()
                        approach = closing.dot(n)
                        if approach < 0.0:
                            kick = -0.5 * (1.0 + BOUNCE) * approach * n
                            after = ti.min(gap / ti.min(approach, -1e-3), RATE)  # seconds of the step after contact
                            change += kick
                            late += (after - RATE) * kick
            for k in ti.static(range(2)):
                side = (LENGTH if k == 0 else WIDTH) - RADIUS
                ahead = place[k] + RATE * speed[k]
                over = ti.max(ahead - side, 0.0) - ti.max(RADIUS - ahead, 0.0)
                if over * speed[k] > 0.0:
                    change[k] -= (1.0 + BOUNCE) * speed[k]
                    late[k] += (RATE - over / speed[k]) * (1.0 + BOUNCE) * speed[k]
            speed += change
            for k in ti.static(range(2)):
                x_next[i, k] = place[k] + RATE * speed[k] + late[k]
                v_next[i, k] = (1.0 - RATE * DRAG) * speed[k]

    return roll


class Billiards(Simulation):
    """Find the start and the velocity of the cue ball: `cue` (SHOTS, 2, 2), in meters and meters per second."""

    steps, iterations, rate = 400, 60, 0.01
    rack: Tensor
    pocket: Tensor
    figure = "{:.4f} m from the pocket"
    caption = "The best of 32 shots: the orange ball must reach the pocket."

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        # The kernel is for one table; `*b` runs all tables in one launch.
        self.roll = op("x[*b, n, 2], v[*b, n, 2] -> x_next[*b, n, 2], v_next[*b, n, 2]")(build_kernel(get(engine).lang))
        rack = [
            (0.8 + 1.8 * RADIUS * i, WIDTH / 2 + 2.05 * RADIUS * (j - i / 2)) for i in range(ROWS) for j in range(i + 1)
        ]
        self.keep_constants(rack=torch.tensor(rack).expand(SHOTS, -1, 2), pocket=torch.tensor(POCKET))
        angle = torch.linspace(-0.15, 0.15, SHOTS)
        place = torch.tensor([0.2, 0.5]).expand(SHOTS, 2)
        self.cue = torch.nn.Parameter(torch.stack([place, 1.5 * torch.stack([angle.cos(), angle.sin()], 1)], 1))

    def run(self) -> Tensor:
        """Simulate all shots; return the positions of all balls after each step, (steps, SHOTS, balls, 2). The first is
        the cue ball.
        """
        x = torch.cat([self.cue[:, :1], self.rack], 1)
        v = torch.cat([self.cue[:, 1:], torch.zeros_like(self.rack)], 1)
        return scan(self.roll, (x, v), length=self.steps, keep="all")[0][0]

    def measure_misses(self, x: Tensor) -> Tensor:
        """Return the smallest squared distance of the ball from the pocket, for each shot."""
        return (x[:, :, SUNK] - self.pocket).square().sum(-1).amin(0)

    def loss(self) -> Tensor:
        """Return the mean of the shots' smallest squared distances from the pocket."""
        return self.measure_misses(self.run()).mean()

    def look(self) -> Look:
        x = self.run()
        misses = self.measure_misses(x)
        best = x[:, misses.argmin()]
        frames = [self.draw(best[: step + 1]) for step in range(0, self.steps, self.every)]
        return Look(frames, misses.min().sqrt().item())

    def draw(self, x: Tensor) -> Tensor:
        canvas = Canvas(FRAME_WIDTH, 0, LENGTH, 0, WIDTH, "#2d6a4f")
        canvas.disc(POCKET, 1.5 * RADIUS, "#111111")
        for ball, color in ((0, "#eeeeee"), (SUNK, "#f4a261")):
            canvas.line(x[:, ball], color, 1)
        for ball, place in enumerate(x[-1]):
            canvas.disc(place, RADIUS, "#ffffff" if ball == 0 else "#f4a261" if ball == SUNK else "#9b2226")
        return canvas.pixels()
