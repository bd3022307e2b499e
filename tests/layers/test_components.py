"""Fields that share memory: a vector field and a component, a member of a field of structs, a field and its gradient.

Each is copied as a whole, and becomes an array of its own. So a layer or rollout that changes one of two is refused;
one that uses a component and nothing else of its field, or only reads both, is right.
"""

import pytest
import torch

import tinsmith as ts

D = torch.float64
VECTORS = torch.arange(6, dtype=D).reshape(2, 3)
NUMBERS = torch.tensor([3.0, 4.0], dtype=D)


class Fields:
    """A field of vectors `v`, its components `c`, a field of numbers `y`, and kernels that use them."""

    def __init__(self, lang, needs_grad=False):
        self.v = lang.Vector.field(3, lang.f64, shape=2, needs_grad=needs_grad)
        self.y = lang.field(lang.f64, 2, needs_grad=needs_grad)
        self.c = [self.v.get_scalar_field(entry) for entry in range(3)]
        v, y, (c0, c1, _) = self.v, self.y, self.c

        @lang.kernel
        def whole():
            for i in v:
                y[i] = 10 * v[i][0] + 100 * v[i][1]

        @lang.kernel
        def first():
            for i in c0:
                y[i] = 7 * c0[i]

        @lang.kernel
        def second():
            for i in c1:
                y[i] = 7 * c1[i]

        @lang.kernel
        def both():
            for i in v:
                y[i] = 10 * v[i][0] + 100 * c0[i] + 1000 * c1[i]

        @lang.kernel
        def write():
            for i in c1:
                c1[i] = 5.0

        self.whole, self.first, self.second, self.both, self.write = whole, first, second, both, write


def as_rollout(kernels, inputs, outputs):
    def forward():
        for kernel in kernels:
            kernel()

    named = (
        {f"{side}_{place}": one for place, one in enumerate(given)} for side, given in (("i", inputs), ("o", outputs))
    )
    return ts.rollout(forward, *named)


def as_layer(kernels, inputs, outputs, **options):
    layer = ts.EmptyTin(**options)
    for kernel in kernels:
        layer.register_kernel(kernel)
    for one in inputs:
        layer.register_input_field(one)
    for one in outputs:
        layer.register_output_field(one)
    return layer.finish()


def on_tensors(*parts):
    return as_layer(*parts, on_tensors=True)


def by_engine(*parts):
    return as_layer(*parts, adjoint="engine")


