"""A renderer in the loop: how stiff is a ring of jelly, and how was it thrown? Only a video of it is known.

Each step moves the ring and draws it. The parameters get their gradient through the pixels of all frames, and through
the whole flight before each of them.
"""

import math
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...operation import op
from ...time import scan
from ._drawing import colorize
from ._simulation import Look, Simulation

NODES, RING = 16, 0.15  # nodes on a ring of this radius in meters
REACH = (1, 2, 3, 8)  # springs connect a node to these next ones, the last one across the ring
RATE, GRAVITY, FLOOR = 0.01, 2.5, 3000.0  # seconds a step; meters per second squared; stiffness of the floor
ROWS, COLUMNS, WIDTH = 24, 40, 1.5  # pixels; the width in meters
BLUR = 0.05  # meters: a sharper picture has no gradient towards a ring that is farther away


def build_kernel(ti: Any) -> Any:
    """Build the kernel of one step of the ring, which also draws it."""
    array = ti.types.ndarray()

    @ti.kernel
    def fly(x: array, v: array, rest: array, stiffness: array, x_next: array, v_next: array, seen: array):
        for i in range(NODES):
            place, speed = ti.Vector([x[i, 0], x[i, 1]]), ti.Vector([v[i, 0], v[i, 1]])
            push = ti.Vector([0.0, -GRAVITY + FLOOR * ti.max(-x[i, 1], 0.0)])
            for side in ti.static((-1, 1)):
                for k in ti.static(range(len(REACH))):
                    j = (i + side * REACH[k] + NODES) % NODES
                    apart = ti.Vector([x[j, 0], x[j, 1]]) - place
                    length = apart.norm()
                    closing = (ti.Vector([v[j, 0], v[j, 1]]) - speed).dot(apart) / length
                    push += (stiffness[None] * (length - rest[k]) + 2.0 * closing) * apart / length
            speed += RATE * push
            for k in ti.static(range(2)):
                v_next[i, k] = speed[k]
                x_next[i, k] = place[k] + RATE * speed[k]
        for r, c in seen:
            light, pixel = 0.0, WIDTH / COLUMNS
            for i in range(NODES):
                across, up = (c + 0.5) * pixel - x_next[i, 0], (ROWS - r - 0.5) * pixel - x_next[i, 1]
                light += ti.exp(-(across * across + up * up) / (2.0 * BLUR * BLUR))
            seen[r, c] = light

    return fly


class JellyVideo(Simulation):
    """Find the stiffness of a ring, as its logarithm, and the velocity with which it was thrown, `throw` (2,)."""

    steps, iterations, rate = 120, 120, 0.05
    ring: Tensor
    rest: Tensor
    truth: Tensor
    figure = "stiffness off by {:.2%}"
    caption = "Left: the given video. Right: the ring as learned from it."

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        spec = "x[n, 2], v[n, 2], rest[4], stiffness[] -> x_next[n, 2], v_next[n, 2], seen[rows, columns]"
        self.fly = op(spec, deterministic=True)(build_kernel(get(engine).lang))
        angle = torch.arange(NODES) * 2 * math.pi / NODES
        self.keep_constants(
            ring=torch.stack([0.3 + RING * angle.cos(), 0.6 + RING * angle.sin()], 1),
            rest=torch.tensor([2 * RING * math.sin(math.pi * reach / NODES) for reach in REACH]),
            truth=torch.tensor([math.log(150.0), 0.9, 0.4]),
        )
        self.stiffness = torch.nn.Parameter(torch.tensor(math.log(80.0)))
        self.throw = torch.nn.Parameter(torch.zeros(2))

    def record(self, stiffness: Tensor, throw: Tensor) -> Tensor:
        """Simulate a ring of this log stiffness, thrown with this velocity; return its video (steps, ROWS, COLUMNS)."""
        parameters = {"rest": self.rest, "stiffness": stiffness.exp(), "rows": ROWS, "columns": COLUMNS}
        begin = self.ring, throw.expand(NODES, 2)
        return scan(self.fly, begin, length=self.steps, parameters=parameters)[1]

    @cached_property
    def video(self) -> Tensor:
        """The video of the true ring: everything that the search knows."""
        return self.record(self.truth[0], self.truth[1:])

    def loss(self) -> Tensor:
        """Return the squared difference of the ring's video from the given one, relative to the given one."""
        difference = self.record(self.stiffness, self.throw) - self.video
        return difference.square().sum() / self.video.square().sum()

    def look(self) -> Look:
        """Render the given video beside that of the current ring."""
        fitted_video = self.record(self.stiffness, self.throw)
        pairs = [torch.cat([self.video[at], fitted_video[at]], 1) for at in range(0, self.steps, self.every)]
        off = (self.stiffness - self.truth[0]).exp().item()
        return Look([colorize(one, 0.0, 5.0, 6, "magma") for one in pairs], abs(off - 1.0))
