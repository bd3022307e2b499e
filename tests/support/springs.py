"""A spring in torch, and the plain loop that a scan stands for."""

import torch


def step_in_torch(state, force, stiffness):
    """Compute one step in torch; its output is the energy before."""
    x, v = state
    energy = (v * v).sum()
    v = v + 0.01 * (force - stiffness * torch.sin(x))
    return (x + 0.01 * v, v), energy


def run_loop(step, state, forces, *parameters):
    """Run a scan as a plain loop; return the states after each step, and the outputs."""
    states, outputs = [], []
    for force in forces:
        state, output = step(state, force, *parameters)
        states.append(state)
        outputs.append(output)
    stacked = tuple(torch.stack(column) for column in zip(*states, strict=True))
    return state, stacked, torch.stack(outputs)
