"""Exact numbers: floats as 0-d tensors, so that torch's autograd differentiates every operation.

The operations are torch's own functions, so torch's value and derivative apply at kinks and singular points too.
Where the engines have another value, the operation is defined here. Integers are NumPy's, as in every run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..._errors import KernelError, refusal
from .._operators import COMPARISONS
from ._arithmetic import Arithmetic
from ._numbers import (
    CASTS,
    FLOATS,
    INTEGER_RULES,
    KINDS,
    SHIFTS,
    TYPES,
    UNARY_RULES,
    Defaults,
    Rule,
)
from ._observers import Number, Watch


class NoRule(KernelError):
    """The error for an operation that is not defined for exact numbers."""

    def __init__(self, operator: str, kind: str, line: int) -> None:
        super().__init__(refusal(f"The interpreter has no rule for `{operator}` on {kind}, in line {line}"))
        self.construct = f"`{operator}` on {kind}"
        self.line = line


class Tracked:
    """A float of a kernel as a 0-d tensor."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __bool__(self) -> bool:
        return self.tensor.item() != 0

    def __float__(self) -> float:
        return float(self.tensor.item())

    def __repr__(self) -> str:
        return str(self.tensor.item())


class _Half(Tracked):
    __slots__ = ()


class _Single(Tracked):
    __slots__ = ()


class _Double(Tracked):
    __slots__ = ()


_CLASSES: dict[str, type[Tracked]] = {"f16": _Half, "f32": _Single, "f64": _Double}
"""The class of a tracked number, by the engines' name for its type. Operations are looked up by class."""
KINDS.update({python: kind for kind, python in _CLASSES.items()})
_OWN = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
_DIVISIONS = frozenset({"//", "%", "raw_div", "raw_mod"})


def keep_zero_cotangents(rule: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap an operation so that a cotangent of 0 yields a gradient of 0, even if the derivative is infinite or NaN.

    torch multiplies the two and gets NaN. Generated gradients do not (docs/reference/conventions.md).
    """

    def apply(*operands: torch.Tensor) -> torch.Tensor:
        value = rule(*operands)
        if value.grad_fn is not None:
            value.grad_fn.register_hook(_drop_slopes_of_zero)
        return value

    return apply


def _drop_slopes_of_zero(
    gradients: tuple[torch.Tensor | None, ...], cotangents: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    if any(one is not None and one.item() != 0.0 for one in cotangents):  # NaN is not 0
        return gradients
    # Finite gradients are kept: in a graph for higher derivatives they depend on the cotangent, even if it is 0 now.
    return tuple([one if one is None or one.isfinite() else torch.zeros_like(one) for one in gradients])


def _round(value: torch.Tensor) -> torch.Tensor:
    """Round to the nearest integer, halves away from zero (torch rounds them to even). The derivative is 0."""
    value = value.detach()
    whole = value.trunc()
    return whole + value.sign() if (value - whole).abs().item() >= 0.5 else whole


def _norm(square: torch.Tensor) -> torch.Tensor:
    """Return the square root of a squared length. At 0 the derivative is 0, as that of `torch.linalg.vector_norm`."""
    return square.sqrt() if square.item() else square * 0.0


def _floor_quotient(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return `floor(left / right)`, with derivative 0.

    torch computes it from the remainder, so its `1.0 // 0.1` is 9.
    """
    return (left.detach() / right.detach()).floor()


def _modulo(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the remainder with the sign of `right`.

    Its derivatives are 1 and `-(left // right)`, as `torch.remainder`'s.
    """
    return left - right * _floor_quotient(left, right)


def _straight_through(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the value of `left` with the derivative of `right`. If either is not finite, the derivative is 0."""
    value = left.detach()
    return value + (right - right.detach()) if value.isfinite() and right.isfinite() else value


FLOAT_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "neg": torch.neg,
    "abs": torch.abs,
    "sgn": torch.sign,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": _round,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "norm": _norm,
    "exp": torch.exp,
    "log": torch.log,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "tanh": torch.tanh,
}

FLOAT_BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "+": torch.add,
    "-": torch.sub,
    "*": torch.mul,
    "/": torch.div,
    "//": _floor_quotient,
    "%": _modulo,
    "min": torch.minimum,
    "max": torch.maximum,
    "atan2": torch.atan2,
    "pow": torch.pow,
    "straight_through": _straight_through,
}

SINGULAR = frozenset({"sqrt", "rsqrt", "exp", "log", "asin", "acos", "/", "pow"})
"""Operations whose derivative can be infinite or NaN."""

RECTIFIERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": torch.relu,
    "min": lambda value: 0.0 - torch.relu(-value),
}
"""`max(x, 0)` and `min(x, 0)` with a literal zero: the derivative at x = 0 is 0, not 1/2."""

EXACT_OPERATIONS = frozenset({*UNARY_RULES, *INTEGER_RULES, *SHIFTS, *COMPARISONS, *FLOAT_UNARY, *FLOAT_BINARY})
"""Names of the operations that are defined for exact runs, on integers or on floats."""


