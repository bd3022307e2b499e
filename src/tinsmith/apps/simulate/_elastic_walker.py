"""An elastic body that learns to walk: the material point method (MLS-MPM) in two dimensions, with muscles in its legs.

Particles carry the body, and interact on a grid. Each step is a chain of three kernels: particles to grid (p2g), forces
on the grid, grid to particles (g2p). The tension of each muscle over time is learned.
"""

import math
from typing import Any

import torch
from torch import Tensor

from ...engines import get
from ...operation import chain
from ...time import scan
from ._drawing import Canvas
from ._simulation import FRAME_WIDTH, Look, Simulation

GRID = 48  # cells along a side of the world, which is 1 x 1
RATE = 2e-3  # seconds a step: sound, with a speed of about 6 a second, must not cross a cell
STIFFNESS, STRENGTH, GRAVITY, FRICTION = 10.0, 4.0, 3.8, 0.8
FLOOR = 3  # cells below the floor, and behind each wall
WAVES, PERIOD = 4, 0.15  # seconds
SPACING = 0.5 / GRID  # between particles: two in a cell along each axis
"""Where the body's parts are: left, low, width, height, and the muscle in it."""
PARTS = (
    (0.00, 0.08, 0.28, 0.10, -1),
    (0.00, 0.00, 0.04, 0.08, 0),
    (0.04, 0.00, 0.04, 0.08, 1),
    (0.20, 0.00, 0.04, 0.08, 2),
    (0.24, 0.00, 0.04, 0.08, 3),
)


def build_kernels(ti: Any) -> list[Any]:
    """Build the kernels of one step: particles to grid, forces on the grid, grid to particles."""
    array = ti.types.ndarray()
    vectors = ti.types.ndarray(dtype=ti.types.vector(2, float))
    matrices = ti.types.ndarray(dtype=ti.types.matrix(2, 2, float))

    @ti.func
    def weights(fx):
        """Return the quadratic B-spline's weights of the three cells around a position, for each axis."""
        return ti.Matrix.rows([0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2])

    @ti.kernel
    def p2g(
        x: vectors,
        v: vectors,
        C: matrices,
        F: matrices,
        tension: array,
        muscle: array,
        F_next: matrices,
        mv: vectors,
        m: array,
    ):
        for p in x:
            base = ti.cast(x[p] * GRID - 0.5, ti.i32)
            fx = x[p] * GRID - base
            w = weights(fx)
            f = (ti.Matrix.identity(float, 2) + RATE * C[p]) @ F[p]
            F_next[p] = f
            # The rotation nearest to f, in closed form; then the stress of corotated elasticity.
            a, b = f[0, 0] + f[1, 1], f[1, 0] - f[0, 1]
            r = ti.Matrix([[a, -b], [b, a]]) / ti.sqrt(a * a + b * b)
            J = f.determinant()
            pull = 0.0
            if muscle[p] >= 0:
                pull = STRENGTH * tension[muscle[p]]
            stress = 2.0 * STIFFNESS * (f - r) @ f.transpose()
            stress += STIFFNESS * J * (J - 1.0) * ti.Matrix.identity(float, 2)
            stress += f @ ti.Matrix([[0.0, 0.0], [0.0, pull]]) @ f.transpose()
            mass = SPACING * SPACING
            affine = mass * (C[p] - (RATE * 4.0 * GRID * GRID) * stress)
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                share = w[i, 0] * w[j, 1]
                mv[base + offset] += share * (mass * v[p] + affine @ ((offset - fx) / GRID))
                m[base + offset] += share * mass

    @ti.kernel
    def collide(mv: vectors, m: array, u: vectors):
        for i, j in m:
            if m[i, j] > 0.0:
                w = mv[i, j] / m[i, j]
                w[1] -= RATE * GRAVITY
                if (i < FLOOR and w[0] < 0.0) or (i > GRID - FLOOR and w[0] > 0.0):
                    w[0] = 0.0
                if j < FLOOR and w[1] < 0.0:  # on the floor: Coulomb's friction
                    slide = ti.max(ti.abs(w[0]) + FRICTION * w[1], 0.0)
                    w[0] = slide if w[0] > 0.0 else -slide
                    w[1] = 0.0
                u[i, j] = w

    @ti.kernel
    def g2p(x: vectors, u: vectors, x_next: vectors, v_next: vectors, C_next: matrices):
        for p in x:
            base = ti.cast(x[p] * GRID - 0.5, ti.i32)
            fx = x[p] * GRID - base
            w = weights(fx)
            velocity = ti.Vector([0.0, 0.0])
            affine = ti.Matrix([[0.0, 0.0], [0.0, 0.0]])
            for i, j in ti.static(ti.ndrange(3, 3)):
                offset = ti.Vector([i, j])
                share = w[i, 0] * w[j, 1] * u[base + offset]
                velocity += share
                affine += 4.0 * GRID * share.outer_product(offset - fx)
            v_next[p] = velocity
            C_next[p] = affine
            x_next[p] = x[p] + RATE * velocity

    return [p2g, collide, g2p]