WAYS = [as_rollout, as_layer, on_tensors, by_engine]
SHARED = "share memory: one is a component of the other"
GRADIENT = "is the gradient of"
REFUSED = {
    "both are inputs": (lambda f: ([f.whole], [f.v, f.c[1]], [f.y]), SHARED),
    "the first component is an input too": (lambda f: ([f.whole], [f.v, f.c[0]], [f.y]), SHARED),
    "kernels read the field of a component": (lambda f: ([f.whole], [f.c[1]], [f.y]), SHARED),
    "kernels read a component": (lambda f: ([f.second], [f.v], [f.y]), SHARED),
    "kernels read the first component": (lambda f: ([f.first], [f.v], [f.y]), SHARED),
    "a kernel reads both": (lambda f: ([f.both], [f.v], [f.y]), SHARED),
    "a kernel writes a component": (lambda f: ([f.write, f.whole], [f.v], [f.y]), SHARED),
    "the field is an output": (lambda f: ([f.second], [f.c[1]], [f.y, f.v]), SHARED),
    "the first component is an output": (lambda f: ([f.whole], [f.v], [f.y, f.c[0]]), SHARED),
    "the gradient is an input too": (lambda f: ([f.whole], [f.v, f.v.grad], [f.y]), GRADIENT),
    "the gradient is an output": (lambda f: ([f.whole], [f.v], [f.y, f.v.grad]), GRADIENT),
    "a component of the gradient is an input": (
        lambda f: ([f.whole], [f.v, f.v.grad.get_scalar_field(1)], [f.y]),
        GRADIENT,
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", REFUSED)
def test_fields_that_share_memory_are_refused_by_name(lang64, way, case):
    choose, words = REFUSED[case]
    kernels, inputs, outputs = choose(Fields(lang64, needs_grad=True))
    with pytest.raises(ts.RegistrationError, match=words):
        way(kernels, inputs, outputs)(
            *[torch.zeros((*one.shape, 3) if hasattr(one, "n") else one.shape) for one in inputs]
        )


def test_the_message_names_both_fields(lang64):
    fields = Fields(lang64)
    with pytest.raises(ts.RegistrationError) as refused:
        as_rollout([fields.second], [fields.v], [fields.y])(VECTORS)
    first, second, *_ = str(refused.value).splitlines()
    assert first == f"`i_0` and `c1` of rollout forward {SHARED}"
    assert second.split() == "fields i_0[2, 3] float64, c1[2] float64".split()


@pytest.mark.parametrize("way", [as_rollout, as_layer, on_tensors])
@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("entry", [0, 1])
def test_a_component_by_itself_is_right(lang64, way, entry, needs_grad):
    fields = Fields(lang64, needs_grad=needs_grad)
    run = way([(fields.first, fields.second)[entry]], [fields.c[entry]], [fields.y])
    numbers = NUMBERS.clone().requires_grad_()
    result = run(numbers)
    torch.testing.assert_close(result, 7 * NUMBERS)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), numbers)[0], torch.full_like(NUMBERS, 7))


@pytest.mark.parametrize("way", [as_rollout, as_layer, on_tensors])
def test_a_field_and_its_components_that_are_only_read_are_right(lang64, way):
    fields, x = Fields(lang64), lang64.field(lang64.f64, 2, needs_grad=True)
    v, (c0, c1, _), z = fields.v, fields.c, lang64.field(lang64.f64, 2, needs_grad=True)

    @lang64.kernel
    def scale():
        for i in x:
            z[i] = x[i] * (v[i][1] + 10 * c0[i] + 100 * c1[i])

    v.from_numpy(VECTORS.numpy())
    numbers, factor = NUMBERS.clone().requires_grad_(), VECTORS @ torch.tensor([10.0, 101.0, 0.0], dtype=D)
    result = way([scale], [x], [z])(numbers)
    torch.testing.assert_close(result, factor * NUMBERS)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), numbers)[0], factor)


def test_an_op_reads_a_field_and_its_components_and_notes_changes_of_both(lang64):
    """The first component has the number of its field: it was taken for the whole, and changes were not seen."""
    fields = Fields(lang64)
    v, c0 = fields.v, fields.c[0]

    @lang64.kernel
    def scale(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * (c0[i] + 10 * v[i][1])

    v.from_numpy(VECTORS.numpy())
    op, numbers = ts.op("x[n] -> y[n]")(scale), NUMBERS.clone().requires_grad_()
    result, factor = op(numbers), VECTORS @ torch.tensor([1.0, 10.0, 0.0], dtype=D)
    torch.testing.assert_close(result, factor * NUMBERS)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), numbers)[0], factor)
    result = op(numbers)
    v[1] = [3.0, 9.0, 5.0]
    with pytest.raises(ts.GradientError, match="the field `v` that op `scale` reads changed"):
        result.sum().backward()


