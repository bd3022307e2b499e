"""A layer used again, from threads, under transforms: each call has its own values and gradients."""

import threading

import pytest
import torch
from torch.func import grad, jacrev, vmap

import cases
import tinsmith as ts

pytestmark = [
    pytest.mark.thinned(4),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
]  # torch.func.jvp uses it


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def make_layer(lang, **options):
    """Make y = (w x^2)^2 in two kernels, with an unregistered field between them, and a counter."""
    n = 5
    x, y, t, w = (lang.field(lang.f64, shape=n, needs_grad=True) for _ in range(4))
    count = lang.field(lang.i32, shape=())

    @lang.kernel
    def first():
        for i in x:
            t[i] = w[i] * x[i] * x[i]

    @lang.kernel
    def second():
        for i in t:
            y[i] = t[i] * t[i]
            count[None] += 1

    layer = ts.EmptyTin(**options).register_kernel(first).register_kernel(second)
    layer.register_input_field(x).register_output_field(y)
    layer.register_weight_field(w, name="w", value=rand(n)).finish()
    layer.fields = {"x": x, "t": t, "count": count}
    return layer


def twin(x, w):
    return (w * x * x) ** 2


def test_two_calls_before_one_backward_have_their_own_gradients(lang64):
    layer = make_layer(lang64)
    a, b = rand(5).requires_grad_(), rand(5).requires_grad_()
    c = rand(5)
    ours = torch.autograd.grad(layer(a) + layer(b), (a, b, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(a, layer.w) + twin(b, layer.w), (a, b, layer.w), c))


def test_a_layer_applied_to_its_own_output(lang64):
    layer = make_layer(lang64)
    x = rand(5).requires_grad_()
    c = rand(5)
    ours = torch.autograd.grad(layer(layer(x)), (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(twin(x, layer.w), layer.w), (x, layer.w), c))


def test_calls_without_a_gradient_in_between_change_nothing(lang64):
    layer = make_layer(lang64)
    x, c = rand(5).requires_grad_(), rand(5)
    y = layer(x)
    with torch.no_grad():
        layer(rand(5))
    with torch.inference_mode():
        layer(rand(5))
    ours = torch.autograd.grad(y, (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(x, layer.w), (x, layer.w), c))


def test_fields_changed_by_hand_in_between_change_nothing(lang64):
    layer = make_layer(lang64)
    x, c = rand(5).requires_grad_(), rand(5)
    y = layer(x)
    for name in ("x", "t"):
        layer.fields[name].fill(7.0)
    ours = torch.autograd.grad(y, (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(x, layer.w), (x, layer.w), c))


def test_a_backward_pass_does_not_change_counters(lang64):
    layer = make_layer(lang64)
    x = rand(5).requires_grad_()
    y = layer(x)
    layer(x)
    assert layer.fields["count"][None] == 10
    y.sum().backward()
    assert layer.fields["count"][None] == 10


def test_retain_graph_gives_the_same_gradient_again(lang64):
    layer = make_layer(lang64)
    x, c = rand(5).requires_grad_(), rand(5)
    y = layer(x)
    once = torch.autograd.grad(y, x, c, retain_graph=True)
    cases.assert_close(torch.autograd.grad(y, x, c), once)


@pytest.mark.compiled_engine
def test_a_layer_with_save_false_explains_stale_values(lang64):
    layer = make_layer(lang64, save=False, adjoint="engine")
    x, c = rand(5).requires_grad_(), rand(5)
    ours = torch.autograd.grad(layer(x), (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(x, layer.w), (x, layer.w), c))
    y = layer(x)
    layer(rand(5))
    with pytest.raises(ts.GradientError, match=r"EmptyTin with `save=False` was called again before"):
        y.sum().backward()


def test_an_expanded_and_a_shared_cotangent(lang64):
    layer = make_layer(lang64)
    x = rand(5).requires_grad_()
    c = torch.ones((), dtype=torch.float64).expand(5)
    y = layer(x)
    z = y + 0.0
    gradients = torch.autograd.grad((y, z), (x,), (c, c))
    cases.assert_close(gradients, torch.autograd.grad(2 * twin(x, layer.w), (x,), (c,)))
    assert torch.equal(c, torch.ones(5, dtype=torch.float64))


