"""What a rollout's call does besides: Python's values, fields before and after, transforms, and how often it works."""

import pytest
import torch

import tinsmith as ts
from tinsmith.calls.backward import _source_adjoint
from tinsmith.compiling._stage import Stage
from tinsmith.layers.rollout import _rollout

D = torch.float64
N = 4


def doubling(lang, steps=3, **python):
    """Build `x[t + 1] = x[t] * (x[t] + dt)` with a `loss` of the last; values of `python` are read in each run."""
    python = {"steps": steps, "dt": 0.5, **python}
    x = lang.field(lang.f64, (20, N), needs_grad=True)
    loss = lang.field(lang.f64, (), needs_grad=True)

    @lang.kernel
    def step(t: lang.i32, dt: lang.f64):
        for i in range(N):
            x[t + 1, i] = x[t, i] * (x[t, i] + dt)

    @lang.kernel
    def add_up(t: lang.i32):
        for i in range(N):
            lang.atomic_add(loss[None], x[t, i])

    def forward():
        for t in range(python["steps"]):
            step(t, python["dt"])
        add_up(python["steps"])

    return ts.rollout(forward, {"start": (x, 0)}, {"loss": loss}), python, x, loss


def doubled(x, python):
    for _ in range(python["steps"]):
        x = x * (x + python["dt"])
    return x.sum()


def draw_leaf(*shape):
    return (0.5 * torch.rand(*shape, dtype=D)).requires_grad_()


def check(run, python, x):
    ours, theirs = run(x), doubled(x, python)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(torch.autograd.grad(ours, x), torch.autograd.grad(theirs, x))


def test_each_call_uses_its_own_python_values(lang64):
    run, python, _, _ = doubling(lang64)
    for steps, dt in ((3, 0.5), (3, 0.7), (5, 0.7), (1, 0.1), (3, 0.5)):
        python |= {"steps": steps, "dt": dt}
        check(run, python, draw_leaf(N))


def test_more_kernel_sequences_than_the_cache_holds(lang64):
    run, python, _, _ = doubling(lang64)
    for steps in range(1, _rollout.MOST_PROGRAMS + 3):
        python["steps"] = steps
        check(run, python, draw_leaf(N))


def test_indices_outside_are_refused_before_anything_runs(lang64):
    x, y = lang64.field(lang64.f64, (3, N), needs_grad=True), lang64.field(lang64.f64, N, needs_grad=True)
    python = {"t": 1, "i": 0}

    @lang64.kernel
    def copy(t: lang64.i32):
        for i in range(N):
            y[i] = x[t, i]

    def forward():
        x[2, python["i"]] = 1.0
        copy(python["t"])

    run, start = ts.rollout(forward, {"x": x}, {"y": y}), draw_leaf(3, N)
    torch.testing.assert_close(run(start), start[1])
    for wrong in ({"t": 3}, {"t": -1}, {"i": N}):
        before = dict(python)
        python |= wrong
        with pytest.raises(ts.KernelError, match="out of range|does not have") as caught:
            run(start)
        assert "_lang" not in str(caught.value)
        python |= before
        torch.testing.assert_close(run(start), start[1])


def test_arrays_written_from_python_are_not_kept(lang64):
    x, y = (lang64.field(lang64.f64, N, needs_grad=True) for _ in range(2))
    python = {}

    @lang64.kernel
    def add():
        for i in x:
            y[i] += x[i]

    def forward():
        y.from_torch(python["begin"])
        add()

    run, start = ts.rollout(forward, {"x": x}, {"y": y}), draw_leaf(N)
    for count in range(12):
        python["begin"] = torch.full((N,), float(count), dtype=D)
        torch.testing.assert_close(run(start), start + count)
    assert all(not any(bound.tensors for bound in one._bound.values()) for one in run._kernels._called.values())


def test_fields_hold_afterwards_what_the_loop_leaves(lang64):
    run, _, x, loss = doubling(lang64)
    x.fill(2.0)
    start = draw_leaf(N)
    result = run(start)
    row = start.detach()
    for t in range(4):
        torch.testing.assert_close(x.to_torch()[t], row)
        row = row * (row + 0.5)
    assert (x.to_torch()[4:] == 2.0).all()
    assert loss[None] == result


def test_the_gradient_is_that_of_the_call_whatever_happens_to_the_fields_afterwards(lang64):
    run, python, x, _ = doubling(lang64)
    first, second = draw_leaf(N), draw_leaf(N)
    ours = run(first), run(second)
    x.fill(7.0)
    for result, start in zip(ours, (first, second), strict=True):
        expected = torch.autograd.grad(doubled(start, python), start)
        torch.testing.assert_close(torch.autograd.grad(result, start), expected)


