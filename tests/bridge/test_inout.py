"""Arguments that an op updates in place, `inout` in its spec."""

import copy
import pickle

import pytest
import torch
from torch.profiler import profile

import cases
import tinsmith as ts
from tinsmith.engines import NAMES


def stepping(lang):
    @lang.kernel
    def step(x: lang.types.ndarray(), state: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = state[i] * x[i]
            state[i] = state[i] * state[i] + lang.sin(x[i])

    return ts.op("x[n], inout state[n] -> y[n]")(step)


def stepped(x, state):
    """Compute in torch what `stepping` computes."""
    before = state.clone()
    state.copy_(before * before + x.sin())
    return before * x


def moving(lang):
    @lang.kernel
    def move(
        dt: lang.f64,
        p: lang.types.ndarray(dtype=lang.types.vector(3, lang.f64)),
        v: lang.types.ndarray(dtype=lang.types.vector(3, lang.f64)),
    ):
        for i in p:
            v[i] = v[i] - dt * p[i] * v[i].norm()
        for i in p:
            p[i] += dt * v[i]

    return ts.op("inout p[n, 3], inout v[n, 3] ->")(move)


def moved(dt, p, v):
    before, at = v.clone(), p.clone()
    new = before - dt * at * before.norm(dim=-1, keepdim=True)
    v.copy_(new)
    p.add_(dt * new)


def draw_numbers(*shape):
    return torch.rand(shape, dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_argument_is_updated(lang, dtype):
    op, x, state = stepping(lang), torch.rand(5, dtype=dtype), torch.rand(5, dtype=dtype)
    expected_state = state.clone()
    expected = stepped(x, expected_state)
    version, address = state._version, state.data_ptr()
    y = op(x, state)
    cases.assert_close(y, expected)
    cases.assert_close(state, expected_state)
    assert state._version > version
    assert state.data_ptr() == address


def compute_gradients(step, x, before):
    """Differentiate a function that uses the state before, between and after two steps."""
    x, before = x.clone().requires_grad_(), before.clone().requires_grad_()
    state = before * 2
    first = step(x, state)
    middle = state.exp()
    second = step(x * x, state)
    loss = (first * second).sum() + (middle * x).sum() + (state**3).sum()
    return torch.autograd.grad(loss, (x, before))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_before_and_after_an_update(lang, dtype):
    given = torch.rand(5, dtype=dtype), torch.rand(5, dtype=dtype)
    cases.assert_close(compute_gradients(stepping(lang), *given), compute_gradients(stepped, *given))


@pytest.mark.parametrize("makes_state", [True, False], ids=["state", "x"])
def test_only_one_of_them_requires_a_gradient(lang, makes_state):
    given, gradients = (draw_numbers(4), draw_numbers(4)), []
    for step in (stepping(lang), stepped):
        x, state = (one.clone() for one in given)
        leaf = (state if makes_state else x).requires_grad_()
        state = state.clone()
        y = step(x, state)
        assert state.requires_grad
        gradients.append(torch.autograd.grad((y * state).sum(), leaf))
    cases.assert_close(*gradients)


def test_vectors_and_no_other_output(lang64):
    op = moving(lang64)
    given = draw_numbers(6, 3), draw_numbers(6, 3)
    results = []
    for step in (op, moved):
        leaves = [one.clone().requires_grad_() for one in given]
        p, v = (one * 1 for one in leaves)
        for _ in range(3):
            step(0.1, p, v)
        results.append((p, v, *torch.autograd.grad((p * v).sum(), leaves)))
    cases.assert_close(*results)
    p, v = (one.clone() for one in given)
    result = op(0.1, p, v)
    assert result[0] is p and result.v_after is v


def test_no_memory_is_copied_without_a_gradient(lang):
    op, x, state = stepping(lang), torch.rand(9), torch.rand(9)
    op(x, state)
    with profile() as record:
        op(x, state)
    assert {event.key for event in record.key_averages()} & {"aten::copy_", "aten::clone"} == set()
    with profile() as record:
        op(x.requires_grad_(), state)
    assert "aten::clone" in {event.key for event in record.key_averages()}  # what the record would have shown


def test_an_update_of_a_saved_tensor_raises_torchs_error(lang):
    x, state = draw_numbers(3).requires_grad_(), draw_numbers(3)
    product = x * state
    with torch.no_grad():
        stepping(lang)(x, state)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_a_leaf_is_refused_by_name(lang):
    op, x, state = stepping(lang), draw_numbers(3), draw_numbers(3).requires_grad_()
    kept = state.detach().clone()
    words = rf"op `{op.name}` updates `\w+` in place, but it is a leaf(?s:.*)`{op.name}.functional`"
    with pytest.raises(ts.GradientError, match=words):
        op(x, state)
    assert torch.equal(state, kept)
    with torch.no_grad():
        op(x, state)
    assert not torch.equal(state, kept)


@pytest.mark.parametrize("view", [lambda base: base[1], lambda base: base[:, 2]], ids=["row", "column"])
def test_views_of_a_base(lang64, view):
    op, x, given = stepping(lang64), draw_numbers(4), draw_numbers(4, 4)
    results = []
    for step in (op, stepped):
        leaf = given.clone().requires_grad_()
        base = leaf * 1
        y = step(x, view(base))
        results.append((base, *torch.autograd.grad((base**2).sum() + y.sum(), leaf)))
    cases.assert_close(*results)
    base, expected = given.clone(), given.clone()
    op(x, view(base))
    stepped(x, view(expected))
    cases.assert_close(base, expected)


def test_expanded_memory_is_refused_as_torch_does(lang):
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        stepping(lang)(torch.rand(3), torch.rand(1).expand(3))


def test_two_updates_in_one_memory_are_refused(lang64):
    op, p = moving(lang64), draw_numbers(4, 3)
    with pytest.raises(ts.ArgumentError, match="`p` and `v` of op `move` share memory") as refusal:
        op(0.1, p, p)
    assert "pass `v.clone()`" in str(refusal.value)
    both = draw_numbers(4, 6)
    expected = both.clone()
    op(0.1, both[:, :3], both[:, 3:])  # between each other, and no element in common
    moved(0.1, expected[:, :3], expected[:, 3:])
    cases.assert_close(both, expected)


def test_an_input_in_the_memory_of_an_update_keeps_its_values(lang64):
    @lang64.kernel
    def shift(x: lang64.types.ndarray(), state: lang64.types.ndarray()):
        for i in state:
            state[i] += x[state.shape[0] - 1 - i]

    state = draw_numbers(50)
    expected = state + state.flip(0)
    ts.op("x[n], inout state[n] ->")(shift)(state, state)
    cases.assert_close(state, expected)


def test_scalars_arrays_of_any_rank_and_names_that_are_taken(lang64):
    @lang64.kernel
    def gather(x: lang64.types.ndarray(), state: lang64.types.ndarray(), total: lang64.types.ndarray()):
        """Add up, and halve."""
        for index in lang64.grouped(x):
            state_after = x[index] * state[index]
            total[None] += state_after
        for index in lang64.grouped(state):
            state[index] *= 0.5

    op = ts.op("x[...], inout state[...], inout total[] ->")(gather)
    for shape in ((3,), (2, 4), (2, 1, 3)):
        given = draw_numbers(*shape), draw_numbers(*shape), draw_numbers()
        leaves = [one.clone().requires_grad_() for one in given]
        x, state, total = leaves[0], *(one * 1 for one in leaves[1:])
        op(x, state, total)
        gradients = torch.autograd.grad(total**2 + (state**2).sum(), leaves)
        first, second, third = leaves
        loss = (third + (first * second).sum()) ** 2 + (second * 0.5).square().sum()
        cases.assert_close(gradients, torch.autograd.grad(loss, leaves))


def test_batches_of_the_spec_and_half_precision(lang):
    @lang.kernel
    def add(x: lang.types.ndarray(), state: lang.types.ndarray()):
        for i in x:
            state[i] += x[i] * x[i]

    op = ts.op("x[*b, n], inout state[*b, n] ->")(add)
    for dtype in (torch.float32, torch.bfloat16):
        x, state = torch.rand(2, 3, 4).to(dtype), torch.rand(2, 3, 4).to(dtype)
        expected = (state.float() + x.float() ** 2).to(dtype)
        op(x, state)
        cases.assert_close(state, expected)


def pure(step):
    def run(x, state):
        state = state.clone()
        return step(x, state), state

    return run


def test_transforms(lang64):
    op, x, state = pure(stepping(lang64)), draw_numbers(3, 4), draw_numbers(3, 4)
    plain = pure(stepped)
    cases.assert_close(torch.func.vmap(op)(x, state), torch.func.vmap(plain)(x, state))
    one = x[0], state[0]
    for transform in (torch.func.jacfwd, torch.func.jacrev):
        both = (transform(lambda *given, run=run: sum(run(*given)).exp(), argnums=(0, 1))(*one) for run in (op, plain))
        cases.assert_close(*both)
    tangents = draw_numbers(4), draw_numbers(4)
    for actual, expected in zip(torch.func.jvp(op, one, tangents), torch.func.jvp(plain, one, tangents), strict=True):
        cases.assert_close(actual, expected)
    leaves = [part.clone().requires_grad_() for part in one]
    assert torch.autograd.gradcheck(op, leaves)
    assert torch.autograd.gradgradcheck(op, leaves)


def squared_in_one_store(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), v: lang.types.ndarray()):
        for i in x:
            v[i] = v[i] * v[i] + 2.0 * x[i]

    return kernel, lambda x, v: v * v + 2 * x


def squared_then_added(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), v: lang.types.ndarray()):
        for i in x:
            v[i] = v[i] * v[i]
            if i > 0:
                v[i] += 2.0 * (x[i] - x[i - 1])

    return kernel, lambda x, v: v * v + torch.nn.functional.pad(2 * x.diff(), (1, 0))