class ExactArithmetic(Arithmetic):
    """Arithmetic whose floats are tracked by autograd, and whose operations can be watched.

    Args:
        defaults: the types of Python's numbers.
        is_faithful: whether a float is rounded to its own type after each operation; otherwise all are float64.
        is_watched: whether `watch` is notified of each result.

    Attributes:
        line: of the statement that is running.
        watch: notified of results, and of integer divisions by zero.
    """

    def __init__(self, defaults: Defaults, *, is_faithful: bool, is_watched: bool) -> None:
        self._is_watched = is_watched
        self._dtypes = _OWN if is_faithful else dict.fromkeys(_OWN, torch.float64)
        self.line = 0
        self.watch = Watch()
        self.plain_casts = {kind: self._cast_to_integer(kind) for kind in TYPES if kind not in FLOATS}
        self.plain_casts |= {kind: self._cast_to_float(kind) for kind in FLOATS}
        super().__init__(defaults)

    def dtype(self, kind: str) -> torch.dtype:
        """Return the torch dtype in which floats of a type are computed."""
        return self._dtypes[kind]

    def track(self, kind: str, tensor: torch.Tensor) -> Tracked:
        """Wrap a 0-d tensor as a number of a type."""
        return _CLASSES[kind](tensor.to(self._dtypes[kind]))

    # Conversions ---------------------------------------------------------------------------------

    def _cast_to_float(self, kind: str) -> Rule:
        python, dtype = _CLASSES[kind], self._dtypes[kind]

        def cast(value: Any) -> Any:
            if type(value) is python:
                return value
            if not isinstance(value, Tracked):
                number = value.item() if isinstance(value, np.generic) else value
                return python(torch.scalar_tensor(number, dtype=dtype))
            if value.tensor.dtype == dtype:
                return python(value.tensor)
            return python(self._report_cast(kind, value.tensor, value.tensor.to(dtype)))

        return cast

    def _cast_to_integer(self, kind: str) -> Rule:
        convert, own = CASTS[kind], TYPES[kind]

        def cast(value: Any) -> Any:
            if type(value) is own:
                return value
            if isinstance(value, Tracked):
                result = convert(value.tensor.item())
                self._report_cast(kind, value.tensor, int(result))
                return result
            result = convert(value)
            if isinstance(value, np.generic):
                self._report_cast(kind, int(value), int(result))
            return result

        return cast

    def _report_cast(self, kind: str, value: Number, result: Any) -> Any:
        if self._is_watched:
            self.watch.on_result("cast", kind, (value,), result, self.line)
        return result

    def reinterpret(self, value: Any, kind: str) -> Any:
        held = np.array(value) if isinstance(value, np.generic) else self._to_numpy(value)
        if kind in FLOATS:
            return self.track(kind, torch.from_numpy(held.view(TYPES[kind])))
        return held.view(TYPES[kind])[()]

    def _to_numpy(self, value: Tracked) -> np.ndarray:
        """Convert a tracked number to a NumPy array of its own type."""
        return value.tensor.detach().to(_OWN[KINDS[type(value)]]).numpy()

    # Operations ----------------------------------------------------------------------------------

    def find_unary(self, name: str, kind: str) -> Rule:
        if kind in FLOATS and name != "not":
            return self._wrap_float_operation(name, kind, FLOAT_UNARY.get(name))
        rule = super().find_unary(name, kind)
        return rule if name in ("not", "ffs") else self._wrap_integer_operation(name, kind, rule)

    def find_binary(self, name: str, common: str) -> Rule:
        if common in FLOATS and name in COMPARISONS:
            compare = COMPARISONS[name]
            return lambda left, right: np.bool_(compare(left.tensor.item(), right.tensor.item()))
        if common in FLOATS:
            return self._wrap_float_operation(name, common, FLOAT_BINARY.get(name))
        rule = super().find_binary(name, common)
        if name in COMPARISONS:
            return rule
        return self._wrap_integer_operation(
            name, common, self._guard_division(name, rule) if name in _DIVISIONS else rule
        )

    def find_shift(self, name: str, kind: str) -> Rule:
        return self._wrap_integer_operation(name, kind, super().find_shift(name, kind))

    def rectify(self, name: str, kind: str) -> Rule:
        """Return `max(x, 0)` or `min(x, 0)` as a function of x and 0. Its derivative at x = 0 is 0, not 1/2."""
        return self._wrap_float_operation(name, kind, RECTIFIERS[name])

    def _wrap_float_operation(self, name: str, kind: str, rule: Callable[..., torch.Tensor] | None) -> Rule:
        """Convert a function of tensors to one of tracked numbers of type `kind`. Raise NoRule if there is none."""
        if rule is None:
            raise NoRule(name, kind, self.line)
        python = _CLASSES[kind]
        if not self._is_watched:
            # A watch looks for NaN that an engine's reverse mode would produce, so 0 times infinity stays NaN for it.
            compute = keep_zero_cotangents(rule) if name in SINGULAR else rule
            return lambda *operands: python(compute(*[one.tensor for one in operands]))

        def compute_and_report(*operands: Tracked) -> Tracked:
            tensors = tuple([one.tensor for one in operands])
            result = rule(*tensors)
            self.watch.on_result(name, kind, tensors, result, self.line)
            return python(result)

        return compute_and_report

    def _wrap_integer_operation(self, name: str, kind: str, rule: Rule) -> Rule:
        if not self._is_watched:
            return rule

        def compute_and_report(*operands: Any) -> Any:
            result = rule(*operands)
            self.watch.on_result(name, kind, tuple([int(one) for one in operands]), int(result), self.line)
            return result

        return compute_and_report

    def _guard_division(self, name: str, rule: Rule) -> Rule:
        """Wrap an integer division: for a divisor of 0, raise KernelError with the line, or return 0 if the run is
        watched.
        """

        def divide(left: Any, right: Any) -> Any:
            if right:
                return rule(left, right)
            if not self._is_watched:
                raise _make_division_error(name, int(left), self.line)
            self.watch.on_division_by_zero(name, int(left), self.line)
            return type(left)(0)

        return divide


def _make_division_error(name: str, left: int, line: int) -> KernelError:
    words = f"Line {line} divides an integer by zero"
    remedy = "Guard the divisor: an engine would crash or compute an arbitrary result."
    return KernelError(refusal(words, [("operation", f"{left} {name} 0")], remedy))