def test_an_input_changed_in_place_is_refused_by_torch(lang64):
    layer = make_layer(lang64)
    x = rand(5).requires_grad_()
    inner = x * 1.0
    y = layer(inner)
    inner.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_threads(lang64):
    layer = make_layer(lang64)
    inputs = [rand(5) for _ in range(4)]
    gradients = [None] * 4

    def work(place):
        for _ in range(20):
            x = inputs[place].clone().requires_grad_()
            gradients[place] = torch.autograd.grad(layer(x).sum(), x)[0]

    workers = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for x, gradient in zip(inputs, gradients, strict=True):
        cases.assert_close(gradient, (4 * layer.w**2 * x**3).detach())


def test_a_first_call_from_another_thread(lang64):
    layer, x = make_layer(lang64), rand(5)
    outputs = []
    worker = threading.Thread(target=lambda: outputs.append(layer(x).detach()))
    worker.start()
    worker.join()
    cases.assert_close(outputs[0], twin(x, layer.w).detach())


@pytest.mark.parametrize("on_tensors", [False, True])
def test_transforms(lang64, on_tensors):
    layer = make_layer(lang64, on_tensors=on_tensors)
    batch = rand(3, 5)
    w = layer.w.detach()
    cases.assert_close(vmap(layer)(batch).detach(), twin(batch, w))
    cases.assert_close(grad(lambda x: layer(x).sum())(batch[0]), 4 * w**2 * batch[0] ** 3)
    cases.assert_close(vmap(grad(lambda x: layer(x).sum()))(batch), 4 * w**2 * batch**3)
    cases.assert_close(jacrev(layer)(batch[0]), torch.diag(4 * w**2 * batch[0] ** 3))
    cases.assert_close(vmap(layer, in_dims=1)(batch.T).detach(), twin(batch, w))
    empty = vmap(layer)(batch[:0]) if not on_tensors else layer.w.new_empty((0, 5))
    assert empty.shape == (0, 5)


def test_a_mapped_call_in_a_graph(lang64):
    layer = make_layer(lang64)
    batch, c = rand(3, 5).requires_grad_(), rand(3, 5)
    ours = torch.autograd.grad(vmap(layer)(batch), (batch, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(batch, layer.w), (batch, layer.w), c))


