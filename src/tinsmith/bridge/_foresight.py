"""Foresight: what an engine's reverse mode would do wrong with an op's kernels, told before a launch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ._op import Op
from .backward import EngineReverse


class Foresight:
    """The checks of an op's gradient, for whoever runs its kernels some other way than by the op.

    `instead` says what may be done where a gradient is refused.
    """

    def __init__(self, op: Op, instead: Callable[[], str] | None = None) -> None:
        self._signature = op._core.signature
        self._reverse = EngineReverse(self._signature, instead)

    def check(self, active: frozenset[str], values: Mapping[str, Any]) -> None:
        """Raise GradientError where the gradients of these inputs cannot be had by kernels that are run whole.

        `values` are arguments that are no arrays: an index may be made of them.
        """
        numbers = {name: value for name, value in values.items() if type(value) is int}
        self._reverse.check(active, numbers)
        self._reverse.check_whole(active)

    def is_written(self, name: str) -> bool:
        """Whether a kernel stores to an array, or uses it in a way that could not be followed."""
        roles = (stage.roles[name] for stage in self._signature.stages if name in stage.roles)
        return any(role.is_written for role in roles)

    def stacks(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> tuple[int, ...]:
        """For each kernel the depth that its gradient stack needs; 0 leaves it to the engine.

        Raises:
            GradientError: the stack would overflow, of which the process would die.
        """
        return tuple(self._reverse.stack(stage, shapes, values) for stage in self._signature.stages)
