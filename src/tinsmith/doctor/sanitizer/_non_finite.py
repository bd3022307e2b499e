"""Origins of non-finite numbers: operations with finite operands and a non-finite result, in values and gradients.

An infinite value may be intended (a sentinel, the reciprocal of a ray's direction), and a NaN may be unused. It is an
error if an output is NaN, or if the gradient is infinite or NaN. In the gradient, the operation is found by hooks on
torch's backward pass: the gradient that comes in is finite, and the one that goes out is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...engines import Number
from ...frontend import Columns
from ...linter import Finding, Severity
from ._log import Log
from ._position import ExecutionPosition


class _Origin(NamedTuple):
    path: str
    line: int
    operator: str
    operands: tuple[float, ...]
    result: float
    inside: str


class NonFiniteOrigins:
    """Observes every float that a run computes."""

    def __init__(self, here: ExecutionPosition) -> None:
        self._here = here
        self._values: list[_Origin] = []
        self._gradients: list[_Origin] = []

    def on_result(self, operator: str, operands: tuple[Number, ...], result: Number, line: int) -> None:
        """Record an operation if its result is not finite and its operands are; watch its gradient otherwise."""
        assert isinstance(result, torch.Tensor)
        value = result.item()
        if not math.isfinite(value):
            numbers = _numbers(operands)
            if all(map(math.isfinite, numbers)):
                self._values.append(self._origin(operator, numbers, value, line))
        elif result.grad_fn is not None:
            self._follow(result.grad_fn, operator, operands, line)

    def _origin(self, operator: str, numbers: tuple[float, ...], value: float, line: int) -> _Origin:
        here = self._here
        return _Origin(here.kernel.path, line, operator, numbers, value, here.inside(line))

    def _follow(self, node: torch.autograd.graph.Node, operator: str, operands: tuple[Number, ...], line: int) -> None:
        """Register a hook that records the operation if its backward pass makes a finite gradient infinite or NaN."""
        here, spot = self._here, self._here.spot(line)

        def check_gradients(given: Sequence[torch.Tensor | None], incoming: Sequence[torch.Tensor | None]) -> None:
            wrong, numbers = _first_infinite(given), _numbers(operands)
            # At infinite operands, as of an input, a derivative that is not finite is none of the kernel's mistakes.
            if wrong is not None and _first_infinite(incoming) is None and all(map(math.isfinite, numbers)):
                inside = here.within(spot)
                self._gradients.append(_Origin(spot.kernel.path, line, operator, numbers, wrong, inside))

        node.register_hook(check_gradients)

    def log_origins(
        self,
        log: Log,
        columns: Columns,
        outputs: Sequence[torch.Tensor],
        gradient: Sequence[torch.Tensor],
        *,
        has_finite_inputs: bool,
    ) -> None:
        """Log the recorded operations. Their severity depends on whether outputs and the gradient of inputs
        are finite. If inputs are not, these may be the reason, and an infinity alone is a warning.
        """
        has_nan = any(bool(one.isnan().any()) for one in outputs)
        has_infinite = has_nan or any(bool(one.isinf().any()) for one in outputs)
        is_smooth = all(bool(one.isfinite().all()) for one in gradient)
        breaks_gradient = not is_smooth and not self._gradients
        for origin in self._values:
            is_nan = math.isnan(origin.result)
            reaches = has_nan if is_nan else has_infinite
            is_severe = (has_nan or breaks_gradient) and (is_nan or has_finite_inputs)
            severity: Severity = "error" if is_severe else "warning"
            words = f"{_infinite(origin.result)} first appears{origin.inside}: {_operation(origin)}, of finite operands"
            words += (
                "; no output has it" * (not reaches) + "; the gradient of the inputs is not finite" * breaks_gradient
            )
            _note(log, columns, origin, "value", severity, words)
        if is_smooth:
            return
        for origin in self._gradients:
            words = f"the derivative of {_operation(origin)} is {_infinite(origin.result)}{origin.inside}: "
            words += "the value is finite, the gradient of the inputs is not"
            _note(log, columns, origin, "gradient", "error", words)

    @property
    def are_found(self) -> bool:
        """True if an observed operation made a value or the gradient infinite or NaN."""
        return bool(self._values or self._gradients)


def _note(log: Log, columns: Columns, origin: _Origin, about: str, severity: Severity, words: str) -> None:
    def finding() -> Finding:
        place = columns.operation(origin.path, origin.line, origin.operator)
        remedy = _REMEDIES.get(origin.operator, "")
        return Finding("TS606", severity, origin.path, *place, words, remedy)

    log.note("TS606", severity, origin.path, origin.line, about, finding)


_REMEDIES = {
    "sqrt": "keep its operand above zero: `sqrt(max(v, 1e-12))`, or a branch for zero",
    "rsqrt": "keep its operand above zero: `rsqrt(max(v, 1e-12))`",
    "norm": "keep the square above zero: `sqrt(v.dot(v) + 1e-12)`",
    "log": "keep its operand above zero: `log(max(v, 1e-12))`",
    "/": "keep the divisor away from zero: a branch, or `a / max(b, 1e-12)`",
    "exp": "subtract the greatest exponent first, or clamp the operand",
    "pow": "keep the base above zero: `max(v, 1e-12) ** p`",
    "acos": "clamp its operand to -1..1, and away from both ends where it is differentiated",
    "asin": "clamp its operand to -1..1, and away from both ends where it is differentiated",
}


def _operation(origin: _Origin) -> str:
    numbers = [f"{one:g}" for one in origin.operands]
    if origin.operator == "cast":
        return f"{numbers[0]} cast to a narrower float"
    if len(numbers) == 2 and not origin.operator.isalnum():
        return f"{numbers[0]} {origin.operator} {numbers[1]}"
    return f"{origin.operator}({', '.join(numbers)})"


def _infinite(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity" if value > 0 else "minus infinity"


def _numbers(operands: tuple[Number, ...]) -> tuple[float, ...]:
    return tuple([one.item() if isinstance(one, torch.Tensor) else float(one) for one in operands])


def _first_infinite(tensors: Sequence[torch.Tensor | None]) -> float | None:
    for one in tensors:
        if one is not None and not math.isfinite(one.item()):
            return one.item()
    return None