def squared_twice(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), v: lang.types.ndarray()):
        for i in x:
            v[i] = v[i] * v[i] + x[i]
        for i in x:
            v[i] = v[i] * v[i] + 2.0 * x[i]

    return kernel, lambda x, v: (v * v + x) ** 2 + 2 * x


@pytest.mark.thinned(4)
@pytest.mark.parametrize("make", [squared_in_one_store, squared_then_added, squared_twice])
def test_second_derivatives_read_what_was_saved(lang64, make):
    """The last value of `v` is no part of them, so `x`, of which it is made, was not saved."""
    kernel, twin = make(lang64)
    op = ts.op("x[n], inout v[n] ->")(kernel)

    def updated(x, v):
        v = v * 1.0
        op(x, v)
        return v

    given = [draw_numbers(4) for _ in range(2)]
    for steps in (1, 2):

        def run(f, x, v, steps=steps):
            for _ in range(steps):
                v = f(x, v)
            return v.sin().sum()

        ours, theirs = (torch.func.hessian(lambda *a, f=f: run(f, *a), (0, 1))(*given) for f in (updated, twin))
        for mine, row in zip(ours, theirs, strict=True):
            cases.assert_close(mine, row)
        leaves = [one.clone().requires_grad_() for one in given]
        first = torch.autograd.grad(run(updated, *leaves), leaves, create_graph=True)
        second = torch.autograd.grad(sum(one.sum() for one in first), leaves)
        cases.assert_close(second, tuple(sum(b.sum(0) for b in column) for column in zip(*theirs, strict=True)))


