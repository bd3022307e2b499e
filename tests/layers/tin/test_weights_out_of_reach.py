"""Weights that a process does not have: on the meta device, without storage, or a shard of them, as FSDP leaves it."""

import copy

import pytest
import torch

import cases
import tinsmith as ts

N = 4
WAYS = {"generated": {}, "the engine's": {"adjoint": "engine"}, "on tensors": {"on_tensors": True}}
NAMES = [pytest.param(way, marks=pytest.mark.compiled_engine if way == "the engine's" else ()) for way in WAYS]


def scaled(lang, value=None, way="generated"):
    """Make y = w x, and return it with the field of w."""
    x, y, w = (lang.field(lang.f32, N, needs_grad=True) for _ in range(3))
    w.fill(2.0)

    @lang.kernel
    def scale():
        for i in x:
            y[i] = w[i] * x[i]

    layer = ts.EmptyTin(**WAYS[way]).register_input_field(x).register_output_field(y).register_kernel(scale)
    return layer.register_weight_field(w, name="w", value=value).finish(), w


def no_storage(parameter):
    """Return what FSDP without `use_orig_params` leaves between calls: a view of a storage that it freed."""
    view = torch.cat([torch.ones(N), parameter.detach()])[N:]
    view.untyped_storage().resize_(0)
    return view


OUT_OF_REACH = {
    "an empty shard": lambda parameter: torch.empty(0),
    "a part": lambda parameter: parameter.detach()[:2].clone(),
    "flat, with others": lambda parameter: torch.zeros(2 * N),
    "no storage": no_storage,
}


@pytest.mark.parametrize("way", NAMES)
def test_made_on_the_meta_device(lang, way):
    with torch.device("meta"):
        layer, field = scaled(lang, way=way)
        torch.nn.Linear(2, 2)
    assert layer.w.is_meta and layer.w.shape == (N,) and layer.w.requires_grad
    layer.reset_parameters()  # as in torch's own layers: nothing
    assert layer.w.is_meta
    layer.to_empty(device="cpu").reset_parameters()
    assert layer.w.tolist() == [2.0] * N
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    layer(torch.ones(N)).sum().backward()
    optimizer.step()
    assert layer.w.tolist() == field.to_torch().tolist() == [1.0] * N
    layer.reset_parameters()
    assert layer.w.tolist() == field.to_torch().tolist() == [2.0] * N


def test_a_value_is_given_on_the_meta_device(lang):
    start = torch.arange(4.0)
    with torch.device("meta"):
        layer, field = scaled(lang, value=start)
        lost, _ = scaled(lang, value=torch.rand(N))
        with pytest.raises(ts.ShapeError, match="does not fit field `w`"):
            scaled(lang, value=torch.rand(N + 1))
    layer.to_empty(device="cpu").reset_parameters()
    assert torch.equal(layer.w.detach(), start)
    lost.to_empty(device="cpu")
    with pytest.warns(UserWarning, match=r"(?s)the `value` of weight `w` of EmptyTin was on the meta.*device='cpu'"):
        lost.reset_parameters()
    assert lost.w.tolist() == [2.0] * N


def test_a_value_of_an_internal_field_is_not_on_the_meta_device(lang):
    layer = ts.EmptyTin()
    with pytest.raises(ts.DeviceError, match=r"(?s)field `t` of EmptyTin cannot be filled.*meta.*device='cpu'"):
        layer.register_internal_field(lang.field(lang.f32, N), name="t", value=torch.rand(N, device="meta"))


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_after_the_meta_device(lang, assign):
    with torch.device("meta"):
        layer, field = scaled(lang)
    copied = copy.deepcopy(layer)
    layer = layer if assign else layer.to_empty(device="cpu")
    assert layer.load_state_dict({}, strict=False).missing_keys == ["w"]
    layer.load_state_dict({"w": torch.arange(4.0)}, assign=assign)
    assert field.to_torch().tolist() == layer(torch.ones(N)).tolist() == [0.0, 1.0, 2.0, 3.0]
    assert copied.w.is_meta
    copied.to_empty(device="cpu").reset_parameters()
    assert copied.w.tolist() == [2.0] * N


@pytest.mark.parametrize("shard", OUT_OF_REACH)
def test_hooks_ignore_weights_without_memory(lang, shard):
    """A hook may run on one process alone, so it neither fails nor asks the others; the next call has the weight."""
    layer, field = scaled(lang)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    whole = torch.arange(4.0)
    layer.w.data = OUT_OF_REACH[shard](layer.w)
    optimizer.step()
    layer.load_state_dict({}, strict=False)
    assert field.to_torch().tolist() == [2.0] * N
    words = r"this process has only a shard of the weight `w` of EmptyTin(?s:.*)summon_full_params"
    for act in (layer.write_weights, layer.reset_parameters, lambda: layer.set_internal_field("w", whole)):
        with pytest.raises(ts.DeviceError, match=words):
            act()
    assert field.to_torch().tolist() == [2.0] * N
    layer.w.data = whole
    assert layer(torch.ones(N)).tolist() == field.to_torch().tolist() == whole.tolist()


def test_weights_on_the_meta_device_are_not_set(lang):
    with torch.device("meta"):
        layer, _ = scaled(lang)
    for act in (layer.write_weights, lambda: layer.set_internal_field("w", torch.ones(N))):
        with pytest.raises(ts.DeviceError, match=r"the weight `w` of EmptyTin is on the meta device(?s:.*)to_empty"):
            act()


def test_fake_tensors_fill_no_field(lang):
    layer, _ = scaled(lang)
    with torch._subclasses.FakeTensorMode():
        fake = torch.ones(N)
    with pytest.raises(ts.DeviceError, match=r"(?s)field `w` of EmptyTin cannot be filled.*FakeTensorMode"):
        layer.set_internal_field("w", fake)


@pytest.mark.parametrize("way", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_results_are_rounded_once(lang, way, dtype):
    """If all tensors of a call are, as in a model in half precision; otherwise they have the fields' dtype."""
    value = torch.tensor([0.1, 0.2, 0.3, 0.4])
    layer, _ = scaled(lang, value=value, way=way)
    x, c = torch.tensor([0.7, 0.8, 0.9, 1.1]).to(dtype), torch.tensor([1.0, 1.1, 1.2, 1.3]).to(dtype)
    assert layer(x).dtype is torch.float32
    layer.to(dtype)
    assert layer(x.float()).dtype is torch.float32
    leaf = x.clone().requires_grad_()
    y = layer(leaf)
    cases.assert_close(y, (x.float() * layer.w.detach().float()).to(dtype))
    gradient, slope = torch.autograd.grad(y, (leaf, layer.w), c)
    cases.assert_close(gradient, (c.float() * layer.w.detach().float()).to(dtype))
    cases.assert_close(slope, (c.float() * x.float()).to(dtype))


def test_names_of_saved_fields_are_attributes(lang):
    """Functions of `torch.distributed.checkpoint.state_dict` look each key up as an attribute."""
    x, y, t = (lang.field(lang.f32, N) for _ in range(3))

    @lang.kernel
    def move():
        for i in x:
            t[i] += x[i]
            y[i] = t[i]

    layer = ts.EmptyTin().register_kernel(move).register_input_field(x).register_output_field(y)
    layer.register_internal_field(t, clear=False).finish()
    state_dict = pytest.importorskip("torch.distributed.checkpoint.state_dict")
    saved = state_dict.get_model_state_dict(torch.nn.Sequential(layer))
    assert list(saved) == ["0.0"] and getattr(layer, "0") is t
