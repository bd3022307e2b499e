"""A network swings up a chain of joints that Genesis simulates.

Genesis' own substep, unedited, becomes a function of torch by `ts.rollout`: it takes positions, velocities and
torques of the joints, and returns positions and velocities one control period later. A network that sees the state
computes the torques of each period, and is trained through all of them. What is to be done for another scene:
docs/how-to/genesis.md.

    pip install tinsmith[genesis,apps]
    python examples/genesis/swing_up.py --out out/swing-up
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

parser = argparse.ArgumentParser(description="A network swings up a chain of joints that Genesis simulates.")
parser.add_argument("--out", type=Path, default=Path("out/swing-up"))
parser.add_argument("--joints", type=int, default=3)
parser.add_argument("--periods", type=int, default=60, help="control periods in a run")
parser.add_argument("--substeps", type=int, default=1, help="of Genesis, in a control period")
parser.add_argument("--dt", type=float, default=0.02, help="duration of a substep in seconds")
parser.add_argument("--iterations", type=int, default=120, help="of Adam")
parser.add_argument("--quick", action="store_true", help="a little training only, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if options.quick:
    options.joints, options.periods, options.iterations = 2, 10, 3

LENGTH, RADIUS = 0.25, 0.02
"""Of a link, in meters."""
TORQUE = 3.0
"""The most that a joint can do, in newton meters. It cannot hold the chain horizontally."""


# %% The scene: links that hang from each other, without contact
def chain(joints):
    """Return a chain in MuJoCo's XML. It is upright if all joints are at 0."""
    text = ""
    for number in reversed(range(joints)):
        text = (
            f'<body name="link{number}" pos="0 0 {LENGTH if number else 0}">'
            f'<joint name="joint{number}" type="hinge" axis="0 1 0" damping="0.05"/>'
            f'<geom type="capsule" fromto="0 0 0 0 0 {LENGTH}" size="{RADIUS}"/>{text}</body>'
        )
    return f"<mujoco><worldbody>{text}</worldbody></mujoco>"


if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
    gs.init(backend=gs.cpu, precision="64", performance_mode=True, logging_level="warning", seed=0)
    (options.out / "chain.xml").write_text(chain(options.joints))
    scene = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=options.dt, substeps=1),
        rigid_options=gs.options.RigidOptions(
            enable_collision=False,
            enable_joint_limit=False,
            disable_constraint=True,
            enable_mujoco_compatibility=True,  # it then computes no poses for the next substep
        ),
    )
    scene.add_entity(gs.morphs.MJCF(file=str(options.out / "chain.xml"), default_armature=0.01))
    scene.build()
    solver = scene.sim.rigid_solver
    dofs, qpos = solver.dyn_state.dofs, solver.rigid_info.qpos


# %% What is differentiated: a control period
# Poses and velocities of links count as out of date, also after `build`, so that the substep computes them. Positions
# and velocities of the joints are then all the state that it takes over.
def run_period():
    solver._is_forward_pos_updated = solver._is_forward_vel_updated = False
    for _ in range(options.substeps):
        solver.substep(0)


if __name__ == "__main__":
    period = ts.rollout(
        run_period,
        {"qpos": qpos, "vel": dofs.vel, "torque": dofs.ctrl_force},
        {"next_qpos": qpos, "next_vel": dofs.vel},
    )


def run_in_genesis(positions, speeds, torques):
    """Run one period with Genesis' own kernels only, without tinsmith; return positions and speeds."""
    qpos.from_torch(positions.detach())
    dofs.vel.from_torch(speeds.detach())
    dofs.ctrl_force.from_torch(torques.detach())
    run_period()
    return qpos.to_torch().clone(), dofs.vel.to_torch().clone()


# %% The policy, and the loss of a run
class Policy(torch.nn.Module):
    def __init__(self, joints):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(3 * joints, 32), torch.nn.Tanh(), torch.nn.Linear(32, joints), torch.nn.Tanh()
        )

    def forward(self, positions, speeds):
        q, v = positions[:, 0], speeds[:, 0]
        return TORQUE * self.layers(torch.cat([q.sin(), q.cos(), 0.1 * v]))[:, None]


def heights(positions):
    """Return the heights of the ends of all links, as a fraction of the chain's length: 1 is upright."""
    return (positions.cumsum(0).cos().cumsum(0) / len(positions))[:, 0]


def run(policy, function):
    """Simulate a run that starts hanging at rest; return the positions of the joints after each period, and
    the loss.
    """
    positions = torch.zeros(options.joints, 1, dtype=torch.float64)
    positions[0] = torch.pi
    speeds = torch.zeros_like(positions)
    # Gradients are prepared for each set of inputs that require one: so it is the same set in all periods.
    positions.requires_grad_(), speeds.requires_grad_()
    path, loss = [positions], 0.0
    for number in range(options.periods):
        positions, speeds = function(positions, speeds, policy(positions, speeds))
        path.append(positions)
        weight = ((number + 1) / options.periods) ** 2  # to be upright matters at the end
        loss = loss + weight * ((1 - heights(positions)[-1]) + 0.002 * speeds.square().mean())
    return torch.stack(path), loss / options.periods


