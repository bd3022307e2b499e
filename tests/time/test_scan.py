"""ts.scan against a plain loop of torch in float64: values, gradients, and what they depend on."""

import itertools

import numpy as np
import pytest
import torch

import tinsmith as ts
from support.springs import run_loop, step_in_torch

pytestmark = pytest.mark.thinned(4)

STEPS = ["op", "updating", "chain", "function", "torch"]
CHECKPOINTS = [
    {},
    {"checkpoint": "all"},
    {"checkpoint": 1},
    {"checkpoint": 6},
    {"checkpoint": 50},
    {"memory": 80},  # one state
    {"memory": 250},  # three
    {"memory": 250, "offload": True},  # changes nothing on the CPU
]


def compute_loss(states, outputs):
    return sum((one**2).sum() for one in states) + (outputs**3).sum()


def compute_expected(numbers, pick):
    last, states, outputs = run_loop(step_in_torch, tuple(numbers[:2]), *numbers[2:])
    loss = compute_loss(pick(last, states), outputs)
    return loss, torch.autograd.grad(loss, numbers)


PICKS = {"last": lambda last, states: last, "all": lambda last, states: states}
PICKS |= {keep: lambda last, states, keep=keep: [one[keep - 1 :: keep] for one in states] for keep in (3, 20)}


@pytest.mark.parametrize("keep", PICKS)
@pytest.mark.parametrize("name", STEPS)
def test_values_and_gradients_are_those_of_a_loop(springs, numbers, name, keep):
    x, v, force, stiffness = numbers
    wanted, wanted_gradients = compute_expected(numbers, PICKS[keep])
    first = None
    for options in CHECKPOINTS:
        states, outputs = ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness, keep=keep, **options)
        loss = compute_loss(states, outputs)
        torch.testing.assert_close(loss, wanted)
        gradients = torch.autograd.grad(loss, numbers)
        for one, other in zip(gradients, wanted_gradients, strict=True):
            torch.testing.assert_close(one, other)
        first = first or gradients
        assert all(map(torch.equal, first, gradients)), f"other bits with {options}"


@pytest.mark.parametrize("options", [{}, {"keep": "all"}, {"keep": 3}], ids=str)
@pytest.mark.parametrize("name", STEPS)
def test_results_may_be_changed_in_place(springs, numbers, name, options):
    x, v, force, stiffness = numbers

    def scan():
        states, outputs = ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness, **options)
        return [*states, outputs]

    wanted = torch.autograd.grad(sum((2 * one).square().sum() for one in scan()), numbers)
    in_place = torch.autograd.grad(sum(one.mul_(2).square().sum() for one in scan()), numbers)
    for one, other in zip(in_place, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", STEPS)
def test_a_backward_pass_may_be_asked_for_twice(springs, numbers, name):
    x, v, force, stiffness = numbers
    states, _ = ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness, memory=250)
    loss = compute_loss(states, torch.zeros(1))
    once = torch.autograd.grad(loss, numbers, retain_graph=True)
    assert all(map(torch.equal, once, torch.autograd.grad(loss, numbers)))


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 3), (1, 2)])
@pytest.mark.parametrize("name", STEPS)
def test_gradients_go_to_what_requires_them(springs, numbers, name, wanted):
    given = [one if place in wanted else one.detach() for place, one in enumerate(numbers)]
    (x, v), _ = ts.scan(getattr(springs, name), tuple(given[:2]), given[2], parameters=given[3])
    gradients = torch.autograd.grad(x.sum(), [given[place] for place in wanted], allow_unused=True)
    last, _, _ = run_loop(step_in_torch, tuple(numbers[:2]), *numbers[2:])
    for place, one in zip(wanted, gradients, strict=True):
        torch.testing.assert_close(one, torch.autograd.grad(last[0].sum(), numbers[place], retain_graph=True)[0])


@pytest.mark.parametrize("name", ["op", "updating", "chain"])
def test_arguments_may_be_given_by_name(springs, numbers, name):
    x, v, force, stiffness = numbers
    op = getattr(springs, name)
    state, outputs = ts.scan(op, {"v": v, "x": x}, {"force": force}, parameters={"stiffness": stiffness})
    (wanted_x, wanted_v), wanted = ts.scan(op, (x, v), force, parameters=stiffness)
    assert list(state) == ["v", "x"]
    torch.testing.assert_close((state["x"], state["v"], outputs), (wanted_x, wanted_v, wanted))


