"""A value that was read and then overwritten: right by the generated adjoint.

By the engine's own reverse mode it is refused, with both lines, where the gradient needs it, and only there.
"""

import pytest
import torch

import cases
import tinsmith as ts

F64 = torch.float64


def draw_floats(*shape):
    return torch.rand(shape, dtype=F64) + 0.5


def cleared_under_another_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i] * x[i]
        for i in x:
            y[i] = h[i] * h[i]  # read
        for j in x:
            h[j] = 0.0  # overwritten

    return kernel, "h[n]"


def two_buffers_in_turn(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[0, i] = x[i]
        for _ in range(1):
            for t in range(4):
                for i in range(x.shape[0]):
                    h[(t + 1) % 2, i] = h[t % 2, i] * h[t % 2, i]  # read, overwritten
        for i in x:
            y[i] = h[0, i]

    return kernel, "h[2, n]"


def shifted_in_place(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i]
        for _ in range(1):
            for t in range(x.shape[0] - 1):
                h[t] = h[t + 1] * h[t + 1]  # read, overwritten
        for i in x:
            y[i] = h[i]

    return kernel, "h[n]"


def sorted_in_place(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i]
        for _ in range(1):
            for t in range(x.shape[0]):
                for i in range(x.shape[0] - 1):
                    y[i] += h[i] * h[i]  # read
                    h[i + 1] = x[t]  # overwritten

    return kernel, "h[n]"


def through_an_index(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i]
        for _ in range(1):
            for t in range(x.shape[0]):
                k = (t * t) % x.shape[0]
                y[t] = h[k] * h[k]  # read
                h[t] = 2.0  # overwritten

    return kernel, "h[n]"


def in_a_function(lang):
    @lang.func
    def square(array: lang.template(), j: lang.i32):
        return array[j] * array[j]  # read

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i]
            y[i] = square(h, i)
            h[i] = 1.0  # overwritten

    return kernel, "h[n]"


