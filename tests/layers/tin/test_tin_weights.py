"""Weight fields: parameters that train, are saved, loaded and copied."""

import copy
import io
import weakref

import pytest
import safetensors.torch
import torch

import cases
import tinsmith as ts

FIELDS = weakref.WeakKeyDictionary()  # of each layer: an attribute of the layer could not be copied
OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.LBFGS]


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def make_layer(lang, n=6, on_tensors=False, weight=None):
    """Make y = w * sin(v x), with two weights, each in a field."""
    x, y = (lang.field(lang.f64, shape=n, needs_grad=True) for _ in range(2))
    v, w = lang.field(lang.f64, shape=(), needs_grad=True), lang.field(lang.f64, shape=n, needs_grad=True)

    @lang.kernel
    def wave():
        for i in x:
            y[i] = w[i] * lang.sin(v[None] * x[i])

    layer = (
        ts.EmptyTin(on_tensors=on_tensors)
        .register_kernel(wave)
        .register_input_field(x)
        .register_output_field(y)
        .register_weight_field(v, name="v", value=torch.tensor(1.3, dtype=torch.float64))
        .register_weight_field(w, name="w", value=rand(n) if weight is None else weight)
        .finish()
    )
    FIELDS[layer] = {"v": v, "w": w}
    return layer


def twin(x, v, w):
    return w * torch.sin(v * x)


def check_against_torch(layer):
    x = rand(6)
    parameters = [p.detach().clone().requires_grad_() for p in (layer.v, layer.w)]
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    c = rand(6)
    ours, theirs = layer(x1), twin(x2, *parameters)
    cases.assert_close(ours, theirs)
    mine = torch.autograd.grad(ours, (x1, layer.v, layer.w), c)
    cases.assert_close(mine, torch.autograd.grad(theirs, (x2, *parameters), c))


@pytest.mark.parametrize("on_tensors", [False, True])
def test_a_weight_is_a_parameter_with_a_gradient(lang64, on_tensors):
    layer = make_layer(lang64, on_tensors=on_tensors)
    assert [name for name, _ in layer.named_parameters()] == ["v", "w"]
    assert all(isinstance(p, torch.nn.Parameter) and p.is_leaf for p in layer.parameters())
    check_against_torch(layer)


