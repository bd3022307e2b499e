"""Pitfalls of fields, threads and lifetime."""

from .row import REFUSED, RIGHT, Row, Theme

ROWS = (
    Row(
        "44_reinit_kills_fields",
        "a second `init` destroys fields",
        "dies",
        "dies",
        REFUSED,
        (
            "test_44_reinit_kills_fields.py::test_a_field_of_an_engine_started_anew_is_refused",
            "test_44_reinit_kills_fields.py::test_a_user_s_fields_survive_everything_an_op_does",
        ),
        remedy="Call `init` once, in the program and never in a library.",
        code="""
        table = ti.field(ti.f32, shape=3)
        ti.init(ti.cpu)  # by a library, say
        print(table[0])
        """,
        unrun="the process dies",
    ),
    Row(
        "45_reinit_ndarray_kernel",
        "a kernel on tensors, used after a second `init`",
        "right",
        "right",
        RIGHT,
        ("test_45_reinit_ndarray_kernel.py::test_an_op_survives_init_and_reset",),
    ),
    Row(
        "46_threads_first_launch",
        "the first launch in another thread",
        "fails: an assertion",
        "fails: an assertion",
        RIGHT,
        ("test_46_threads_first_launch.py::test_the_very_first_launch_after_init",),
        remedy="Launch a kernel once in the thread that called `init`.",
        code="""
        ti.init(ti.cpu, log_level=ti.CRITICAL)


        @ti.kernel
        def fresh(x: A, y: A):
            for i in x:
                y[i] = x[i] * x[i]


        def work():
            try:
                fresh(torch.ones(3), torch.zeros(3))
            except RuntimeError as failed:
                print(str(failed).strip())


        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        """,
    ),
    Row(
        "46c_threads_warm_concurrent",
        "two threads at once",
        "right",
        "right",
        RIGHT,
        ("test_46c_threads_warm_concurrent.py::test_two_threads_at_once",),
    ),
    Row(
        "60_compile_count",
        "a compilation for every field, and for every set of tensors that require a gradient",
        "right; 4 compilations for 4 fields, 2 for tensors",
        "right; 4 compilations for 4 fields, 2 for tensors",
        RIGHT,
        ("test_60_compile_count.py::test_a_new_size_or_scalar_compiles_nothing",),
        remedy="Write kernels on `ti.types.ndarray()`, and keep `requires_grad` the same from call to call.",
    ),
    Row(
        "67_fields_builder_grad",
        "a field with `needs_grad=True` whose gradient is not placed",
        "refuses",
        "refuses",
        REFUSED,
        ("test_67_fields_without_gradient.py::test_a_gradient_that_was_asked_for_and_not_placed_is_refused",),
        remedy="Place the gradient too: `.place(x, x.grad)`.",
        code="""
        a, total = (ti.field(ti.f32, needs_grad=True) for _ in range(2))
        blocks = ti.FieldsBuilder()
        blocks.dense(ti.i, 3).place(a)
        blocks.place(total)
        blocks.finalize()


        @ti.kernel
        def doubled():
            for i in a:
                total[None] += a[i] * 2.0


        try:
            doubled()
        except RuntimeError as refused:
            print(str(refused).splitlines()[0])
        """,
    ),
    Row(
        "68_place_grad_then_needs_grad",
        "a gradient that is placed by hand",
        "right",
        "right",
        RIGHT,
        ("test_67_fields_without_gradient.py::test_a_gradient_that_was_placed_by_hand_is_right",),
    ),
    Row(
        "69_lazy_grad_late_field",
        "a field that is created after `lazy_grad()`",
        "wrong: 0",
        "wrong: 0",
        REFUSED,
        (
            "test_67_fields_without_gradient.py::test_a_field_made_after_lazy_grad_is_no_silent_zero",
            "test_67_fields_without_gradient.py::test_a_field_made_after_lazy_grad_is_right_on_tensors",
        ),
        remedy="Call `lazy_grad()` after the last field, or create each field with `needs_grad=True`.",
        code="""
        ti.init(ti.cpu)
        a, loss = ti.field(ti.f32, shape=()), ti.field(ti.f32, shape=())
        ti.root.lazy_grad()
        h = ti.field(ti.f32, shape=())


        @ti.kernel
        def first():
            h[None] = 3.0 * a[None]


        @ti.kernel
        def second():
            loss[None] = 2.0 * h[None]


        with ti.ad.Tape(loss):
            first()
            second()
        print("a.grad:", a.grad[None], " right: 6")
        """,
    ),
    Row(
        "87_snode_tree_limit",
        "fields created again for every call or shape",
        "right for 600 fields",
        "right for 600 fields",
        RIGHT,
        ("layers/test_memory.py::test_a_tube_does_not_grow_while_shapes_change",),
    ),
)
THEME = Theme(
    "fields",
    "Fields, threads and lifetime",
    "A second `init`, another thread, a field without its gradient, repeated compilations.",
    ROWS,
    imports=("threading",),
)
