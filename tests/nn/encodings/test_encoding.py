"""The Encoding module: every otype against its twin, derivatives of all kinds, what is kept and what is refused."""

from __future__ import annotations

import copy
import functools
import io
import pickle

import pytest
import torch

from tinsmith import ArgumentError, ConfigError, DtypeError, ShapeError, reference
from tinsmith.nn.encodings import Encoding

pytestmark = pytest.mark.thinned(4)

GRID = {"otype": "HashGrid", "n_levels": 4, "base_resolution": 3, "per_level_scale": 1.6, "log2_hashmap_size": 6}
NRC = {"otype": "OneBlobFrequency", "n_frequencies": 3}


def grid_twin(x, params, *, interpolation="Linear", n_features=2, **options):
    levels = reference.grid_levels(x.shape[-1], **options)
    return reference.grid(x, params.view(-1, n_features), levels, interpolation)


def grid_of(**options):
    return functools.partial(
        grid_twin, n_levels=4, base_resolution=3, per_level_scale=1.6, **({"log2_hashmap_size": 6} | options)
    )


def nrc_twin(x, _):
    parts = [reference.triangle_wave(x[:, :3], 3), reference.one_blob(x[:, 3:8], 4), x[:, 8:]]
    return torch.cat(parts, -1)


def joined_twin(x, params):
    """Encode with a grid of the first two dims, frequencies of the third, and another grid of the last two."""
    count = len(params) // 2
    first, last = params[:count], params[count:]
    parts = [grid_of()(x[:, :2], first), reference.frequency(x[:, 2:3], 2), grid_of()(x[:, 3:], last)]
    return torch.cat(parts, -1)


JOINED = {
    "otype": "Composite",
    "nested": [GRID | {"n_dims_to_encode": 2}, {"otype": "Frequency", "n_frequencies": 2, "n_dims_to_encode": 1}, GRID],
}


def reduced(reduction):
    waves = {"n_dims_to_encode": 2, "n_frequencies": 4}
    nested = [{"otype": "Frequency"} | waves, {"otype": "TriangleWave", "n_frequencies": 8}]
    return {"otype": "Composite", "reduction": reduction, "nested": [waves | nested[0], nested[1]]}


def both(x):
    return reference.frequency(x[:, :2], 4), reference.triangle_wave(x[:, 2:], 8)


# Configuration, input dims, and the twin of (x, params).
ROWS = {
    "default": ({}, 2, lambda x, _: reference.one_blob(x, 16)),
    "Identity": ({"otype": "identity", "scale": 2.0, "offset": -0.5}, 3, lambda x, _: 2 * x - 0.5),
    "Frequency": ({"otype": "Frequency", "n_frequencies": 5}, 3, lambda x, _: reference.frequency(x, 5)),
    "TriangleWave": ({"otype": "TriangleWave"}, 2, lambda x, _: reference.triangle_wave(x, 12)),
    "OneBlob": ({"otype": "OneBlob", "n_bins": 4}, 2, lambda x, _: reference.one_blob(x, 4)),
    "SphericalHarmonics": ({"otype": "SphericalHarmonics"}, 3, lambda x, _: reference.spherical_harmonics(x, 4)),
    "NRC": (NRC, 10, nrc_twin),
    "HashGrid": (GRID, 3, grid_of()),
    "Smoothstep": (GRID | {"interpolation": "Smoothstep"}, 2, grid_of(interpolation="Smoothstep")),
    "Nearest": (GRID | {"interpolation": "Nearest"}, 2, grid_of(interpolation="Nearest")),
    "TiledGrid": ({k: v for k, v in GRID.items() if k[0] != "l"} | {"otype": "TiledGrid"}, 2, grid_of(kind="Tiled")),
    "DenseGrid": ({k: v for k, v in GRID.items() if k[0] != "l"} | {"otype": "DenseGrid"}, 2, grid_of(kind="Dense")),
    "features": (
        {k: v for k, v in GRID.items() if k != "n_levels"} | {"n_features": 16, "n_features_per_level": 4},
        2,
        grid_of(n_features=4),
    ),
    "joined": (JOINED, 5, joined_twin),
    "sum": (reduced("Sum"), 4, lambda x, _: sum(both(x))),
    "product": (reduced("Product"), 4, lambda x, _: both(x)[0] * both(x)[1]),
}


def made(engine, row, dtype=torch.float64):
    """Make an Encoding with parameters of visible size, positions, and its twin."""
    config, n_dims, twin = ROWS[row]
    encoding = Encoding(n_dims, config, dtype=dtype, engine=engine)
    with torch.no_grad():
        encoding.params.normal_()
    return encoding, torch.rand(9, n_dims, dtype=dtype), twin