# %% The gradient against central differences of Genesis alone
def check_period(generator, steps=1e-6):
    """Compare the whole Jacobian of a period with differences, and print the error."""
    sizes = (3.0, 1.0, 1.0)
    inputs = [size * torch.randn(options.joints, 1, generator=generator, dtype=torch.float64) for size in sizes]
    analytic = torch.autograd.functional.jacobian(lambda *tensors: torch.cat(period(*tensors)), tuple(inputs))
    off = 0.0
    for chosen, jacobian in enumerate(analytic):
        for joint in range(options.joints):
            ends = []
            for sign in (1, -1):
                moved = [tensor.clone() for tensor in inputs]
                moved[chosen][joint] += sign * steps
                ends.append(torch.cat(run_in_genesis(*moved)))
            difference = (ends[0] - ends[1]) / (2 * steps)
            off = max(off, (jacobian[:, :, joint] - difference[..., None]).abs().max().item())
    largest = max(jacobian.abs().max().item() for jacobian in analytic)
    same = all(map(torch.equal, period(*inputs), run_in_genesis(*inputs)))
    print(f"a period: {'bitwise as Genesis computes it' if same else 'NOT as Genesis computes it'}")
    print(f"its Jacobian, against central differences: off by {off / largest:.1e} of its largest element")


def check_run(policy, steps=1e-5):
    """Compare the derivative of a whole run with differences, along the gradient of the policy's weights."""
    _, loss = run(policy, period)
    gradient = torch.autograd.grad(loss, list(policy.parameters()))
    size = torch.cat([part.flatten() for part in gradient]).norm()
    ends = []
    with torch.no_grad():
        for sign in (1, -1):
            for parameter, part in zip(policy.parameters(), gradient, strict=True):
                parameter += sign * steps * part / size
            ends.append(run(policy, run_in_genesis)[1].item())
            for parameter, part in zip(policy.parameters(), gradient, strict=True):
                parameter -= sign * steps * part / size
    slope = (ends[0] - ends[1]) / (2 * steps)
    print(
        f"gradient of the weights through {options.periods} periods: {size:.9f}, by differences {slope:.9f}, "
        f"off by {abs(slope - size.item()) / size:.1e}"
    )


if __name__ == "__main__":
    start = time.perf_counter()
    state = torch.zeros(options.joints, 1, dtype=torch.float64, requires_grad=True)
    ends = period(state, state, state)
    print(f"first period, which generates and compiles: {time.perf_counter() - start:.0f} s", flush=True)
    start = time.perf_counter()
    sum(end.sum() for end in ends).backward()
    print(f"its first gradient: {time.perf_counter() - start:.0f} s", flush=True)
    torch.manual_seed(0)
    policy = Policy(options.joints).double()
    check_period(torch.Generator().manual_seed(1))
    check_run(policy)


# %% Training
if __name__ == "__main__":
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    before = run(policy, run_in_genesis)[0].detach()
    losses = []
    start = time.perf_counter()
    for iteration in range(options.iterations):
        path, loss = run(policy, period)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if iteration % 10 == 0 or iteration == options.iterations - 1:
            print(
                f"iteration {iteration:3}: loss {losses[-1]:.3f}, end at {heights(path[-1])[-1]:5.2f} of the length",
                flush=True,
            )
    seconds = (time.perf_counter() - start) / (options.iterations * options.periods)
    print(f"{1000 * seconds:.1f} ms for a period, forward and backward")
    after = run(policy, run_in_genesis)[0].detach()
    reached = [f"{heights(path[-1])[-1]:.2f}" for path in (before, after)]
    print(f"at the end: {reached[0]} of the length before training, {reached[1]} after it")


# %% Pictures: the loss, and the chain before and after training
def ends_of(positions):
    """Return the ends of the links in the plane of the chain, in meters. The first is the point where the
    chain hangs.
    """
    angles = positions[:, 0].cumsum(0)
    links = LENGTH * torch.stack([angles.sin(), angles.cos()], 1)
    return torch.cat([torch.zeros(1, 2), links.cumsum(0)])


def draw_frame(figure, paths, number):
    """Draw the chain after some periods, before and after training, with the path of its end."""
    figure.clear()
    seconds = number * options.substeps * options.dt
    figure.suptitle(f"A network swings up {options.joints} joints in Genesis: {seconds:.2f} s", fontsize=12)
    reach = 1.15 * LENGTH * options.joints
    for axes, (title, path) in zip(figure.subplots(1, 2), paths.items(), strict=True):
        way = torch.stack([ends_of(positions)[-1] for positions in path[: number + 1]])
        axes.plot(*way.T, color="#c0392b", lw=1, alpha=0.6)
        axes.plot(*ends_of(path[number]).T, "o-", color="#2c3e50", lw=6, ms=9, solid_capstyle="round")
        axes.plot(0, 0, "s", color="#888888", ms=11)
        axes.set(title=title, xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="m")
    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3])


if __name__ == "__main__":
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    axes.plot(losses, color="#2c3e50")
    axes.set(title=f"Swing up {options.joints} joints", xlabel="iteration of Adam", ylabel="loss")
    axes.grid(alpha=0.3)
    figure.savefig(options.out / "loss.png", dpi=100)
    figure = plt.figure(figsize=(7.2, 4.2), dpi=100, layout="constrained")
    paths = {"before training": before, f"after {options.iterations} iterations": after}
    frames = [draw_frame(figure, paths, number) for number in range(options.periods + 1)]
    duration = [int(1000 * options.substeps * options.dt)] * options.periods + [1500]
    frames[0].save(
        options.out / "swing-up.gif", save_all=True, append_images=frames[1:], duration=duration, loop=0, optimize=True
    )
    print(f"swing-up.gif and loss.png are in {options.out}")
