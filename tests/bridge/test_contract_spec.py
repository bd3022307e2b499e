"""The spec at work: what every construct of the language does to a call."""

from functools import partial

import pytest
import torch

import cases
import tinsmith as ts


def vector(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def copy_kernel(lang):
    """Build a kernel whose parameters say nothing about dtype or rank."""

    @lang.kernel
    def copy(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for place in lang.grouped(y):
            y[place] = 2 * x[place]

    return copy


def sum_kernel(lang):
    @lang.kernel
    def total(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i] += x[i, j] * x[i, j]

    return total


def test_white_space_and_line_breaks_are_free(lang64):
    op = ts.op("""
        x[ n , 3 ]
          ->
        y[ n ]
    """)(sum_kernel(lang64))
    x = torch.rand(2, 3, dtype=torch.float64)
    cases.assert_close(op(x), (x * x).sum(1))


def test_an_underscore_takes_any_size(lang64):
    op = ts.op("x[n, _] -> y[n]")(sum_kernel(lang64))
    for width in (1, 4):
        x = torch.rand(3, width, dtype=torch.float64)
        cases.assert_same_values_and_gradients(op, lambda x: (x * x).sum(1), (x,))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3), ()], ids=str)
def test_an_ellipsis_takes_any_rank(lang64, shape):
    op = ts.op("x[...] -> y[...]")(copy_kernel(lang64))
    x = torch.rand(shape, dtype=torch.float64)
    cases.assert_same_values_and_gradients(op, lambda x: 2 * x, (x,))


def test_an_ellipsis_beside_named_dims(lang64):
    vec2 = lang64.types.vector(2, lang64.f64)

    @ts.op("p[..., 2] -> y[...]")
    @lang64.kernel
    def squared(p: lang64.types.ndarray(dtype=vec2), y: lang64.types.ndarray(dtype=lang64.f64)):
        for place in lang64.grouped(y):
            y[place] = p[place].dot(p[place])

    for shape in ((3, 2), (4, 3, 2)):
        p = torch.rand(shape, dtype=torch.float64)
        cases.assert_same_values_and_gradients(squared, lambda p: (p * p).sum(-1), (p,))


@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3)], ids=str)
def test_batch_dims_of_any_number(lang64, batch):
    op = ts.op("x[*b, n, m] -> y[*b, n]")(sum_kernel(lang64))
    x = torch.rand(*batch, 3, 4, dtype=torch.float64)
    cases.assert_same_values_and_gradients(op, lambda x: (x * x).sum(-1), (x,))


