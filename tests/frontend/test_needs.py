"""The backward pass saves every value that it reads, however the kernel is written.

Each row is a way to write a kernel that hid a value from the analysis: its gradient was NaN, or
garbage, or the process died of a garbage index.
"""

import pytest
import torch

import cases
import tinsmith as ts
from support.adjoints import with_adjoint

F64 = torch.float64


def draw_floats(*shape):
    return torch.rand(shape, dtype=F64) + 0.5


def integers(*values):
    return torch.tensor(values, dtype=torch.int32)


def local_changed_by_a_function(lang):
    @lang.func
    def add_square(total: lang.template(), v):
        total += v * v

    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            total = 0.0
            add_square(total, x[i])
            y[i] = total * w[i]

    return op, lambda x, w: x**2 * w, (draw_floats(5), draw_floats(5))


def output_changed_by_a_function(lang):
    @lang.func
    def add_square(total: lang.template(), v):
        total += v * v

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            add_square(y[i], x[i])

    return op, lambda x: x**2, (draw_floats(5),)


def output_set_by_a_function_in_a_function(lang):
    @lang.func
    def put(place: lang.template(), v):
        place = v * v  # noqa: F841  # by reference

    @lang.func
    def put_twice(place: lang.template(), v):
        put(place, v + v)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            put_twice(y[i], x[i])

    return op, lambda x: 4 * x**2, (draw_floats(5),)


def named_in_an_expression(lang):
    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a = (v := x[i]) + 1.0
            y[i] = v * w[i] + a

    return op, lambda x, w: x * w + x + 1, (draw_floats(5), draw_floats(5))


