"""Pitfalls of memory: in place, atomics, shared tensors."""

from .row import REFUSED, RIGHT, Row, Theme

HEAD = """

@ti.kernel
def square(x: A, y: A):
    for i in x:
        y[i] = x[i] * x[i]
"""
ROWS = (
    Row(
        "06_inplace_update_global",
        "an array is changed in place from its own values; the reverse kernel reads the new ones",
        "wrong",
        "wrong",
        RIGHT,
        (
            "test_06_inplace_update_global.py::test_an_output_updated_in_place_is_right",
            "test_06_inplace_update_global.py::test_it_is_refused_with_its_line",
        ),
        "t[n], x[n] -> y[n]",
        ([0.3, 0.7, 1.1], [2.0, 3.0, 4.0]),
        remedy="Write the result into another array than the one that is read.",
    ),
    Row(
        "07_ewma_inplace",
        "a running average in one element: the reverse kernel uses its last value for all",
        "wrong",
        "refuses; wrong with its gradient stack",
        RIGHT,
        ("test_07_ewma_inplace.py::test_one_cell_that_is_the_output",),
        "a[n], d[n] -> e[1]",
        ([0.5, 0.4, 0.3, 0.2], [1.0, 2.0, 4.0, 8.0]),
        remedy="Keep each value of the average in an element of its own, inside a loop of one iteration (08b).",
    ),
    Row(
        "10_atomic_max",
        "an atomic maximum: every atomic is reversed as an addition",
        "wrong: 1 for every candidate",
        "wrong: 1 for every candidate",
        RIGHT,
        ("test_10_atomic_max.py::test_the_winner_alone_has_a_gradient",),
        "x[n] -> m[1]",
        ([1.0, 5.0, 2.0],),
        remedy="Take the maximum in torch; or find the index of the maximum first, and read the array there.",
    ),
    Row(
        "11_atomic_sub",
        "an atomic subtraction",
        "right",
        "right",
        RIGHT,
        ("test_11_atomic_sub.py::test_a_difference",),
        "x[n] -> y[1]",
        ([1.0, 5.0, 2.0],),
    ),
    Row(
        "47_version_counter",
        "a kernel writes into a tensor that autograd saved",
        "wrong",
        "wrong",
        RIGHT,
        ("test_47_version_counter.py::test_an_op_on_a_saved_tensor_leaves_it_alone",),
        remedy="Pass a clone of the tensor that the kernel changes.",
        code="""
        @ti.kernel
        def triple_in_place(y: A):
            for i in y:
                y[i] = 3.0 * y[i]


        x = torch.tensor([0.0, 2.0], requires_grad=True)
        y = torch.sigmoid(x)  # saves y for its backward
        triple_in_place(y.detach())
        y.sum().backward()
        slope = torch.sigmoid(x) * (1 - torch.sigmoid(x))
        print("x.grad:", x.grad.tolist(), " right:", slope.tolist())
        """,
    ),
    Row(
        "51_out_of_bounds",
        "an index outside its array: other memory is read, and written in reverse",
        "wrong: another tensor is changed",
        "wrong: another tensor is changed",
        REFUSED,
        (
            "test_51_out_of_bounds.py::test_an_op_is_refused",
            "test_51_out_of_bounds.py::test_the_index_is_named_and_nothing_is_launched",
        ),
        "x[n] -> y[n]",
        ([1.0, 2.0, 4.0],),
        remedy="End the loop where its indices end: `range(x.shape[0] - 1)`.",
    ),
    Row(
        "52_alias_input_output",
        "one tensor as input and output",
        "wrong",
        "wrong",
        RIGHT,
        ("test_52_alias_input_output.py::test_the_same_tensor_twice",),
        remedy="Pass another tensor as output.",
        code="""
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        square(x, x)
        x.grad = torch.ones(3)
        square.grad(x, x)
        print("x.grad:", x.grad.tolist(), " right: [2, 4, 6]")
        """,
    ),
    Row(
        "59_tinn_hidden_buffer",
        "two layers through one buffer",
        "wrong",
        "wrong",
        RIGHT,
        ("test_59_tinn_hidden_buffer.py::test_one_layer_op_used_for_every_layer",),
        remedy="Use another buffer for each layer.",
        code="""
        @ti.kernel
        def layer(x: A, w: A, h: A):
            for i in x:
                h[i] = ti.tanh(w[0] * x[i])


        x = torch.tensor([0.5, -1.0], requires_grad=True)
        a, b = (torch.tensor([w], requires_grad=True) for w in (1.5, 0.8))
        h = torch.zeros(2, requires_grad=True)
        layer(x, a, h)
        layer(h, b, h)
        h.grad = torch.ones(2)
        layer.grad(h, b, h)
        layer.grad(x, a, h)
        print("by hand:", a.grad.tolist(), b.grad.tolist())
        a.grad = b.grad = None
        torch.tanh(b * torch.tanh(a * x)).sum().backward()
        print("torch:  ", a.grad.tolist(), b.grad.tolist())
        """,
    ),
    Row(
        "75a_validation_catches",
        "a value is used and then overwritten, on fields",
        "wrong; refuses in debug mode",
        "wrong; refuses in debug mode",
        RIGHT,
        ("layers/tin/test_tin_reuse.py::test_a_kernel_that_overwrites_what_its_gradient_needs",),
    ),
    Row(
        "75b_validation_misses_torch",
        "a value is used and then overwritten, on tensors",
        "wrong; an assertion fails in debug mode",
        "wrong; an assertion fails in debug mode",
        REFUSED,
        (
            "test_75_validation.py::test_an_input_is_refused",
            "test_75_validation.py::test_an_output_that_is_used_first_is_right",
        ),
    ),
    Row(
        "89_vector_and_its_numbers",
        "an entry of a vector is read, the whole vector is stored, and the entry is read again: it is the old value",
        "wrong, in values too: 0 instead of 0.5",
        "wrong, in values too: 0 instead of 0.5",
        RIGHT,
        ("bridge/test_vectors_in_place.py::test_a_vector_and_its_numbers_are_one_memory",),
        remedy="Read and store arrays of vectors either whole or entry by entry.",
        code="""
        @ti.kernel
        def replace(x: A, y: ti.types.ndarray(dtype=ti.math.vec2, ndim=1)):
            for i in x:
                before = y[i][0]
                y[i] = ti.Vector([x[i], 2.0 * x[i]])
                y[i][0] += before


        x, y = torch.tensor([0.5, 1.5]), torch.zeros(2, 2)
        replace(x, y)
        print("y[:, 0]:", y[:, 0].tolist(), " right: [0.5, 1.5]")
        """,
    ),
    Row(
        "90_atomic_product",
        "an atomic product of floats, on an element that no other iteration touches",
        "dies: the process ends",
        "dies: the process ends",
        RIGHT,
        ("bridge/test_products.py::test_atomic_products_without_conflicts_do_not_end_the_process",),
        remedy="Write `y[i] *= x[i]`.",
        code="""
        @ti.kernel
        def product(x: A, y: A):
            for i in x:
                ti.atomic_mul(y[i], x[i])


        product(torch.rand(3), torch.ones(3))
        """,
        unrun="the process dies",
    ),
    Row(
        "92_vector_again",
        "a local vector is assigned an element of another array after an inner loop: it keeps entries of the first",
        "wrong, in values too: 22 instead of 23",
        "wrong, in values too: 22 instead of 23",
        RIGHT,
        ("bridge/test_vectors_again.py::test_elements_of_two_arrays_in_one_local",),
        remedy="Use another local for each vector: `v = a[i]`, and later `w = b[i]`.",
        code="""
        V = ti.types.ndarray(dtype=ti.math.vec2, ndim=1)


        @ti.kernel
        def both(a: V, b: V, y: A):
            for i in range(y.shape[0]):
                v = a[i]
                p = v[0]
                s = 0.0
                for _ in range(1):
                    s += p
                v = b[i]
                p = v[0]
                y[i] = s * 10.0 + p


        a, b, y = torch.tensor([[2.0, 5.0]]), torch.tensor([[3.0, 7.0]]), torch.zeros(1)
        both(a, b, y)
        print("y:", y.tolist(), " right: [23.0]")
        """,
    ),
)
THEME = Theme(
    "memory",
    "In place, atomics and shared memory",
    "A value that the gradient needs is overwritten, or two arguments are the same tensor.",
    ROWS,
    HEAD,
)
