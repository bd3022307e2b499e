"""A rollout names the fields that carry values from call to call, and that nobody listed among its inputs."""

import warnings

import pytest
import torch

import tinsmith as ts

N, STEPS = 4, 3


def rand():
    return torch.rand(N, dtype=torch.float64)


class Solver:
    """A simulator of particles; `memory` is what a test lets its substep read."""

    def __init__(self, lang):
        self.particles = lang.types.struct(pos=lang.f64, vel=lang.f64).field(shape=(STEPS + 1, N), needs_grad=True)
        self.memory, self.other, self.force = (lang.field(lang.f64, N, needs_grad=True) for _ in range(3))


def solver_of(lang):  # noqa: C901  # kernels are functions inside
    @lang.data_oriented
    class Made(Solver):
        @lang.kernel
        def substep(self, f: lang.i32):
            for i in range(N):
                self.particles[f + 1, i].vel = self.particles[f, i].vel + 0.1 * self.force[i]
                self.particles[f + 1, i].pos = self.particles[f, i].pos + 0.1 * self.particles[f + 1, i].vel

        @lang.kernel
        def remember(self):
            for i in range(N):
                self.memory[i] = 0.5 * self.memory[i] + self.particles[STEPS, i].pos

        @lang.kernel
        def recall(self):
            for i in range(N):
                self.particles[STEPS, i].pos = self.particles[STEPS, i].pos + self.memory[i]

        @lang.kernel
        def recall_if_known(self):
            for i in range(N):
                if self.other[i] > 2.0:
                    self.particles[STEPS, i].pos = self.particles[STEPS, i].pos + 1.0

        @lang.kernel
        def count(self):
            for i in range(N):
                self.other[i] = 1.5 * self.other[i] + 3.0

        @lang.kernel
        def begin_next(self):
            for i in range(N):
                self.particles[0, i].pos = self.particles[STEPS, i].pos
                self.particles[0, i].vel = self.particles[STEPS, i].vel

    return Made(lang)


def substeps(solver):
    for f in range(STEPS):
        solver.substep(f)


def run_twice(solver, forward, **outputs):
    """Return the words of the warnings, and whether the second call returned what the first did."""
    run = ts.rollout(forward, {"force": solver.force}, outputs or {"end": (solver.particles.pos, STEPS)})
    given = rand().requires_grad_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first, second = run(given), run(given)
    return [str(one.message) for one in caught], torch.equal(first, second)


def carrying(solver):
    """Return functions that carry values, and the fields that do."""

    def by_memory():
        substeps(solver)
        solver.remember()
        solver.recall()

    def by_a_condition():
        substeps(solver)
        solver.recall_if_known()
        solver.count()

    def by_its_frames():
        substeps(solver)
        solver.begin_next()

    return {
        "memory": (by_memory, ["solver.memory"]),
        "condition": (by_a_condition, ["solver.other"]),
        "frames": (by_its_frames, ["solver.particles.pos", "solver.particles.vel"]),
    }


def steady(solver):
    def frames():
        substeps(solver)

    def cleared():
        solver.memory.fill(0.0)
        substeps(solver)
        solver.remember()
        solver.recall()

    def changed_and_not_shown():
        substeps(solver)
        solver.remember()

    def table():
        substeps(solver)
        solver.recall_if_known()

    return {one.__name__: one for one in (frames, cleared, changed_and_not_shown, table)}


@pytest.mark.parametrize("way", ["memory", "condition", "frames"])
def test_a_carried_field_is_reported_once(lang64, way):
    solver = solver_of(lang64)
    solver.particles.pos.fill(0.5)
    forward, names = carrying(solver)[way]
    words, is_same = run_twice(solver, forward)
    assert len(words) == 1 and not is_same
    headline = words[0].partition("\n")[0]
    assert f"carries values from call to call in {', '.join(f'`{name}`' for name in names)}" in headline
    assert "Make such a field an input" in words[0]


@pytest.mark.parametrize("way", ["frames", "cleared", "changed_and_not_shown", "table"])
def test_no_warning_if_a_second_call_returns_the_same(lang64, way):
    solver = solver_of(lang64)
    solver.particles.pos.fill(0.5)
    words, is_same = run_twice(solver, steady(solver)[way])
    assert not words and is_same


def test_a_state_that_is_an_input_and_an_output_is_not_named(lang64):
    solver = solver_of(lang64)
    forward, _ = carrying(solver)["memory"]
    run = ts.rollout(
        forward,
        {"force": solver.force, "memory": solver.memory},
        {"end": (solver.particles.pos, STEPS), "memory": solver.memory},
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(rand(), rand())


def test_looking_for_carried_state_changes_no_field_or_result(lang64):
    """The run that finds out leaves no traces: values and gradients are those of the first call."""
    solver = solver_of(lang64)
    solver.memory.fill(2.0)
    forward, _ = carrying(solver)["memory"]
    run = ts.rollout(forward, {"force": solver.force}, {"end": (solver.particles.pos, STEPS)})
    given = rand().requires_grad_()
    with pytest.warns(UserWarning, match="carries values"):
        end = run(given)
    free = 0.01 * (1 + 2 + 3) * given
    torch.testing.assert_close(end, free + 1.0 + free)
    torch.testing.assert_close(torch.autograd.grad(end.sum(), given)[0], torch.full_like(given, 0.12))
    torch.testing.assert_close(solver.memory.to_torch(), (1.0 + free).detach())


def test_an_owner_that_is_not_found_is_called_by_its_class(lang64):
    forward, _ = carrying(solver_of(lang64))["memory"]
    hidden = [forward]
    x = hidden[0].__closure__[0].cell_contents
    run = ts.rollout(type("Callable", (), {"__call__": lambda _: hidden[0]()})(), {"force": x.force}, {"m": x.memory})
    with pytest.warns(UserWarning, match="in `Made.memory`"):
        run(rand())
