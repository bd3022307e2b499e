"""Activation functions of the small networks, and their derivatives, for vectors of neurons.

They are tiny-cuda-nn's, with its constants. Activations that need only sums, products and maxima are computed on
whole vectors, which become machine vectors in kernels that request them. The others are computed component by
component, since the engines have no vector form of their functions.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

# Literals in a kernel are float32 if that is the engine's default: these are exact in it.
STEEP = 100.0
"""LeakyReLU divides negative inputs by it."""
SHARPNESS = 10.0
"""The sharpness of Squareplus and Softplus: they approach ReLU as it grows."""

Pair = tuple[Any, Any]


def build_activation(lang: ModuleType, name: str, lanes: int, dtype: str) -> Pair:
    """Build an activation function and its derivative by name, for vectors of `lanes` numbers of this dtype."""
    if name in _OF_WHOLE_VECTORS:
        return _OF_WHOLE_VECTORS[name](lang, lang.types.vector(lanes, getattr(lang, dtype)))
    value, slope = _MAKERS[name](lang)
    return _build_by_component(lang, value, lanes), _build_by_component(lang, slope, lanes)


def _build_by_component(lang: ModuleType, function: Any, lanes: int) -> Any:
    @lang.func
    def apply_each(vector):
        result = vector
        for k in lang.static(range(lanes)):
            result[k] = function(vector[k])
        return result

    return apply_each


# Activations of whole vectors: `of` makes a vector or number of the right dtype, since literals would be float32.
def _none(lang: ModuleType, of: Any) -> Pair:
    @lang.func
    def value(x):
        return x

    @lang.func
    def slope(_):
        return of(1.0)

    return value, slope


def _relu(lang: ModuleType, of: Any) -> Pair:
    """Build ReLU. It does not use `max`, which turns NaN into zero and so would hide a training run that diverged."""

    @lang.func
    def value(x):
        return lang.select(x <= of(0.0), of(0.0), x)

    @lang.func
    def slope(x):
        return lang.select(x <= of(0.0), of(0.0), of(1.0))

    return value, slope


def _leaky_relu(lang: ModuleType, of: Any) -> Pair:
    @lang.func
    def value(x):
        return lang.max(x, x / of(STEEP))

    @lang.func
    def slope(x):
        return lang.select(x > of(0.0), of(1.0), of(1.0) / of(STEEP))

    return value, slope


_OF_WHOLE_VECTORS: dict[str, Callable[[ModuleType, Any], Pair]] = {
    "None": _none,
    "ReLU": _relu,
    "LeakyReLU": _leaky_relu,
}


def _exponential(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        return lang.exp(x)

    return value, value


def _sine(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        return lang.sin(x)

    @lang.func
    def slope(x):
        return lang.cos(x)

    return value, slope


def _sigmoid(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        return 1.0 / (1.0 + lang.exp(-x))

    @lang.func
    def slope(x):
        y = 1.0 / (1.0 + lang.exp(-x))
        return y * (1.0 - y)

    return value, slope


def _silu(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        return x / (1.0 + lang.exp(-x))

    @lang.func
    def slope(x):
        y = 1.0 / (1.0 + lang.exp(-x))
        return y * (1.0 + x * (1.0 - y))

    return value, slope


def _squareplus(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        z = SHARPNESS * x
        return 0.5 * (z + lang.sqrt(z * z + 4.0)) / SHARPNESS

    @lang.func
    def slope(x):
        z = SHARPNESS * x
        return 0.5 * (1.0 + z / lang.sqrt(z * z + 4.0))

    return value, slope


def _softplus(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):  # log(1 + exp(z)) / sharpness, by parts that cannot overflow
        z = SHARPNESS * x
        return (lang.max(z, 0.0) + lang.log(1.0 + lang.exp(-lang.abs(z)))) / SHARPNESS

    @lang.func
    def slope(x):
        return 1.0 / (1.0 + lang.exp(-SHARPNESS * x))

    return value, slope


def _tanh(lang: ModuleType) -> Pair:
    @lang.func
    def value(x):
        return lang.tanh(x)

    @lang.func
    def slope(x):
        y = lang.tanh(x)
        return 1.0 - y * y

    return value, slope


_MAKERS: dict[str, Callable[[ModuleType], Pair]] = {
    "SiLU": _silu,
    "Exponential": _exponential,
    "Sine": _sine,
    "Sigmoid": _sigmoid,
    "Squareplus": _squareplus,
    "Softplus": _softplus,
    "Tanh": _tanh,
}
ACTIVATIONS = (*_OF_WHOLE_VECTORS, *_MAKERS)
"""Names of the activations."""