@pytest.mark.parametrize("row", ROWS)
def test_values_and_gradients_agree_with_the_twin(engine, row):
    encoding, x, twin = made(engine, row)
    x.requires_grad_()
    y, expected = encoding(x), twin(x, encoding.params)
    assert y.shape == (9, encoding.n_output_dims)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-11)
    leaves = [x, encoding.params] if len(encoding.params) else [x]
    weight = torch.randn_like(y)
    ours, twins = torch.autograd.grad(y, leaves, weight), torch.autograd.grad(expected, leaves, weight)
    torch.testing.assert_close(ours, twins, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("row", ROWS)
def test_float32_agrees_with_the_twin_in_float64(engine, row):
    encoding, x, twin = made(engine, row, torch.float32)
    y = encoding(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), twin(x.double(), encoding.params.double()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("row", ["HashGrid", "Frequency", "TriangleWave", "OneBlob"])
def test_nan_inputs_give_nan_outputs(engine, row):
    config, n_dims, _ = ROWS[row]
    x = torch.rand(3, n_dims)
    x[1] = torch.nan
    assert Encoding(n_dims, config, engine=engine)(x).isnan().all(1).tolist() == [False, True, False]


def test_empty_gives_nothing(engine):
    y = Encoding(3, {"otype": "Empty"}, engine=engine)(torch.rand(5, 3, requires_grad=True))
    assert y.shape == (5, 0)
    y.sum().backward()


def test_identity_gives_memory_of_its_own(engine):
    x = torch.rand(4, 2)
    y = Encoding(2, {"otype": "Identity"}, engine=engine)(x)
    y.zero_()
    assert x.any()


# Derivatives ----------------------------------------------------------------------------------
@pytest.fixture
def smooth(engine):
    """Return a grid as a function of positions and parameters, its twin, and both arguments."""
    encoding, x, twin = made(engine, "Smoothstep")
    params = encoding.params.detach().clone()

    def ours(x, params):
        return torch.func.functional_call(encoding, {"params": params}, (x,))

    return ours, twin, x[:4], params


def test_first_and_second_derivatives_pass_gradcheck(smooth):
    ours, _, x, params = smooth
    given = x[:2].requires_grad_(), params.requires_grad_()
    assert torch.autograd.gradcheck(ours, given)
    assert torch.autograd.gradgradcheck(ours, given)


def test_a_loss_of_the_slope_has_the_twin_s_gradients(smooth):
    """As an eikonal loss: of the gradient in the positions, differentiated by the parameters."""
    ours, twin, x, params = smooth
    x, params = x.requires_grad_(), params.requires_grad_()

    def gradients(function):
        (slope,) = torch.autograd.grad(function(x, params).sin().sum(), x, create_graph=True)
        return torch.autograd.grad((slope.norm(dim=-1) - 1).square().sum(), [x, params])

    torch.testing.assert_close(gradients(ours), gradients(twin), rtol=1e-9, atol=1e-9)


@pytest.mark.costly
@pytest.mark.parametrize(("dims", "n_features"), [(4, 2), (5, 1)])
def test_a_loss_of_the_slope_in_many_dims(engine, dims, n_features):
    """The kernels have hundreds of branches, one for each corner."""
    options = {"n_levels": 2, "log2_hashmap_size": 6, "base_resolution": 2, "per_level_scale": 2.0}
    config = {"otype": "HashGrid", "n_features_per_level": n_features, "interpolation": "Smoothstep"} | options
    encoding = Encoding(dims, config, dtype=torch.float64, engine=engine)
    torch.nn.init.uniform_(encoding.params, -1, 1)
    params = encoding.params.detach().clone().requires_grad_()
    levels = reference.grid_levels(dims, **options)
    x = torch.rand(7, dims, dtype=torch.float64, requires_grad=True)

    def gradients(y, *inputs):
        (slope,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), inputs)

    twin = reference.grid(x, params.view(-1, n_features), levels, "Smoothstep")
    ours = gradients(encoding(x), x, encoding.params)
    torch.testing.assert_close(ours, gradients(twin, x, params), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own forward mode uses it
def test_torch_func_agrees_with_the_twin(smooth):
    ours, twin, x, params = smooth
    many = torch.stack([params, 2 * params, -params])
    transforms = {
        "jvp": lambda f: torch.func.jvp(f, (x, params), (x.cos(), params.sin()))[1],
        "hessian": lambda f: torch.func.hessian(lambda x: f(x, params).sin().sum())(x),
        "vmap over parameters": lambda f: torch.vmap(f, (None, 0))(x, many),
        "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda p: f(x, p).sin().sum()))(many),
        "vmap over positions": lambda f: torch.vmap(torch.func.jacrev(lambda one: f(one[None], params)[0]))(x),
    }
    for name, transform in transforms.items():
        close = functools.partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
        close(transform(ours), transform(twin), msg=lambda words, name=name: f"{name}: {words}")


def test_batches_of_cotangents(smooth):
    ours, twin, x, params = smooth
    x, params = x.requires_grad_(), params.requires_grad_()
    weights = torch.randn(3, 4, 8, dtype=torch.float64)
    batch = torch.autograd.grad(ours(x, params), [x, params], weights, is_grads_batched=True)
    for i, weight in enumerate(weights):
        each = torch.autograd.grad(twin(x, params), [x, params], weight)
        torch.testing.assert_close([gradient[i] for gradient in batch], list(each), rtol=1e-9, atol=1e-10)


def test_derivatives_of_batches_of_cotangents(smooth):
    ours, twin, x, params = smooth
    x, params = x.requires_grad_(), params.requires_grad_()
    weights = torch.randn(3, 4, 8, dtype=torch.float64)
    batch = torch.autograd.grad(ours(x, params), [x, params], weights, is_grads_batched=True, create_graph=True)
    actual = torch.autograd.grad(sum(one.sin().sum() for one in batch), [x, params])
    each = [torch.autograd.grad(twin(x, params), [x, params], weight, create_graph=True) for weight in weights]
    wanted = torch.autograd.grad(sum(one.sin().sum() for pair in each for one in pair), [x, params])
    torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("row", ["HashGrid", "Frequency"])
def test_only_requested_gradients_are_computed(engine, row):
    encoding, x, _ = made(engine, row)
    encoding(x.requires_grad_()).sum().backward()
    alone = x.grad
    encoding.requires_grad_(False)
    (again,) = torch.autograd.grad(encoding(x).sum(), x)
    torch.testing.assert_close(again, alone)
    assert not encoding(x.detach()).requires_grad


@pytest.mark.parametrize("row", ["HashGrid", "Frequency", "joined"])
def test_compiled_it_is_the_same(engine, row):
    encoding, x, _ = made(engine, row)
    x.requires_grad_()
    weight = torch.randn(9, encoding.n_output_dims, dtype=torch.float64)
    ours = torch.autograd.grad(encoding(x), x, weight)
    y = torch.compile(encoding, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, encoding(x))
    torch.testing.assert_close(torch.autograd.grad(y, x, weight), ours)


# As a module ----------------------------------------------------------------------------------
@pytest.mark.parametrize("lead", [(), (4,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("row", ["HashGrid", "SphericalHarmonics", "Identity", "joined"])
def test_batches_of_any_shape(engine, row, lead):
    encoding, _, twin = made(engine, row)
    x = torch.rand(*lead, encoding.n_input_dims, dtype=torch.float64)
    y = encoding(x)
    assert y.shape == (*lead, encoding.n_output_dims)
    flat = x.reshape(-1, encoding.n_input_dims)
    torch.testing.assert_close(y.reshape(-1, encoding.n_output_dims), twin(flat, encoding.params.detach()))


def test_memory_in_any_order(engine):
    encoding, _, twin = made(engine, "HashGrid")
    x = torch.rand(3, 20, dtype=torch.float64).T[::2]
    torch.testing.assert_close(encoding(x), twin(x, encoding.params))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_inputs_are_cast(engine, dtype):
    encoding = Encoding(2, GRID, engine=engine)
    x = torch.rand(5, 2).to(dtype)
    y = encoding(x)
    assert y.dtype == torch.float32
    assert torch.equal(y, encoding(x.float()))


def test_an_encodings_dtype_may_change(engine):
    encoding = Encoding(2, GRID, engine=engine)
    x = torch.rand(5, 2)
    y = encoding(x)
    wide = copy.deepcopy(encoding).double()(x)
    assert wide.dtype == torch.float64
    torch.testing.assert_close(wide.float(), y)


def test_the_seed_decides_the_parameters(engine):
    one, same, other = (Encoding(2, GRID, seed=seed, engine=engine).params for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert 0.9e-4 < one.abs().max() <= 1e-4


def test_copies_pickles_and_state_dicts(engine):
    encoding, x, _ = made(engine, "joined")
    y = encoding(x)
    assert torch.equal(copy.deepcopy(encoding)(x), y)
    assert torch.equal(pickle.loads(pickle.dumps(encoding))(x), y)
    file = io.BytesIO()
    torch.save(encoding.state_dict(), file)
    file.seek(0)
    other = Encoding(5, JOINED, dtype=torch.float64, engine=engine)
    other.load_state_dict(torch.load(file))
    assert torch.equal(other(x), y)
    assert list(encoding.state_dict()) == ["params"]


def test_an_optimizer_trains_it(engine):
    encoding = Encoding(2, GRID, engine=engine)
    x, target = torch.rand(200, 2), torch.rand(200, 8)
    optimizer = torch.optim.Adam(encoding.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = (encoding(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_under_autocast_it_stays_in_full_precision(engine):
    encoding, x, _ = made(engine, "HashGrid", torch.float32)
    y = encoding(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(encoding(x), y)


def test_the_repr_of_an_encoding(engine):
    shown = repr(Encoding(2, GRID, engine=engine))
    assert shown == "Encoding(2, 8, otype='Grid', n_params=352)"


@pytest.mark.gpu
@pytest.mark.parametrize("row", ROWS)
def test_on_cuda_it_agrees_with_the_twin(engine, row):
    encoding, x, twin = made(engine, row)
    expected = twin(x, encoding.params.detach())
    y = encoding.cuda()(x.cuda().requires_grad_())
    torch.testing.assert_close(y.cpu().detach(), expected, rtol=1e-9, atol=1e-10)
    y.sum().backward()


# Refusals -------------------------------------------------------------------------------------
REFUSED = [
    (
        lambda: Encoding(2, {"otype": "SphericalHarmonics"}),
        ConfigError,
        "`encoding`, SphericalHarmonics, does not fit the input\n"
        "  got       n_input_dims = 2\n"
        "  expected  3: directions, as (direction + 1) / 2",
    ),
    (
        lambda: Encoding(8, GRID),
        ConfigError,
        "`encoding`, Grid, does not fit the input\n  got       n_input_dims = 8\n  expected  1 to 7",
    ),
    (
        lambda: Encoding(3, {"otype": "DenseGrid", "n_levels": 8, "per_level_scale": 2.0, "base_resolution": 32}),
        ConfigError,
        "`encoding` is too large for 32 bits\n"
        "  numbers in its table  11,044,192,256\n"
        "  resolutions           32 to 4,096, in 3 dims\n"
        "Use fewer or coarser levels, or type Hash, whose levels have 2^log2_hashmap_size slots at most.",
    ),
    (
        lambda: Encoding(3, {"otype": "HashGrid", "per_level_scale": 1e30}),
        ConfigError,
        "`encoding` has a level whose resolution is beyond the range of float32\n"
        "  base_resolution  16\n"
        "  per_level_scale  1e+30\n"
        "  n_levels         16\n"
        "Pass a per_level_scale near 2, and a smaller base_resolution.",
    ),
    (
        lambda: Encoding(4, NRC),
        ConfigError,
        "`encoding` encodes more dims than the 4 that there are\n"
        "  encoding.nested[0]  TriangleWave of dims 0 to 2\n"
        "  encoding.nested[1]  OneBlob of dims 3 to 7\n"
        "Give it more input dims, or encode fewer.",
    ),
    (
        lambda: Encoding(4, reduced("Sum") | {"nested": [{"otype": "Identity", "n_dims_to_encode": 1}, {}]}),
        ConfigError,
        "`encoding` cannot be reduced\n  output dims of what is nested  1, 48\n"
        "Give all of them the same number of output dims: a Sum needs it.",
    ),
    (
        lambda: Encoding(2, GRID, dtype=torch.int32),
        DtypeError,
        "Encoding does not run in this dtype\n"
        "  got       torch.int32\n"
        "  expected  torch.float32, torch.float64, torch.float16, torch.bfloat16\n"
        "Pass dtype=torch.float32.",
    ),
    (
        lambda: Encoding(0, GRID),
        ArgumentError,
        "`n_input_dims` of Encoding must be a positive integer\n  got  0",
    ),
    (
        lambda: Encoding(2, GRID)(torch.rand(5, 3)),
        ShapeError,
        "`x` of Encoding, Grid, has the wrong shape\n"
        "  x  [..., 2] = (5, 3)      <- the last should be 2\n"
        "Pass inputs of 2 numbers, or make the Encoding with as many n_input_dims.",
    ),
    (lambda: Encoding(2, {"otype": "HashGird"}), ConfigError, "Did you mean `HashGrid`?"),
]


@pytest.mark.parametrize(("attempt", "error", "words"), REFUSED)
def test_invalid_inputs_are_refused(attempt, error, words):
    with pytest.raises(error) as caught:
        attempt()
    assert words in str(caught.value)


def test_made_on_torchs_default_device():
    with torch.device("meta"):
        assert Encoding(2, GRID).params.device.type == "meta"


def test_an_input_that_is_no_tensor():
    with pytest.raises(ArgumentError, match=r"torch\.as_tensor\(x\)"):
        Encoding(2, {"otype": "Frequency"})([[0.1, 0.2]])
