"""A field that an op reads, changed between its forward and its backward pass, is refused; the same values are not."""

import pytest
import torch

import tinsmith as ts

N = 4


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def fill(field, value):
    field.from_torch(torch.full_like(field.to_torch(), value))


def tracking(lang, adjoint):
    """Build loss = sum (x - goal)^2 with a goal in a field, a table of vectors and one that a function reads."""
    goal = lang.field(lang.f64, shape=())
    table = lang.Vector.field(2, lang.f64, shape=N)
    hidden = lang.field(lang.f64, shape=N)

    @lang.func
    def weight(i):
        return hidden[i]

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = weight(i) * (x[i] - goal[None]) ** 2 * table[i][1]

    hidden.fill(1.0)
    fill(table, 1.0)  # `table.fill` warns on Quadrants
    return ts.op("x[n] -> y[n]", adjoint=adjoint)(kernel), goal, table, hidden


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_change_is_refused(lang64, adjoint, place):
    op, *fields = tracking(lang64, adjoint)
    name = ("goal", "table", "hidden")[place]
    given = rand(N).requires_grad_()
    loss = op(given).sum()
    fill(fields[place], 3.0)
    words = rf"(?s)the field `{name}` that op `kernel` reads changed between.*make `{name}` an array parameter"
    with pytest.raises(ts.GradientError, match=words):
        loss.backward()
    pull_back = torch.func.vjp(lambda x: op(x).sum(), given.detach())[1]
    fill(fields[place], 5.0)
    with pytest.raises(ts.GradientError, match=words):
        pull_back(torch.ones((), dtype=torch.float64))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_restored_values_are_accepted(lang64, adjoint):
    op, goal, table, hidden = tracking(lang64, adjoint)
    goal[None] = float("nan")
    given = rand(N).requires_grad_()
    op(given).sum().backward()
    goal[None] = 2.0
    given.grad = None
    loss = op(given).sum()
    goal[None], before = 7.0, 2.0
    goal[None] = before
    loss.backward()
    torch.testing.assert_close(given.grad, 2.0 * (given.detach() - 2.0))


def squares(lang, first):
    """Make an op that weighs squares with the field that its object has at the time."""

    @lang.data_oriented
    class Weighed:
        def __init__(self):
            self.weight = first

        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.weight[i] * x[i] ** 2

    one = Weighed()
    return one, ts.op("x[n] -> y[n]")(one.run)


def test_the_field_read_in_the_forward_pass_is_compared(lang64):
    first, second = (lang64.field(lang64.f64, shape=N) for _ in range(2))
    one, op = squares(lang64, first)
    given = rand(N).requires_grad_()
    for field, value in ((first, 1.0), (second, 2.0)):
        one.weight = field
        fill(field, value)
        op(given)
    one.weight = first
    loss = op(given).sum()
    one.weight = second
    op(given)
    fill(second, 7.0)
    loss.backward()  # reads the first
    torch.testing.assert_close(given.grad, 2.0 * given.detach())
    one.weight = first
    loss = op(given).sum()
    fill(first, 5.0)
    with pytest.raises(ts.GradientError, match=r"the field `self.weight` that op `run` reads changed between"):
        loss.backward()


def test_loops_respect_the_offset_of_each_field_with_one_name(lang64):
    near = lang64.field(lang64.f64, shape=N)
    far = lang64.field(lang64.f64, shape=N, offset=3)

    @lang64.data_oriented
    class Summed:
        def __init__(self):
            self.weight = near

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in self.weight:
                y[0] += self.weight[i] * x[0]

    one = Summed()
    op = ts.op("x[1] -> y[1]")(one.run)
    for field, value in ((far, 2.0), (near, 1.0)):
        fill(field, value)
    for dtype in (torch.float64, torch.float32):  # each is compiled for both
        for field, value in ((far, 2.0), (near, 1.0)):
            one.weight = field
            assert op(torch.ones(1, dtype=dtype)).item() == N * value


@pytest.mark.compiled_engine
def test_a_sparse_field_that_changed_is_refused(lang64):
    weight = lang64.field(lang64.f64)
    lang64.root.pointer(lang64.i, N).dense(lang64.i, 1).place(weight)
    _, op = squares(lang64, weight)
    weight[2] = 3.0
    given = rand(N).requires_grad_()
    op(given).sum().backward()
    assert given.grad.tolist() == [0.0, 0.0, 6.0 * given[2].item(), 0.0]
    loss = op(given).sum()
    weight[1] = 2.0
    with pytest.raises(ts.GradientError, match=r"the field `self.weight` that op `run` reads changed between"):
        loss.backward()


def test_a_layer_on_tensors_refuses_too(lang64):
    x, y, w = (lang64.field(lang64.f64, shape=N, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def kernel():
        for i in x:
            y[i] = w[i] * x[i] * x[i]

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y).register_kernel(kernel)
    result = layer.finish()(rand(N).requires_grad_())
    w.fill(1.0)
    with pytest.raises(ts.GradientError, match="the field `w` that op `EmptyTin` reads changed between"):
        result.sum().backward()