def test_a_weight_in_a_dense_field_without_gradient_is_trained_where_that_is_asked_for(lang64):
    """As docs/guide/layouts.md says: the field says whether a weight is trained, as in Stannum."""
    x, y, w = (lang64.field(lang64.f64, 6) for _ in range(3))

    @lang64.kernel
    def times():
        for i in x:
            y[i] = w[i] * x[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
    layer.register_weight_field(w, name="w", value=rand(6)).register_kernel(times).finish()
    given = rand(6)
    assert not layer.w.requires_grad
    assert not layer(given).requires_grad
    layer.w.requires_grad_()
    cases.assert_close(torch.autograd.grad(layer(given).sum(), layer.w)[0], given)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_optimizer_updates_the_field(lang64, optimizer):
    layer = make_layer(lang64)
    theirs = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    x, target = rand(6), rand(6)
    steps = optimizer(layer.parameters(), lr=0.05), optimizer(theirs, lr=0.05)

    def closures():
        def ours():
            steps[0].zero_grad()
            loss = (layer(x) - target).square().sum()
            loss.backward()
            return loss

        def torchs():
            steps[1].zero_grad()
            loss = (twin(x, *theirs) - target).square().sum()
            loss.backward()
            return loss

        return ours, torchs

    for _ in range(3):
        for step, closure in zip(steps, closures(), strict=True):
            step.step(closure)
    for name, parameter, other in zip(("v", "w"), layer.parameters(), theirs, strict=True):
        torch.testing.assert_close(parameter.detach(), other.detach(), rtol=1e-8, atol=1e-10)
        assert torch.equal(FIELDS[layer][name].to_torch(), parameter.detach())  # whoever looks into the field sees it


def test_gradients_add_up_and_zero_grad_clears_them(lang64):
    layer, x = make_layer(lang64), rand(6)
    layer(x).sum().backward()
    once = [p.grad.clone() for p in layer.parameters()]
    layer(x).sum().backward()
    for parameter, gradient in zip(layer.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)
    layer.zero_grad()
    assert all(p.grad is None for p in layer.parameters())
    layer(x).sum().backward()
    for parameter, gradient in zip(layer.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_a_weight_without_a_gradient_stays_as_it_is(lang64):
    layer = make_layer(lang64)
    layer.v.requires_grad_(False)
    layer(rand(6)).sum().backward()
    assert layer.v.grad is None and layer.w.grad is not None


def test_state_dicts_go_through_torch_save_with_weights_only(lang64):
    first, second = make_layer(lang64), make_layer(lang64)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    assert second.load_state_dict(torch.load(file, weights_only=True)) == ([], [])
    for name in ("v", "w"):
        assert torch.equal(second.get_parameter(name), first.get_parameter(name))
        assert torch.equal(FIELDS[second][name].to_torch(), first.get_parameter(name).detach())


def test_state_dicts_go_through_safetensors(lang64, tmp_path):
    first, second = make_layer(lang64), make_layer(lang64)
    x = rand(6)
    safetensors.torch.save_model(first, str(tmp_path / "layer.safetensors"))
    safetensors.torch.load_model(second, str(tmp_path / "layer.safetensors"))
    assert torch.equal(first(x), second(x))


@pytest.mark.parametrize("on_tensors", [False, True])
def test_training_resumed_from_a_checkpoint_continues_bit_for_bit(lang64, on_tensors):
    start, x, target = rand(6), rand(6), rand(6)

    def train(layer, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            (layer(x) - target).square().mean().backward()
            optimizer.step()

    whole = make_layer(lang64, on_tensors=on_tensors, weight=start)
    train(whole, torch.optim.Adam(whole.parameters(), lr=0.1), 12)

    first = make_layer(lang64, on_tensors=on_tensors, weight=start)
    optimizer = torch.optim.Adam(first.parameters(), lr=0.1)
    train(first, optimizer, 5)
    file = io.BytesIO()
    torch.save({"layer": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = make_layer(lang64, on_tensors=on_tensors)
    again = torch.optim.Adam(second.parameters(), lr=0.1)
    second.load_state_dict(saved["layer"])
    again.load_state_dict(saved["optimizer"])
    train(second, again, 7)
    for ours, theirs in zip(second.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_a_deep_copy_has_weights_of_its_own(lang64):
    layer = make_layer(lang64)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        other.w.mul_(3.0)
    x = rand(6)
    check_against_torch(layer)
    check_against_torch(other)
    both = layer(x) + other(x)  # on the same fields, each with its own weights
    gradients = torch.autograd.grad(both.sum(), (layer.w, other.w))
    for gradient, one in zip(gradients, (layer, other), strict=True):
        torch.testing.assert_close(gradient, torch.sin(one.v * x).detach())


def test_an_averaged_model_can_be_made_of_it(lang64):
    layer = make_layer(lang64)
    averaged = torch.optim.swa_utils.AveragedModel(layer)
    before = layer.w.detach().clone()
    with torch.no_grad():
        layer.w.add_(1.0)
    averaged.update_parameters(layer)
    averaged.update_parameters(layer)
    assert torch.equal(layer.w, before + 1.0)
    cases.assert_close(averaged.module.w.detach(), before + 1.0)


def internal_layer(lang, persistent):
    x, y, t = (lang.field(lang.f64, shape=4, needs_grad=True) for _ in range(3))

    @lang.kernel
    def square():
        for i in x:
            t[i] = x[i] * x[i]
        for i in x:
            y[i] = 2.0 * t[i]

    layer = ts.EmptyTin().register_kernel(square).register_input_field(x).register_output_field(y)
    return layer.register_internal_field(t, name="t", persistent=persistent).finish()


def test_an_internal_field_belongs_into_checkpoints_unless_told_otherwise(lang64):
    layer = internal_layer(lang64, persistent=True)
    layer(rand(4))
    saved = layer.state_dict()
    assert list(saved) == ["t"]
    other = internal_layer(lang64, persistent=True)
    assert other.load_state_dict(saved) == ([], [])
    assert torch.equal(other.state_dict()["t"], saved["t"])
    with pytest.raises(RuntimeError, match=r'Missing key.*"t"'):
        other.load_state_dict({})
    with pytest.raises(RuntimeError, match="does not fit field `t`"):
        other.load_state_dict({"t": rand(3)})
    assert list(internal_layer(lang64, persistent=False).state_dict()) == []


def test_layers_whose_copies_would_share_fields_cannot_be_copied(lang64):
    with pytest.raises(ts.CheckpointError, match=r"(?s)EmptyTin cannot be copied.*fields  t.*persistent=False"):
        copy.deepcopy(internal_layer(lang64, persistent=True))
    layer = copy.deepcopy(internal_layer(lang64, persistent=False))
    x = rand(4)
    cases.assert_close(layer(x), 2 * x * x)


def test_a_whole_layer_is_not_pickled(lang64):
    with pytest.raises(ts.CheckpointError, match=r"EmptyTin cannot be pickled.*\n.*state_dict"):
        torch.save(make_layer(lang64), io.BytesIO())


@pytest.mark.parametrize("name", ["a.b", "", "device", "forward"])
def test_a_weight_needs_a_name_that_a_parameter_can_have(lang64, name):
    layer = ts.EmptyTin()
    with pytest.raises(ts.RegistrationError, match=rf"cannot be called `{name}`"):
        layer.register_weight_field(lang64.field(lang64.f64, shape=3, needs_grad=True), name=name)


def test_setting_a_weight_by_hand_sets_parameter_and_field(lang64):
    layer, value = make_layer(lang64), rand(6)
    layer.set_internal_field("w", value)
    assert torch.equal(layer.w.detach(), value)
    assert torch.equal(FIELDS[layer]["w"].to_torch(), value)
    with torch.no_grad():
        layer.w.zero_()
    layer.write_weights()
    assert not FIELDS[layer]["w"].to_torch().any()


def test_a_complex_weight(lang64):
    x, y, w = (lang64.Vector.field(2, lang64.f64, shape=3, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def times():
        for i in x:
            y[i] = lang64.Vector([x[i][0] * w[i][0] - x[i][1] * w[i][1], x[i][0] * w[i][1] + x[i][1] * w[i][0]])

    start = torch.randn(3, dtype=torch.complex128)
    layer = (
        ts.EmptyTin()
        .register_kernel(times)
        .register_input_field(x, complex_dtype=True)
        .register_output_field(y, complex_dtype=True)
        .register_weight_field(w, name="w", value=start, complex_dtype=True)
        .finish()
    )
    given, c = torch.randn(3, dtype=torch.complex128, requires_grad=True), torch.randn(3, dtype=torch.complex128)
    theirs = start.clone().requires_grad_()
    torch.testing.assert_close(layer(given), given * theirs)
    mine = torch.autograd.grad(layer(given), (given, layer.w), c)
    torch.testing.assert_close(mine, torch.autograd.grad(given * theirs, (given, theirs), c))
