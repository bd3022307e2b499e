"""Network and NetworkWithInputEncoding: against their twin and torch's layers; derivatives; keeping; refusals."""

from __future__ import annotations

import copy
import io
import math
import pickle

import pytest
import torch

from tinsmith import ArgumentError, ConfigError, DtypeError, ShapeError, reference
from tinsmith.nn import Network, NetworkWithInputEncoding

ACTIVATIONS = [
    "None",
    "ReLU",
    "LeakyReLU",
    "SiLU",
    "Exponential",
    "Sine",
    "Sigmoid",
    "Squareplus",
    "Softplus",
    "Tanh",
]
SHAPES = [(3, 16, 2, 1), (2, 5, 1, 3), (7, 4, 4, 2), (33, 20, 3, 17)]  # dims in, neurons, hidden layers, dims out


def config(neurons=16, hidden=2, activation="ReLU", output="None", otype="FullyFusedMLP"):
    options = {"n_neurons": neurons, "n_hidden_layers": hidden, "activation": activation}
    return {"otype": otype, "output_activation": output} | options


def calm(module):
    """Draw weights that keep exponentials of exponentials within range."""
    with torch.no_grad():
        module.params.mul_(0.3)
    return module


def assert_agree(y, expected, leaves, twins):
    """Assert that values and gradients agree to 1e-9, for a random cotangent."""
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    cotangent = torch.randn_like(y)
    gradients = torch.autograd.grad(y, leaves, cotangent)
    right = torch.autograd.grad(expected, twins, cotangent)
    torch.testing.assert_close(gradients, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_network_agrees_with_its_twin(activation, shape):
    n_in, neurons, hidden, n_out = shape
    output = ACTIVATIONS[(ACTIVATIONS.index(activation) + 3) % len(ACTIVATIONS)]
    options = config(neurons, hidden, activation, output)
    network = calm(Network(n_in, n_out, options, dtype=torch.float64, alignment=1))
    x = torch.randn(6, n_in, dtype=torch.float64, requires_grad=True)
    params = network.params.detach().clone().requires_grad_()
    widths = (n_in, *[neurons] * hidden, n_out)
    twin = reference.mlp(x, params, widths, activation, output)
    assert_agree(network(x), twin, (x, network.params), (x, params))


def test_network_agrees_with_torchs_layers():
    options = config(32, 3, "ReLU", "Sigmoid", "CutlassMLP")
    network = Network(3, 2, options, dtype=torch.float64, alignment=1)
    layers = [torch.nn.Linear(i, o, bias=False) for o, i in network.matrix_shapes]
    layers = [part for layer in layers for part in (layer, torch.nn.ReLU())]
    theirs = torch.nn.Sequential(*layers[:-1], torch.nn.Sigmoid()).double()
    torch.nn.utils.vector_to_parameters(network.params.detach(), theirs.parameters())
    x = torch.randn(20, 3, dtype=torch.float64, requires_grad=True)
    y, expected = network(x), theirs(x)
    cotangent = torch.randn_like(y)
    flat = torch.cat([g.flatten() for g in torch.autograd.grad(expected, [*theirs.parameters()], cotangent)])
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    (gradient,) = torch.autograd.grad(y, network.params, cotangent)
    torch.testing.assert_close(gradient, flat, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_are_right_for_large_inputs(activation):
    """No overflow on the way to a finite value, and none in the slopes."""
    network = Network(1, 1, {"otype": "CutlassMLP", "n_hidden_layers": 0, "output_activation": activation})
    torch.nn.init.ones_(network.params)
    x = torch.tensor([[-1e3], [-40.0], [-1.0], [1.0], [40.0]], requires_grad=True)
    y = network(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x, allow_unused=True) if slope.requires_grad else (slope,)
    assert y.isfinite().all() and slope.isfinite().all()
    assert bend is None or bend.isfinite().all()


def test_no_hidden_layer_is_one_matrix():
    network = Network(4, 3, config(hidden=0, output="Tanh", otype="MLP"), dtype=torch.float64, alignment=1)
    x = torch.randn(5, 4, dtype=torch.float64)
    assert network.matrix_shapes == ((3, 4),)
    torch.testing.assert_close(network(x), (x @ network.params.view(3, 4).T).tanh())


GRID = {"otype": "HashGrid", "n_levels": 3, "base_resolution": 3, "per_level_scale": 1.6, "log2_hashmap_size": 6}


def grid_twin(x, table):
    levels = reference.grid_levels(2, n_levels=3, base_resolution=3, per_level_scale=1.6, log2_hashmap_size=6)
    return reference.grid(x, table.view(-1, 2), levels)


ENCODINGS = [
    (None, lambda x, table: reference.one_blob(x, 16)),
    ({"otype": "Identity", "scale": 2.0}, lambda x, table: 2 * x),
    ({"otype": "Frequency", "n_frequencies": 3}, lambda x, table: reference.frequency(x, 3)),
    (GRID, grid_twin),
]


@pytest.mark.parametrize(("encoding", "twin"), ENCODINGS)
def test_network_with_input_encoding_agrees_with_its_twin(engine, encoding, twin):
    options = config(8, 2, "Tanh")
    model = NetworkWithInputEncoding(2, 3, encoding, options, dtype=torch.float64, engine=engine, alignment=1)
    x = torch.rand(9, 2, dtype=torch.float64, requires_grad=True)
    params = model.params.detach().clone().requires_grad_()
    count = sum(rows * columns for rows, columns in model.matrix_shapes)
    features = twin(x, params[count:])
    expected = reference.mlp(features, params[:count], (features.shape[1], 8, 8, 3), "Tanh")
    assert_agree(model(x), expected, (x, model.params), (x, params))


def test_an_encoding_of_nothing_leaves_what_the_activations_make_of_it():
    model = NetworkWithInputEncoding(2, 3, {"otype": "Empty"}, config(4, 1, output="Exponential"))
    assert torch.equal(model(torch.rand(5, 2)), torch.ones(5, 3))


def test_inputs_may_have_any_dims_and_dtype():
    network = Network(3, 2, config())
    x = torch.randint(0, 5, (2, 4, 3))
    assert network(x).shape == (2, 4, 2) and network(x).dtype == torch.float32
    torch.testing.assert_close(network(x)[1, 2], network(x[1, 2].double()))
    assert network(x[:0]).shape == (0, 4, 2)
    model = NetworkWithInputEncoding(3, 2, {"otype": "Identity"}, config())
    assert model(x).shape == (2, 4, 2) and model(x[0, 0]).shape == (2,) and model(x[:0]).shape == (0, 4, 2)


def test_double_changes_what_is_computed_in():
    network = Network(3, 2, config()).double()
    assert network(torch.rand(4, 3)).dtype == torch.float64


def called(module):
    """Return the module as a function of its input and parameters."""
    return lambda x, params: torch.func.functional_call(module, {"params": params}, (x,))


@pytest.mark.parametrize("alignment", [1, 16])
@pytest.mark.parametrize("activation", ["Tanh", "SiLU", "Softplus", "Squareplus", "Sine"])
def test_second_derivatives(activation, alignment):
    network = Network(2, 2, config(4, 2, activation), dtype=torch.float64, alignment=alignment)
    x = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    params = network.params.detach().clone().requires_grad_()
    call = called(network)
    assert torch.autograd.gradcheck(call, (x, params), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (x, params), fast_mode=True)


def test_second_derivatives_through_a_grid(engine):
    grid = {**GRID, "interpolation": "Smoothstep"}
    model = NetworkWithInputEncoding(2, 1, grid, config(4, 1, "Tanh"), dtype=torch.float64, engine=engine)
    torch.nn.init.uniform_(model.params, -1, 1)
    x = torch.rand(3, 2, dtype=torch.float64, requires_grad=True)
    params = model.params.detach().clone().requires_grad_()
    call = called(model)
    # Additions of several threads into one element may round differently from run to run: nondet_tol.
    assert torch.autograd.gradgradcheck(call, (x, params), fast_mode=True, atol=1e-4, nondet_tol=1e-9)


@pytest.mark.parametrize("alignment", [1, 16])
def test_compiled_in_one_graph(alignment):
    model = NetworkWithInputEncoding(2, 1, GRID, config(8, 2, "Softplus"), alignment=alignment)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.rand(7, 2, requires_grad=True)
    torch.testing.assert_close(compiled(x), model(x))
    gradients = torch.autograd.grad(compiled(x).sum(), (x, model.params))
    torch.testing.assert_close(gradients, torch.autograd.grad(model(x).sum(), (x, model.params)))


@pytest.mark.parametrize("alignment", [1, 16])
def test_kept_and_copied(alignment):
    model = NetworkWithInputEncoding(2, 1, GRID, config(), seed=1, alignment=alignment)
    x, other = torch.rand(5, 2), NetworkWithInputEncoding(2, 1, GRID, config(), seed=2, alignment=alignment)
    assert list(model.state_dict()) == ["params"] and [name for name, _ in model.named_parameters()] == ["params"]
    assert not torch.equal(model(x), other(x))
    other.load_state_dict(model.state_dict())
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    copies = [other, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(saved, weights_only=False)]
    for made in copies:
        assert torch.equal(made(x), model(x))


def test_seeds_make_weights():
    one, same, other = (Network(3, 2, config(), seed=seed) for seed in (5, 5, 6))
    assert torch.equal(one.params, same.params) and not torch.equal(one.params, other.params)
    exact = Network(3, 2, config(), seed=5, dtype=torch.float64)
    assert torch.equal(exact.params.float(), one.params)
    model = NetworkWithInputEncoding(2, 1, GRID, config(), seed=5)
    assert model.params[-10:].abs().max() <= 1e-4 < model.params[:10].abs().max()


@pytest.mark.parametrize(
    ("activation", "bounds"),
    [
        ("ReLU", [math.sqrt(6 / 80), math.sqrt(6 / 128), math.sqrt(6 / 80)]),
        ("Sine", [30 / 16, *[math.sqrt(6 / 64)] * 2]),
    ],
)
def test_weights_begin_as_in_tiny_cuda_nn(activation, bounds):
    network = Network(2, 1, config(64, 2, activation))
    sizes = [rows * columns for rows, columns in network.matrix_shapes]
    for weights, bound in zip(network.params.split(sizes), bounds, strict=True):
        assert 0.9 * bound < weights.abs().max() <= bound
        assert abs(weights.mean()) < 0.25 * bound


def test_made_on_torchs_default_device():
    with torch.device("meta"):
        modules = [Network(3, 2), NetworkWithInputEncoding(2, 1, GRID, config())]
    tensors = [modules[0].constants, *(module.params for module in modules)]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert modules[1].encoder.scales.device.type == "cpu"


def test_the_repr_of_a_network():
    shown = repr(Network(3, 2, config()))
    assert shown.startswith("Network(3, 2, otype='FullyFusedMLP', activation='ReLU'") and "n_params=768" in shown
    assert "encoding='Grid'" in repr(NetworkWithInputEncoding(2, 1, GRID, config()))


REFUSED = [
    (lambda: Network(2, 2)([1.0, 2.0]), ArgumentError, "`x` of Network must be a tensor\n  got  list"),
    (lambda: Network(0, 2), ArgumentError, "`n_input_dims` of Network must be a positive integer\n  got  0"),
    (
        lambda: NetworkWithInputEncoding(2, True),
        ArgumentError,
        "`n_output_dims` of NetworkWithInputEncoding must be a positive integer",
    ),
    (lambda: Network(3, 2, alignment=1.5), ArgumentError, "`alignment` of Network must be a positive integer"),
    (lambda: Network(3, 2, dtype=torch.int32), DtypeError, "expected  torch.float32, torch.float64"),
    (lambda: Network(3, 2)(torch.rand(1, 4)), ShapeError, "x  [..., 3] = (1, 4)      <- the last should be 3"),
    (lambda: Network(3, 2)(torch.tensor(1.0)), ShapeError, "make the Network with as many n_input_dims"),
    (
        lambda: NetworkWithInputEncoding(3, 2)(torch.rand(2)),
        ShapeError,
        "`x` of NetworkWithInputEncoding has the wrong shape",
    ),
    (
        lambda: Network(1, 1)(torch.ones(1, 1, dtype=torch.complex64)),
        DtypeError,
        "`x` of Network must be real\n  got       torch.complex64",
    ),
    (lambda: Network(1, 1, config(hidden=0)), ConfigError, "`network.n_hidden_layers` of FullyFusedMLP"),
    (lambda: Network(1, 1, {"n_neuron": 3}), ConfigError, "Did you mean `n_neurons`?"),
    (lambda: NetworkWithInputEncoding(1, 1, {"otype": "Frequenzy"}), ConfigError, "Did you mean `Frequency`?"),
]


@pytest.mark.parametrize(("make", "kind", "words"), REFUSED)
def test_refused(make, kind, words):
    with pytest.raises(kind) as caught:
        make()
    assert words in str(caught.value)