def test_an_input_without_batch_dims_is_shared_by_the_batch(lang64):
    case = cases.select_cases("convolution")[0]

    @ts.op("x[*b, n], k[m] -> y[*b, n - m + 1]")
    @lang64.kernel
    def shared(x: lang64.types.ndarray(ndim=1), k: lang64.types.ndarray(ndim=1), y: lang64.types.ndarray(ndim=1)):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    x, k = torch.rand(2, 2, 6, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    twin = lambda x, k: torch.stack([case.expected(row, k) for row in x.flatten(0, 1)]).unflatten(0, (2, 2))  # noqa: E731
    cases.assert_same_values_and_gradients(shared, twin, (x, k))


def test_batch_dims_with_scratch_and_several_outputs(lang64):
    @ts.op("x[*b, n] -> y[*b, n], total[*b]", scratch="h[*b, n]")
    @lang64.kernel
    def squares(
        x: lang64.types.ndarray(ndim=1),
        h: lang64.types.ndarray(ndim=1),
        y: lang64.types.ndarray(ndim=1),
        total: lang64.types.ndarray(ndim=0),
    ):
        for i in x:
            h[i] = x[i] * x[i]
        for i in x:
            y[i] = h[i] * x[i]
            total[None] += h[i]

    x = torch.rand(3, 4, dtype=torch.float64)
    cases.assert_same_values_and_gradients(squares, lambda x: (x**3, (x * x).sum(1)), (x,))


def test_batch_dims_of_vector_elements(lang64):
    vec3 = lang64.types.vector(3, lang64.f64)

    @ts.op("p[*b, n, 3] -> y[*b, n]")
    @lang64.kernel
    def squared(p: lang64.types.ndarray(dtype=vec3, ndim=1), y: lang64.types.ndarray(dtype=lang64.f64, ndim=1)):
        for i in p:
            y[i] = p[i].dot(p[i])

    p = torch.rand(2, 4, 3, dtype=torch.float64)
    cases.assert_same_values_and_gradients(squared, lambda p: (p * p).sum(-1), (p,))


def test_empty_tensors(lang64):
    for name, shapes in (("square", [(0,)]), ("gather", [(3,)]), ("any_rank", [(0, 2), (0, 2)])):
        case = cases.select_cases(name)[0]
        inputs = [torch.rand(shape, dtype=torch.float64) for shape in shapes]
        if name == "gather":
            inputs.append(torch.zeros(0, dtype=torch.int32))
        cases.assert_same_values_and_gradients(case.op(lang64, torch.float64), case.expected, inputs)


def test_an_empty_batch(lang64):
    op = ts.op("x[*b, n, m] -> y[*b, n]")(sum_kernel(lang64))
    x = torch.rand(0, 3, 4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    assert y.shape == (0, 3)
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_arithmetic_over_names_and_scalars(lang64):
    @ts.op("x[n] -> y[(n + 1) // 2 * times, 2 * n - times]", scratch="h[n * n + 1]")
    @lang64.kernel
    def shaped(
        x: lang64.types.ndarray(ndim=1),
        times: lang64.i32,
        h: lang64.types.ndarray(ndim=1),
        y: lang64.types.ndarray(ndim=2),
    ):
        for i, j in y:
            y[i, j] = x[0] * h.shape[0]

    y = shaped(vector(1.0, 2.0, 3.0, 4.0, 5.0), 3)
    assert y.shape == (9, 7) and y[0, 0] == 26


def test_keyword_dims_and_arguments_by_name(lang64):
    case = cases.select_cases("splat")[0]
    op, (place, color) = case.raw_op(lang64, torch.float64), case.inputs(torch.float64)
    want = case.expected(place, color)
    cases.assert_close(op(place, color, h=4, w=5), want)
    cases.assert_close(op(color=color, w=5, place=place, h=4), want)
    cases.assert_close(op(place, color=color, h=4, w=5), want)


def test_several_outputs_are_a_named_tuple(lang64):
    out = cases.select_cases("two_outputs")[0].op(lang64, torch.float64)(vector(1.0, 2.0))
    assert isinstance(out, tuple) and out._fields == ("y", "total")
    y, total = out
    assert out.y is y and out.total is total and total.shape == ()


def test_one_output_is_a_plain_tensor(lang64):
    y = cases.select_cases("square")[0].op(lang64, torch.float64)(vector(1.0))
    assert type(y) is torch.Tensor and y.is_contiguous()


DTYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8}


@pytest.mark.parametrize("name", DTYPES)
def test_a_dtype_in_the_spec_fixes_the_output(lang64, name):
    kind = getattr(lang64, name)

    @ts.op(f"x[n] -> y[n]: {name}")
    @lang64.kernel
    def cast(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.cast(x[i], kind)

    y = cast(vector(3.0, 4.0))
    assert y.dtype == DTYPES[name] and y.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (torch.float32, torch.float32, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.float64, torch.float64, torch.float64),
        (torch.float16, torch.float32, torch.float32),
        (torch.float16, torch.float16, torch.float16),
    ],
    ids=str,
)
def test_floating_outputs_take_the_common_dtype_of_the_floating_inputs(lang64, first, second, common):
    op = cases.select_cases("dot")[0].op(lang64, torch.float64)
    a, b = (torch.tensor([1.0, 2.0], dtype=d, requires_grad=True) for d in (first, second))
    out = op(a, b)
    assert out.dtype == common and out.item() == 5.0
    out.backward()
    assert a.grad.dtype == first and b.grad.dtype == second and a.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_integer_inputs(lang64, dtype):
    @ts.op("x[n], mask[n] -> y[n]")
    @lang64.kernel
    def masked(x: lang64.types.ndarray(), mask: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            if mask[i] != 0:
                y[i] = x[i] * x[i]

    mask = torch.tensor([1, 0, 1]).to(dtype)
    cases.assert_same_values_and_gradients(
        lambda x: masked(x, mask), lambda x: x * x * mask, (torch.rand(3, dtype=torch.float64),)
    )


def test_accumulating_outputs_and_scratch_start_at_zero_each_call(lang64):
    for name in ("scatter", "scratch_recurrence", "softmax"):
        case = cases.select_cases(name)[0]
        op, inputs = case.op(lang64, torch.float64), case.inputs(torch.float64)
        for _ in range(3):
            garbage = [torch.full((64,), 7.0, dtype=torch.float64) for _ in range(20)]
            del garbage  # memory that an allocation without zeroing would hand out
            cases.assert_same_values_and_gradients(op, case.expected, inputs)


def test_scratch_is_not_returned(lang64):
    out = cases.select_cases("two_loops")[0].op(lang64, torch.float64)(vector(0.5))
    assert torch.is_tensor(out)


def test_a_template_value_that_changes(lang64):
    case = cases.select_cases("polynomial")[0]
    op = case.op(lang64, torch.float64)
    x, c = torch.rand(4, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    for degree in (1, 5, 0, 1):
        ours, twin = (partial(f, degree=degree) for f in (op, case.reference))
        cases.assert_same_values_and_gradients(ours, lambda x, c, twin=twin: twin(x, c) + 0.0 * c.sum(), (x, c))


def test_scalar_arguments_of_every_python_kind(lang64):
    op = cases.select_cases("scalars")[0].op(lang64, torch.float64)
    x = vector(0.5, 1.0)
    for scale, shift in ((2.5, 3), (2, 3), (-1.5, True), (1e-3, 2**31 - 1)):
        cases.assert_close(op(x, scale, shift), scale * torch.sin(x) * x + shift)
    cases.assert_close(op(x, shift=4, scale=0.5), 0.5 * torch.sin(x) * x + 4)


def test_scalars_are_as_precise_as_the_kernel_says(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def plus(x: lang64.types.ndarray(), wide: lang64.f64, long: lang64.i64, y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + wide + long

    assert plus(vector(0.0), 1 / 3, 0).item() == 1 / 3
    assert plus(vector(0.0), 0.0, 2**40 + 1).item() == 2**40 + 1


def test_a_differentiable_scalar_takes_a_parameter(lang64):
    op = cases.select_cases("learnable_scalar")[0].op(lang64, torch.float64)
    m = torch.nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
    op(m, torch.ones(4, dtype=torch.float64)).sum().backward()
    cases.assert_close(m.grad, 4 * (2 * m.detach() + torch.cos(m.detach())))


def test_methods_of_two_objects_keep_their_own_attributes(lang64):
    @lang64.data_oriented
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i] * x[i]

    two, five = (ts.op("x[n] -> y[n]")(Scaler(f).run) for f in (2.0, 5.0))
    x = torch.rand(3, dtype=torch.float64)
    cases.assert_same_values_and_gradients(two, lambda x: 2.0 * x * x, (x,))
    cases.assert_same_values_and_gradients(five, lambda x: 5.0 * x * x, (x,))
    cases.assert_same_values_and_gradients(two, lambda x: 2.0 * x * x, (x,))


def test_a_field_of_the_user_may_be_read_by_the_kernel(lang64):
    table = lang64.field(lang64.f64, shape=3)
    for i in range(3):
        table[i] = float(i + 1)

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def weighted(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = table[i] * x[i] * x[i]

    x, weights = torch.rand(3, dtype=torch.float64), vector(1.0, 2.0, 3.0)
    cases.assert_same_values_and_gradients(weighted, lambda x: weights * x * x, (x,))


def test_an_empty_output_is_not_zeroed_and_still_right(lang64):
    case = cases.select_cases("unzeroed")[0]
    op = case.op(lang64, torch.float64)
    for seed in range(3):
        cases.assert_same_values_and_gradients(op, case.expected, case.inputs(torch.float64, seed))
