"""A spring as an op, as an op that updates its state, as a chain and as torch."""

from types import SimpleNamespace

import pytest
import torch

import tinsmith as ts
from support.springs import step_in_torch


@pytest.fixture
def springs(lang64):
    ti = lang64
    array = ti.types.ndarray()

    @ts.op("x[n], v[n], force[n], stiffness[] -> x_next[n], v_next[n], energy[]")
    @ti.kernel
    def op(x: array, v: array, force: array, stiffness: array, x_next: array, v_next: array, energy: array):
        for i in x:
            w = v[i] + 0.01 * (force[i] - stiffness[None] * ti.sin(x[i]))
            v_next[i] = w
            x_next[i] = x[i] + 0.01 * w
            energy[None] += v[i] * v[i]

    @ts.op("inout x[n], inout v[n], force[n], stiffness[] -> energy[]")
    @ti.kernel
    def updating(x: array, v: array, force: array, stiffness: array, energy: array):
        for i in x:
            energy[None] += v[i] * v[i]
            v[i] = v[i] + 0.01 * (force[i] - stiffness[None] * ti.sin(x[i]))
            x[i] = x[i] + 0.01 * v[i]

    @ti.kernel
    def pull(x: array, force: array, stiffness: array, push: array):
        for i in x:
            push[i] = 0.01 * (force[i] - stiffness[None] * ti.sin(x[i]))

    @ti.kernel
    def move(x: array, v: array, push: array, x_next: array, v_next: array, energy: array):
        for i in x:
            v_next[i] = v[i] + push[i]
            x_next[i] = x[i] + 0.01 * (v[i] + push[i])
            energy[None] += v[i] * v[i]

    spec = "x[n], v[n], force[n], stiffness[] -> x_next[n], v_next[n], energy[]"
    chain = ts.chain(spec, [pull, move], scratch="push[n]", order="spec")

    def function(state, force, stiffness):
        x, v, energy = op(*state, force, stiffness)
        return (x, v), energy

    return SimpleNamespace(op=op, updating=updating, chain=chain, function=function, torch=step_in_torch)


@pytest.fixture
def numbers():
    """Return x, v, force, stiffness, which all require a gradient."""
    made = [torch.randn(*shape, dtype=torch.float64) for shape in [(5,), (5,), (20, 5), (1,)]]
    made[3] = made[3][0].clone()
    return [one.requires_grad_() for one in made]