def test_the_callers_tensors_are_not_changed(springs, numbers):
    before = [one.detach().clone() for one in numbers]
    x, v, force, stiffness = numbers
    (x_end, _), _ = ts.scan(springs.updating, (x, v), force, parameters=stiffness)
    x_end.sum().backward()
    assert all(map(torch.equal, before, numbers))


@pytest.mark.parametrize("name", STEPS)
def test_second_derivatives(springs, numbers, name):
    x, v, force, stiffness = numbers

    def run(x, v, force, stiffness):
        (x, v), energies = ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness)
        return x, energies

    short = x, v, force.detach()[:3].requires_grad_(), stiffness
    assert torch.autograd.gradcheck(run, short)
    assert torch.autograd.gradgradcheck(run, short)


TRANSFORMS = {
    "grad": lambda f, x, k, _: torch.func.grad(lambda x: f(x, k).pow(2).sum())(x),
    "jacrev": lambda f, x, k, _: torch.func.jacrev(f, argnums=1)(x, k),
    "jacfwd": lambda f, x, k, _: torch.func.jacfwd(f)(x, k),
    "jvp": lambda f, x, k, _: torch.func.jvp(f, (x, k), (x, k))[1],
    "vmap": lambda f, x, k, batch: torch.func.vmap(f, (0, None))(batch, k),
    "vmap of jacrev": lambda f, x, k, batch: torch.func.vmap(torch.func.jacrev(f), (0, None))(batch, k),
    "grad of vmap": lambda f, x, k, batch: torch.func.grad(lambda k: torch.func.vmap(f, (0, None))(batch, k).sum())(k),
    "vmap of grad": lambda f, x, k, batch: torch.func.vmap(
        torch.func.grad(lambda x, k: f(x, k).pow(2).sum(), argnums=(0, 1)), (0, None)
    )(batch, k),
    "vmap over parameters": lambda f, x, k, batch: torch.func.vmap(f, (None, 0), out_dims=1)(x, k * batch[:, 0]),
    "vmap of vmap": lambda f, x, k, batch: torch.func.vmap(torch.func.vmap(f, (0, None)), (None, 0))(
        batch, k * batch[:, 0]
    ),
    "vmap of vmap of grad": lambda f, x, k, batch: torch.func.vmap(
        torch.func.vmap(torch.func.grad(lambda x, k: f(x, k).pow(2).sum()), (0, None)), (None, 0)
    )(batch, k * batch[:, 0]),
    "grad of grad": lambda f, x, k, _: torch.func.grad(
        lambda x: torch.func.grad(lambda x: f(x, k).pow(3).sum())(x).pow(2).sum()
    )(x),
    "grad of vmap of grad": lambda f, x, k, batch: torch.func.grad(
        lambda k: torch.func.vmap(torch.func.grad(lambda x: f(x, k).pow(3).sum()))(batch).pow(2).sum()
    )(k),
    "hessian": lambda f, x, k, _: torch.func.hessian(lambda x: f(x, k).pow(2).sum())(x),
    "older vmap": lambda f, x, k, _: torch.autograd.functional.jacobian(lambda x: f(x, k), x, vectorize=True),
}


@pytest.mark.thinned(8)
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
@pytest.mark.parametrize("name", STEPS)
def test_transforms_of_torch(springs, numbers, name, transform):
    x, v, force, stiffness = (one.detach() for one in numbers)
    batch = torch.randn(3, 5, dtype=torch.float64)

    def run(x, stiffness):
        return ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness)[0][0]

    def wanted(x, stiffness):
        return run_loop(step_in_torch, (x, v), force, stiffness)[0][0]

    torch.testing.assert_close(transform(run, x, stiffness, batch), transform(wanted, x, stiffness, batch))


