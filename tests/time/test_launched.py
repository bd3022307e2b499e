"""Steps that are launches alone: ops of all kinds, against a plain loop over the same op."""

import pytest
import torch

import tinsmith as ts
from tinsmith.time import _function
from tinsmith.time._launch_reversal import Launched
from tinsmith.time._launches import Record

F64 = torch.float64


@pytest.fixture
def runners(monkeypatch):
    """Return the classes of what ran the steps."""
    seen = []
    made = _function.make_runner

    def runner(*arguments):
        made_runner = made(*arguments)
        seen.append(type(made_runner))
        return made_runner

    monkeypatch.setattr(_function, "make_runner", runner)
    return seen


def with_scratch_read(ti, array):
    """Build a step whose hand-written backward pass reads an output and scratch."""

    @ti.kernel
    def grow(x: array, k: array, e: array, y: array):
        for i in x:
            e[i] = ti.exp(-k[i] * x[i])
            y[i] = ti.sin(x[i]) * e[i]

    @ti.kernel
    def grow_backward(x: array, k: array, e: array, y: array, grad_y: array, grad_x: array, grad_k: array):
        for i in x:
            grad_x[i] = grad_y[i] * (ti.cos(x[i]) * e[i] - k[i] * y[i])
            grad_k[i] = -grad_y[i] * x[i] * y[i]

    return ts.op("x[n], k[n] -> y[n]", scratch="e[n]", backward=grow_backward)(grow)


def of_the_engine(ti, array):
    @ts.op("x[n], k[n] -> y[n]", adjoint="engine")
    @ti.kernel
    def bend(x: array, k: array, y: array):
        for i in x:
            y[i] = ti.sin(x[i] * k[i])

    return bend


def with_a_tape(ti, array):
    """Build a kernel whose loop carries `a`, so that its values go on a tape."""

    @ts.op("x[n], k[n] -> y[n]")
    @ti.kernel
    def iterate(x: array, k: array, y: array):
        for i in x:
            a = x[i]
            for _ in range(4):
                a = ti.sin(a * k[i])
            y[i] = a

    return iterate


def with_a_ragged_tape(ti, array):
    """Build a step with a data-dependent trip count, so that launches cannot be prepared."""

    @ts.op("x[n], k[n] -> y[n]")
    @ti.kernel
    def iterate(x: array, k: array, y: array):
        for i in x:
            a = x[i]
            for _ in range(ti.cast(2.0 + k[i], ti.i32)):
                a = ti.sin(a * k[i])
            y[i] = a

    return iterate


def that_adds(ti, array):
    """Build a kernel whose next state begins at zero and is added to from both sides."""

    @ts.op("x[n], k[n] -> y[n]")
    @ti.kernel
    def spread(x: array, k: array, y: array):
        for i in x:
            y[i] += 0.5 * ti.sin(x[i]) * k[i]
            y[(i + 1) % x.shape[0]] += 0.5 * x[i]

    return spread


def that_fills(ti, array):
    @ts.op("x[n], k[n] -> y[n]", init={"y": "empty"})
    @ti.kernel
    def fill(x: array, k: array, y: array):
        for i in x:
            y[i] = ti.sin(x[i]) + k[i]

    return fill


def of_vectors(ti, _):
    vectors = ti.types.ndarray(ti.types.vector(2, ti.f64), ndim=1)

    @ts.op("x[n, 2], k[n, 2] -> y[n, 2]")
    @ti.kernel
    def turn(x: vectors, k: vectors, y: vectors):
        for i in x:
            y[i] = ti.Vector([x[i][1] * k[i][0], ti.sin(x[i][0]) + k[i][1]])

    return turn


