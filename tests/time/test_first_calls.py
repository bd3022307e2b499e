"""A backward pass that runs steps again, after something changed that their ops read besides their arguments."""

import pytest
import torch

import tinsmith as ts

FACTOR = 4.0


@pytest.fixture
def ops(lang64):
    """Make an op that reads a Python value, and one that reads a field."""
    ti = lang64
    array = ti.types.ndarray()
    field = ti.field(float, shape=())

    @ts.op("x[n] -> y[n]")
    @ti.kernel
    def by_value(x: array, y: array):
        for i in x:
            y[i] = FACTOR * x[i] * x[i]

    @ts.op("x[n] -> y[n]")
    @ti.kernel
    def by_field(x: array, y: array):
        for i in x:
            y[i] = field[None] * x[i] * x[i]

    field[None] = FACTOR
    return {"value": (by_value, set_value), "field": (by_field, lambda number: field.fill(number))}


def set_value(number):
    global FACTOR
    FACTOR = number


@pytest.fixture(autouse=True)
def _restore_factor():
    yield
    set_value(4.0)


STEPS = {
    "op": lambda op: op,
    "function": lambda op: returning(op),
    "compiled": lambda op: returning(torch.compile(op, backend="aot_eager")),
}


def returning(run):
    return lambda x, _: (run(x), None)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", ["value", "field"])
def test_a_change_between_the_passes_is_refused(ops, name, kind):
    op, change = ops[name]
    x = torch.full((3,), 0.2, dtype=torch.float64, requires_grad=True)
    step = STEPS[kind](op)
    y, _ = ts.scan(step, x, length=3, checkpoint=3)
    change(2.0)
    with pytest.raises(ts.GradientError, match=f"`\\w+` that op `{op.name}` reads changed between its forward"):
        y.sum().backward()
    change(4.0)
    (gradient,) = torch.autograd.grad(ts.scan(step, x, length=3, checkpoint=3)[0].sum(), x)
    torch.testing.assert_close(gradient, 8.0 * 4.0**7 * x.detach() ** 7)


@pytest.mark.parametrize("name", ["value", "field"])
def test_a_compiled_step_that_was_differentiated_before(ops, name):
    """By a first backward pass that keeps no graph, torch decides that none of its function ever does."""
    op, _ = ops[name]
    x = torch.full((3,), 0.2, dtype=torch.float64, requires_grad=True)
    compiled = torch.compile(op, backend="aot_eager")
    compiled(x).sum().backward()
    (gradient,) = torch.autograd.grad(ts.scan(returning(compiled), x, length=3, checkpoint=3)[0].sum(), x)
    torch.testing.assert_close(gradient, 8.0 * 4.0**7 * x.detach() ** 7)


def test_a_change_before_a_second_derivative_is_refused(ops):
    op, change = ops["value"]
    x = torch.full((3,), 0.2, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(ts.scan(op, x, length=3, checkpoint=3)[0].sum(), x, create_graph=True)
    change(2.0)
    with pytest.raises(ts.GradientError, match="changed between its forward and its backward pass"):
        first.sum().backward()


def test_a_step_may_write_the_field_that_its_op_reads(ops):
    op, change = ops["field"]
    rows = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)

    def step(x, row):
        change(float(row))
        return op(x), None

    x = torch.full((3,), 0.2, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(ts.scan(step, x, rows, checkpoint=3)[0].sum(), x)
    torch.testing.assert_close(gradient, 8.0 * x.detach() ** 7 * (1.0**4 * 2.0**2 * 3.0))


@pytest.fixture(params=["array", "engine"])
def layer(lang64, request):
    """Make a layer on fields that reads a Python value and a field; return the field too, for each way to run it."""
    ti = lang64
    x, y = (ti.field(float, shape=3, needs_grad=True) for _ in range(2))
    weight = ti.field(float, shape=())

    @ti.kernel
    def square():
        for i in x:
            y[i] = FACTOR * weight[None] * x[i] * x[i]

    weight[None] = 1.0
    made = ts.EmptyTin(torch.device("cpu"), adjoint="auto" if request.param == "array" else "engine")
    made.register_kernel(square).register_input_field(x, name="x").register_output_field(y, name="y")
    return made.finish(), weight


@pytest.mark.parametrize("what", ["value", "field"])
def test_a_change_of_what_a_layer_reads_is_refused(layer, what):
    tin, weight = layer
    x = torch.full((3,), 0.2, dtype=torch.float64, requires_grad=True)
    y, _ = ts.scan(lambda x, _: (tin(x), None), x, length=3, checkpoint=3)
    if what == "value":
        set_value(2.0)
    else:
        weight[None] = 0.5
    words = {"value": "value `FACTOR` that EmptyTin reads changed", "field": "its field `weight` has changed since"}[
        what
    ]
    with pytest.raises(ts.GradientError, match=words):
        y.sum().backward()


def test_a_layer_that_keeps_a_state_is_refused(lang64):
    ti = lang64
    x, y, mean = (ti.field(float, shape=3, needs_grad=True) for _ in range(3))

    @ti.kernel
    def follow():
        for i in x:
            mean[i] = 0.9 * mean[i] + 0.1 * x[i]
            y[i] = mean[i]

    tin = ts.EmptyTin(torch.device("cpu")).register_kernel(follow)
    tin.register_input_field(x, name="x").register_output_field(y, name="y").register_internal_field(mean, name="mean")
    tin.finish()
    with pytest.raises(ts.GradientError, match="field `mean` has changed since"):
        ts.scan(lambda x, _: (tin(x), None), torch.ones(3, dtype=torch.float64), length=3)


def test_calls_of_other_threads_are_not_watched(ops):
    import threading

    from tinsmith.calls import watch_calls

    op, _ = ops["value"]
    x = torch.ones(3, dtype=torch.float64)
    seen = []
    with watch_calls(lambda op, run, arguments, named: seen.append(op.name) or run()):
        other = threading.Thread(target=op, args=(x,))
        other.start()
        other.join()
        assert not seen
        op(x)
    op(x)
    assert seen == [op.name]
