"""Losses of one number against its target, for kernels that learn in one go: each one's value and slope.

They are tiny-cuda-nn's (`nn.losses` has the definitions): the prediction in a denominator counts as a constant.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

Pair = tuple[Any, Any]
# Its 0.01 as a whole number, which kernels have exactly in every dtype: (p - t)^2 / (p^2 + 1 / SMALL), and so on.
SMALL = 100.0


def element_loss(lang: ModuleType, name: str) -> Pair:
    """Functions of a kernel for a loss by its name: (prediction, target) to the value, and to its slope."""
    return _MAKERS[name](lang)


def _l2(lang: ModuleType) -> Pair:
    @lang.func
    def value(p, t):
        return (p - t) * (p - t)

    @lang.func
    def slope(p, t):
        return 2.0 * (p - t)

    return value, slope


def _relative_l2(lang: ModuleType) -> Pair:
    @lang.func
    def value(p, t):
        return SMALL * (p - t) * (p - t) / (SMALL * p * p + 1.0)

    @lang.func
    def slope(p, t):
        return 2.0 * SMALL * (p - t) / (SMALL * p * p + 1.0)

    return value, slope


def _absolute(weight: Callable[[ModuleType], Any]) -> Callable[[ModuleType], Pair]:
    """|p - t| times a weight that counts as a constant."""

    def maker(lang: ModuleType) -> Pair:
        weigh = weight(lang)

        @lang.func
        def value(p, t):
            return lang.abs(p - t) * weigh(p, t)

        @lang.func
        def slope(p, t):
            sign = lang.select(p > t, 1.0, lang.select(p < t, -1.0, 0.0))
            return sign * weigh(p, t)

        return value, slope

    return maker


def _one(lang: ModuleType) -> Any:
    @lang.func
    def weigh(_p, _t):
        return 1.0

    return weigh


def _by_prediction(lang: ModuleType) -> Any:
    @lang.func
    def weigh(p, _t):
        return SMALL / (SMALL * lang.abs(p) + 1.0)

    return weigh


def _by_target(lang: ModuleType) -> Any:
    @lang.func
    def weigh(_p, t):
        return SMALL / (SMALL * lang.abs(t) + 1.0)

    return weigh


def _by_both(lang: ModuleType) -> Any:
    @lang.func
    def weigh(p, t):
        return 2.0 * SMALL / (SMALL * (lang.abs(p) + lang.abs(t)) + 2.0)

    return weigh


def _cross_entropy(lang: ModuleType) -> Pair:
    @lang.func
    def value(p, t):
        return -t * lang.log(p)

    @lang.func
    def slope(p, t):
        return -t / p

    return value, slope


_MAKERS: dict[str, Callable[[ModuleType], Pair]] = {
    "L1": _absolute(_one),
    "L2": _l2,
    "RelativeL1": _absolute(_by_prediction),
    "RelativeL2": _relative_l2,
    "MAPE": _absolute(_by_target),
    "SMAPE": _absolute(_by_both),
    "CrossEntropy": _cross_entropy,
}
ELEMENT_LOSSES = tuple(_MAKERS)
"""Names of the losses that look at one number at a time."""
