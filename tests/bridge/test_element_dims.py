"""Arrays of vectors and matrices: whatever the spec calls an element's dims, a call gives them their size.

An engine takes a pointer and counts in elements: a tensor of another width would be read, and written, outside.
"""

import pytest
import torch

import cases
import tinsmith as ts

F64 = torch.float64


def norms(lang, dtype=None, ndim=1):
    """Build a kernel that computes the squared norm of each vector of an array."""
    vec3 = dtype or lang.types.vector(3, lang.f64)

    @lang.kernel
    def norms(x: lang.types.ndarray(dtype=vec3, ndim=ndim), y: lang.types.ndarray(dtype=lang.f64, ndim=ndim)):
        for i in lang.grouped(x):
            y[i] = x[i].dot(x[i])

    return norms


def doubled(lang):
    vec3 = lang.types.vector(3, lang.f64)

    @lang.kernel
    def doubled(x: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray(dtype=vec3, ndim=1)):
        for i in x:
            y[i] = 2.0 * x[i]

    return doubled


def spread(lang):
    vec3 = lang.types.vector(3, lang.f64)

    @lang.kernel
    def spread(x: lang.types.ndarray(dtype=lang.f64, ndim=1), y: lang.types.ndarray(dtype=vec3, ndim=1)):
        for i in x:
            y[i] = lang.Vector([x[i], x[i], x[i]])

    return spread


def traces(lang):
    mat3 = lang.types.matrix(3, 3, lang.f64)

    @lang.kernel
    def traces(m: lang.types.ndarray(dtype=mat3, ndim=1), y: lang.types.ndarray(dtype=lang.f64, ndim=1)):
        for i in m:
            y[i] = m[i].trace()

    return traces


def through(lang):
    """Build a kernel that passes values through scratch."""
    vec3 = lang.types.vector(3, lang.f64)

    @lang.kernel
    def through(
        x: lang.types.ndarray(dtype=lang.f64, ndim=1),
        t: lang.types.ndarray(dtype=vec3, ndim=1),
        y: lang.types.ndarray(dtype=lang.f64, ndim=1),
    ):
        for i in x:
            t[i] = lang.Vector([x[i], x[i], x[i]])
        for i in x:
            y[i] = t[i].sum()

    return through


# what makes the kernel, spec, options, shapes that fit and keywords, shapes that do not and keywords, what is named
WIDTHS = {
    "a name": (norms, "x[n, d] -> y[n]", {}, [(4, 3)], {}, [(4, 2)], {}, "`x`"),
    "anything": (norms, "x[n, _] -> y[n]", {}, [(4, 3)], {}, [(4, 4)], {}, "`x`"),
    "one name for both": (norms, "x[n, n] -> y[n]", {}, [(3, 3)], {}, [(4, 4)], {}, "`x`"),
    "the rest": (norms, "x[...] -> y[n]", {}, [(4, 3)], {"n": 4}, [(4, 2)], {"n": 4}, "`x`"),
    "the rest, too few": (traces, "m[...] -> y[n]", {}, [(4, 3, 3)], {"n": 4}, [(3,)], {"n": 4}, "`m`"),
    "a name after the rest": (norms, "x[..., d] -> y[...]", {}, [(4, 3)], {}, [(4, 2)], {}, "`x`"),
    "in a batch": (norms, "x[*b, n, d] -> y[*b, n]", {}, [(2, 4, 3)], {}, [(2, 4, 2)], {}, "`x`"),
    "a matrix": (traces, "m[n, a, a] -> y[n]", {}, [(4, 3, 3)], {}, [(4, 2, 2)], {}, "`m`"),
    "an output": (spread, "x[n] -> y[n, d]", {}, [(4,)], {"d": 3}, [(4,)], {"d": 2}, "`y`"),
    "a sum": (spread, "x[n] -> y[n, n - 1]", {}, [(4,)], {}, [(3,)], {}, "`y`"),
    "a name of an input": (doubled, "x[n, d] -> y[n, d]", {}, [(4, 3)], {}, [(4, 2)], {}, "`x`"),
    "scratch": (through, "x[n] -> y[n]", {"scratch": "t[n, d]"}, [(4,)], {"d": 3}, [(4,)], {"d": 2}, "`t`"),
}