@pytest.mark.filterwarnings("ignore:rollout <lambda> carries values from call to call in `state`")
def test_other_fields_start_with_their_current_values(lang64):
    x, y = (lang64.field(lang64.f64, N, needs_grad=True) for _ in range(2))
    state = lang64.field(lang64.f64, N)

    @lang64.kernel
    def step():
        for i in x:
            state[i] = state[i] * x[i]
            y[i] = state[i]

    run = ts.rollout(lambda: [step() for _ in range(2)], {"x": x}, {"y": y})
    given = draw_leaf(N)
    for begin in (3.0, 5.0):
        state.fill(begin)
        result = run(given)
        torch.testing.assert_close(result, begin * given**2)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], 2.0 * begin * given.detach())
    torch.testing.assert_close(state.to_torch(), result.detach())


def test_by_name_one_result_or_several(lang64):
    run, python, x, _ = doubling(lang64)
    both = ts.rollout(run._forward, {"start": (x, 0)}, {"second": (x, 1), "whole": x})
    start = draw_leaf(N)
    results = both(start=start)
    assert results._fields == ("second", "whole")
    assert results.second.shape == (N,)
    assert results.whole.shape == (20, N)
    torch.testing.assert_close(results.second, start * (start + 0.5))


def test_no_gradient_is_asked_for(lang64):
    run, python, _, _ = doubling(lang64)
    start = draw_leaf(N)
    with torch.no_grad():
        assert not run(start).requires_grad
    assert not run(start.detach()).requires_grad


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp", "twice"])
def test_transforms(lang64, transform):
    run, python, _, _ = doubling(lang64)

    def twin(x):
        return doubled(x, python)

    x, v = draw_leaf(3, N).detach(), torch.randn(3, N, dtype=D)
    both = {
        "grad": lambda f: torch.func.grad(f)(x[0]),
        "vmap": lambda f: torch.func.vmap(torch.func.grad(f))(x),
        "jvp": lambda f: torch.func.jvp(f, (x[0],), (v[0],)),
        "twice": lambda f: torch.autograd.functional.hessian(f, x[0]),
    }[transform]
    torch.testing.assert_close(both(run), both(twin))


def test_random_numbers_follow_torch_and_keep_their_gradient(lang64):
    x, y = (lang64.field(lang64.f64, N, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def add():
        for i in x:
            y[i] += x[i] * lang64.random()

    def forward():
        y.fill(0.0)
        for _ in range(3):
            add()

    run, start, results = ts.rollout(forward, {"x": x}, {"y": y}), draw_leaf(N), []
    for _ in range(2):
        torch.manual_seed(3)
        results.append(run(start))
        torch.testing.assert_close(torch.autograd.grad(results[-1].sum(), start)[0], (results[-1] / start).detach())
    torch.testing.assert_close(*results)
    assert not torch.allclose(run(start), results[0])


def counted(monkeypatch, owner, name):
    calls = []
    original = getattr(owner, name)

    def counting(*arguments, **named):
        calls.append(name)
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, counting)
    return calls


def test_a_kernel_is_looked_into_and_compiled_once_however_often_it_is_called(lang64, configure, monkeypatch):
    configure(serial_below="0")  # measured times decide otherwise whether launches on one thread are compiled too
    counts = []
    for steps in (4, 16):
        run, python, _, _ = doubling(lang64, steps)
        with monkeypatch.context() as patch:
            stages, compiled = counted(patch, Stage, "__init__"), counted(patch, type(run._engine), "compile")
            check(run, python, draw_leaf(N))
            counts.append((len(stages), len(compiled)))
            check(run, python, draw_leaf(N))
            assert len(compiled) == counts[-1][1]  # a second call compiles nothing
    assert counts[0] == counts[1]


def test_the_adjoint_is_generated_once_also_where_fields_change_that_are_no_output(lang64, monkeypatch):
    x, y, z = (lang64.field(lang64.f64, N) for _ in range(3))

    @lang64.kernel
    def square():
        for i in range(N):
            y[i] = x[i] * x[i]

    @lang64.kernel
    def add():
        for i in range(N):
            z[i] = y[i] * y[i] + 3.0 * x[i]

    def forward():
        square()
        add()

    calls = []
    generate = _source_adjoint.generate_adjoint
    monkeypatch.setattr(_source_adjoint, "generate_adjoint", lambda *given: calls.append(given) or generate(*given))
    run = ts.rollout(forward, {"x": x}, {"z": z})
    given = draw_leaf(N)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(run(given).sum(), given)
        torch.testing.assert_close(gradient, 4.0 * given.detach() ** 3 + 3.0)
    torch.testing.assert_close(torch.as_tensor(y.to_numpy()), given.detach() ** 2)
    assert len(calls) == 1


def test_the_engine_is_as_before_after_a_call_and_after_one_that_fails(lang64):
    run, python, x, _ = doubling(lang64)
    check(run, python, draw_leaf(N))
    x[0, 0] = 5.0
    assert x[0, 0] == 5.0
    python["steps"] = "many"
    with pytest.raises(TypeError, match="str"):
        run(draw_leaf(N))
    x.fill(2.0)
    assert x[3, 1] == 2.0