def sum_that_all_iterations_share(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[0] += x[i]  # overwritten
            y[i] = h[0] * x[i]  # read

    return kernel, "h[n]"


def serialized_shift(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i] = x[i]
        lang.loop_config(serialize=True)
        for t in range(x.shape[0] - 1):
            h[t] = h[t + 1] * h[t + 1]  # read, overwritten
        for i in x:
            y[i] = h[i]

    return kernel, "h[n]"


def _shifted(x):
    return torch.cat([x[1:] ** 2, x[-1:]])


def _sorted_in_place(x):
    state, sums = list(x), [torch.zeros((), dtype=x.dtype)] * len(x)
    for value in x:
        for i in range(len(x) - 1):
            sums[i] = sums[i] + state[i] ** 2
            state[i + 1] = value
    return torch.stack(sums)


def _through_an_index(x):
    state, rows = list(x), []
    for t in range(len(x)):
        rows.append(state[t * t % len(x)] ** 2)
        state[t] = torch.full((), 2.0, dtype=x.dtype)
    return torch.stack(rows)


LOST = {
    cleared_under_another_name: lambda x: x**4,
    two_buffers_in_turn: lambda x: x**16,
    shifted_in_place: _shifted,
    sorted_in_place: _sorted_in_place,
    through_an_index: _through_an_index,
    in_a_function: lambda x: x**2,
    serialized_shift: _shifted,
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("make", LOST, ids=lambda make: make.__name__)
def test_a_lost_value_is_right_by_the_generated_adjoint(lang64, poisoned, make):
    kernel, scratch = make(lang64)
    op, x, seed = ts.op("x[n] -> y[n]", scratch=scratch)(kernel), draw_floats(6), torch.randn(6, dtype=F64)
    cases.assert_same_values_and_gradients(op, LOST[make], (x,))
    (gradient,) = torch.autograd.grad(op(x.requires_grad_()), x, seed)
    torch.testing.assert_close(gradient, ts.oracle(op, x, cotangents=seed).gradients["x"])


@pytest.mark.parametrize("make", [*LOST, sum_that_all_iterations_share], ids=lambda make: make.__name__)
def test_a_lost_value_is_refused_with_both_lines_by_the_engine_s_reverse_mode(lang64, make):
    kernel, scratch = make(lang64)
    op = ts.op("x[n] -> y[n]", scratch=scratch, adjoint="engine", races="allow")(kernel)
    assert op(draw_floats(6)).isfinite().all()  # the value alone can be had
    with open(__file__) as file:
        lines = list(enumerate(file.read().splitlines(), 1))
    begin = make.__code__.co_firstlineno
    end = next((n for n, line in lines if n > begin and line.startswith("def ")), len(lines))
    marked = {
        word: [n for n, line in lines if begin < n < end and "#" in line and word in line.partition("#")[2]]
        for word in ("read", "overwritten")
    }
    with pytest.raises(ts.GradientError, match="overwrites a value of `h`") as refused:
        op(draw_floats(6).requires_grad_()).sum().backward()
    rows = dict(line.split() for line in str(refused.value).splitlines() if ".py:" in line)
    for word, numbers in marked.items():
        assert rows[word] in [f"{__file__}:{number}" for number in numbers]


def upwards(lang):
    @ts.op("x[n] -> y[n]", scratch="h[n + 1]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for _ in range(1):
            for t in range(x.shape[0]):
                following = t + 1
                h[following] = h[t] * h[t] + x[t]
        for i in x:
            y[i] = h[i + 1]

    return op


def downwards(lang):
    @ts.op("x[n] -> y[n]", scratch="h[n + 1]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for _ in range(1):
            for k in range(x.shape[0]):
                t = x.shape[0] - 1 - k
                h[t] = h[t + 1] * h[t + 1] + x[t]
        for i in x:
            y[i] = h[i]

    return op


def in_blocks(lang):
    @ts.op("x[n] -> y[n]", scratch="h[2 * n + 2]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for _ in range(1):
            for t in range(x.shape[0]):
                for k in lang.static(range(2)):
                    h[2 * t + 2 + k] = h[2 * t + k] * h[2 * t + k] + x[t]
        for i in x:
            y[i] = h[2 * i + 2]

    return op


def unrolled(lang):
    @ts.op("x[n] -> y[n]", scratch="h[n, 4]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in x:
            h[i, 0] = x[i]
            for t in lang.static(range(3)):
                h[i, t + 1] = h[i, t] * h[i, t]
            y[i] = h[i, 3]

    return op


def through_functions(lang):
    @lang.func
    def step(array: lang.template(), t, v):
        array[t + 1] = array[t] * array[t] + v

    @ts.op("x[n] -> y[n]", scratch="h[n + 1]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=1), h: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for _ in range(1):
            for t in range(x.shape[0]):
                step(h, t, x[t])
        for i in x:
            y[i] = h[i + 1]

    return op


def _upwards(x):
    state, rows = torch.zeros((), dtype=x.dtype), []
    for value in x:
        state = state * state + value
        rows.append(state)
    return torch.stack(rows)


KEPT = {
    upwards: _upwards,
    downwards: lambda x: _upwards(x.flip(0)).flip(0),
    in_blocks: _upwards,
    unrolled: lambda x: x**8,
    through_functions: _upwards,
}


@pytest.mark.parametrize("make", KEPT, ids=lambda make: make.__name__)
def test_values_in_places_of_their_own_are_right(lang64, poisoned, make):
    cases.assert_same_values_and_gradients(make(lang64), KEPT[make], (0.7 * draw_floats(5),))


def test_a_sum_that_all_iterations_share_and_read_is_refused(lang64):
    """What an iteration reads depends on which ran before it: no way of differentiating it has an answer."""
    kernel, scratch = sum_that_all_iterations_share(lang64)
    with pytest.raises(ts.KernelError, match="has a data race"):
        ts.op("x[n] -> y[n]", scratch=scratch)(kernel)
    with pytest.raises(ts.GradientError, match="depends on the order of the iterations of a parallel loop"):
        ts.op("x[n] -> y[n]", scratch=scratch, races="allow")(kernel)(draw_floats(6).requires_grad_()).sum().backward()


def test_the_return_value_of_an_atomic_is_refused_if_the_gradient_needs_it(lang64):
    @ts.op("x[n] -> y[n], count[1]: i32", adjoint="engine")
    @lang64.kernel
    def packed(x: lang64.types.ndarray(), count: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            slot = lang64.atomic_add(count[0], 1)
            y[slot] += x[i] * x[i]

    with pytest.raises(ts.GradientError, match=r"(?s)`packed`.*an atomic on `count`.*test_roles\.py:\d+"):
        packed(draw_floats(5).requires_grad_()).y.sum().backward()


def test_the_return_value_of_an_atomic_on_a_float_is_refused(lang64):
    @ts.op("x[n] -> y[n]", scratch="h[1]")
    @lang64.kernel
    def running(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.atomic_add(h[0], x[i])

    with pytest.raises(ts.GradientError, match="an atomic on `h`"):
        running(draw_floats(5).requires_grad_()).sum().backward()