def test_a_member_of_a_field_of_structs_is_one_field_by_every_name(lang64):
    particles = lang64.Struct.field({"p": lang64.types.vector(2, lang64.f64), "m": lang64.f64}, shape=2)
    y = lang64.field(lang64.f64, 2)

    @lang64.kernel
    def sum_up():
        for i in particles:
            y[i] = particles[i].p[0] + 10 * particles[i].p[1]

    given = torch.rand(2, 2, dtype=D, requires_grad=True)
    for member in (particles.p, particles.get_member_field("p")):
        result = as_rollout([sum_up], [member], [y])(given)
        torch.testing.assert_close(
            torch.autograd.grad(result.sum(), given)[0], torch.tensor([[1, 10], [1, 10]], dtype=D)
        )
    with pytest.raises(ts.RegistrationError, match="are the same field, registered twice"):
        as_rollout([sum_up], [particles.p, particles.get_member_field("p")], [y])
    with pytest.raises(ts.RegistrationError, match=SHARED):
        as_rollout([sum_up], [particles.p.get_scalar_field(1)], [y])(given[0])
    with pytest.warns(UserWarning, match="uses the values of its input `i_1`"):
        as_rollout([sum_up], [particles.p, particles.m], [y])(given, NUMBERS)


def test_a_component_that_python_writes_in_a_rollout_is_refused(lang64):
    fields = Fields(lang64)
    run = as_rollout([lambda: fields.c[1].fill(0.0), fields.whole], [fields.v], [fields.y])
    with pytest.raises(ts.RegistrationError, match=SHARED):
        run(VECTORS)


def test_a_component_that_python_reads_tells_that_an_output_is_no_plain_sum(lang64):
    """An output that kernels only add to starts at zero, unless the function is given a value of it."""
    counts, x = lang64.Vector.field(2, lang64.i32, shape=()), lang64.field(lang64.f64, 2)
    second = counts.get_scalar_field(1)

    @lang64.kernel
    def count():
        for i in x:
            counts[None][1] += lang64.cast(x[i], lang64.i32)

    def forward():
        count()
        assert second[None] == 17

    counts[None] = [10, 10]
    with pytest.warns(UserWarning, match="its sum grows in each call"):
        result = ts.rollout(forward, {"x": x}, {"counts": counts})(NUMBERS)
    assert result.tolist() == [10, 17]


# Unused inputs --------------------------------------------------------------------------------
UNUSED = "no kernel of .* uses the values of its input"


@pytest.mark.parametrize("index", [None, 0])
@pytest.mark.parametrize("use", ["none", "overwritten", "overwritten and returned"])
def test_an_input_without_an_effect_is_named_whatever_its_form(lang64, use, index):
    x, y, z = lang64.field(lang64.f64, 2), lang64.field(lang64.f64, 2), lang64.field(lang64.f64, (2, 2))

    @lang64.kernel
    def overwrite():
        for i, j in z:
            z[i, j] = 1.0

    @lang64.kernel
    def double():
        for i in x:
            y[i] = 2 * x[i]

    def forward():
        if use != "none":
            overwrite()
        double()

    outputs = {"y": y} | ({"z": z} if "returned" in use else {})
    run = ts.rollout(forward, {"a": x, "b": z if index is None else (z, index)}, outputs)
    with pytest.warns(UserWarning, match=f"{UNUSED} `b`: it has no effect"):
        run(NUMBERS, torch.zeros(2, 2, dtype=D) if index is None else NUMBERS)


@pytest.mark.parametrize("index", [None, 0])
def test_an_input_that_is_returned_as_it_is_has_an_effect(lang64, index):
    fields, z = Fields(lang64), lang64.field(lang64.f64, (2, 2))
    run = ts.rollout(
        lambda: fields.whole(), {"v": fields.v, "b": z if index is None else (z, 0)}, {"y": fields.y, "z": z}
    )
    given = torch.rand(2, 2, dtype=D, requires_grad=True)
    result = run(VECTORS, given if index is None else given[0])
    torch.testing.assert_close(torch.autograd.grad(result.z.sum(), given)[0][0], torch.ones(2, dtype=D))


def test_a_layer_names_an_input_that_no_kernel_uses(lang64):
    fields, z = Fields(lang64), lang64.field(lang64.f64, 2)
    with pytest.warns(UserWarning, match=f"{UNUSED} `input_field_1`"):
        as_layer([fields.whole], [fields.v, z], [fields.y])
