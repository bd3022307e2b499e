"""Pitfalls of numbers, dtypes and layouts."""

from .row import REFUSED, REPORTED, RIGHT, Row, Theme

HEAD = """

@ti.kernel
def square(x: A, y: A):
    for i in x:
        y[i] = x[i] * x[i]
"""
ROWS = (
    Row(
        "29_random",
        "a random number in a differentiated kernel: the reverse kernel would draw another",
        "refuses, without a line",
        "refuses, without a line",
        RIGHT,
        ("test_29_random.py::test_the_numbers_that_were_drawn",),
    ),
    Row(
        "30_f16",
        "a gradient is summed in half precision",
        "wrong: 2048 instead of 4096",
        "wrong: 2048 instead of 4096",
        RIGHT,
        ("test_30_f16.py::test_a_sum_in_half_precision_does_not_stall",),
        remedy="Pass float32, `x.float()`: torch casts the gradient back.",
        code="""
        @ti.kernel
        def spread(x: A, y: A):
            for i in y:
                y[i] = x[0] * 1.0


        x = torch.ones(1, dtype=torch.float16, requires_grad=True)
        y = torch.zeros(4096, dtype=torch.float16, requires_grad=True)
        spread(x, y)
        x.grad, y.grad = torch.zeros_like(x), torch.ones_like(y)
        spread.grad(x, y)
        print("x.grad:", x.grad.item(), " right: 4096")
        """,
    ),
    Row(
        "31_bf16",
        "a bfloat16 tensor",
        "fails: an internal AttributeError",
        "fails: an internal AttributeError",
        RIGHT,
        ("test_31_bf16.py::test_bfloat16_is_computed_in_float32",),
        remedy="Pass `x.float()`: torch casts the gradient back.",
        code="""
        square(torch.ones(3).bfloat16(), torch.zeros(3).bfloat16())
        """,
        error="AttributeError",
    ),
    Row(
        "32_f32_local_in_f64",
        "`s = 0.0` is float32, and adds up float64",
        "wrong by 1e-7",
        "wrong by 1e-10",
        REPORTED,
        (
            "test_32_f32_local_in_f64.py::test_the_literal_is_named",
            "test_32_f32_local_in_f64.py::test_lint_knows_where_the_arrays_say_their_type",
        ),
        "x[n] -> y[1]",
        ([0.3333333333333333, 1.1],),
    ),
    Row(
        "34_vec3_wrong_width",
        "tensors of 4 columns where the kernel expects vectors of 3",
        "refuses",
        "refuses",
        REFUSED,
        ("test_34_vec3_wrong_width.py::test_the_width_of_the_elements_is_checked",),
        remedy="Pass `x[:, :3].contiguous()`.",
        code="""
        @ti.kernel
        def lengths(x: ti.types.ndarray(dtype=ti.math.vec3, ndim=1), y: A):
            for i in x:
                y[i] = x[i].norm()


        lengths(torch.ones(5, 4), torch.zeros(5))
        """,
        error="ValueError",
    ),
    Row(
        "35_noncontiguous_input",
        "a transposed tensor",
        "refuses",
        "refuses",
        RIGHT,
        ("test_35_noncontiguous_input.py::test_strided_inputs_and_their_gradients",),
        remedy="Pass `x.contiguous()`; the result of the kernel has to be copied back.",
        code="""
        @ti.kernel
        def doubled(x: A, y: A):
            for i in ti.grouped(x):
                y[i] = 2.0 * x[i]


        doubled(torch.ones(2, 3).T, torch.zeros(3, 2))
        """,
        error="ValueError",
    ),
    Row(
        "36_expanded_cotangent",
        "the expanded gradient of `sum()`",
        "refuses",
        "refuses",
        RIGHT,
        ("test_36_expanded_cotangent.py::test_gradients_of_any_stride",),
        remedy="Pass `dy.contiguous()`, or the clone that 02 needs anyway.",
        code="""
        x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
        y.grad = torch.ones(()).expand(3)  # what `y.sum()` passes to `backward`
        square.grad(x, y)
        """,
        error="ValueError",
    ),
    Row(
        "50_empty_tensor",
        "an empty batch",
        "right",
        "right",
        RIGHT,
        ("test_50_empty_tensor.py::test_empty_inputs_give_empty_outputs",),
    ),
    Row(
        "73_dtype_mismatch",
        "a float32 tensor where the kernel expects f64",
        "refuses",
        "refuses",
        REFUSED,
        ("test_73_dtype_mismatch.py::test_it_names_both_dtypes_and_the_cast",),
        remedy="Pass `x.double()`.",
        code="""
        @ti.kernel
        def doubles(x: ti.types.ndarray(dtype=ti.f64, ndim=1), y: A):
            for i in x:
                y[i] = x[i] * x[i]


        doubles(torch.ones(3), torch.zeros(3))
        """,
        error="ValueError",
    ),
    Row(
        "91_known_division",
        "a division of a negative integer that is known at compile time: it rounds towards zero",
        "wrong, in values too: -1 instead of -2",
        "wrong, in values too: -1 instead of -2",
        RIGHT,
        ("bridge/test_divisions.py::test_known_numbers_are_divided_by_python_s_rule",),
        remedy="Write `step = ti.static(3)`: then Python divides.",
        code="""
        @ti.kernel
        def divided(n: ti.i32, y: A):
            step = 3
            y[0] = -step // 2
            y[1] = -step % 2
            y[2] = -n // 2
            y[3] = -n % 2


        y = torch.zeros(4)
        divided(3, y)
        print("y:", y.tolist(), " right: [-2, 1, -2, 1]")
        """,
    ),
)
THEME = Theme(
    "numbers",
    "Numbers, dtypes and layouts",
    "Precision, half floats, random numbers, strides, widths, empty batches.",
    ROWS,
    HEAD,
)
