"""Fields hold what they should after a call of which Python was told a value, or an error of it."""

import numpy as np
import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.filterwarnings("ignore:[^$]*carries values from call to call")
N = 4


class Frames:
    """x[t + 1] doubles x[t] and adds what it held; `largest` is asked in the middle, and `x` goes on to `y`."""

    def __init__(self, lang, asks_at):
        self.x, self.y, self.unused = lang.field(lang.f64, (4, N)), lang.field(lang.f64, N), lang.field(lang.f64, N)
        x, y, unused = self.x, self.y, self.unused

        @lang.kernel
        def step(t: lang.i32):
            for i in range(N):
                x[t + 1, i] = 2.0 * x[t, i] + x[t + 1, i]

        @lang.kernel
        def show():
            for i in y:
                y[i] = x[3, i] + unused[i]

        @lang.kernel
        def largest(t: lang.i32) -> lang.f64:
            value = x[t, 0]
            for i in range(N):
                value = lang.max(value, x[t, i])
            return value

        def forward():
            for t in range(3):
                step(t)
                if t == asks_at and largest(t + 1) > 100.0:
                    raise ValueError("too large")
            show()

        self.run = ts.rollout(forward, {"start": (x, 0)}, {"y": y})

    def set(self, held):
        self.x.from_torch(held)
        self.unused.fill(3.0)
        self.y.fill(9.0)


def compute_expected(start, held):
    rows = [start]
    for t in range(3):
        rows.append(2.0 * rows[-1] + held[t + 1])
    return torch.stack(rows)


@pytest.mark.parametrize("asks_at", [0, 2])
@pytest.mark.parametrize("has_gradient", [True, False])
def test_a_call_begins_with_what_fields_held_and_leaves_what_the_function_leaves(lang64, asks_at, has_gradient):
    frames = Frames(lang64, asks_at)
    for _ in range(3):
        held, start = torch.rand(4, N, dtype=torch.float64), torch.rand(N, dtype=torch.float64)
        start.requires_grad_(has_gradient)
        frames.set(held)
        y, rows = frames.run(start), compute_expected(start, held)
        torch.testing.assert_close(y, rows[3] + 3.0)
        assert y.requires_grad == has_gradient
        torch.testing.assert_close(frames.x.to_torch(), rows.detach())
        torch.testing.assert_close(frames.y.to_torch(), y.detach())
        torch.testing.assert_close(frames.unused.to_torch(), torch.full((N,), 3.0, dtype=torch.float64))
        if has_gradient:
            weight = torch.rand(N, dtype=torch.float64)
            (ours,) = torch.autograd.grad(y, start, weight)
            torch.testing.assert_close(ours, 8.0 * weight)


@pytest.mark.parametrize("has_gradient", [True, False])
def test_an_error_after_calls_that_worked_puts_back_what_fields_held(lang64, has_gradient):
    frames = Frames(lang64, 2)
    held = torch.rand(4, N, dtype=torch.float64)
    start = torch.rand(N, dtype=torch.float64).requires_grad_(has_gradient)
    for _ in range(2):
        frames.set(held)
        frames.run(start)
    frames.set(held)
    with pytest.raises(ValueError, match="too large"):
        frames.run(100.0 + start)
    torch.testing.assert_close(frames.x.to_torch(), held)
    torch.testing.assert_close(frames.y.to_torch(), torch.full((N,), 9.0, dtype=torch.float64))


@pytest.mark.parametrize("has_gradient", [True, False])
def test_kernels_before_a_read_use_their_original_arguments(lang64, has_gradient):
    """Arrays may be filled again before Python asks, and structs changed."""
    x, y = lang64.field(lang64.f64, N), lang64.field(lang64.f64, N)

    @lang64.kernel
    def add(by: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in y:
            y[i] = x[i] + by[i]

    @lang64.kernel
    def first() -> lang64.f64:
        return y[0]

    seen = []

    def forward():
        by = np.full(N, 2.0)
        add(by)
        by[:] = 50.0
        seen.append(float(first()))

    run = ts.rollout(forward, {"x": x}, {"y": y})
    for value in (1.0, 4.0):
        start = torch.full((N,), value, dtype=torch.float64, requires_grad=has_gradient)
        torch.testing.assert_close(run(start), start + 2.0)
        assert seen[-1] == value + 2.0


def test_a_call_without_a_gradient_runs_its_kernels_once(lang64, monkeypatch):
    x, y, count = lang64.field(lang64.f64, N), lang64.field(lang64.f64, N), lang64.field(lang64.i32, ())

    @lang64.kernel
    def double():
        for i in y:
            y[i] = 2.0 * x[i]

    @lang64.kernel
    def first() -> lang64.f64:
        return y[0]

    def forward():
        count.fill(1)
        double()
        if first() > 0.0:
            double()

    run, start = ts.rollout(forward, {"x": x}, {"y": y}), torch.ones(N, dtype=torch.float64)
    torch.testing.assert_close(run(start), 2.0 * start)
    (program,) = run._programs.values()
    calls, call = [], type(program.op).__call__
    monkeypatch.setattr(type(program.op), "__call__", lambda *given: calls.append(given) or call(*given))
    torch.testing.assert_close(run(3.0 * start), 6.0 * start)
    assert not calls
    assert count[None] == 1
    torch.testing.assert_close(y.to_torch(), 6.0 * start)
    assert run(start.requires_grad_()).requires_grad
    assert len(calls) == 1