def test_a_layer_is_called_with_its_arguments(lang64):
    ti = lang64
    array = ti.types.ndarray()

    @ti.kernel
    def decay(x: array, rate: array, y: array):
        for i in x:
            y[i] = x[i] * (1.0 - 0.1 * rate[i])

    tube = ts.Tube().register_input_tensor((5,), torch.float64, "x", True)
    tube = tube.register_input_tensor((5,), torch.float64, "rate", True)
    tube = (
        tube.register_output_tensor((5,), torch.float64, "y", True).register_kernel(decay, ["x", "rate", "y"]).finish()
    )
    x, rate = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    actual, outputs = ts.scan(tube, x, length=4, parameters=rate)
    assert outputs is None
    right = x * (1.0 - 0.1 * rate) ** 4
    torch.testing.assert_close(actual, right)
    for one, other in zip(*(torch.autograd.grad(end.sum(), (x, rate)) for end in (actual, right)), strict=True):
        torch.testing.assert_close(one, other)


# Python functions -----------------------------------------------------------------------------


def test_captured_tensors_get_their_gradient(numbers):
    x, v, force, stiffness = numbers
    inner = 2.0 * stiffness  # no leaf
    model = torch.nn.Linear(5, 5, dtype=torch.float64)

    def step(state, row):
        return torch.tanh(model(state) + row) * inner, None

    actual = ts.scan(step, x, force)[0]
    right = x
    for row in force:
        right = step(right, row)[0]
    leaves = [x, force, stiffness, *model.parameters()]
    pairs = zip(*(torch.autograd.grad(end.sum(), leaves) for end in (actual, right)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


def test_a_tensor_that_is_captured_later_is_refused():
    x, late = (torch.ones(2, requires_grad=True) for _ in range(2))
    gate = torch.tensor([0.0, 0.0, 1.0])

    def step(state, open_):
        return state * late if open_ else state * 1.0, None

    words = r"(?s)step 2 of a scan over `step` uses a tensor.*in `parameters`"
    with pytest.raises(ts.GradientError, match=words):
        ts.scan(step, x, gate)
    end, _ = ts.scan(step, x, gate, checkpoint=2)
    with pytest.raises(ts.GradientError, match=words):
        end.sum().backward()


@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_random_numbers_of_further_derivatives(options):
    """Of a second backward pass, for which the forward pass may be run again, and of the second derivative."""
    x = torch.rand(10, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(7)

    def step(state, _):
        return state * (state + torch.rand(10, dtype=torch.float64)), None

    end, _ = ts.scan(step, x, length=4, **options)
    torch.manual_seed(7)
    right = x
    for _ in range(4):
        right, _ = step(right, None)
    once, again, wanted = (torch.autograd.grad(one.sum(), x, create_graph=True)[0] for one in (end, end, right))
    assert torch.equal(once, again)
    torch.testing.assert_close(once, wanted)
    second, wanted = (torch.autograd.grad(one.sum(), x)[0] for one in (again, wanted))
    torch.testing.assert_close(second, wanted)


@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_random_numbers_are_drawn_again(options):
    x = torch.randn(10, dtype=torch.float64, requires_grad=True)

    def step(state, _):
        noise = torch.randn(10, dtype=torch.float64)
        return torch.sin(state + noise), (state * torch.rand(())).sum()

    torch.manual_seed(7)
    end, outputs = ts.scan(step, x, length=12, **options)
    after = torch.rand(1)
    gradient = torch.autograd.grad(end.sum() + outputs.sum(), x)
    assert not torch.equal(torch.rand(1), after), "a backward pass leaves the caller's generator alone"
    torch.manual_seed(7)
    right, seen = x, []
    for _ in range(12):
        right, one = step(right, None)
        seen.append(one)
    assert torch.equal(torch.rand(1), after)
    torch.testing.assert_close(end, right)
    torch.testing.assert_close(gradient, torch.autograd.grad(right.sum() + sum(seen), x))


def test_a_kernel_that_draws_random_numbers_draws_them_again(lang64):
    ti = lang64
    array = ti.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @ti.kernel
    def shake(x: array, y: array):
        for i in x:
            y[i] = ti.sin(x[i] * (1.0 + ti.random(ti.f64)))

    x = torch.rand(6, dtype=torch.float64, requires_grad=True)
    results = []
    for options in CHECKPOINTS:
        torch.manual_seed(3)
        end, _ = ts.scan(shake, x, length=9, **options)
        results.append((end.detach(), *torch.autograd.grad(end.sum(), x)))
    torch.manual_seed(3)
    right = x
    for _ in range(9):
        right = shake(right)
    for one in results:
        torch.testing.assert_close(one, (right.detach(), *torch.autograd.grad(right.sum(), x, retain_graph=True)))


def test_autocast_is_the_same_when_a_step_is_run_again():
    model, x = torch.nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    seen = set()

    def step(state, _):
        out = model(state)
        seen.add(out.dtype)
        return torch.tanh(out).float(), None

    with torch.autocast("cpu", dtype=torch.bfloat16):
        end, _ = ts.scan(step, x, length=3)
    end.sum().backward()
    assert seen == {torch.bfloat16}


@pytest.mark.parametrize("options", CHECKPOINTS, ids=str)
def test_the_default_device_is_the_same_when_a_step_is_run_again(options):
    """The backward pass of a GPU's tensors is in another thread, which has a default device of its own."""
    x, seen = torch.randn(4, requires_grad=True), set()

    def step(state, _):
        seen.add(torch.get_default_device().type)
        return state.sin(), None

    with torch.device("meta"):
        end, _ = ts.scan(step, x, length=30, **options)
    end.sum().backward()
    assert seen == {"meta"}
    assert torch.get_default_device().type == "cpu"


def test_a_function_may_update_its_state_in_place(numbers):
    x, v, force, stiffness = numbers

    def step(state, row, k):
        position, speed = state
        speed.add_(0.01 * (row - k * torch.sin(position)))
        return (position + 0.01 * speed, speed), None

    for options in CHECKPOINTS:
        (end, _), _ = ts.scan(step, (x, v), force, parameters=stiffness, **options)
        right, _, _ = run_loop(step_in_torch, (x, v), force, stiffness)
        torch.testing.assert_close(end, right[0])
        pairs = zip(*(torch.autograd.grad(one.sum(), numbers) for one in (end, right[0])), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other)


def test_structures_and_integers_are_carried_along():
    def step(state, inputs, scale, *, power):
        raise AssertionError

    def by_name(state, inputs, scale, power):
        x, (count, extra) = state["x"], state["more"]
        y = x * scale**power + inputs["a"]
        return {"x": y, "more": [count + 1, extra]}, {"sum": y.sum(), "count": count}

    x, scale = torch.ones(3, requires_grad=True), torch.tensor(1.1, requires_grad=True)
    state = {"x": x, "more": [torch.tensor(0), torch.zeros(2)]}
    inputs = {"a": torch.ones(5, 3)}
    last, outputs = ts.scan(by_name, state, inputs, parameters={"scale": scale, "power": 2})
    assert last["more"][0] == 5
    assert outputs["count"].tolist() == [0, 1, 2, 3, 4]
    y = x
    for _ in range(5):
        y = y * scale**2 + 1.0
    torch.testing.assert_close(last["x"], y)
    one, other = (torch.autograd.grad(end.sum(), (x, scale)) for end in (last["x"], y))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize(("unroll", "options"), [*itertools.product([2, 3, 50], CHECKPOINTS)])
def test_steps_may_be_recorded_together(numbers, unroll, options):
    x, v, force, stiffness = numbers
    (end, _), energies = ts.scan(step_in_torch, (x, v), force, parameters=stiffness, unroll=unroll, keep=4, **options)
    last, states, outputs = run_loop(step_in_torch, (x, v), force, stiffness)
    ours, right = (one.pow(2).sum() for one in (end, states[0][3::4]))
    torch.testing.assert_close(energies, outputs)
    for one, other in zip(torch.autograd.grad(ours, numbers), torch.autograd.grad(right, numbers), strict=True):
        torch.testing.assert_close(one, other)


def test_a_scan_of_no_steps_returns_the_state():
    x = torch.ones(3, requires_grad=True)
    end, outputs = ts.scan(step_in_torch, (x, x), torch.zeros(0, 3), parameters=1.0)
    assert outputs is None
    end[0].sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]


def test_numbers_of_steps_may_be_those_of_numpy(numbers):
    x, v, force, stiffness = numbers
    options = {"length": np.int64(len(force)), "keep": np.int32(2), "unroll": np.int16(2), "memory": np.int64(10**6)}
    plain = {name: int(number) for name, number in options.items()}
    runs = [ts.scan(step_in_torch, (x, v), force, parameters=stiffness, **one) for one in (options, plain)]
    torch.testing.assert_close(*runs)
    with pytest.raises(ts.ArgumentError, match=r"must be a number of steps\n\s+got  bool True"):
        ts.scan(step_in_torch, (x, v), force, parameters=stiffness, length=True)


@pytest.mark.parametrize("compiler", [None, "eager"])
def test_a_scan_of_no_steps_over_an_op_returns_empty_outputs(lang, compiler):
    @ts.op("x[n], p[m] -> xn[n], e[], moved[m, n]")
    @lang.kernel
    def step(
        x: lang.types.ndarray(),
        p: lang.types.ndarray(),
        xn: lang.types.ndarray(),
        e: lang.types.ndarray(),
        moved: lang.types.ndarray(),
    ):
        for i in x:
            xn[i] = 0.5 * x[i] + p[0]
            e[None] += x[i]
        for i, j in moved:
            moved[i, j] = p[i] * x[j]

    def run(x):
        return ts.scan(step, x, torch.zeros(0, 2, dtype=torch.float64))

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    state, outputs = (torch.compile(run, backend=compiler) if compiler else run)(x)
    torch.testing.assert_close(state, x)
    assert [tuple(one.shape) for one in (outputs["e"], outputs["moved"])] == [(0,), (0, 2, 3)]
    assert {one.dtype for one in outputs.values()} == {torch.float64}
    (slope,) = torch.autograd.grad((state * torch.arange(3.0)).sum() + outputs["moved"].sum(), x)
    assert slope.tolist() == [0.0, 1.0, 2.0]


def test_a_state_that_is_changed_after_the_scan_is_noticed():
    x = torch.ones(3, requires_grad=True)
    state = 2.0 * x
    end, _ = ts.scan(lambda s, _: (s * s, None), state, length=3)
    state.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        end.sum().backward()


# Refusals -------------------------------------------------------------------------------------


def grows(state, _):
    return torch.cat([state, state]), None


def widens(state, _):
    return state.double(), None


def returns_a_tensor(state, _):
    return state


def returns_two(state, _):
    return (state, state), None


def changes_outputs(state, row):
    return state, state if row else (state, state)


def changes_inputs(state, row):
    return state + row.add_(1.0), None


ONES = torch.ones(3)
REFUSED = [
    (grows, {"length": 2}, ts.ShapeError, r"step 0 .* `grows` changed the shape of `state`\n  before  \(3,\) float32"),
    (widens, {"length": 2}, ts.DtypeError, r"changed the dtype of `state`(?s:.*)\.to\(torch.float64\)"),
    (returns_a_tensor, {"length": 2}, ts.ArgumentError, r"must return the next state(?s:.*)`return state, None`"),
    (returns_two, {"length": 2}, ts.ArgumentError, r"another structure(?s:.*)returned  \(tensor, tensor\)"),
    (changes_outputs, {"inputs": torch.tensor([1, 0])}, ts.ArgumentError, "outputs with another structure"),
    (changes_inputs, {"inputs": torch.ones(2, 3)}, ts.ArgumentError, "changes its inputs in place"),
    (step_in_torch, {}, ts.ArgumentError, "needs `length`"),
    (
        step_in_torch,
        {"inputs": torch.ones(4, 3), "length": 5},
        ts.ShapeError,
        r"do not agree(?s:.*)inputs  \(4, 3\): 4 steps",
    ),
    (step_in_torch, {"inputs": torch.tensor(1.0)}, ts.ShapeError, "has no time dim"),
    (step_in_torch, {"inputs": 3}, ts.ArgumentError, "`inputs` of a scan must be a tensor"),
    (step_in_torch, {"length": -1}, ts.ArgumentError, "must be a number of steps"),
    (3, {"length": 1}, ts.ArgumentError, "an op, a chain, a layer or a function"),
    (grows, {"length": 1, "keep": "some"}, ts.ArgumentError, "`keep` of a scan cannot be 'some'"),
    (grows, {"length": 1, "keep": 2}, ts.ArgumentError, "larger than its number of steps"),
    (grows, {"length": 1, "checkpoint": "none"}, ts.ArgumentError, "`checkpoint` of a scan cannot be 'none'"),
    (grows, {"length": 1, "checkpoint": 0}, ts.ArgumentError, "`checkpoint` of a scan must be a positive integer"),
    (grows, {"length": 1, "checkpoint": 2, "memory": 9}, ts.ArgumentError, "`memory` of a scan works only with"),
    (grows, {"length": 9, "memory": 9}, ts.ArgumentError, "is less than one state needs"),
    (grows, {"length": 9, "memory": "9 apples"}, ts.ArgumentError, "not an amount of memory"),
]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("step", "options", "error", "words"), REFUSED)
def test_refusals(step, options, error, words):
    with pytest.raises(error, match=words):
        ts.scan(step, ONES, **options)


def test_refusals_of_ops(springs, numbers):
    x, v, force, stiffness = numbers
    cases = [
        (springs.op, (x, v), force, (), "is missing `stiffness`"),
        (springs.op, (x, v), force, (stiffness, stiffness), "has too many arguments"),
        (springs.op, {"x": x, "w": v}, force, stiffness, "`w` in `state` of a scan is not an argument"),
        (springs.op, {"x": x, "v": v}, {"x": force}, stiffness, "`x` in `inputs` of a scan is given twice"),
        (springs.op, (x, (v, v)), force, stiffness, "must be a tensor, or a tuple or dict"),
        (springs.op, (x, v, x, stiffness), None, (), "has more tensors than the op has results"),
        (
            springs.updating,
            {"x": x},
            {"force": force},
            {"v": v, "stiffness": stiffness},
            "`v` of op .* is updated in place",
        ),
    ]
    for op, state, inputs, parameters, words in cases:
        with pytest.raises(ts.ArgumentError, match=words):
            ts.scan(op, state, inputs, length=None if inputs is not None else 3, parameters=parameters)


@pytest.mark.filterwarnings("ignore:the arguments of op")
def test_results_in_another_order_than_the_state_are_refused(lang):
    array = lang.types.ndarray()

    @ts.op("x[n], v[n] -> v_next[n], x_next[n]", order="kernel")
    @lang.kernel
    def swapped(x: array, v: array, x_next: array, v_next: array):
        for i in x:
            x_next[i] = x[i] + v[i]
            v_next[i] = v[i]

    with pytest.raises(ts.ArgumentError, match=r"different orders(?s:.*)results    v_next, x_next"):
        ts.scan(swapped, (torch.ones(2), torch.ones(2)), length=2)


def test_a_number_that_is_not_finite_is_named_with_its_step():
    def step(state, row):
        return torch.log(state) if row else state, None

    rows = torch.arange(8) == 5
    with pytest.raises(ts.CheckError, match=r"(?s)step 5 .*first +state\[1\] = nan.*in all +1 of 2.*were finite"):
        ts.scan(step, torch.tensor([1.0, -1.0]), rows, check_finite=True)


def test_an_op_that_draws_numbers_of_the_engine_has_no_gradient(lang):
    @lang.kernel
    def step(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * lang.random()

    @lang.kernel
    def back(grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in grad_y:
            grad_x[i] = grad_y[i]

    drawn = ts.op("x[n] -> y[n]", backward=back)(step)
    ts.scan(drawn, torch.ones(3), length=4)
    with pytest.raises(ts.GradientError, match=r"(?s)scan over op `step`.*draws random numbers of the engine"):
        ts.scan(drawn, torch.ones(3, requires_grad=True), length=4)
    seeded = ts.op("x[n] -> y[n]")(step)
    x = torch.ones(3, requires_grad=True)
    torch.manual_seed(1)
    end, _ = ts.scan(seeded, x, length=4, checkpoint=2)
    end.sum().backward()
    torch.testing.assert_close(x.grad, end.detach())