@pytest.mark.parametrize("called_before", [False, True], ids=["first call", "later call"])
@pytest.mark.parametrize("row", WIDTHS)
def test_a_width_that_does_not_fit_is_refused(lang64, row, called_before):
    make, spec, options, fitting, sizes, wrong, wrong_sizes, name = WIDTHS[row]
    op = ts.op(spec, **options)(make(lang64))
    if called_before:
        op(*[torch.rand(shape, dtype=F64) for shape in fitting], **sizes)
    inputs = [torch.rand(shape, dtype=F64) for shape in wrong]
    for active in (False, True):
        with pytest.raises(ts.ShapeError, match=rf"(?s){name}.*`{op.name}`.*3"):
            op(*[one.requires_grad_(active) for one in inputs], **wrong_sizes)


@pytest.mark.parametrize("row", WIDTHS)
def test_the_width_that_fits_is_taken(lang64, row):
    make, spec, options, fitting, sizes, *_ = WIDTHS[row]
    op = ts.op(spec, **options)(make(lang64))
    inputs = [torch.rand(shape, dtype=F64, requires_grad=True) for shape in fitting]
    op(*inputs, **sizes).sum().backward()
    answer = ts.oracle(op, *inputs, **sizes, cotangents=torch.ones_like(op(*inputs, **sizes)))
    for name, one in zip(op.arguments, inputs, strict=True):
        torch.testing.assert_close(one.grad, answer.gradients[name])


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
def test_under_transforms_too(lang64):
    op = ts.op("x[n, d] -> y[n]")(norms(lang64))
    x = torch.rand(5, 4, 2, dtype=F64)
    with pytest.raises(ts.ShapeError, match=r"(?s)`x`.*`norms`.*3"):
        torch.func.vmap(op)(x)
    with pytest.raises(ts.ShapeError, match=r"(?s)`x`.*`norms`.*3"):
        torch.func.jvp(op, (x[0],), (x[1],))
    with pytest.raises(ts.ShapeError, match=r"(?s)`x`.*`norms`.*3"):
        ts.oracle(op, x[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_while_tracing_too(lang64, dynamic):
    op = ts.op("x[n, d] -> y[n]")(norms(lang64))
    right, wrong = torch.ones(4, 3, dtype=F64), torch.ones(4, 2, dtype=F64)

    def compiled():
        torch.compiler.reset()
        return torch.compile(lambda x: op(x) * 2, fullgraph=True, backend="eager", dynamic=dynamic)

    fresh = compiled()
    cases.assert_close(fresh(right), torch.full((4,), 6.0, dtype=F64))
    for call in (fresh, compiled()):
        with pytest.raises(Exception, match=None if dynamic else "(?s)`x`.*`norms`.*3"):  # no words of symbolic sizes
            call(wrong)


def test_an_array_of_numbers_has_no_width(lang64):
    """The same spec on a kernel of plain numbers: any size."""

    @ts.op("x[n, d] -> y[n]")
    @lang64.kernel
    def total(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in x:
            y[i] += x[i, j]

    assert total(torch.ones(4, 2, dtype=F64)).tolist() == [2.0] * 4


def test_the_arrays_of_a_backward_kernel(lang64):
    """Its element type is its own: the forward kernel has numbers where it has vectors."""
    vec3 = lang64.types.vector(3, lang64.f64)

    @ts.op("x[n, d] -> y[n, d]")
    @lang64.kernel
    def halved(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in x:
            y[i, j] = 0.5 * x[i, j]

    @halved.backward
    @lang64.kernel
    def halved_backward(
        grad_x: lang64.types.ndarray(dtype=vec3, ndim=1), grad_y: lang64.types.ndarray(dtype=vec3, ndim=1)
    ):
        for i in grad_y:
            grad_x[i] = 0.5 * grad_y[i]

    x = torch.ones(4, 3, dtype=F64, requires_grad=True)
    halved(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[0.5] * 3] * 4
    narrow = torch.ones(4, 2, dtype=F64, requires_grad=True)
    with pytest.raises(ts.ShapeError, match=r"(?s)`grad_x`|`grad_y`.*`halved`.*3"):
        halved(narrow).sum().backward()


def test_kernels_of_a_chain_each_have_their_own(lang64):
    @lang64.kernel
    def copied(a: lang64.types.ndarray(), x: lang64.types.ndarray()):
        for i, j in a:
            x[i, j] = a[i, j]

    op = ts.chain("a[n, d] -> y[n]", [copied, norms(lang64)], scratch="x[n, d]")
    assert op(torch.ones(4, 3, dtype=F64)).tolist() == [3.0] * 4
    with pytest.raises(ts.ShapeError, match=r"(?s)`x`.*\[n, d\] = \(4, 2\).*3"):
        op(torch.ones(4, 2, dtype=F64))


def test_too_few_dims_in_the_spec(lang64):
    mat3 = lang64.types.matrix(3, 3, lang64.f64)

    @lang64.kernel
    def trace(m: lang64.types.ndarray(dtype=mat3), y: lang64.types.ndarray()):
        y[None] = m[None].trace()

    with pytest.raises(ts.SpecError, match=r"(?s)`m`.*`trace`.*element"):
        ts.op("m[n] -> y[]")(trace)


def test_an_array_that_a_layer_hands_to_a_kernel(lang64):
    vec3 = lang64.types.vector(3, lang64.f64)
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def lit(light: lang64.types.ndarray(dtype=vec3, ndim=1)):
        for i in x:
            y[i] = x[i] * light[i].sum()

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
    layer.register_kernel(lit, torch.ones(4, 3, dtype=F64)).finish()
    given = torch.ones(4, dtype=F64)
    assert layer(given).tolist() == [3.0] * 4
    with pytest.raises(ts.ShapeError, match=r"(?s)`light`.*\(4, 2\).*3"):
        layer.set_kernel_args(lit, torch.ones(4, 2, dtype=F64))


# Elements without sizes, without a dtype ------------------------------------------------------------------------------
OPEN = {
    "element_dim": lambda lang: lang.types.ndarray(element_dim=1),
    "ndim": lambda lang: lang.types.ndarray(element_dim=1, ndim=1),
    "vector()": lambda lang: lang.types.ndarray(dtype=lang.types.vector(), ndim=1),
}
"""Annotations that leave the sizes of vectors to the memory."""
UNTYPED = {
    "element_shape": lambda lang: lang.types.ndarray(element_shape=(3,)),
    "vector": lambda lang: lang.types.ndarray(dtype=lang.types.vector(3), ndim=1),
    "float": lambda lang: lang.types.ndarray(dtype=lang.types.vector(3, float), ndim=1),
}
"""Annotations that say how many numbers a vector has, and not, or loosely, of which type."""


def norms_of(lang, annotation):
    @lang.kernel
    def kernel(x: annotation, y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i].norm_sqr() * x[i][1]

    return kernel


def reference(x):
    return (x * x).sum(-1) * x[..., 1]


@pytest.mark.parametrize("spec", ["x[n, 3] -> y[n]", "x[n, d] -> y[n]", "x[*b, n, 3] -> y[*b, n]"])
@pytest.mark.parametrize("form", [*OPEN, *UNTYPED])
def test_annotations_without_sizes_or_dtype(lang64, form, spec):
    op = ts.op(spec, adjoint="source")(norms_of(lang64, {**OPEN, **UNTYPED}[form](lang64)))
    x = torch.randn(4, 3, dtype=F64, requires_grad=True)
    torch.testing.assert_close(op(x), reference(x))
    (slope,) = torch.autograd.grad(op(x).sum(), x)
    torch.testing.assert_close(slope, torch.autograd.grad(reference(x).sum(), x)[0])
    batch = torch.randn(5, 4, 3, dtype=F64)
    torch.testing.assert_close(torch.func.vmap(op)(batch), reference(batch))
    assert torch.autograd.gradgradcheck(op, x)


@pytest.mark.parametrize("engine", ["quadrants"], indirect=True)
def test_the_alias_of_quadrants_and_none(lang64):
    array = lang64.types.NDArray
    annotations = (array, array[lang64.f64, 1], array[float, 1], array[lang64.f64, 1] | None)
    for annotation in annotations:

        @lang64.kernel
        def kernel(x: annotation, y: array[lang64.f64, 1] | None):
            for i in x:
                if lang64.static(y is not None):
                    y[i] = x[i] ** 2

        x = torch.randn(4, dtype=F64, requires_grad=True)
        op = ts.op("x[n] -> y[n]", adjoint="source")(kernel)
        torch.testing.assert_close(op(x), x**2)
        torch.testing.assert_close(torch.autograd.grad(op(x).sum(), x)[0], 2.0 * x)


@pytest.mark.parametrize("form", OPEN)
def test_one_op_for_vectors_of_several_sizes(lang64, form):
    op = ts.op("x[n, d] -> y[n]", adjoint="source")(norms_of(lang64, OPEN[form](lang64)))
    for width in (3, 5, 2, 3):
        x = torch.randn(4, width, dtype=F64, requires_grad=True)
        torch.testing.assert_close(op(x), reference(x))
        (slope,) = torch.autograd.grad(op(x).sum(), x)
        torch.testing.assert_close(slope, torch.autograd.grad(reference(x).sum(), x)[0])
        torch.testing.assert_close(torch.func.vmap(op)(torch.stack([x, -x])), reference(torch.stack([x, -x])))


def test_matrices_without_sizes(lang64):
    nd = lang64.types.ndarray

    @lang64.kernel
    def kernel(x: nd(element_dim=2), y: nd(element_dim=1)):
        for i in x:
            for a in lang64.static(range(3)):
                y[i][a] = x[i][0, a] * x[i][1, a] ** 2

    x = torch.randn(4, 2, 3, dtype=F64, requires_grad=True)
    for spec in ("x[n, 2, 3] -> y[n, 3]", "x[n, a, b] -> y[n, b]"):
        op = ts.op(spec, adjoint="source")(kernel)
        torch.testing.assert_close(op(x), x[:, 0] * x[:, 1] ** 2)
        assert torch.autograd.gradcheck(op, x)


def test_a_spec_with_fewer_dims_than_an_element(lang64):
    kernel = norms_of(lang64, lang64.types.ndarray(element_dim=1))
    with pytest.raises(
        ts.SpecError, match=r"0 dims, but its annotation has at least 1\n(.|\n)*ndarray\(element_dim=1\)"
    ):
        ts.op("x[] -> y[]")(kernel)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("width", [3, 5])
@pytest.mark.parametrize("form", OPEN)
def test_arguments_of_a_rollout_without_sizes(lang64, form, width):
    x = lang64.field(lang64.f64, 4, needs_grad=True)
    total = lang64.field(lang64.f64, (), needs_grad=True)
    annotation = OPEN[form](lang64)

    @lang64.kernel
    def weigh(w: annotation):
        for i in x:
            total[None] += x[i] ** 2 * w[i].sum()

    weights = torch.randn(4, width, dtype=F64)
    value = torch.randn(4, dtype=F64, requires_grad=True)
    result = ts.rollout(lambda: weigh(weights), {"x": x}, {"total": total})(value)
    torch.testing.assert_close(result, (value**2 * weights.sum(1)).sum())
    result.backward()
    torch.testing.assert_close(value.grad, 2.0 * value.detach() * weights.sum(1))
    layer = ts.EmptyTin(adjoint="source").register_input_field(x).register_output_field(total, clear=True)
    layer.register_kernel(weigh, weights).finish()
    (slope,) = torch.autograd.grad(layer(value), value)
    torch.testing.assert_close(slope, value.grad)


@pytest.mark.compiled_engine
def test_a_rollout_refuses_an_argument_without_elements(lang64):
    x = lang64.field(lang64.f64, 4, needs_grad=True)

    @lang64.kernel
    def weigh(w: lang64.types.ndarray(element_dim=2)):
        for i in x:
            x[i] *= w[i][0, 0]

    weights = torch.ones(4, dtype=F64)
    layer = ts.EmptyTin(adjoint="source").register_input_field(x).register_output_field(x)
    with pytest.raises(ts.ShapeError, match=r"`w` of .* does not fit the annotation(.|\n)*element_dim=2"):
        layer.register_kernel(weigh, weights)
