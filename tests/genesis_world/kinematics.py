"""Forward kinematics of a chain of joints in Genesis: prints how far its values and gradients are from torch's."""

from __future__ import annotations

import json
import tempfile

import genesis as gs
import torch
from genesis.engine.solvers.rigid.abd.forward_kinematics import kernel_forward_kinematics

import tinsmith as ts

LENGTHS = 0.3, 0.25, 0.2
AXES = (0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (0.6, 0.8, 0.0)
"""Of three hinges, each in the frame of its link."""


def describe_chain() -> str:
    """Return MuJoCo's description of links that hang from each other."""
    text = ""
    for axis, length, above in reversed(list(zip(AXES, LENGTHS, (0.0, *LENGTHS[:-1]), strict=True))):
        joint = f'<joint type="hinge" axis="{axis[0]} {axis[1]} {axis[2]}"/>'
        shape = f'<geom type="capsule" fromto="0 0 0 0 0 {-length}" size="0.03" mass="0.5"/>'
        text = f'<body pos="0 0 {-above}">{joint}{shape}{text}</body>'
    return f"<mujoco><worldbody>{text}</worldbody></mujoco>"


def build_solver():
    """Build the chain in two environments. Return the solver that moves it."""
    gs.init(backend=gs.cpu, precision="64", logging_level="error")
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(describe_chain())
        file.flush()
        options = gs.options.RigidOptions(enable_collision=False, disable_constraint=True)
        world = gs.Scene(show_viewer=False, rigid_options=options)
        world.add_entity(gs.morphs.MJCF(file=file.name))
        world.build(n_envs=2)
    return world.sim.rigid_solver


def rotate(axis: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    """Return the matrix [env, 3, 3] of a rotation about an axis [3] by angles [env]."""
    x, y, z = axis
    zero = torch.zeros_like(x)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
    sine, cosine = angle.sin()[:, None, None], angle.cos()[:, None, None]
    return torch.eye(3, dtype=torch.float64) + sine * cross + (1 - cosine) * cross @ cross


def compute_with_torch(qpos: torch.Tensor, vel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions and angular velocities [link, env, 3] of the links, given angles and speeds [joint, env]."""
    turn = torch.eye(3, dtype=torch.float64).expand(qpos.shape[1], 3, 3)
    position, speed = torch.zeros(2, qpos.shape[1], 3, dtype=torch.float64)
    positions, speeds = [], []
    for number, axis in enumerate(torch.tensor(AXES, dtype=torch.float64)):
        if number:
            position = position - LENGTHS[number - 1] * turn[:, :, 2]
        speed = speed + vel[number][:, None] * (turn @ axis)
        turn = turn @ rotate(axis, qpos[number])
        positions.append(position)
        speeds.append(speed)
    return torch.stack(positions), torch.stack(speeds)


def main() -> None:
    """Compare values and gradients, and print how far they are off, relative to the largest number."""
    solver = build_solver()
    links = solver.dyn_state.links
    kinematics = ts.rollout(
        lambda: kernel_forward_kinematics(
            solver.scene._envs_idx, solver.dyn_state, solver.dyn_info, solver.rigid_info, solver.rigid_config
        ),
        {"qpos": solver.rigid_info.qpos, "vel": solver.dyn_state.dofs.vel},
        {"positions": links.pos, "speeds": links.cd_ang},
    )
    torch.manual_seed(0)
    inputs = [torch.randn(3, 2, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    ours = [one[-3:] for one in kinematics(*inputs)]
    expected = compute_with_torch(*inputs)
    weights = [torch.randn_like(one) for one in expected]
    pairs = [
        *zip(ours, expected, strict=True),
        *zip(torch.autograd.grad(ours, inputs, weights), torch.autograd.grad(expected, inputs, weights), strict=True),
    ]
    names = "positions", "speeds", "gradient of qpos", "gradient of vel"
    off = [float((got - wanted).abs().max() / wanted.abs().max()) for got, wanted in pairs]
    print("RESULTS", json.dumps(dict(zip(names, off, strict=True))))


if __name__ == "__main__":
    main()
