"""An elastic body is thrown so that it lands on a target: its velocity is learned through Genesis.

Genesis' own substeps of the material point method, unedited, become a function of torch by `ts.rollout`: it takes
places and velocities of all particles at the start, and returns their places at the end. What is to be done for another
scene: docs/how-to/genesis.md.

    pip install tinsmith[genesis,apps]
    python examples/genesis/throw.py --out out/throw
"""

# %% Options
import argparse
import time
from pathlib import Path

import genesis as gs
import numpy as np
import torch
from matplotlib import pyplot as plt
from PIL import Image

import tinsmith as ts

parser = argparse.ArgumentParser(description="An elastic body is thrown so that it lands on a target.")
parser.add_argument("--out", type=Path, default=Path("out/throw"))
parser.add_argument("--substeps", type=int, default=125)
parser.add_argument("--dt", type=float, default=0.004, help="duration of a substep in seconds")
parser.add_argument("--grid", type=int, default=16, help="cells in a meter")
parser.add_argument("--spacing", type=float, default=0.0375, help="between particles, in meters")
parser.add_argument("--iterations", type=int, default=15, help="of gradient descent")
parser.add_argument("--quick", action="store_true", help="a little training only, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if options.quick:
    options.substeps, options.dt, options.iterations = 6, 0.01, 2

SIZE = 0.15
"""Of the body, in meters."""
START, TARGET = (0.15, 0.25, 0.25), (1.0, 0.5, SIZE / 2)
"""Where the middle of the body is at first, and where it should be at the end: lying on the floor."""
ROOM = (1.25, 0.75, 0.75)


# %% The scene: an elastic cube in a room of Genesis' material point method
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
    gs.init(backend=gs.cpu, precision="64", logging_level="error", seed=0)
    wall = 3 / options.grid  # Genesis keeps particles that far from the ends of the grid
    scene = gs.Scene(
        show_viewer=False,
        # One step of Genesis is the whole throw, and so its own backward pass can be compared.
        sim_options=gs.options.SimOptions(
            dt=options.substeps * options.dt, substeps=options.substeps, requires_grad=True
        ),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(-wall,) * 3,
            upper_bound=tuple(size + wall for size in ROOM),
            grid_density=options.grid,
            particle_size=options.spacing,
        ),
    )
    body = scene.add_entity(
        morph=gs.morphs.Box(pos=START, size=(SIZE,) * 3),
        material=gs.materials.MPM.Elastic(E=1e4, nu=0.3, sampler="regular"),
    )
    scene.build()
    sim, particles = scene.sim, scene.sim.mpm_solver.particles
    print(f"{body.n_particles} particles, {options.substeps} substeps of {1000 * options.dt:g} ms")


# %% What is differentiated: all substeps of the throw
# As Genesis' own `step` does it. The counter is set back, so that each call is the first.
def fly():
    for substep in range(options.substeps):
        sim._cur_substep_global = substep
        sim.substep(substep)
    sim._cur_substep_global = 0


if __name__ == "__main__":
    throw = ts.rollout(
        fly,
        {"places": (particles.pos, 0), "velocities": (particles.vel, 0)},
        {"end": (particles.pos, -1)},
    )
    start = particles.pos.to_torch()[0].clone()


def miss(end):
    """Return the squared distance of the body's middle from the target."""
    return (end.reshape(-1, 3).mean(0) - torch.tensor(TARGET, dtype=end.dtype)).square().sum()


def throw_at(velocity):
    """Throw the body: all its particles have one velocity."""
    return miss(throw(start, velocity.expand(start.shape)))


# %% The gradient against Genesis' own, and against central differences
def throw_in_genesis(velocity):
    """Throw the body with Genesis' own gradient, without tinsmith; return the loss."""
    scene.reset()
    body.set_velocity(velocity)
    scene.step()
    return miss(body.get_state().pos)


