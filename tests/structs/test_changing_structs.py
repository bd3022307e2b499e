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


@dataclasses.dataclass
class Table:
    w: qd.Tensor
    gain: qd.f64
    y: qd.Tensor


@qd.kernel
def weigh(table: Table):
    for i in range(3):
        table.y[i] = table.w[i] * table.gain * table.y[i]


@qd.kernel
def is_too_large(table: Table) -> qd.i32:
    result = 0
    for i in range(3):
        if table.y[i] * table.w[i] > 1e9:
            result = 1
    return result


@each_backend
@pytest.mark.parametrize("is_array", [False, True])
def test_values_for_python_between_changes(backend, is_array):
    """A kernel that returns a value sees what the structs held at each launch before it: numbers, fields and arrays."""
    w, y = (qd.tensor(qd.f64, (3,), backend=backend) for _ in range(2))
    w.fill(2.0)
    table = Table(torch.full((3,), 2.0, dtype=D) if is_array else w, 0.0, y)

    def forward():
        for gain in (1.0, 2.0, 3.0):
            table.gain = gain
            weigh(table)
            if is_array:
                table.w.mul_(2.0)
        if is_array:
            table.w.fill_(2.0)
        table.gain = 1e12
        assert not is_too_large(table)

    run = ts.rollout(forward, {"x": y}, {"y": y})
    factor = 6.0 * (2.0 * 4.0 * 8.0 if is_array else 8.0)
    for _ in range(2):
        given = torch.rand(3, dtype=D, requires_grad=True)
        result = run(given)
        torch.testing.assert_close(result, factor * given)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], torch.full((3,), factor, dtype=D))
    with torch.no_grad():
        torch.testing.assert_close(run(given), factor * given)
