"""A robot of masses and springs with a neural controller that observes it at each step: a closed loop.

The controller commands how much springs contract. Its inputs are the positions and velocities of the nodes, and a few
clocks. Gradients go through the physics and through the network, step by step.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...nn import NetworkWithInputEncoding
from ...operation import op
from ...time import scan
from ._drawing import Canvas
from ._simulation import FRAME_WIDTH, Look, Simulation

RATE = 4e-3  # seconds a step
SQUARES, SIDE = 3, 0.1  # the body is a row of squares
CLOCKS, PERIOD = 4, 0.2  # seconds
EVERY = 4  # steps of the physics for each step of the controller


def build_kernel(ti: Any) -> Any:
    """Build the kernel of one step: springs push nodes, and a soft floor pushes back, with friction."""
    array = ti.types.ndarray()

    @ti.kernel
    def swing(x: array, v: array, tension: array, ends: array, rest: array, push: array, x_next: array, v_next: array):
        for s in range(rest.shape[0]):
            a, b = ends[s, 0], ends[s, 1]
            d = ti.Vector([x[b, 0] - x[a, 0], x[b, 1] - x[a, 1]])
            u = d / d.norm()
            drift = ti.Vector([v[b, 0] - v[a, 0], v[b, 1] - v[a, 1]]).dot(u)
            impulse = RATE * (8000.0 * (d.norm() - rest[s] * (1.0 + 0.15 * tension[s])) + 10.0 * drift)
            for k in ti.static(range(2)):
                push[a, k] += impulse * u[k]
                push[b, k] -= impulse * u[k]
        for i in range(x.shape[0]):
            depth = ti.max(-x[i, 1], 0.0)
            grip = 1.0 / (1.0 + 500.0 * depth)
            w = grip * ti.Vector([0.96 * v[i, 0] + push[i, 0], 0.96 * v[i, 1] + push[i, 1] - 4.8 * RATE])
            w[1] += RATE * 4000.0 * depth
            for k in ti.static(range(2)):
                v_next[i, k] = w[k]
                x_next[i, k] = x[i, k] + RATE * w[k]

    return swing


class SpringRobot(Simulation):
    """Learn the weights of a network that controls the lengths of springs."""

    steps, iterations, rate = 100, 60, 0.01
    nodes: Tensor
    ends: Tensor
    rest: Tensor
    clocks: Tensor
    figure = "walked {:.3f} m"
    caption = "Masses and springs, controlled by a network."

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        spec = "x[n, 2], v[n, 2], tension[m], ends[m, 2]: i32, rest[m] -> x_next[n, 2], v_next[n, 2]"
        self.swing = op(spec, scratch="push[n, 2]", deterministic=True)(build_kernel(get(engine).lang))
        nodes = torch.tensor([(SIDE * i, SIDE * j) for i in range(SQUARES + 1) for j in range(2)])
        pairs = [(2 * i, 2 * i + 1) for i in range(SQUARES + 1)]
        for i in range(SQUARES):
            pairs += [(2 * i, 2 * i + 2), (2 * i + 1, 2 * i + 3), (2 * i, 2 * i + 3), (2 * i + 1, 2 * i + 2)]
        ends = torch.tensor(pairs)
        time = EVERY * RATE * torch.arange(self.steps)[:, None]
        self.keep_constants(
            nodes=nodes,
            ends=ends.int(),
            rest=(nodes[ends[:, 0]] - nodes[ends[:, 1]]).norm(dim=1),
            clocks=torch.sin(2 * math.pi * (time / PERIOD + torch.arange(CLOCKS) / CLOCKS)),
        )
        config = {"otype": "FullyFusedMLP", "n_neurons": 32, "n_hidden_layers": 1}
        config |= {"activation": "Tanh", "output_activation": "Tanh"}
        # The seed comes from torch's generator, like all random numbers here.
        seed = int(torch.randint(2**31, ()))
        shape = 4 * len(nodes) + CLOCKS, len(pairs)
        # Without padding: checkpoints of version 0.1.0 resume.
        encoding = {"otype": "Identity"}
        self.controller = NetworkWithInputEncoding(*shape, encoding, config, seed, engine=engine, alignment=1)

    def control(self, state: tuple[Tensor, Tensor], clocks: Tensor) -> tuple[tuple[Tensor, Tensor], None]:
        """Run the controller once, then the physics until the next control step. Return the state, and None
        as output.
        """
        x, v = state
        bent = (x - x.mean(0)) - (self.nodes - self.nodes.mean(0))
        # Small factors: with a strong feedback, the motion and its gradient diverge.
        seen = torch.cat([3.0 * bent.flatten(), 0.1 * v.flatten(), clocks])
        tension = self.controller(seen[None])[0].to(x.dtype)
        for _ in range(EVERY):
            x, v = self.swing(x, v, tension, self.ends, self.rest)
        return (x, v), None

    def walk(self, **how: Any) -> Tensor:
        """Simulate the robot; return the positions of the nodes at the end."""
        begin = self.nodes, torch.zeros_like(self.nodes)
        return scan(self.control, begin, self.clocks, **how)[0][0]

    def loss(self) -> Tensor:
        """Return the negative distance that the robot's center walked along x."""
        return (self.nodes - self.walk()).mean(0)[0]

    def look(self) -> Look:
        x = torch.cat([self.nodes[None], self.walk(keep=self.every)])
        return Look([self.draw(one) for one in x], (x[-1] - x[0]).mean(0)[0].item())

    def draw(self, x: Tensor) -> Tensor:
        canvas = Canvas(FRAME_WIDTH, -0.1, 1.5, -0.05, 0.35)
        canvas.line([(-1, 0), (2, 0)], "#888888", 2)
        for a, b in self.ends.tolist():
            canvas.line([x[a], x[b]], "#333333", 2)
        for node in x:
            canvas.disc(node, 0.012, "#d95f02")
        return canvas.pixels()