class ElasticWalker(Simulation):
    """Learn the tension of each muscle over time: waves of one period, mixed by `weights` and `bias`."""

    steps, iterations, rate = 600, 60, 0.1
    x: Tensor
    still: Tensor
    muscle: Tensor
    waves: Tensor
    figure = "walked {:.3f} of its world"
    caption = "An elastic body. Each colored part is a muscle."

    def __init__(self, engine: str, steps: int | None = None) -> None:
        super().__init__(steps)
        spec = (
            "x[n, 2], v[n, 2], C[n, 2, 2], F[n, 2, 2], tension[k], muscle[n]: i32"
            " -> x_next[n, 2], v_next[n, 2], C_next[n, 2, 2], F_next[n, 2, 2]"
        )
        scratch = f"mv[{GRID}, {GRID}, 2], m[{GRID}, {GRID}], u[{GRID}, {GRID}, 2]"
        self.move = chain(spec, build_kernels(get(engine).lang), scratch=scratch, deterministic=True)
        body = [_fill(*part) for part in PARTS]
        x = torch.cat([one for one, _ in body]) + torch.tensor([0.1, FLOOR / GRID])
        time = RATE * torch.arange(self.steps)[:, None]
        self.keep_constants(
            x=x,
            still=torch.zeros_like(x),
            muscle=torch.cat([muscle for _, muscle in body]),
            waves=torch.sin(2 * math.pi * (time / PERIOD + torch.arange(WAVES) / WAVES)),
        )
        self.weights = torch.nn.Parameter(0.01 * torch.randn(WAVES, len(PARTS) - 1))
        self.bias = torch.nn.Parameter(torch.zeros(len(PARTS) - 1))

    def walk(self, **how: Any) -> Tensor:
        """Simulate the body; return the positions of the particles at the end."""
        C = torch.zeros(len(self.x), 2, 2).to(self.x)
        begin = self.x, self.still, C, C + torch.eye(2).to(C)
        tension = torch.tanh(self.waves @ self.weights + self.bias)
        return scan(self.move, begin, tension, parameters=self.muscle, **how)[0][0]

    def loss(self) -> Tensor:
        """Return the negative distance that the body's center walked along x."""
        return (self.x - self.walk()).mean(0)[0]

    def look(self) -> Look:
        x = torch.cat([self.x[None], self.walk(keep=self.every)])
        return Look([self.draw(one) for one in x], (x[-1] - x[0]).mean(0)[0].item())

    def draw(self, x: Tensor) -> Tensor:
        canvas = Canvas(FRAME_WIDTH, 0, 1, 0.03, 0.43)
        canvas.line([(0, FLOOR / GRID), (1, FLOOR / GRID)], "#888888", 2)
        for place, muscle in zip(x.tolist(), self.muscle.tolist(), strict=True):
            canvas.disc(place, 0.6 * SPACING, ("#d95f02", "#7570b3", "#d95f02", "#7570b3", "#333333")[muscle])
        return canvas.pixels()


def _fill(left: float, low: float, width: float, height: float, muscle: int) -> tuple[Tensor, Tensor]:
    """Fill a rectangle with particles in rows; return their positions and the number of their muscle."""
    columns, rows = (torch.arange(0.5 * SPACING, length, SPACING) for length in (width, height))
    x = torch.cartesian_prod(left + columns, low + rows)
    return x, torch.full((len(x),), muscle, dtype=torch.int32)
