"""Parameters laid out as tiny-cuda-nn's: what is filled up with what, and what the filling does."""

from __future__ import annotations

import pytest
import torch

from tinsmith import CheckpointError, ConfigError, reference
from tinsmith.nn import Network, NetworkWithInputEncoding, Trainer, create_from_config
from tinsmith.nn.config import resolve_section
from tinsmith.nn.encodings import build_encoder
from tinsmith.nn.networks._alignment import find_columns

MLP = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2, "activation": "Tanh"}
GRID = {"otype": "HashGrid", "n_levels": 3, "log2_hashmap_size": 4}
WAVES = {"otype": "TriangleWave", "n_frequencies": 3}


def composite(*nested, reduction="Concatenation"):
    return {"otype": "Composite", "reduction": reduction, "nested": list(nested)}


def of(dims, encoding):
    return encoding | {"n_dims_to_encode": dims}


def four(encoding):
    return encoding | {"n_features_per_level": 4}


# Dims, encoding, and the filled columns to a multiple of 16: "." is a number of the encoding's own. Worked out by hand
# from encoding.h, encodings/composite.h and the kernels of tiny-cuda-nn.
COLUMNS = [
    (3, {"otype": "Identity"}, "..." + "1" * 13),
    (2, WAVES, "......" + "1" * 10),
    (2, {"otype": "Empty"}, ""),
    (2, GRID, "......" + "0" * 10),
    (3, {"otype": "Frequency", "n_frequencies": 4}, "." * 24 + "1" * 8),
    (1, {"otype": "OneBlob"}, "." * 16),
    (3, composite(of(1, {"otype": "Identity"}), GRID), ".1" + "......" + "0" * 8),
    (3, composite(of(1, {"otype": "Identity"}), four(GRID)), ".111" + "." * 12),
    (3, composite(of(2, GRID), {"otype": "Identity"}), "......" + "." + "1" * 9),
    (5, composite(of(2, GRID), of(1, WAVES), four(GRID)), "......" + "...111" + "." * 12 + "0" * 8),
    (4, composite(of(2, WAVES), WAVES, reduction="Sum"), "......" + "2" * 10),
    (4, composite(of(2, WAVES), WAVES, reduction="Product"), "......" + "1" * 10),
    (4, composite(of(2, WAVES), GRID, reduction="Sum"), "......" + "1" * 10),
    (4, composite(of(2, WAVES), GRID, reduction="Product"), "......" + "0" * 10),
]


@pytest.mark.parametrize(("dims", "encoding", "columns"), COLUMNS)
def test_columns(dims, encoding, columns):
    section = resolve_section("encoding", encoding)
    found_columns = find_columns(build_encoder(section, dims), section, 16)
    assert "".join("." if column is None else f"{column:g}" for column in found_columns) == columns


def test_without_alignment_only_parts_of_a_composite_could_be_filled_up_and_are_not():
    """No user asks for it then: the widths are those of the encoding."""
    model = NetworkWithInputEncoding(3, 1, composite(of(1, {"otype": "Identity"}), GRID), MLP, alignment=1)
    assert model.matrix_shapes[0] == (16, 7)
    assert model.columns is None and model.constants is None


@pytest.mark.parametrize(
    ("make", "shapes", "n_params"),
    [
        (lambda: Network(3, 1, MLP), ((16, 16), (16, 16), (16, 16)), 768),
        (lambda: Network(3, 1, MLP | {"otype": "CutlassMLP", "n_neurons": 5}), ((5, 16), (5, 5), (16, 5)), 185),
        (lambda: Network(17, 33, MLP), ((16, 32), (16, 16), (48, 16)), 1536),
        (lambda: NetworkWithInputEncoding(2, 3, GRID, MLP), ((16, 16),) * 3, 768 + 3 * 2 * 16),
        (lambda: create_from_config(2, 3, {"encoding": GRID, "network": MLP}).model, ((16, 16),) * 3, 864),
        (lambda: Network(17, 33, MLP, alignment=1), ((16, 17), (16, 16), (33, 16)), 1056),
    ],
)
def test_sizes_are_tiny_cuda_nns(make, shapes, n_params):
    module = make()
    assert module.matrix_shapes == shapes
    assert module.params.numel() == n_params
    assert module.native_output_dims == shapes[-1][0]