def test_forward_mode_and_second_derivatives(lang64):
    layer = make_layer(lang64)
    x, w = rand(5), layer.w.detach()
    tangents = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    cases.assert_close(tuple(one.detach() for one in tangents), (twin(x, w), 4 * w**2 * x**3))
    x.requires_grad_()
    (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    cases.assert_close(torch.autograd.grad(first.sum(), x), ((12 * w**2 * x**2).detach(),))


@pytest.mark.compiled_engine
def test_forward_mode_and_second_derivatives_of_the_engines_own_are_refused(lang64):
    layer = make_layer(lang64, adjoint="engine")
    x = rand(5).requires_grad_()
    with pytest.raises(ts.GradientError, match="EmptyTin has no forward mode"):
        torch.func.jvp(layer, (x.detach(),), (x.detach(),))
    (first,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
    with pytest.raises(ts.GradientError, match="EmptyTin has no second derivative"):
        first.sum().backward()


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch ignores it
@pytest.mark.thinned(1)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_compiled(lang64, fullgraph):
    """On fields a graph breaks at the layer; on tensors it does not."""
    layer = make_layer(lang64, on_tensors=fullgraph)
    compiled = torch.compile(lambda x: layer(2.0 * x) + 1.0, backend="aot_eager", fullgraph=fullgraph)
    x, c = rand(5).requires_grad_(), rand(5)
    cases.assert_close(compiled(x), twin(2 * x, layer.w) + 1)
    ours = torch.autograd.grad(compiled(x), (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(2 * x, layer.w), (x, layer.w), c))


def test_checkpointing(lang64):
    layer = make_layer(lang64)
    x, c = rand(5).requires_grad_(), rand(5)
    y = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    layer(rand(5))
    ours = torch.autograd.grad(y, (x, layer.w), c)
    cases.assert_close(ours, torch.autograd.grad(twin(x, layer.w), (x, layer.w), c))


def test_two_layers_on_the_same_fields(lang64):
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    @lang64.kernel
    def cube():
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    layers = [
        ts.EmptyTin().register_kernel(k).register_input_field(x).register_output_field(y).finish()
        for k in (square, cube)
    ]
    a, b = rand(4).requires_grad_(), rand(4).requires_grad_()
    ours = torch.autograd.grad((layers[0](a) * layers[1](b)).sum(), (a, b))
    cases.assert_close(ours, torch.autograd.grad((a**2 * b**3).sum(), (a, b)))


@pytest.mark.compiled_engine
def test_a_kernel_that_overwrites_what_its_gradient_needs(lang64):
    x, y, t = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def over():
        for i in x:
            t[i] = x[i]
        for i in x:
            t[i] = t[i] * t[i]
        for i in x:
            y[i] = t[i]

    layer = ts.EmptyTin().register_kernel(over).register_input_field(x).register_output_field(y).finish()
    cases.assert_same_values_and_gradients(layer, torch.square, (rand(4),))
    layer = ts.EmptyTin(adjoint="engine").register_kernel(over).register_input_field(x).register_output_field(y)
    layer.finish()
    given = rand(4)
    cases.assert_close(layer(given), given**2)
    with pytest.raises(ts.GradientError, match="overwrites a value of `t` that its gradient needs"):
        layer(given.requires_grad_())


@pytest.mark.compiled_engine
def test_deep_loops_do_not_end_the_process(lang64, engine):
    """Taichi's gradient stack holds 32 values unless it is told; see also tests/pitfalls/test_17_adstack.py."""
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def decay(n: lang64.i32):
        for i in x:
            v = x[i]
            for _ in range(n):
                v = v * 0.9 + 0.05 * lang64.sin(v)
            y[i] = v

    def decayed(v, n):
        for _ in range(n):
            v = v * 0.9 + 0.05 * torch.sin(v)
        return v

    layer = ts.EmptyTin().register_kernel(decay, 50).register_input_field(x).register_output_field(y).finish()
    given = rand(4).requires_grad_()
    if engine == "quadrants":  # which cannot tell how deep a loop over fields gets that a scalar bounds
        own = ts.EmptyTin(adjoint="engine").register_kernel(decay, 50).register_input_field(x).register_output_field(y)
        with pytest.raises(ts.GradientError, match="quadrants cannot differentiate the kernel"):
            own.finish()(given).sum().backward()
    for n in (50, 90, 3):
        layer.set_kernel_args(n)
        ours = torch.autograd.grad(layer(given).sum(), given)
        cases.assert_close(ours, torch.autograd.grad(decayed(given, n).sum(), given))


def through_a_field(lang, has_gradient, needs_grad=None, **how):
    x, y = (lang.field(lang.f64, shape=4, needs_grad=True) for _ in range(2))
    t = lang.field(lang.f64, shape=4, needs_grad=has_gradient)

    @lang.kernel
    def first():
        for i in x:
            t[i] = x[i] * x[i]

    @lang.kernel
    def second():
        for i in x:
            y[i] = t[i] + x[i]

    layer = ts.EmptyTin(**how).register_kernel(first).register_kernel(second).register_input_field(x)
    layer.register_output_field(y)
    return layer.register_internal_field(t, needs_grad, name="t").finish()


@pytest.mark.compiled_engine
def test_an_intermediate_field_without_a_gradient_is_right_or_refused(lang64):
    x = rand(4).requires_grad_()
    cases.assert_close(through_a_field(lang64, False)(x.detach()), (x * x + x).detach())
    with pytest.raises(
        ts.GradientError, match=r"go through the field `t`, which has no gradient(?s:.*)needs_grad=False"
    ):
        through_a_field(lang64, False, adjoint="engine")(x)
    cases.assert_close(torch.autograd.grad(through_a_field(lang64, False)(x).sum(), x)[0], (2 * x + 1).detach())
    cases.assert_close(torch.autograd.grad(through_a_field(lang64, True)(x).sum(), x)[0], (2 * x + 1).detach())
    stopped = through_a_field(lang64, False, needs_grad=False)
    cases.assert_close(torch.autograd.grad(stopped(x).sum(), x)[0], torch.ones_like(x))


@pytest.mark.compiled_engine
def test_an_input_field_without_a_gradient_is_right_or_refused(lang64):
    x, y = lang64.field(lang64.f64, shape=4), lang64.field(lang64.f64, shape=4, needs_grad=True)
    w = lang64.field(lang64.f64, shape=(), needs_grad=True)

    @lang64.kernel
    def times():
        for i in x:
            y[i] = w[None] * x[i]

    def make(needs_grad, **how):
        layer = ts.EmptyTin(**how).register_kernel(times).register_input_field(x, "x", needs_grad)
        return layer.register_output_field(y).register_weight_field(w, name="w").finish()

    given = rand(4).requires_grad_()
    layer = make(None)
    cases.assert_close(torch.autograd.grad(layer(given).sum(), given), (layer.w.detach().expand(4),))
    out = make(None, adjoint="engine")(given)
    with pytest.raises(ts.GradientError, match=r"`x` of EmptyTin requires a gradient, but its field has none"):
        out.sum().backward()
    layer = make(False)
    layer(given).sum().backward()
    assert given.grad is None
    cases.assert_close(layer.w.grad, given.detach().sum())


def test_a_gradient_that_is_placed_after_registering(lang64):
    x, y = lang64.field(lang64.f64, shape=4), lang64.field(lang64.f64, shape=4)

    @lang64.kernel
    def cubed():
        for i in x:
            y[i] = x[i] ** 3

    layer = ts.EmptyTin().register_kernel(cubed).register_input_field(x).register_output_field(y)
    lang64.root.lazy_grad()
    cases.assert_same_values_and_gradients(layer.finish(), lambda x: x**3, (rand(4),))


def test_an_internal_field_that_is_set_before_the_backward_pass(lang64):
    x, y, w = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def times():
        for i in x:
            y[i] = w[i] * x[i]

    layer = ts.EmptyTin().register_kernel(times).register_input_field(x).register_output_field(y)
    layer.register_internal_field(w, name="w", value=rand(4)).finish()
    given, before, after = rand(4).requires_grad_(), w.to_torch(), rand(4)
    out = layer(given)
    layer.set_internal_field("w", after)
    cases.assert_close(torch.autograd.grad(out.sum(), given), (before,))
    cases.assert_close(w.to_torch(), after)
    cases.assert_close(torch.autograd.grad(layer(given).sum(), given), (after,))


@pytest.mark.compiled_engine
def test_nothing_is_set_before_the_backward_pass_where_nothing_is_saved(lang64):
    x, y, w = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def times():
        for i in x:
            y[i] = w[i] * x[i]

    layer = (
        ts.EmptyTin(save=False, adjoint="engine")
        .register_kernel(times)
        .register_input_field(x)
        .register_output_field(y)
    )
    layer.register_internal_field(w, name="w", value=rand(4)).finish()
    out = layer(rand(4).requires_grad_())
    layer.set_internal_field("w", rand(4))
    with pytest.raises(
        ts.GradientError, match=r"internal field `w` of EmptyTin was set between a call and its backward"
    ):
        out.sum().backward()


def test_return_values_of_kernels_are_ignored(lang64):
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def counted() -> lang64.i32:
        for i in x:
            y[i] = x[i] ** 2
        return 4

    layer = ts.EmptyTin().register_kernel(counted).register_input_field(x).register_output_field(y).finish()
    cases.assert_same_values_and_gradients(layer, lambda x: x**2, (rand(4),))
