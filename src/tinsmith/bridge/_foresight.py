"""Foresight: what an engine's reverse mode would do wrong with an op's kernels, told before a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._op import Op
from .backward import EngineReverse


class Foresight:
    """The checks of an op's gradient, for whoever runs its kernels some other way than by the op."""

    def __init__(self, op: Op) -> None:
        self._signature = op._core.signature
        self._reverse = EngineReverse(self._signature)

    def check(self, active: frozenset[str]) -> None:
        """Raise GradientError where the gradients of these inputs cannot be had by kernels that are run whole."""
        self._reverse.check(active)
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
