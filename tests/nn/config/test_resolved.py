"""Configurations against the facts of tiny-cuda-nn: every default, every alias, and the words of refusals."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tinsmith import ConfigError
from tinsmith.nn.config import Section, resolve_section

GRID = {
    "type": "Hash",
    "n_levels": 16,
    "n_features_per_level": 2,
    "log2_hashmap_size": 19,
    "base_resolution": 16,
    "per_level_scale": 2.0,
    "interpolation": "Linear",
    "stochastic_interpolation": False,
    "fixed_point_pos": False,
    "hash": "CoherentPrime",
}
MLP = {"activation": "ReLU", "output_activation": "None", "n_neurons": 128, "n_hidden_layers": 5}
DECAYS = {"relative_decay": 0.0, "absolute_decay": 0.0}
ADAM = {
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "l2_reg": 1e-8,
    **DECAYS,
    "adabound": False,
    "clipping_magnitude": 0.0,
    "gradient_clipping_magnitude": 0.0,
    "non_matrix_learning_rate_factor": 1.0,
    "non_matrix_l2_reg": 0.0,
    "optimize_matrix_params": True,
    "optimize_non_matrix_params": True,
    "skip_zero_grad_non_matrix_params": True,
}
SHAMPOO = {
    "learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.99,
    "beta3": 0.9,
    "beta_shampoo": 0.9,
    "epsilon": 1e-8,
    "identity": 0.01,
    "cg_on_momentum": True,
    "l2_reg": 1e-5,
    **DECAYS,
    "frobenius_normalization": True,
}
DECAY = {"decay_base": 0.1, "decay_start": 10_000, "decay_end": 10_000_000, "decay_interval": 10_000}
DENSE_SCALE = math.exp(math.log(256 / 16) / 15)

# kind, name, canonical name, all options by default
DEFAULTS = [
    ("encoding", "Empty", "Empty", {}),
    ("encoding", "Frequency", "Frequency", {"n_frequencies": 12}),
    ("encoding", "Grid", "Grid", GRID),
    ("encoding", "HashGrid", "Grid", GRID),
    ("encoding", "TiledGrid", "Grid", {**GRID, "type": "Tiled"}),
    ("encoding", "DenseGrid", "Grid", {**GRID, "type": "Dense", "per_level_scale": DENSE_SCALE}),
    ("encoding", "Identity", "Identity", {"scale": 1.0, "offset": 0.0}),
    ("encoding", "OneBlob", "OneBlob", {"n_bins": 16}),
    ("encoding", "SphericalHarmonics", "SphericalHarmonics", {"degree": 4}),
    ("encoding", "TriangleWave", "TriangleWave", {"n_frequencies": 12}),
    ("network", "FullyFusedMLP", "FullyFusedMLP", MLP),
    ("network", "MegakernelMLP", "FullyFusedMLP", MLP),
    ("network", "CutlassMLP", "CutlassMLP", MLP),
    ("network", "MLP", "CutlassMLP", MLP),
    *(
        ("loss", name, name, {})
        for name in (
            "L1",
            "L2",
            "RelativeL1",
            "RelativeL2",
            "RelativeL2Luminance",
            "MAPE",
            "SMAPE",
            "CrossEntropy",
            "Variance",
        )
    ),
    ("optimizer", "Adam", "Adam", ADAM),
    (
        "optimizer",
        "Novograd",
        "Novograd",
        {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, **DECAYS},
    ),
    ("optimizer", "SGD", "SGD", {"learning_rate": 1e-3, "l2_reg": 1e-8}),
    ("optimizer", "Shampoo", "Shampoo", SHAMPOO),
    ("optimizer", "Average", "Average", {"n_samples": 128}),
    ("optimizer", "Batched", "Batched", {"batch_size_multiplier": 16}),
    ("optimizer", "EMA", "EMA", {"decay": 0.99, "full_precision": False}),
    ("optimizer", "ExponentialDecay", "ExponentialDecay", DECAY),
    ("optimizer", "Lookahead", "Lookahead", {"alpha": 0.5, "n_steps": 16}),
]
WRAPPERS = ("Average", "Batched", "EMA", "ExponentialDecay", "Lookahead")


@pytest.mark.parametrize("spelt", [str, str.lower, str.upper])
@pytest.mark.parametrize(("kind", "name", "otype", "options"), DEFAULTS)
def test_defaults(kind, name, otype, options, spelt):
    section = resolve_section(kind, {"otype": spelt(name)})
    assert (section.otype, section.options) == (otype, options)
    nested = (Section("Adam", ADAM),) if name in WRAPPERS else ()
    assert section.nested == nested


@pytest.mark.parametrize(
    ("kind", "otype"),
    [("encoding", "OneBlob"), ("network", "CutlassMLP"), ("loss", "RelativeL2"), ("optimizer", "Adam")],
)
@pytest.mark.parametrize("config", [None, {}, "{}"])
def test_default_types_of_sections(kind, otype, config):
    assert resolve_section(kind, config) == resolve_section(kind, {"otype": otype})


def _share(n: int | None, begin: int | None = None) -> dict[str, int | None]:
    return {"n_dims_to_encode": n, "dims_to_encode_begin": begin}


@pytest.mark.parametrize("name", ["NRC", "OneBlobFrequency"])
def test_the_encoding_of_neural_radiance_caching(name):
    parts = (
        Section("TriangleWave", {"n_frequencies": 12, **_share(3)}),
        Section("OneBlob", {"n_bins": 8, **_share(5)}),
        Section("Identity", {"scale": 1.0, "offset": 0.0, **_share(None)}),
    )
    config = {"otype": name, "n_bins": 8}
    assert resolve_section("encoding", config) == Section("Composite", {"reduction": "Concatenation"}, parts)
    around = resolve_section("encoding", {"otype": "Composite", "nested": [{**config, "n_dims_to_encode": 9}]})
    assert around.nested == (Section("Composite", {"reduction": "Concatenation", **_share(9)}, parts),)


def test_a_composite():
    nested = [{"otype": "HashGrid", "n_dims_to_encode": 3}, {"otype": "Identity", "scale": 2}]
    section = resolve_section("encoding", {"otype": "composite", "reduction": "product", "nested": nested})
    assert section.options == {"reduction": "Product"}
    assert section.nested[0] == Section("Grid", {**GRID, **_share(3)})
    assert section.nested[1] == Section("Identity", {"scale": 2.0, "offset": 0.0, **_share(None)})
    assert section.nested[1].where == "encoding.nested[1]"


def test_a_composite_may_place_its_parts():
    nested = [{"otype": "Identity", "n_dims_to_encode": 2, "dims_to_encode_begin": begin} for begin in (1, 0)]
    section = resolve_section("encoding", {"otype": "Composite", "nested": nested})
    assert [part.options["dims_to_encode_begin"] for part in section.nested] == [1, 0]


def test_optimizers_nest():
    config = {"otype": "Ema", "nested": {"otype": "ExponentialDecay", "nested": {"otype": "SGD", "learning_rate": 1}}}
    section = resolve_section("optimizer", config)
    assert section.nested[0].nested[0] == Section("SGD", {"learning_rate": 1.0, "l2_reg": 1e-8})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"n_features": 8}, {"n_levels": 4}),
        ({"n_grid_features": 8, "n_features_per_level": 4}, {"n_levels": 2}),
        ({"type": "dense", "n_levels": 9, "base_resolution": 1}, {"per_level_scale": 2.0}),
        ({"otype": "DenseGrid", "n_features": 10}, {"per_level_scale": 2.0, "n_levels": 5}),
        ({"otype": "DenseGrid", "n_levels": 1}, {"per_level_scale": 1.0}),
        ({"otype": "DenseGrid", "per_level_scale": 3}, {"per_level_scale": 3.0}),
        ({"otype": "HashGrid", "type": "Tile"}, {"type": "Tiled", "per_level_scale": 2.0}),
        ({"n_levels": 8.0}, {"n_levels": 8}),
        ({"interpolation": "smoothstep"}, {"interpolation": "Smoothstep"}),
        ({"hash": "coherentprime", "stochastic_interpolation": False}, {"hash": "CoherentPrime"}),
    ],
)
def test_dependent_options_of_a_grid(config, expected):
    options = resolve_section("encoding", {"otype": "Grid", **config}).options
    assert set(options) == set(GRID)
    for name, value in expected.items():
        assert options[name] == (pytest.approx(value) if isinstance(value, float) else value), name


ROUND = [(kind, {"otype": name}) for kind, name, _, _ in DEFAULTS] + [
    ("encoding", {"otype": "NRC"}),
    ("encoding", {"otype": "Composite", "nested": [{"otype": "NRC", "n_dims_to_encode": 9}, {"otype": "DenseGrid"}]}),
    ("optimizer", {"otype": "Composite", "nested": [{"otype": "EMA", "n_params_to_optimize": 3}, {"otype": "SGD"}]}),
]


@pytest.mark.parametrize(("kind", "config"), ROUND)
def test_a_section_written_out_is_read_back(kind, config):
    section = resolve_section(kind, config)
    assert resolve_section(kind, section.config()) == section
    assert resolve_section(kind, section) is section


REFUSED = [
    (
        "encoding",
        {"otype": "HashGird"},
        ["`encoding.otype` is not a known encoding", '"HashGird"', "Did you mean `HashGrid`?"],
    ),
    ("loss", {"otype": 3}, ["`loss.otype` is not a known loss", "got       3", "expected  L1, L2"]),
    (
        "encoding",
        {"otype": "HashGrid", "log2_hash_map_size": 15},
        ["`encoding.log2_hash_map_size` is not a key of HashGrid", "expected", "Did you mean `log2_hashmap_size`?"],
    ),
    (
        "encoding",
        {"n_neurons": 16},
        ["`encoding.n_neurons` is not a key of OneBlob", "OneBlob, the default", "`n_neurons` belongs to `network`."],
    ),
    ("network", {"otype": "HashGrid"}, ["`network.otype` is not a known network", "Write it in `encoding`."]),
    ("encoding", "HashGrid", ["`encoding` is the name of an encoding", 'Write {"otype": "HashGrid"}']),
    ("network", "cutlasmlp", ["`network` is the name of a network", 'Write {"otype": "CutlassMLP"}']),
    ("network", {"n_neuron": 1}, ["`network.n_neuron` is not a key of CutlassMLP", "Did you mean `n_neurons`?"]),
    ("network", {"zzz": 1}, ["`network.zzz` is not a key", "Leave it out."]),
    (
        "encoding",
        {"otype": "Grid", "n_levels": "many"},
        ['got       "many"', "a whole number, 1 to 128", "default, 16"],
    ),
    (
        "encoding",
        {"otype": "Grid", "n_levels": 1.5},
        ["`encoding.n_levels` of Grid has an invalid value", "got       1.5"],
    ),
    ("encoding", {"otype": "Grid", "n_levels": True}, ["got       true", "a whole number"]),
    ("encoding", {"otype": "Grid", "n_features_per_level": 3}, ["one of 1, 2, 4, 8"]),
    ("encoding", {"otype": "Grid", "per_level_scale": 0}, ["a number, above 0"]),
    (
        "encoding",
        {"otype": "Grid", "interpolation": "cubic"},
        ['got       "cubic"', "one of Nearest, Linear, Smoothstep"],
    ),
    ("encoding", {"otype": "Grid", "n_features": 8, "n_levels": 4}, ["n_features", "left out where n_levels is given"]),
    ("encoding", {"otype": "Grid", "n_features": 7}, ["got       7", "a multiple of n_features_per_level, 2"]),
    ("encoding", {"otype": "Grid", "n_features": 8, "n_grid_features": 8}, ["left out where `n_features` is given"]),
    ("encoding", {"otype": "Grid", "hash": "Rng"}, ['"CoherentPrime", the default: ']),
    ("encoding", {"otype": "Grid", "stochastic_interpolation": True}, ["false, the default: "]),
    ("encoding", {"otype": "Grid", "fixed_point_pos": True}, ["false, the default: positions are floating point"]),
    ("encoding", {"otype": "SphericalHarmonics", "degree": 9}, ["a whole number, 1 to 8"]),
    ("encoding", {"n_dims_to_encode": 3}, ["of OneBlob would do nothing", "nested in a Composite", "Leave it out."]),
    ("encoding", {"otype": "Composite"}, ["`encoding.nested` of Composite must be a list", "got       nothing"]),
    ("encoding", {"otype": "Composite", "nested": {}}, ["got       {}", "a list of one encoding or more"]),
    ("encoding", {"otype": "Composite", "nested": [3]}, ["`encoding.nested[0]` is not an encoding", "got       3"]),
    (
        "encoding",
        {"otype": "Composite", "nested": [{"otype": "Identity"}, {"otype": "Empty"}]},
        [
            "does not say how much each part takes",
            "encoding.nested[0]  Identity without n_dims_to_encode",
            "encoding.nested[1]",
        ],
    ),
    (
        "encoding",
        {"otype": "Composite", "nested": [{"otype": "Identity", "dims_to_encode_begin": 1}]},
        ["Identity without n_dims_to_encode", "Identity with dims_to_encode_begin"],
    ),
    (
        "encoding",
        {"otype": "Composite", "nested": [{"otype": "Composite", "nested": [{"otype": "OneBlob", "bins": 3}]}]},
        ["`encoding.nested[0].nested[0].bins` is not a key of OneBlob", "Did you mean `n_bins`?"],
    ),
    ("network", {"feedback_alignment": False}, ["would do nothing: the backward pass is the exact gradient"]),
    ("network", {"jit": True}, ["`network.jit` of CutlassMLP would do nothing", "always compiled"]),
    ("network", {"n_input_dims": 2}, ["is an argument of the module, not a key"]),
    ("network", {"activation": "gelu"}, ["one of None, ReLU, LeakyReLU"]),
    ("network", {"otype": "FullyFusedMLP", "n_hidden_layers": 0}, ["a whole number, 1 to 1024"]),
    ("network", {"n_hidden_layers": 2**31}, ["a whole number, 0 to 1024"]),
    ("network", {"n_neurons": 2**31}, ["a whole number, 1 to 65536"]),
    ("encoding", {"otype": "Frequency", "n_frequencies": 2**31}, ["a whole number, 1 to 65536"]),
    ("encoding", {"otype": "OneBlob", "n_bins": 2**31}, ["a whole number, 1 to 65536"]),
    ("optimizer", {"beta1": 1}, ["a number, 0 or more, below 1"]),
    ("optimizer", {"learning_rate": float("nan")}, ["got       nan", "a number, 0 or more"]),
    ("optimizer", {"learning_rate": 10**400}, ["a number, 0 or more"]),
    ("encoding", {"n_bins": 10**400}, ["a whole number, 1 to"]),
    ("encoding", {"n_bins": np.True_}, ["a whole number, 1 to"]),
    ("optimizer", {"adabound": 1}, ["got       1", "true or false"]),
    ("optimizer", {"nested": {"otype": "SGD"}}, ["`optimizer.nested` is not a key of Adam"]),
    ("optimizer", {"otype": "EMA", "nested": {"otype": "Adm"}}, ["`optimizer.nested.otype`", "Did you mean `Adam`?"]),
    (
        "optimizer",
        {"otype": "Shampoo", "beta2": 0.9},
        ["`optimizer.beta2` of Shampoo", "0.99, the default: tiny-cuda-nn takes moments"],
    ),
    (
        "optimizer",
        {"otype": "Shampoo", "relative_decay": 0.1},
        ["0.0, the default: this library's Shampoo has no weight decay"],
    ),
    ("optimizer", {"otype": "Lookahead", "alpha": 1.5}, ["a number, 0 or more, at most 1"]),
    ("optimizer", {"n_params_to_optimize": 3}, ["would do nothing", "nested in a Composite"]),
    ("optimizer", [], ["`optimizer` is not an optimizer", "an object such as {'otype': 'Adam'}"]),
]


@pytest.mark.parametrize(("kind", "config", "words"), REFUSED)
def test_invalid_options_are_refused(kind, config, words):
    with pytest.raises(ConfigError) as caught:
        resolve_section(kind, config)
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name"), [("encoding", "SphericalHarmonics"), ("network", "FullyFusedMLP"), ("optimizer", "Adam")]
)
def test_a_short_text_is_not_taken_for_a_name(kind, name):
    assert resolve_section(kind, json.dumps({"otype": name})) == resolve_section(kind, {"otype": name})
    assert resolve_section(kind, f' {{"otype":"{name}"}}') == resolve_section(kind, {"otype": name})


@pytest.mark.parametrize("scalar", [np.float32, np.float64, np.int64, np.uint8])
def test_scalars_of_numpy_are_numbers(scalar):
    section = resolve_section("encoding", {"otype": "HashGrid", "n_levels": scalar(4), "per_level_scale": scalar(3)})
    assert section == resolve_section("encoding", {"otype": "HashGrid", "n_levels": 4, "per_level_scale": 3.0})
    assert type(section.options["n_levels"]) is int
    assert type(section.options["per_level_scale"]) is float


def test_a_refusal_names_the_place_in_the_whole():
    with pytest.raises(ConfigError, match=r"`dir_encoding\.n_bins` of OneBlob has an invalid value"):
        resolve_section("encoding", {"n_bins": 0}, where="dir_encoding")


def test_the_given_configuration_is_not_changed_or_shared():
    given = {"otype": "HashGrid", "n_levels": 4}
    first, second = resolve_section("encoding", given), resolve_section("encoding", given)
    first.options["n_levels"] = 99
    assert given == {"otype": "HashGrid", "n_levels": 4}
    assert second.options["n_levels"] == 4