def test_vmap_refuses_to_update_an_unbatched_argument(lang64):
    op, state, states = stepping(lang64), draw_numbers(4), draw_numbers(2, 4)
    words = rf"`state` of op `{op.name}` is updated in place under vmap, but is not batched as.*(\n.*)*`\.functional`"
    with pytest.raises(ts.ArgumentError, match=words):
        torch.func.vmap(lambda x: op(x, state))(draw_numbers(3, 4))
    with pytest.raises(ts.ArgumentError, match=words):  # a batch at the inner level alone
        torch.func.vmap(lambda x: torch.func.vmap(op, in_dims=(None, 0))(x, states))(draw_numbers(3, 4))


def test_compiled(lang64):
    op, given = stepping(lang64), (draw_numbers(6), draw_numbers(6))

    def run(step):
        def twice(x, before):
            state = before * 2
            first = step(x, state)
            return first + step(x, state), state

        return twice

    leaves = [one.clone().requires_grad_() for one in given]
    actual = torch.compile(run(op), fullgraph=True, backend="aot_eager")(*leaves)
    expected = run(stepped)(*leaves)
    cases.assert_close(actual, expected)
    both = (torch.autograd.grad((one[0] * one[1]).sum(), leaves) for one in (actual, expected))
    cases.assert_close(*both)
    state, wanted = given[1].clone(), given[1].clone()
    torch.compile(op, fullgraph=True, backend="aot_eager")(given[0], state)  # a graph's own argument
    stepped(given[0], wanted)
    cases.assert_close(state, wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.int32])
