"""A Tin on tensors: batches in one launch, no copies, no fields touched."""

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts

pytestmark = [
    pytest.mark.thinned(4),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]  # inductor uses it


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def make_object(lang, n=5, doubled=False):
    """Make y = (w |x|^2 + k)^2 through t; x are 2-vectors; k is a table that stays a field."""

    @lang.data_oriented
    class Thing:
        def __init__(self):
            self.x = lang.Vector.field(2, lang.f64, shape=n, needs_grad=True)
            self.w = lang.field(lang.f64, shape=n, needs_grad=True)
            self.t = lang.field(lang.f64, shape=n, needs_grad=True)
            self.y = lang.field(lang.f64, shape=n, needs_grad=True)
            self.k = lang.field(lang.f64, shape=n)
            self.k.from_torch(torch.linspace(0.0, 1.0, n, dtype=torch.float64))

        @lang.kernel
        def first(self):
            for i in self.x:
                self.t[i] = self.w[i] * self.x[i].dot(self.x[i]) + self.k[i]

        @lang.kernel
        def second(self, power: lang.f64):
            for i in range(self.t.shape[0]):
                self.y[i] = self.t[i] ** power

    return Thing()


def twin(x, w, n=5):
    return (w * x.square().sum(-1) + torch.linspace(0.0, 1.0, n, dtype=torch.float64)) ** 2


def make_layer(lang, register_t=True, **options):
    thing = make_object(lang)
    layer = (
        ts.Tin(thing, **options)
        .register_kernel("first")
        .register_kernel(thing.second, 2.0)
        .register_input_field(thing.x, "x", batched="on_tensors" not in options)
        .register_output_field(thing.y, "y")
        .register_weight_field(thing.w, name="w", value=rand(5).abs())
    )
    if register_t:
        layer.register_internal_field(thing.t, name="t", persistent=False)
    return layer.finish()


@pytest.mark.parametrize("register_t", [True, False])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,)])
def test_batches(lang64, lead, register_t):
    layer = make_layer(lang64, register_t)
    x, c = rand(*lead, 5, 2).requires_grad_(), rand(*lead, 5)
    ours, theirs = layer(x), twin(x, layer.w)
    cases.assert_close(ours, theirs)
    mine = torch.autograd.grad(ours, (x, layer.w), c)
    cases.assert_close(mine, torch.autograd.grad(theirs, (x, layer.w), c))


def test_a_batch_is_one_launch(lang64):
    layer = make_layer(lang64)
    layer(rand(3, 5, 2))
    assert layer.explain("all").count("one launch") == 2
    assert "one launch a sample" not in layer.explain("all")


def test_fields_stay_as_they_are(lang64):
    layer = make_layer(lang64)
    thing = layer.data_oriented
    thing.y.fill(7.0)
    thing.x.from_torch(torch.full((5, 2), 3.0, dtype=torch.float64))
    layer(rand(4, 5, 2)).sum().backward()
    assert torch.equal(thing.y.to_torch(), torch.full((5,), 7.0, dtype=torch.float64))
    assert torch.equal(thing.x.to_torch(), torch.full((5, 2), 3.0, dtype=torch.float64))


def test_a_table_is_read_from_its_field_at_each_call(lang64):
    layer = make_layer(lang64)
    x = rand(2, 5, 2)
    layer(x)
    layer.data_oriented.k.fill(2.0)
    cases.assert_close(layer(x).detach(), (layer.w * x.square().sum(-1) + 2.0).detach() ** 2)


def test_arguments_change_between_calls_and_not_for_calls_before(lang64):
    layer = make_layer(lang64)
    x = rand(3, 5, 2).requires_grad_()
    y = layer(x)
    layer.set_kernel_args("second", 3.0)
    cases.assert_close(torch.autograd.grad(y.sum(), x), torch.autograd.grad(twin(x, layer.w).sum(), x))
    cases.assert_close(layer(x), twin(x, layer.w) ** 1.5)


@pytest.mark.parametrize("on_tensors", [True, False])
def test_both_ways_agree(lang64, on_tensors):
    layer = make_layer(lang64, on_tensors=on_tensors)
    x, c = rand(5, 2).requires_grad_(), rand(5)
    mine = torch.autograd.grad(layer(x), (x, layer.w), c)
    cases.assert_close(mine, torch.autograd.grad(twin(x, layer.w), (x, layer.w), c))
    assert ("on tensors" in layer.explain("all")) == on_tensors


