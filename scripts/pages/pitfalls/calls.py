"""Pitfalls of calls and autograd, whatever the kernel is."""

from .row import REFUSED, RIGHT, Row, Theme

HEAD = """
warnings.simplefilter("ignore")  # torch warns that `.grad` of a non-leaf is read


@ti.kernel
def square(x: A, y: A):
    for i in x:
        y[i] = x[i] * x[i]
"""
ROWS = (
    Row(
        "01_leaf_doubling",
        "a hand-written backward returns the leaf's own `.grad`: it is added to itself",
        "wrong: doubled",
        "wrong: doubled",
        RIGHT,
        ("test_01_leaf_doubling.py::test_a_leaf_gets_its_gradient_once",),
        remedy="Launch the reverse kernel on a detached tensor, with zeros of its own as `.grad`, and return those.",
        code="""
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                y = torch.zeros_like(x, requires_grad=True)
                square(x, y)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                y.grad = dy.contiguous()
                square.grad(x, y)
                return x.grad


        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        Square.apply(x).sum().backward()
        print("x.grad:", x.grad.tolist(), " right: [2, 4, 6]")
        """,
    ),
    Row(
        "02_upstream_zeroed",
        "the incoming gradient is passed to the engine: reversing a store sets it to 0, and other code holds it too",
        "wrong: it becomes 0",
        "wrong: it becomes 0",
        RIGHT,
        ("test_02_upstream_zeroed.py::test_the_incoming_gradient_stays_whole",),
        remedy="Pass a copy to the engine, `dy.clone()`: `dy.contiguous()` is often `dy` itself.",
        code="""
        incoming = torch.ones(3)
        h = 1.0 * x  # not a leaf, whose gradient 01 would double
        Square.apply(h).backward(incoming)
        print("the incoming gradient:", incoming.tolist(), " right: 1")
        """,
    ),
    Row(
        "04_output_without_requires_grad",
        "an output without `requires_grad` has no adjoint",
        "wrong: 0",
        "wrong: 0",
        RIGHT,
        ("test_04_output_without_requires_grad.py::test_the_output_always_has_an_adjoint",),
        remedy="Set `requires_grad` on every output before `.grad` is launched.",
        code="""
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = torch.zeros(3)
        square(x, y)
        y.grad = torch.ones(3)
        square.grad(x, y)
        print("x.grad:", x.grad.tolist(), " right: [2, 4, 6]")
        """,
    ),
    Row(
        "37_scalar_argument",
        "a learnable number passed as a scalar",
        "wrong: no gradient",
        "wrong: no gradient",
        RIGHT,
        (
            "test_37_scalar_argument.py::test_a_scalar_in_the_spec_is_differentiable",
            "test_37_scalar_argument.py::test_a_tensor_for_a_plain_scalar_is_refused_with_what_to_write",
            "test_37_scalar_argument.py::test_vectors_and_matrices_in_the_spec_are_differentiable",
            "test_37_scalar_argument.py::test_a_tensor_for_a_plain_vector_is_refused_with_what_to_write",
        ),
    ),
    Row(
        "38_kernel_return",
        "a loss that the kernel returns",
        "refuses, without a line",
        "refuses, without a line",
        REFUSED,
        ("test_38_kernel_return.py::test_a_returned_value_is_refused_with_what_to_write",),
    ),
    Row(
        "40_data_oriented_attr",
        "a number of an object keeps its value of the first compilation",
        "wrong: the old number",
        "wrong: the old number",
        RIGHT,
        ("test_40_data_oriented_attr.py::test_an_attribute_that_changed",),
    ),
    Row(
        "41_nongrad_output_rerun",
        "statistics without a gradient: the reverse kernel adds them up again",
        "wrong: doubled",
        "wrong: doubled",
        RIGHT,
        ("test_41_nongrad_output_rerun.py::test_statistics_and_counters_stay_as_the_forward_left_them",),
        remedy="Launch `.grad` on clones of all outputs that have no gradient.",
        code="""
        @ti.kernel
        def counted(x: A, y: A, total: A):
            for i in x:
                y[i] = x[i] * x[i]
                total[0] += x[i]


        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y, total = torch.zeros(3, requires_grad=True), torch.zeros(1)
        counted(x, y, total)
        y.grad = torch.ones(3)
        counted.grad(x, y, total)
        print("total:", total.item(), " right: 6")
        """,
    ),
    Row(
        "43_no_grad_allocates",
        "a launch under `no_grad` allocates gradients",
        "wrong: zeros instead of None",
        "wrong: zeros instead of None",
        RIGHT,
        ("test_43_no_grad_allocates.py::test_no_gradient_memory_is_left_behind",),
        remedy="Launch on `x.detach()`.",
        code="""
        x, y = torch.ones(3, requires_grad=True), torch.zeros(3)
        with torch.no_grad():
            square(x, y)
        print("x.grad:", x.grad, " right: None")
        """,
    ),
    Row(
        "48_detached_silently",
        "a kernel launched on tensors of a model is not part of its graph",
        "wrong: its part is missing",
        "wrong: its part is missing",
        RIGHT,
        ("test_48_detached_silently.py::test_the_op_s_part_of_the_gradient_is_there",),
        remedy="Launch kernels only from an op or an `autograd.Function`.",
        code="""
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        y = torch.zeros(2)
        square(x, y)
        x.grad = None
        (x + y).sum().backward()
        print("x.grad:", x.grad.tolist(), " right: [3, 5]")
        """,
    ),
    Row(
        "49_double_backward",
        "a gradient of the gradient",
        "wrong: 0",
        "wrong: 0",
        RIGHT,
        ("test_49_double_backward.py::test_a_gradient_penalty",),
        remedy="It needs a kernel for the second derivative. `once_differentiable` does not warn here.",
        code="""
        class Careful(Square):  # without 01 and 02
            @staticmethod
            def backward(ctx, dy):
                x, y = (one.detach().requires_grad_() for one in ctx.saved_tensors)
                x.grad, y.grad = torch.zeros_like(x), dy.clone()
                square.grad(x, y)
                return x.grad


        x = torch.tensor([1.0, 2.0], requires_grad=True)
        (slope,) = torch.autograd.grad(Careful.apply(x).sum(), x, create_graph=True)
        penalty = slope.square().sum() + 0.0 * x.sum()
        penalty.backward()
        print("x.grad:", x.grad.tolist(), " right: [8, 16]")
        """,
    ),
    Row(
        "54_returned_buffer_reused",
        "a backward that returns the same buffer each time",
        "right",
        "right",
        RIGHT,
        ("test_54_returned_buffer_reused.py::test_gradients_of_several_backwards_add_up",),
    ),
    Row(
        "57_tape_torch_accumulates",
        "a tape clears the gradients of fields, not those of tensors",
        "wrong: the sum of all steps",
        "wrong: the sum of all steps",
        RIGHT,
        ("test_57_tape_torch_accumulates.py::test_each_step_has_its_own_gradient",),
        remedy="Set `x.grad = None` before each step.",
        code="""
        @ti.kernel
        def sum_of_squares(x: A, loss: A):
            for i in x:
                loss[None] += x[i] * x[i]


        x = torch.tensor([1.0, 2.0], requires_grad=True)
        for _ in range(2):
            loss = torch.zeros((), requires_grad=True)
            with ti.ad.Tape(loss=loss):
                sum_of_squares(x, loss)
        print("x.grad of the second step:", x.grad.tolist(), " right: [2, 4]")
        """,
    ),
    Row(
        "83_vmap",
        "`torch.func.vmap` of a hand-written function",
        "refuses",
        "refuses",
        RIGHT,
        ("test_83_vmap.py::test_vmap",),
        remedy="Write the function's `setup_context` and `vmap` by hand, with one launch for each sample.",
        code="""
        torch.func.vmap(Square.apply)(torch.ones(2, 3))
        """,
        error="RuntimeError",
    ),
    Row(
        "84_stannum_tin_twice",
        "Stannum's Tin, called twice before backward",
        "wrong: the second call's values",
        "no Stannum",
        RIGHT,
        (
            "test_84_called_twice.py::test_every_call_keeps_its_own_values",
            "layers/tin/test_tin_reuse.py::test_two_calls_before_one_backward_have_their_own_gradients",
        ),
        remedy="Call `backward` before the next call, or make a Tin for each call.",
    ),
    Row(
        "85_stannum_tube_twice",
        "Stannum's Tube, called twice before backward",
        "right; compiled for each call",
        "no Stannum",
        RIGHT,
        ("layers/test_dropin_tube_kernels.py::test_two_calls_before_one_backward",),
    ),
)
THEME = Theme(
    "calls",
    "Calls and autograd",
    "The kernel is right, but the code around it is not: a hand-written `autograd.Function`, a tape, a scalar argument."
    " [By hand](../../start/by-hand.md) explains the pattern step by step.",
    ROWS,
    HEAD,
    ("warnings",),
)