def test_compiled_without_dims(lang64, dtype):
    """Torch 2.13 drops each in-place method of a compiled graph's own float64 argument without dims."""

    @ts.op(f"x[n], inout total[] -> y[n]: {NAMES[dtype]}")
    @lang64.kernel
    def add(x: lang64.types.ndarray(), total: lang64.types.ndarray(ndim=0), y: lang64.types.ndarray()):
        for i in x:
            total[None] += x[i]
            y[i] = 2 * x[i]

    def run(step):
        def both(x, total):
            y = step(x, total)
            return y + step(x, total), total * 3

        return both

    needs_gradients = dtype.is_floating_point
    results = []
    for function in (run(add), torch.compile(run(add), fullgraph=True, backend="aot_eager")):
        x = torch.arange(1, 6).to(dtype).requires_grad_(needs_gradients)
        total = torch.tensor(7).to(dtype)
        y, after = function(x, total)
        grads = torch.autograd.grad(y.sum() + 5 * after + total, x) if needs_gradients else ()
        results.append((y, after, total, *grads))
    cases.assert_close(*results)
    assert results[0][2] == 7 + 2 * 15


@pytest.mark.parametrize("state_dtype", [torch.float16, torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_each_way_to_call_gives_the_same_dtypes_and_values(lang, dtype, state_dtype):
    """An integer state with a floating input was a float under `torch.compile` and `vmap`, so `y` was another."""

    @ts.op("x[n], inout state[n] -> y[n]")
    @lang.kernel
    def step(x: lang.types.ndarray(), state: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            state[i] += lang.floor(2.5 * x[i], int) if lang.static(not state_dtype.is_floating_point) else 1.37 * x[i]
            y[i] = state[i] * 0.3

    def compiled(x, state):
        return torch.compile(step, fullgraph=True, backend="aot_eager")(x, state), state

    def mapped(x, state):
        y, state = torch.func.vmap(lambda x, state: (step(x, state), state))(x[None], state[None])
        return y[0], state[0]

    def differentiated(x, state):
        return step(x.requires_grad_(), state).detach(), state.detach()

    ways = [lambda *given: step.functional(*given)[::-1], compiled, mapped, differentiated]
    x, before = 1.1 * torch.arange(1, 4), 100.3 * torch.arange(1, 4)
    state = before.to(state_dtype, copy=True)
    expected = step(x.to(dtype), state), state
    assert expected[0].dtype == torch.promote_types(dtype, state_dtype)
    for way in ways:
        cases.assert_close(way(x.to(dtype), before.to(state_dtype, copy=True)), expected, rtol=0, atol=0)


def test_a_chain_updates_what_several_kernels_change(lang64):
    @lang64.kernel
    def grow(x: lang64.types.ndarray(), state: lang64.types.ndarray()):
        for i in x:
            state[i] += x[i] * state[i]

    @lang64.kernel
    def square(state: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in state:
            state[i] = state[i] * state[i]
            y[i] = 3.0 * state[i]

    op = ts.chain("x[n], inout state[n] -> y[n]", [grow, grow, square])
    x, before = draw_numbers(4).requires_grad_(), draw_numbers(4).requires_grad_()
    state = before * 1
    y = op(x, state)
    expected = (before * (1 + x) ** 2) ** 2
    cases.assert_close((y, state), (3 * expected, expected))
    given = (x, before)
    cases.assert_close(
        torch.autograd.grad((y * state).sum(), given), torch.autograd.grad((3 * expected**2).sum(), given)
    )


def test_drawn_numbers(lang64):
    @lang64.kernel
    def jitter(state: lang64.types.ndarray()):
        for i in state:
            state[i] *= lang64.random()

    op, state = ts.op("inout state[n] ->")(jitter), torch.ones(8, dtype=torch.float64)
    leaf = state.clone().requires_grad_()
    moved = leaf * 1
    op(moved)
    moved.sum().backward()
    cases.assert_close(leaf.grad, moved.detach())  # the factor that was drawn
    op(state)
    assert ((state > 0) & (state < 1)).all()


def test_the_functional_form_and_the_checks(lang64):
    op, x, state = stepping(lang64), draw_numbers(3), draw_numbers(3)
    kept = state.clone()
    result = op.functional(x, state)
    assert type(result)._fields == ("state_after", "y")
    assert str(op.spec) == "x[n], inout state[n] -> y[n]"
    cases.assert_close(tuple(ts.oracle(op, x, state).outputs.values()), tuple(result))
    assert ts.gradcheck(op, x, state)
    assert ts.check(op, x, state).verdict.startswith("right")
    assert torch.equal(state, kept)
    assert [one.rule for one in op.lint()] == ["TS101"]  # and no TS103


def hold(lang):
    @lang.kernel
    def hold(x: lang.types.ndarray(), state: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = state[i] * x[i]

    return hold


@pytest.mark.parametrize(
    ("spec", "error", "words"),
    [
        ("x[n], inout state[n] -> y[n]", ts.KernelError, "no kernel of op `hold` writes `state`.*Leave out `inout`"),
        ("x[n], state[n] -> inout y[n]", ts.SpecError, "`y` is an output, and cannot be `inout`.*left of `->`"),
        ("x[n], inout state[_] -> y[n]", ts.SpecError, "`_` gives no size to `state`, which is `inout`.*Write a name"),
        ("x[*b, n], inout state[n] -> y[*b, n]", ts.SpecError, "`state` has no `\\*b`, but an input has"),
        ("x[n], inout y[n] ->", ts.SpecError, "`state` of op `hold` is not in its spec"),
        ("x[n], inout -> y[n]", ts.SpecError, "`inout` has no brackets"),
    ],
)
def test_refusals(lang, spec, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        ts.op(spec)(hold(lang))


def test_the_error_of_a_written_input_suggests_inout(lang):
    with pytest.raises(ts.KernelError, match=r"write `inout y\[n\]`"):
        ts.op("x[n], y[n] -> state[n]")(hold(lang))


def test_copies():
    import taichi as ti

    from cases import at_module_level

    ti.init(ti.cpu)
    op = at_module_level.taichi_grow
    for twin in (copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        x = torch.ones(3)
        twin(x)
        assert torch.equal(x, torch.full((3,), 2.0))
