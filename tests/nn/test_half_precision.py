"""Modules in half precision: computed in float32 and rounded once, at the end, as ops do."""

import copy

import pytest
import torch
from torch.func import functional_call, vmap

import tinsmith as ts

HALVES = (torch.float16, torch.bfloat16)
NETWORK = {"n_neurons": 8, "n_hidden_layers": 1}
GRID = {"otype": "DenseGrid", "n_levels": 2, "base_resolution": 4, "per_level_scale": 1.5}
WAVES = {"otype": "Frequency", "n_frequencies": 2}
PRODUCT = {"otype": "Composite", "reduction": "Product", "nested": [{"n_dims_to_encode": 1, **WAVES}, WAVES]}
JOINED = {"otype": "Composite", "nested": [{"n_dims_to_encode": 2, **GRID}, {"otype": "OneBlob", "n_bins": 4}]}
HARMONICS = {"otype": "SphericalHarmonics", "degree": 3}
SMOOTH = NETWORK | {"activation": "Squareplus", "output_activation": "Softplus"}

# What makes each, and how many inputs it has.
MODULES = {
    "Network": (lambda engine: ts.nn.Network(3, 4, SMOOTH), 3),
    "with a grid": (lambda engine: ts.nn.NetworkWithInputEncoding(3, 4, GRID, NETWORK, engine=engine), 3),
    "grid": (lambda engine: ts.nn.Encoding(3, GRID, engine=engine), 3),
    "product": (lambda engine: ts.nn.Encoding(2, PRODUCT, engine=engine), 2),
    "joined": (lambda engine: ts.nn.Encoding(3, JOINED, engine=engine), 3),
    "harmonics": (lambda engine: ts.nn.Encoding(3, HARMONICS, engine=engine), 3),
    "identity": (lambda engine: ts.nn.Encoding(3, {"otype": "Identity", "scale": 3.0, "offset": 1.0}), 3),
    "array": (lambda engine: ts.nn.NetworkArray((4,), 3, 4, NETWORK, engine=engine), 3),
    "array with grids": (lambda engine: ts.nn.NetworkArray((2, 2), 3, 4, NETWORK, GRID, engine=engine), 3),
    "matrices": (lambda engine: ts.nn.NetworkArray((4,), 3, 4, SMOOTH, WAVES, engine=engine, way="matrices"), 3),
    "Squareplus": (lambda engine: ts.nn.Activation("Squareplus"), 3),
}
EACH_MODULE = pytest.mark.parametrize("name", MODULES)
pytestmark = pytest.mark.thinned(4)


def made(name, engine, half):
    """Make a module of half precision, the same in float32, and an input."""
    make, width = MODULES[name]
    module = make(engine)
    with torch.no_grad():
        for one in module.parameters():
            one.add_(0.3 * torch.randn_like(one))
    module = module.to(half)
    lead = getattr(module, "grid_shape", (4,))
    return module, copy.deepcopy(module).float(), torch.rand(*lead, 5, width).to(half)


def compute_gradients(y, x, module):
    return torch.autograd.grad(y.float().sin().sum(), (x, *module.parameters()), allow_unused=True)


@pytest.mark.parametrize("half", HALVES)
@EACH_MODULE
def test_rounded_once(engine, name, half):
    module, single, x = made(name, engine, half)
    mine, theirs = x.clone().requires_grad_(), x.float().requires_grad_()
    y, want = module(mine), single(theirs).to(half)
    assert y.dtype == half
    assert torch.equal(y, want)
    for one, other in zip(compute_gradients(y, mine, module), compute_gradients(want, theirs, single), strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert one.dtype == half
            torch.testing.assert_close(one, other.to(half))


@pytest.mark.parametrize("half", HALVES)
@EACH_MODULE
def test_under_autocast(engine, name, half):
    module, single, x = made(name, engine, half)
    want = single(x.float())
    with torch.autocast("cpu", half):
        for one in (module, single):
            for given in (x, x.float()):
                torch.testing.assert_close(one(given).float(), want, rtol=0.05, atol=0.05)
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(module(x), want.to(half))


@pytest.mark.parametrize("way", ["vmap", "compiled", "state"])
@EACH_MODULE
def test_other_ways_to_call_it(engine, name, way):
    module, single, x = made(name, engine, torch.bfloat16)
    want = module(x)
    if way == "vmap":
        params = {key: torch.stack([one, one]) for key, one in module.named_parameters()}
        one = vmap(lambda params: functional_call(module, params, (x,)))(params)[1] if params else want
    elif way == "compiled":
        one = torch.compile(module, backend="aot_eager", fullgraph=True)(x)
    else:
        other = MODULES[name][0](engine)
        other.load_state_dict(module.state_dict(), assign=True)
        one = other(x)
    assert one.dtype == torch.bfloat16
    torch.testing.assert_close(one, want, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("way", ["fused", "matrices"])
def test_losses_and_scattered_points_of_an_array(engine, way):
    half = ts.nn.NetworkArray((3,), 2, 3, NETWORK, engine=engine, way=way, dtype=torch.bfloat16)
    single = copy.deepcopy(half).float()
    x, target = torch.rand(3, 5, 2).bfloat16(), torch.rand(3, 5, 3).bfloat16()
    for array in (half, single):
        losses = array.loss(x, target)
        losses.sum().backward()
        torch.testing.assert_close(losses.float(), single.loss(x.float(), target.float()), rtol=0.01, atol=0)
        assert losses.dtype == array.params.grad.dtype == array.params.dtype
    points, cells = torch.rand(7, 2).bfloat16(), torch.arange(7) % 3
    assert torch.equal(half.route_points(points, cells), single.route_points(points.float(), cells).bfloat16())
    some = torch.tensor([0, 2])
    assert torch.equal(half.part(some)(x[some]), half(x[some], some))


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("otype", ["L1", "L2", "RelativeL2", "RelativeL2Luminance", "MAPE", "CrossEntropy", "Variance"])
def test_losses(otype, half):
    loss = ts.nn.Loss(otype)
    p, t = ((torch.rand(50, 3) + 0.1).to(half) for _ in range(2))
    want = loss(p.float(), t.float())
    assert torch.equal(loss(p, t), want.to(half))
    with torch.autocast("cpu", half):
        assert torch.equal(loss(p, t), want)