@pytest.mark.compiled_engine
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_without_a_break(lang64, backend):
    layer = make_layer(lang64)
    compiled = torch.compile(lambda x: layer(x.tanh()) * 2.0, backend=backend, fullgraph=True)
    x, c = rand(3, 5, 2).requires_grad_(), rand(3, 5)
    mine = torch.autograd.grad(compiled(x), (x, layer.w), c)
    cases.assert_close(mine, torch.autograd.grad(twin(x.tanh(), layer.w) * 2.0, (x, layer.w), c))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("lead", [(8,), (8, 3)])
def test_exported_with_a_dynamic_batch(lang64, lead, strict):
    # A batch may have as many samples as the field has elements: an export with a guard against it fails.
    layer = make_layer(lang64)
    # Twice in a tuple: of the arguments, and of `*inputs`.
    sizes = (({axis: torch.export.Dim(f"b{axis}", min=2) for axis in range(len(lead))},),)
    program = torch.export.export(layer, (rand(*lead, 5, 2),), dynamic_shapes=sizes, strict=strict).module()
    for size in (5, 2):
        x = rand(*[size] * len(lead), 5, 2)
        cases.assert_close(program(x), twin(x, layer.w))


def test_mapped_over_inputs_and_weights(lang64):
    layer = make_layer(lang64)
    x, w = rand(3, 5, 2), rand(3, 5).abs()
    ours = vmap(lambda w, x: torch.func.functional_call(layer, {"w": w}, (x,)))(w, x)
    cases.assert_close(ours, twin(x, w))


def complex_layer(lang, complex_field):
    x, y = (complex_field(lang) for _ in range(2))

    @lang.kernel
    def squared():
        for i in range(3):
            y[i] = lang.Vector([x[i][0] * x[i][0] - x[i][1] * x[i][1], 2.0 * x[i][0] * x[i][1]])

    layer = ts.EmptyTin().register_kernel(squared).register_input_field(x, complex_dtype=True, batched=True)
    return layer.register_output_field(y, complex_dtype=True).finish()


def test_complex_batches(lang64):
    layer = complex_layer(lang64, lambda lang: lang.Vector.field(2, lang.f64, shape=3, needs_grad=True))
    x, c = torch.randn(4, 3, dtype=torch.complex128, requires_grad=True), torch.randn(4, 3, dtype=torch.complex128)
    torch.testing.assert_close(layer(x), x * x)
    torch.testing.assert_close(torch.autograd.grad(layer(x), x, c), torch.autograd.grad(x * x, x, c))


def test_a_field_given_as_an_argument(lang64):
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def cubed(a: lang64.template(), scale: lang64.f64):
        for i in a:
            y[i] = scale * a[i] ** 3

    layer = ts.EmptyTin().register_kernel(cubed, x, 0.5).register_input_field(x, batched=True)
    layer.register_output_field(y).finish()
    cases.assert_same_values_and_gradients(layer, lambda x: 0.5 * x**3, (rand(2, 4),))


def plain(lang, x, y, needs_grad=True):
    @lang.kernel
    def copy():
        for i in lang.grouped(x):
            y[i] = x[i]

    return ts.EmptyTin().register_kernel(copy).register_input_field(x, "x", batched=True).register_output_field(y, "y")


def test_a_layout_that_no_tensor_has_is_refused(lang64):
    x, y = lang64.field(lang64.f64), lang64.field(lang64.f64, shape=4)
    lang64.root.pointer(lang64.i, 4).place(x)
    with pytest.raises(ts.KernelError, match=r"(?s)field `x` of EmptyTin has a layout.*dense +False.*batched=True"):
        plain(lang64, x, y).finish()


def test_a_gradient_that_only_a_field_would_get_is_refused(lang64):
    x, y, w = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def times():
        for i in y:
            y[i] = w[i] * x[i]

    layer = ts.EmptyTin().register_kernel(times).register_input_field(x, batched=True).register_output_field(y)
    layer.register_internal_field(w, name="w")
    with pytest.raises(ts.GradientError, match=r"(?s)internal field `w`.*needs a gradient.*register_weight_field"):
        layer.finish()


def test_batch_dims_that_do_not_fit(lang64):
    x, y = (lang64.field(lang64.f64, shape=(2, 3), needs_grad=True) for _ in range(2))
    layer = plain(lang64, x, y).finish()
    words = r"(?s)does not fit field `x` of EmptyTin.*expected +any batch dims, then \(2, 3\).*got +\(4, 3, 2\)"
    with pytest.raises(ts.ShapeError, match=words):
        layer(rand(4, 3, 2))
    with pytest.raises(ts.ShapeError, match="does not fit"):
        layer(rand(3))