@pytest.mark.parametrize("hidden", [0, 1, 3])
@pytest.mark.parametrize(("dims", "encoding"), [row[:2] for row in COLUMNS if "Empty" not in row[1].values()])
def test_padded_columns_are_inputs_of_ones(dims, encoding, hidden):
    mlp = MLP | {"otype": "CutlassMLP", "n_hidden_layers": hidden}
    model = NetworkWithInputEncoding(dims, 5, encoding, mlp, dtype=torch.float64)
    x = torch.rand(6, dims, dtype=torch.float64)
    section = resolve_section("encoding", encoding)
    columns = find_columns(build_encoder(section, dims), section, 16)
    count = sum(rows * columns for rows, columns in model.matrix_shapes)
    params = model.params.detach().clone().requires_grad_()
    own = iter(model.encoder(x, params[count:]).unbind(1))
    fed = [next(own) if column is None else torch.full((6,), column, dtype=x.dtype) for column in columns]
    widths = (len(columns), *[16] * hidden, 16)
    expected = reference.mlp(torch.stack(fed, 1), params[:count], widths, "Tanh")[:, :5]
    y = model(x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    cotangent = torch.randn_like(y)
    (gradient,) = torch.autograd.grad(y, model.params, cotangent)
    (right,) = torch.autograd.grad(expected, params, cotangent)
    torch.testing.assert_close(gradient, right, rtol=1e-9, atol=1e-9)


def test_a_network_is_filled_up_with_ones():
    network = Network(3, 2, MLP, dtype=torch.float64)
    x = torch.randn(4, 3, dtype=torch.float64)
    fed = torch.cat([x, x.new_ones(4, 13)], 1)
    expected = reference.mlp(fed, network.params, (16, 16, 16, 16), "Tanh")[:, :2]
    torch.testing.assert_close(network(x), expected, rtol=1e-9, atol=1e-9)


def test_checkpoints_of_another_layout_are_reported():
    theirs = Network(3, 1, MLP).state_dict()
    with pytest.raises(RuntimeError, match=r"If tiny-cuda-nn saved it, make the module with alignment=16, the default"):
        Network(3, 1, MLP, alignment=1).load_state_dict(theirs)
    outer = torch.nn.Sequential(NetworkWithInputEncoding(3, 1, {"otype": "Identity"}, MLP, alignment=1))
    with pytest.raises(RuntimeError, match=r"`0\.params` has 768 numbers for a NetworkWithInputEncoding of 320"):
        outer.load_state_dict({"0.params": theirs["params"]})


def test_parts_filled_up_in_different_places_are_refused():
    inner = composite(of(1, {"otype": "OneBlob", "n_bins": 3}), four(GRID | {"n_levels": 1}))
    both = composite(of(3, inner), of(7, {"otype": "Identity"}), reduction="Sum")
    with pytest.raises(ConfigError, match="padded in different columns"):
        NetworkWithInputEncoding(10, 1, both, MLP)
    assert NetworkWithInputEncoding(10, 1, both, MLP, alignment=1)(torch.rand(2, 10)).shape == (2, 1)


@pytest.mark.parametrize("otype", ["FullyFusedMLP", "CutlassMLP"])
def test_padded_inputs_act_as_a_bias(otype):
    """Without one, a network with ReLU is 0 at 0, and fitting 1 - x stops at a loss of 0.25."""
    network = Network(1, 1, {"otype": otype, "n_neurons": 16, "n_hidden_layers": 1})
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    x = torch.linspace(0, 1, 64)[:, None]
    for _ in range(300):
        optimizer.zero_grad()
        loss = (network(x) - (1 - x)).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3
    assert abs(network(torch.zeros(1, 1)).item() - 1) < 0.1


SAVED = [
    lambda how: Network(3, 2, MLP, dtype=torch.float64, **how),
    lambda how: Network(3, 2, MLP | {"otype": "CutlassMLP", "n_hidden_layers": 0}, dtype=torch.float64, **how),
    lambda how: NetworkWithInputEncoding(2, 3, GRID, MLP, dtype=torch.float64, **how),
    lambda how: NetworkWithInputEncoding(
        3, 2, composite(of(1, {"otype": "Identity"}), GRID), MLP, dtype=torch.float64, **how
    ),
]


@pytest.mark.parametrize("make", SAVED)
def test_a_checkpoint_without_padding_loads_as_the_same_function(make):
    old, new = torch.nn.Sequential(make({"alignment": 1, "seed": 3})), torch.nn.Sequential(make({}))
    saved = old.state_dict()
    size = saved["0.params"].numel()
    new.load_state_dict(saved)
    assert saved["0.params"].numel() == size < new[0].params.numel()
    x = torch.rand(7, old[0].n_input_dims, dtype=torch.float64)
    torch.testing.assert_close(new(x), old(x), rtol=1e-12, atol=1e-12)
    trainer = Trainer(new[0], optimizer="Adam")
    state = trainer.state_dict()
    with pytest.raises(CheckpointError, match="and the alignment that the run had"):
        trainer.load_state_dict(state | {"model": old[0].state_dict()})