OPS = [
    with_scratch_read,
    pytest.param(of_the_engine, marks=pytest.mark.compiled_engine),
    with_a_tape,
    with_a_ragged_tape,
    that_adds,
    that_fills,
    of_vectors,
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("settings", [{}, {"serial_below": "0"}, {"poison": "1"}], ids=str)
@pytest.mark.parametrize("make", OPS)
def test_gradients_are_those_of_a_loop_over_the_op(lang64, runners, configure, make, settings):
    configure(**settings)
    op = make(lang64, lang64.types.ndarray())
    shape = (5, 2) if make is of_vectors else (5,)
    x, k = (torch.rand(shape, dtype=F64, requires_grad=True) for _ in range(2))
    y = x
    for _ in range(8):
        y = op(y, k)
    right = torch.autograd.grad(y.square().sum(), (x, k))
    for options in ({}, {"checkpoint": 3}, {"memory": 3 * x.nbytes}):
        end, _ = ts.scan(op, x, length=8, parameters=k, **options)
        torch.testing.assert_close(end, y)
        for one, other in zip(torch.autograd.grad(end.square().sum(), (x, k)), right, strict=True):
            torch.testing.assert_close(one, other)
    assert all((one is Launched) == (make is not with_a_ragged_tape) for one in runners)


@pytest.mark.compiled_engine
@pytest.mark.parametrize(("make", "is_cleared"), [(with_a_tape, False), (that_adds, True)])
def test_a_state_that_a_step_fills_is_not_zeroed_before(lang64, monkeypatch, make, is_cleared):
    cleared, clear = [], Record.clear
    monkeypatch.setattr(Record, "clear", lambda record, piece=0: cleared.append(piece) or clear(record, piece))
    op = make(lang64, lang64.types.ndarray())
    x, k = torch.rand(5, dtype=F64), torch.rand(5, dtype=F64)
    ts.scan(op, x, length=8, parameters=k)
    assert bool(cleared) == is_cleared


def test_arguments_of_all_kinds(lang64, runners):
    ti = lang64
    array = ti.types.ndarray()

    @ts.op("x[n], count[]: i32, push[m], at[m]: i32 -> y[n], count_next[]: i32, seen[m], hits[2]")
    @ti.kernel
    def step(
        x: array,
        count: array,
        push: array,
        at: array,
        dt: ti.f64,
        y: array,
        count_next: array,
        seen: array,
        hits: array,
    ):
        for i in x:
            y[i] = x[i] + dt * ti.sin(x[i])
        for j in push:
            y[at[j]] += dt * push[j] * push[j]
            seen[j] = x[at[j]] * push[j]
            hits[0] += x[at[j]]
        for _ in range(1):
            count_next[None] = count[None] + 1

    x, push = torch.rand(6, dtype=F64, requires_grad=True), torch.rand(9, 2, dtype=F64, requires_grad=True)
    state = {"x": x, "count": torch.tensor(0, dtype=torch.int32)}
    at = torch.tensor([1, 4], dtype=torch.int32)
    states, outputs = ts.scan(step, state, {"push": push}, parameters={"at": at, "dt": 0.1}, keep=3, checkpoint=2)
    y, count, rows, seen = x, state["count"], [], []
    for row in push:
        made = step(y, count, row, at, 0.1)
        y, count = made.y, made.count_next
        rows.append(y)
        seen.append(made.seen)
    assert list(outputs) == ["seen", "hits"]
    assert states["count"].tolist() == [3, 6, 9]
    torch.testing.assert_close(states["x"], torch.stack(rows[2::3]))
    torch.testing.assert_close(outputs["seen"], torch.stack(seen))
    ends = [states["x"].square().sum() + outputs["seen"].sum()]
    ends.append(torch.stack(rows[2::3]).square().sum() + torch.stack(seen).sum())
    for one, other in zip(*(torch.autograd.grad(end, (x, push)) for end in ends), strict=True):
        torch.testing.assert_close(one, other)
    assert set(runners) == {Launched}


def test_noncontiguous_states_use_the_general_path(springs, numbers, runners):
    x, v, force, stiffness = numbers
    wanted = ts.scan(springs.op, (x, v), force, parameters=stiffness)
    wide = torch.stack([x, v], 1)
    actual = ts.scan(springs.op, (wide[:, 0], wide[:, 1]), force, parameters=stiffness)
    torch.testing.assert_close(actual, wanted)
    assert runners[0] is Launched
    assert runners[1] is not Launched


def test_no_gradient_keeps_no_states(springs, numbers, runners):
    x, v, force, stiffness = (one.detach() for one in numbers)
    (end, _), _ = ts.scan(springs.op, (x, v), force, parameters=stiffness)
    right, _ = ts.scan(springs.torch, (x, v), force, parameters=stiffness)
    torch.testing.assert_close(end, right[0])
    assert runners[0] is Launched


# Python runs every launch on one thread.
@pytest.mark.compiled_engine
def test_a_kernel_that_is_slow_on_one_thread_gets_several(lang, monkeypatch, runners):
    from tinsmith.calls import _threads as _pace

    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)  # everything is slow
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def step(x: array, y: array):
        for i in x:
            y[i] = 2.0 * x[i]

    x = torch.ones(4, requires_grad=True)
    end, _ = ts.scan(step, x, length=20, checkpoint=3)
    end.sum().backward()
    assert end.tolist() == x.grad.tolist() == [2.0**20] * 4
    assert "forward, `step`: one thread (12 operations, below 12)" in step.explain("all")
    assert "forward, `step`: several threads (12 operations, not below 12)" in step.explain("all")


def test_an_op_without_a_gradient_is_refused_in_the_forward_pass(lang, runners):
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]", adjoint="source")
    @lang.kernel
    def step(x: array, y: array):
        for i in x:
            y[i] = x[i] + lang.bit_cast(lang.bit_cast(x[i], lang.i32) + 1, lang.f32)

    with pytest.raises(ts.GradientError, match="op `step` uses a construct for which no adjoint can be generated"):
        ts.scan(step, torch.ones(3, requires_grad=True), length=3)
    assert ts.scan(step, torch.ones(3), length=1)[0].tolist() == step(torch.ones(3)).tolist()