def several_targets(lang):
    @ts.op("x[n], unique order[n]: i32 -> y[n], z[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), order: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[order[i]], z[i] = x[i] * x[i], x[i]

    def twin(x, order):
        return torch.zeros_like(x).index_put((order.long(),), x**2), 1.0 * x

    return op, twin, (draw_floats(5), integers(3, 0, 4, 1, 2))


def struct_made_by_keyword(lang):
    pair = lang.types.struct(left=lang.f64, right=lang.f64)

    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            both = pair(left=x[i], right=1.0)
            y[i] = both.left * w[i]

    return op, lambda x, w: x * w, (draw_floats(5), draw_floats(5))


def function_called_by_keyword(lang):
    @lang.func
    def line(a, b):
        return a * a + b

    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = line(a=x[i], b=1.0)
            y[i] = s * w[i]

    return op, lambda x, w: (x * x + 1) * w, (draw_floats(5), draw_floats(5))


def comprehension(lang):
    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            twice = lang.Vector([v * 2.0 for v in (x[i], 1.0)])
            y[i] = twice[0] * w[i]

    return op, lambda x, w: 2 * x * w, (draw_floats(5), draw_floats(5))


def functions_named_as_linear_ones_are(lang):
    @lang.func
    def select(a, b, c):
        return a * b * c

    @lang.func
    def cast(a, b):
        return a * b

    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = select(1.0, x[i], w[i]) + cast(x[i], w[i])

    return op, lambda x, w: 2 * x * w, (draw_floats(5), draw_floats(5))


def integers_copied_and_used_as_indices(lang):
    @ts.op("x[n], order[n]: i32 -> y[n]", scratch="slot[n]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), order: lang.types.ndarray(), slot: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            slot[i] = order[i]
            y[i] = x[slot[i]] * x[slot[i]]

    return op, lambda x, order: x[order.long()] ** 2, (draw_floats(5), integers(3, 0, 4, 1, 2))


def integers_divided(lang):
    """Run again on forgotten zeros, the division ends the process."""

    @ts.op("x[n], a[n]: i32, b[n]: i32 -> y[n], q[n]: i32")
    @lang.kernel
    def op(
        x: lang.types.ndarray(),
        a: lang.types.ndarray(),
        b: lang.types.ndarray(),
        y: lang.types.ndarray(),
        q: lang.types.ndarray(),
    ):
        for i in x:
            q[i] = a[i] // b[i]
            y[i] = x[i] * x[i]

    return op, lambda x, a, b: (x**2, a // b), (draw_floats(4), integers(9, 8, 7, 6), integers(1, 2, 3, 4))


def integers_counted_before_they_are_read(lang):
    @ts.op("x[n] -> y[n]", scratch="count[n]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), count: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            count[i] += 2
            y[i] = x[i] * x[i] * count[i]

    return op, lambda x: 2 * x**2, (draw_floats(5),)


def list_of_chosen_elements(lang):
    @ts.op("x[n] -> y[n]", scratch="count[1]: i32, chosen[n]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), count: lang.types.ndarray(), chosen: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 1.0:
                k = lang.atomic_add(count[0], 1)
                chosen[k] = i
        for k in range(count[0]):
            y[chosen[k]] = x[chosen[k]] ** 2

    return op, lambda x: torch.where(x > 1, x**2, 0.0), (draw_floats(3000),)


def another_name_of_an_array(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        a, b = lang.static(x, y)
        for i in a:
            b[i] = a[i] * x[i]

    return op, lambda x: x**2, (draw_floats(5),)


def sizes_named_outside_the_loops(lang):
    @ts.op("x[h, w] -> y[h, w]")
    @lang.kernel
    def op(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        height, width = x.shape
        last = width - 1
        for i, j in lang.ndrange(height, width):
            y[i, j] = x[i, j] * x[i, last - j]

    return op, lambda x: x * x.flip(1), (draw_floats(3, 4),)


HIDDEN = [
    local_changed_by_a_function,
    output_changed_by_a_function,
    output_set_by_a_function_in_a_function,
    named_in_an_expression,
    several_targets,
    struct_made_by_keyword,
    function_called_by_keyword,
    comprehension,
    functions_named_as_linear_ones_are,
    integers_copied_and_used_as_indices,
    integers_divided,
    integers_counted_before_they_are_read,
    list_of_chosen_elements,
    another_name_of_an_array,
    sizes_named_outside_the_loops,
]


@pytest.mark.thinned(6)
@pytest.mark.filterwarnings("ignore:the gradient of op `op` is the engine's own")
@pytest.mark.parametrize("adjoint", ["auto", "engine"])
@pytest.mark.parametrize("make", HIDDEN, ids=lambda make: make.__name__)
def test_inputs_that_the_gradient_reads_are_saved(lang64, poisoned, make, adjoint):
    op, twin, inputs = make(lang64)
    cases.assert_same_values_and_gradients(with_adjoint(adjoint, op), twin, inputs)


@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_inputs_that_the_gradient_does_not_read_are_not_saved(lang64, adjoint):
    @ts.op("x[h, w], b[w] -> y[h, w]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(ndim=2), b: lang64.types.ndarray(ndim=1), y: lang64.types.ndarray(ndim=2)):
        for place in lang64.grouped(x):
            y[place] = 2.0 * x[place]
        for i, j in lang64.ndrange(x.shape[0], b.shape[0]):
            y[i, j] += b[j] * x.shape[0]

    op = with_adjoint(adjoint, op)
    cases.assert_same_values_and_gradients(op, lambda x, b: 2 * x + 3 * b, (draw_floats(3, 4), draw_floats(4)))
    assert "saved for the backward pass: nothing" in op.explain("all")


def test_an_input_changed_by_a_function_is_refused(lang):
    @lang.func
    def double(place: lang.template()):
        place = place * 2.0

    @lang.kernel
    def spoiling(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            double(x[i])
            y[i] = x[i]

    with pytest.raises(ts.KernelError, match=r"(?s)`spoiling`.*writes its input `x`.*test_needs\.py:\d+"):
        ts.op("x[n] -> y[n]")(spoiling)
