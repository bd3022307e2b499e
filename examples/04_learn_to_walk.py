"""A simulator as a torch module: a robot of springs learns to walk.

The simulator is a data-oriented class of Taichi, with fields and a time loop. As a module of torch it takes the
tension of each spring at each step and returns the path of each node; a network computes the tensions, and both are
differentiated end to end. The robot is like that of DiffTaichi's mass-spring example,
https://github.com/taichi-dev/difftaichi. A guide to simulations: docs/guide/simulation.md.

    python examples/04_learn_to_walk.py --out out/walk
"""

# %% Options
import argparse
from pathlib import Path

import taichi as ti
import torch
from matplotlib import pyplot as plt

import tinsmith as ts

parser = argparse.ArgumentParser(description="A robot of springs learns to walk.")
parser.add_argument("--out", type=Path, default=Path("out/walk"))
parser.add_argument("--quick", action="store_true", help="a little training only, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu", default_fp=ti.f64)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
STEPS, TRAINING = 400, 40 if options.quick else 200

# %% The body: a row of squares, with their sides and diagonals as springs
SQUARES = 3
nodes = torch.tensor([(0.1 * i, 0.1 * j) for i in range(SQUARES + 1) for j in range(2)])
pairs = [(2 * i, 2 * i + 1) for i in range(SQUARES + 1)]
for i in range(SQUARES):
    pairs += [(2 * i, 2 * i + 2), (2 * i + 1, 2 * i + 3), (2 * i, 2 * i + 3), (2 * i + 1, 2 * i + 2)]
springs = torch.tensor(pairs)


# %% The simulator
# The fields hold the state of each step, so a backward pass can read it there.
@ti.data_oriented
class Robot:
    """Springs between nodes, over a floor at height 0."""

    def __init__(self, nodes, springs, steps, dt=0.004):
        n, m = len(nodes), len(springs)
        self.steps, self.dt, self.n, self.m = steps, dt, n, m
        self.start = ti.field(ti.f64, shape=(n, 2))
        self.ends = ti.field(ti.i32, shape=(m, 2))
        self.rest = ti.field(ti.f64, shape=m)
        self.start.from_torch(nodes)
        self.ends.from_torch(springs.int())
        self.rest.from_torch((nodes[springs[:, 0]] - nodes[springs[:, 1]]).norm(dim=1))
        self._tension = ti.field(ti.f64, shape=(steps, m), needs_grad=True)
        self._x = ti.field(ti.f64, shape=(steps + 1, n, 2), needs_grad=True)
        self.v = ti.field(ti.f64, shape=(steps + 1, n, 2), needs_grad=True)
        self.push = ti.field(ti.f64, shape=(steps, n, 2), needs_grad=True)

    @ts.input
    def tension(self):
        return self._tension

    @ts.output
    def x(self):
        return self._x

    @ts.kernel
    @ti.kernel
    def run(self):
        for i, k in self.start:
            self._x[0, i, k] = self.start[i, k]
            self.v[0, i, k] = 0.0
        for t, i, k in self.push:
            self.push[t, i, k] = 0.0
        ti.loop_config(serialize=True)
        for t in range(self.steps):
            for s in range(self.m):  # each spring pushes both its ends
                a, b = self.ends[s, 0], self.ends[s, 1]
                dx = self._x[t, b, 0] - self._x[t, a, 0]
                dy = self._x[t, b, 1] - self._x[t, a, 1]
                length = ti.sqrt(dx * dx + dy * dy)
                ux, uy = dx / length, dy / length
                drift = (self.v[t, b, 0] - self.v[t, a, 0]) * ux + (self.v[t, b, 1] - self.v[t, a, 1]) * uy
                wanted = self.rest[s] * (1.0 + 0.15 * self._tension[t, s])
                impulse = self.dt * (8000.0 * (length - wanted) + 10.0 * drift)
                self.push[t, a, 0] += impulse * ux
                self.push[t, a, 1] += impulse * uy
                self.push[t, b, 0] -= impulse * ux
                self.push[t, b, 1] -= impulse * uy
            for i in range(self.n):
                depth = ti.max(-self._x[t, i, 1], 0.0)  # the floor gives way, and holds what presses on it
                grip = 1.0 / (1.0 + 500.0 * depth)
                vx = grip * (0.96 * self.v[t, i, 0] + self.push[t, i, 0])
                vy = grip * (0.96 * self.v[t, i, 1] + self.push[t, i, 1] - 4.8 * self.dt) + self.dt * 4000.0 * depth
                self.v[t + 1, i, 0] = vx
                self.v[t + 1, i, 1] = vy
                self._x[t + 1, i, 0] = self._x[t, i, 0] + self.dt * vx
                self._x[t + 1, i, 1] = self._x[t, i, 1] + self.dt * vy


# %% The module, and a network that drives it
if __name__ == "__main__":
    robot = Robot(nodes, springs, STEPS)
    walk = ts.Tin(robot, on_tensors=True)  # the kernel as an op, with a gradient generated from its source


class Controller(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, len(springs)), torch.nn.Tanh()
        )
        time = robot.dt * torch.arange(STEPS)[:, None]
        self.register_buffer("waves", torch.sin(20.0 * time + torch.arange(6) * torch.pi / 3))

    def forward(self):
        return self.layers(self.waves)


# %% Training
def traveled(x):
    """Return how far the middle of the body moved."""
    return x[-1, :, 0].mean() - x[0, :, 0].mean()


if __name__ == "__main__":
    controller = Controller()
    optimizer = torch.optim.Adam(controller.parameters(), lr=0.002)
    with torch.no_grad():
        before = walk(controller())
    for step in range(TRAINING + 1):
        way = traveled(walk(controller()))
        optimizer.zero_grad()
        (-way).backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:3}: {100 * way.item():5.1f} cm", flush=True)
    with torch.no_grad():
        after = walk(controller())


# %% Plot: before and after training, five moments each
def draw(axes, x, title, shots=5):
    """Draw the body at some steps, from pale to dark, with the path of its middle and the floor."""
    axes.axhline(0, color="#888888", lw=2)
    axes.plot(*x.mean(1).T, color="#c0392b", lw=2, zorder=3, label="path of the middle")
    for shot in range(shots):
        step = shot * (len(x) - 1) // (shots - 1)
        shade = str(0.8 - 0.8 * shot / (shots - 1))
        for place, (a, b) in enumerate(pairs):
            label = f"at {robot.dt * step:.1f} s" if place == 0 else None
            axes.plot(*x[step, [a, b]].T, color=shade, lw=2, label=label)
    axes.set(title=f"{title}: {100 * traveled(x):.1f} cm in {robot.dt * STEPS:.1f} s", ylabel="height, m")
    axes.set(xlim=(-0.05, 1.5), ylim=(-0.02, 0.25), aspect="equal")


if __name__ == "__main__":
    figure, (above, below) = plt.subplots(2, figsize=(9, 4.4), layout="constrained", sharex=True)
    draw(above, before, "Before training")
    draw(below, after, f"After {TRAINING} steps of Adam")
    below.set_xlabel("distance, m")
    above.legend(loc="upper right", fontsize=8, frameon=False, ncols=2)
    figure.savefig(options.out / "walk.png", dpi=100)
    print(f"walk.png is in {options.out}")