if __name__ == "__main__":
    # A throw that hits the floor halfway: the gradient goes through contact and deformation.
    velocity = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64, requires_grad=True)
    begin = time.perf_counter()
    loss = throw_at(velocity)
    print(f"first throw, which generates and compiles: {time.perf_counter() - begin:.0f} s", flush=True)
    begin = time.perf_counter()
    (gradient,) = torch.autograd.grad(loss, velocity)
    print(f"its first gradient: {time.perf_counter() - begin:.0f} s", flush=True)

    differences = []
    for axis in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[axis] = 1e-6
        with torch.no_grad():
            differences.append((throw_at(velocity + step) - throw_at(velocity - step)).item() / 2e-6)
    off = (gradient - torch.tensor(differences)).abs().max() / gradient.abs().max()
    print(f"gradient {[round(value, 6) for value in gradient.tolist()]}, off by {off:.1e} from central differences")

    own_velocity = velocity.detach().clone().requires_grad_()
    own_loss = throw_in_genesis(own_velocity)
    own_loss.backward()
    off = (gradient - own_velocity.grad).abs().max() / gradient.abs().max()
    print(
        f"off by {off:.1e} from Genesis' own backward pass, and the loss by {abs(own_loss - loss).item():.1e}",
        flush=True,
    )
    scene.reset()


# %% Training
if __name__ == "__main__":
    velocity = torch.tensor([1.0, 0.0, 2.5], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([velocity], lr=1.0)
    paths, losses = {}, []
    begin = time.perf_counter()
    for iteration in range(options.iterations + 1):
        loss = throw_at(velocity)
        losses.append(loss.item())
        if iteration in (0, options.iterations):
            paths[iteration] = particles.pos.to_torch()[:, :, 0].clone()  # a rollout leaves all states in the fields
        if iteration % 3 == 0 or iteration == options.iterations:
            print(
                f"iteration {iteration:2}: {100 * losses[-1] ** 0.5:5.1f} cm from the target, "
                f"velocity {[round(value, 2) for value in velocity.tolist()]}",
                flush=True,
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{(time.perf_counter() - begin) / len(losses):.2f} s for an iteration")


# %% Pictures: the loss, and the throw before and after training
def draw_frame(figure, number):
    """Draw the body after some substeps, over its shadow, before and after training."""
    figure.clear()
    figure.suptitle(f"Learning to throw an elastic cube in Genesis: {number * options.dt:.2f} s", fontsize=12)
    for column, (iteration, path) in enumerate(paths.items()):
        axes = figure.add_subplot(1, 2, column + 1, projection="3d")
        title = "before training" if iteration == 0 else f"after {iteration} iterations"
        axes.set_title(f"{title}: {100 * losses[iteration] ** 0.5:.1f} cm off", fontsize=10, y=1.0)
        x, y, z = path[number].T
        axes.scatter(x, y, 0 * z, s=14, color="#bbbbbb", depthshade=False)
        axes.plot(*path[: number + 1].mean(1).T, color="#c0392b", lw=1)
        axes.scatter(x, y, z, c=z, cmap="viridis", vmin=0, vmax=0.6, s=22, edgecolors="#2c3e50", linewidths=0.3)
        half = SIZE / 2
        corners = [(-half, -half), (half, -half), (half, half), (-half, half), (-half, -half)]
        axes.plot(*([TARGET[axis] + corner[axis] for corner in corners] for axis in (0, 1)), 0, color="#e67e22", lw=2)
        axes.set(xlim=(0, ROOM[0]), ylim=(0, ROOM[1]), zlim=(0, ROOM[2]), yticks=(0, 0.3, 0.6), zticks=(0, 0.3, 0.6))
        axes.set_box_aspect(ROOM, zoom=1.3)
        axes.tick_params(labelsize=6, pad=-2)
        axes.view_init(elev=22, azim=-70)
    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])


if __name__ == "__main__":
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.semilogy([100 * loss**0.5 for loss in losses], color="#2c3e50")
    axes.set(title="An elastic cube thrown at a target", xlabel="iteration", ylabel="cm from the target")
    axes.grid(alpha=0.3)
    figure.savefig(options.out / "loss.png", dpi=100)
    figure = plt.figure(figsize=(7.2, 3.2), dpi=100)
    figure.subplots_adjust(left=0.0, right=0.96, bottom=0.02, top=0.92, wspace=0.0)
    every = max(1, options.substeps // 40)
    frames = [draw_frame(figure, number) for number in [*range(0, options.substeps, every), options.substeps]]
    duration = [int(2000 * every * options.dt)] * (len(frames) - 1) + [1500]  # half as fast as it is
    frames[0].save(
        options.out / "throw.gif", save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=True
    )
    print(f"throw.gif and loss.png are in {options.out}")
