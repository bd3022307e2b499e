"""Tables of the components that a configuration can name, with their options, defaults and ranges.

Names, keys and defaults are tiny-cuda-nn's (DOCUMENTATION.md and its source), so that its files can be read. Some
ranges are wider: any width of a FullyFusedMLP, any number of bins of a OneBlob. Options that only tiny-cuda-nn supports
have a row too, with the reason (`only`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ._keys import Choice, Count, Flag, Key, Number, Unfit

Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Component:
    """A component that an `otype` can name.

    Attributes:
        otype: its canonical name.
        keys: its options.
        aliases: other names of it, each with the defaults that the name changes.
        nests: how many components it contains: "one" (Adam by default), "many", or "none".
        settle: a function that fills in options that depend on each other, from all options and the names of those
            that were passed. It raises Misfit if they exclude each other. None: no option depends on another.
        expands: for an abbreviation: a function from its options to the configuration that it stands for.
    """

    otype: str
    keys: tuple[Key, ...] = ()
    aliases: Mapping[str, Options] = dataclasses.field(default_factory=dict)
    nests: Literal["none", "one", "many"] = "none"
    settle: Callable[[Options, frozenset[str]], Options] | None = None
    expands: Callable[[Options], Options] | None = None


@dataclasses.dataclass(frozen=True)
class Catalog:
    """All components of one kind: encodings, networks, losses or optimizers.

    Attributes:
        default: the `otype` if none is named.
        components: the components.
        share: additional options of a component in a Composite, which say what part of the whole it takes.
        elsewhere: keys that belong elsewhere or have no effect here, each with a hint for the error message.
    """

    default: str
    components: tuple[Component, ...]
    share: tuple[Key, ...] = ()
    elsewhere: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Misfit(Unfit):
    """Raised if two options exclude each other, with the key to change and the values that it may have."""

    def __init__(self, key: str, words: str) -> None:
        super().__init__(words)
        self.key = key


def _settle_grid(options: Options, given: frozenset[str]) -> Options:
    n_features, per_level = options.pop("n_features"), options["n_features_per_level"]
    if n_features is not None and "n_levels" in given:
        raise Misfit("n_features", "left out where n_levels is given: one determines the other")
    if n_features is not None and n_features % per_level:
        raise Misfit("n_features", f"a multiple of n_features_per_level, {per_level}")
    if n_features is not None:
        options["n_levels"] = Count(1, _MOST_LEVELS).validate(n_features // per_level)
    if options["per_level_scale"] is None:
        options["per_level_scale"] = _compute_dense_scale(options) if options["type"] == "Dense" else 2.0
    return options


def _compute_dense_scale(options: Options) -> float:
    """Return the default `per_level_scale` of a dense grid: the finest level then has 256 cells along each axis."""
    steps = options["n_levels"] - 1
    return math.exp(math.log(256 / options["base_resolution"]) / steps) if steps else 1.0


def _expand_nrc(options: Options) -> Options:
    """Return the Composite that NRC abbreviates: the encoding of Neural Radiance Caching (Müller et al. 2021)."""
    return {
        "otype": "Composite",
        "nested": [
            {"otype": "TriangleWave", "n_dims_to_encode": 3, "n_frequencies": options["n_frequencies"]},
            {"otype": "OneBlob", "n_dims_to_encode": 5, "n_bins": options["n_bins"]},
            {"otype": "Identity"},
        ],
    }


MOST_PARAMS = 2**31 - 1
"""The largest number of parameters of a network or a table: kernels index them with 32 bits."""
_MOST_LEVELS = 128  # as in tiny-cuda-nn
_MOST_LAYERS = 1024  # hidden ones; tiny-cuda-nn has no limit
_MOST_FEATURES = 65_536  # of an input, and neurons of a layer; tiny-cuda-nn has no limit
_N_FREQUENCIES = Key("n_frequencies", Count(1, _MOST_FEATURES), 12)
_GRID_KEYS = (
    Key("type", Choice(("Hash", "Dense", "Tiled"), {"Tile": "Tiled"}), "Hash"),
    Key("n_levels", Count(1, _MOST_LEVELS), 16),
    Key("n_features_per_level", Count(among=(1, 2, 4, 8)), 2),
    Key("n_features", Count(), also=("n_grid_features",)),
    Key("log2_hashmap_size", Count(1, 31), 19),
    Key("base_resolution", Count(), 16),
    Key("per_level_scale", Number(0, open=True)),
    Key("interpolation", Choice(("Nearest", "Linear", "Smoothstep")), "Linear"),
    Key(
        "stochastic_interpolation",
        Flag(),
        default=False,
        only="this library always interpolates; tiny-cuda-nn can use one random corner of the cell instead",
    ),
    Key("fixed_point_pos", Flag(), default=False, only="positions are floating point here"),
    Key(
        "hash",
        Choice(("CoherentPrime", "Prime", "ReversedPrime", "Rng", "BaseConvert")),
        "CoherentPrime",
        only="no other hash is supported; tiny-cuda-nn's default build has no other either",
    ),
)

ENCODINGS = Catalog(
    default="OneBlob",
    components=(
        Component(
            "Composite",
            (Key("reduction", Choice(("Concatenation", "Sum", "Product")), "Concatenation"),),
            nests="many",
        ),
        Component("Empty"),
        Component("Frequency", (_N_FREQUENCIES,)),
        Component(
            "Grid",
            _GRID_KEYS,
            aliases={"HashGrid": {"type": "Hash"}, "DenseGrid": {"type": "Dense"}, "TiledGrid": {"type": "Tiled"}},
            settle=_settle_grid,
        ),
        Component("Identity", (Key("scale", Number(), 1.0), Key("offset", Number(), 0.0))),
        Component("OneBlob", (Key("n_bins", Count(1, _MOST_FEATURES), 16),)),
        Component("SphericalHarmonics", (Key("degree", Count(1, 8), 4),)),
        Component("TriangleWave", (_N_FREQUENCIES,)),
        Component(
            "NRC",
            (_N_FREQUENCIES, Key("n_bins", Count(1, _MOST_FEATURES), 4)),
            aliases={"OneBlobFrequency": {}},
            expands=_expand_nrc,
        ),
    ),
    share=(Key("n_dims_to_encode", Count(0)), Key("dims_to_encode_begin", Count(0))),
    elsewhere={
        "n_input_dims": "the number of input dims is an argument of the module, not a key",
        "n_output_dims": "the number of output dims follows from the other keys",
        "jit": "there is no just-in-time fusion to switch: the kernels are always compiled",
    },
)

ACTIVATIONS = (
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
)


def _make_mlp(otype: str, alias: str, least_hidden: int) -> Component:
    keys = (
        Key("activation", Choice(ACTIVATIONS), "ReLU"),
        Key("output_activation", Choice(ACTIVATIONS), "None"),
        Key("n_neurons", Count(1, _MOST_FEATURES), 128),
        Key("n_hidden_layers", Count(least_hidden, _MOST_LAYERS), 5),
    )
    return Component(otype, keys, aliases={alias: {}})


NETWORKS = Catalog(
    default="CutlassMLP",
    components=(_make_mlp("FullyFusedMLP", "MegakernelMLP", 1), _make_mlp("CutlassMLP", "MLP", 0)),
    elsewhere={
        "n_input_dims": "the number of input dims is an argument of the module, not a key",
        "n_output_dims": "the number of output dims is an argument of the module, not a key",
        "jit": "there is no just-in-time fusion to switch: the kernels are always compiled",
        "feedback_alignment": "the backward pass is the exact gradient; tiny-cuda-nn itself has dropped this key",
    },
)

LOSSES = Catalog(
    default="RelativeL2",
    components=tuple(
        map(
            Component,
            (
                "L1",
                "L2",
                "RelativeL1",
                "RelativeL2",
                "RelativeL2Luminance",
                "MAPE",
                "SMAPE",
                "CrossEntropy",
                "Variance",
            ),
        )
    ),
)

_BETA = Number(0, below=1)
_RATE = Number(0)
_LEARNING_RATE = Key("learning_rate", _RATE, 1e-3)
_DECAYS = (Key("relative_decay", _RATE, 0.0), Key("absolute_decay", _RATE, 0.0))
_BETAS = (Key("beta1", _BETA, 0.9), Key("beta2", _BETA, 0.999), Key("epsilon", _RATE, 1e-8))
_NO_MOMENTS = "tiny-cuda-nn takes moments of the gradient first, but this library's Shampoo does not"
_NO_DECAY = "this library's Shampoo has no weight decay"


OPTIMIZERS = Catalog(
    default="Adam",
    components=(
        Component(
            "Adam",
            (
                _LEARNING_RATE,
                *_BETAS,
                Key("l2_reg", _RATE, 1e-8),
                *_DECAYS,
                Key("adabound", Flag(), default=False),
                Key("clipping_magnitude", _RATE, 0.0),
                Key("gradient_clipping_magnitude", _RATE, 0.0),
                Key("non_matrix_learning_rate_factor", _RATE, 1.0),
                Key("non_matrix_l2_reg", _RATE, 0.0),
                Key("optimize_matrix_params", Flag(), default=True),
                Key("optimize_non_matrix_params", Flag(), default=True),
                Key("skip_zero_grad_non_matrix_params", Flag(), default=True),
            ),
        ),
        Component("Novograd", (_LEARNING_RATE, *_BETAS, *_DECAYS)),
        Component("SGD", (_LEARNING_RATE, Key("l2_reg", _RATE, 1e-8))),
        Component(
            "Shampoo",
            (
                _LEARNING_RATE,
                Key("beta1", _BETA, 0.9, only=_NO_MOMENTS),
                Key("beta2", _BETA, 0.99, only=_NO_MOMENTS),
                Key("epsilon", _RATE, 1e-8),
                Key("beta3", _BETA, 0.9),
                Key("beta_shampoo", _BETA, 0.9),
                Key("identity", _RATE, 0.01),
                Key("cg_on_momentum", Flag(), default=True),
                Key("l2_reg", _RATE, 1e-5),
                Key("relative_decay", _RATE, 0.0, only=_NO_DECAY),
                Key("absolute_decay", _RATE, 0.0, only=_NO_DECAY),
                Key("frobenius_normalization", Flag(), default=True),
            ),
        ),
        Component("Average", (Key("n_samples", Count(), 128),), nests="one"),
        Component("Batched", (Key("batch_size_multiplier", Count(), 16),), nests="one"),
        Component(
            "EMA",
            (Key("decay", _BETA, 0.99), Key("full_precision", Flag(), default=False)),
            nests="one",
        ),
        Component(
            "ExponentialDecay",
            (
                Key("decay_base", _RATE, 0.1),
                Key("decay_start", Count(0), 10_000),
                Key("decay_end", Count(0), 10_000_000),
                Key("decay_interval", Count(), 10_000),
            ),
            nests="one",
        ),
        Component("Lookahead", (Key("alpha", Number(0, most=1), 0.5), Key("n_steps", Count(), 16)), nests="one"),
        Component("Composite", nests="many"),
    ),
    share=(Key("n_params_to_optimize", Count(0)),),
)

CATALOGS: dict[str, Catalog] = {
    "encoding": ENCODINGS,
    "network": NETWORKS,
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
}
