"""Structs that Python changes between the launches of a rollout."""

import dataclasses

import pytest
import torch

import tinsmith as ts

qd = pytest.importorskip("quadrants")
D = torch.float64
each_backend = pytest.mark.parametrize("backend", [qd.Backend.FIELD, qd.Backend.NDARRAY], ids=lambda one: one.name)


@pytest.fixture(autouse=True)
def _engine():
    ts.init("cpu", engine="quadrants", default_fp=qd.f64)


@dataclasses.dataclass
class Step:
    x: qd.Tensor
    y: qd.Tensor
    gain: float


@dataclasses.dataclass(frozen=True)
class Outer:
    step: Step


@qd.kernel
def scale(step: Step):
    for i in range(3):
        step.y[i] = step.gain * step.x[i]


@qd.kernel
def scale_in(outer: Outer):
    for i in range(3):
        outer.step.y[i] = outer.step.gain * outer.step.x[i]


def check_cube(run):
    given = torch.rand(3, dtype=D, requires_grad=True)
    torch.testing.assert_close(run(given), 6 * given)
    torch.testing.assert_close(torch.autograd.grad(run(given).sum(), given)[0], torch.full((3,), 6.0, dtype=D))


@each_backend
@pytest.mark.parametrize("is_nested", [False, True])
def test_numbers(backend, is_nested):
    step = Step(*(qd.tensor(qd.f64, (3,), backend=backend) for _ in range(2)), gain=0.0)
    outer = Outer(step)

    def forward():
        for gain in (1.0, 2.0, 3.0):
            step.gain = gain
            scale_in(outer) if is_nested else scale(step)
            step.x.copy_from(step.y)
        step.gain = 100.0

    check_cube(ts.rollout(forward, {"x": step.x}, {"y": step.y}))


@each_backend
def test_tensors_that_are_exchanged(backend):
    one, other = (qd.tensor(qd.f64, (3,), backend=backend) for _ in range(2))
    step = Step(one, other, 0.0)

    def forward():
        for number, gain in enumerate((1.0, 2.0, 3.0)):
            step.x, step.y = (other, one) if number % 2 else (one, other)
            step.gain = gain
            scale(step)

    check_cube(ts.rollout(forward, {"x": one}, {"y": other}))
