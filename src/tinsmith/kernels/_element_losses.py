"""Losses of a number against its target, and their derivatives, for kernels that compute a loss and its gradient at
once.

They are tiny-cuda-nn's (`nn.losses` has the definitions): a prediction in a denominator counts as a constant. As with
activations (`_activations`), losses that need only sums, products and maxima are also computed on whole vectors.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

Pair = tuple[Any, Any]
# The inverse of tiny-cuda-nn's 0.01, which is exact in every dtype: (p - t)^2 / (p^2 + 1 / SMALL), and so on.
SMALL = 100.0


def build_element_loss(lang: ModuleType, name: str, dtype: str) -> Pair:
    """Build a loss and its derivative in the prediction, by name: functions of (prediction, target) for single
    numbers.
    """
    return _MAKERS[name](lang, getattr(lang, dtype))


def build_vector_loss(lang: ModuleType, name: str, lanes: int, dtype: str) -> Pair:
    """Build a loss and its derivative in the prediction, by name, for vectors of `lanes` predictions and targets."""
    if name != "CrossEntropy":
        return _MAKERS[name](lang, lang.types.vector(lanes, getattr(lang, dtype)))
    value, slope = build_element_loss(lang, name, dtype)
    return _build_by_component(lang, value, lanes), _build_by_component(lang, slope, lanes)


def _build_by_component(lang: ModuleType, function: Any, lanes: int) -> Any:
    @lang.func
    def apply_each(p, t):
        result = p
        for k in lang.static(range(lanes)):
            result[k] = function(p[k], t[k])
        return result

    return apply_each


# `of` makes a number, or a vector of it, of the right dtype: literals would be float32.
def _l2(lang: ModuleType, of: Any) -> Pair:
    @lang.func
    def value(p, t):
        return (p - t) * (p - t)

    @lang.func
    def slope(p, t):
        return of(2.0) * (p - t)

    return value, slope


def _relative_l2(lang: ModuleType, of: Any) -> Pair:
    @lang.func
    def value(p, t):
        return of(SMALL) * (p - t) * (p - t) / (of(SMALL) * p * p + of(1.0))

    @lang.func
    def slope(p, t):
        return of(2.0) * of(SMALL) * (p - t) / (of(SMALL) * p * p + of(1.0))

    return value, slope


def _build_absolute(weight: Callable[[ModuleType, Any, Any], Any]) -> Callable[[ModuleType, Any], Pair]:
    """Return the builder of the loss |p - t| times a weight. The derivative treats the weight as a constant."""

    def maker(lang: ModuleType, of: Any) -> Pair:
        @lang.func
        def size(x):  # there is no `abs` of whole vectors
            return lang.max(x, of(0.0) - x)

        weigh = weight(lang, of, size)

        @lang.func
        def value(p, t):
            return size(p - t) * weigh(p, t)

        @lang.func
        def slope(p, t):
            sign = lang.select(p > t, of(1.0), lang.select(p < t, of(-1.0), of(0.0)))
            return sign * weigh(p, t)

        return value, slope

    return maker


def _one(lang: ModuleType, of: Any, _size: Any) -> Any:
    @lang.func
    def weigh(_p, _t):
        return of(1.0)

    return weigh


def _by_prediction(lang: ModuleType, of: Any, size: Any) -> Any:
    @lang.func
    def weigh(p, _t):
        return of(SMALL) / (of(SMALL) * size(p) + of(1.0))

    return weigh


def _by_target(lang: ModuleType, of: Any, size: Any) -> Any:
    @lang.func
    def weigh(_p, t):
        return of(SMALL) / (of(SMALL) * size(t) + of(1.0))

    return weigh


def _by_both(lang: ModuleType, of: Any, size: Any) -> Any:
    @lang.func
    def weigh(p, t):
        return of(2.0) * of(SMALL) / (of(SMALL) * (size(p) + size(t)) + of(2.0))

    return weigh


def _cross_entropy(lang: ModuleType, _of: Any) -> Pair:
    @lang.func
    def value(p, t):
        return -t * lang.log(p)

    @lang.func
    def slope(p, t):
        return -t / p

    return value, slope


_MAKERS: dict[str, Callable[[ModuleType, Any], Pair]] = {
    "L1": _build_absolute(_one),
    "L2": _l2,
    "RelativeL1": _build_absolute(_by_prediction),
    "RelativeL2": _relative_l2,
    "MAPE": _build_absolute(_by_target),
    "SMAPE": _build_absolute(_by_both),
    "CrossEntropy": _cross_entropy,
}
ELEMENT_LOSSES = tuple(_MAKERS)
"""Names of the losses that are computed for each number separately."""
