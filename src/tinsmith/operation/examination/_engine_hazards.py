"""Hazards: constructs that an engine's reverse mode gets wrong in an op's kernels, reported before a launch.

For layers on fields, which launch the kernels themselves. An op's own passes check this in `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...calls.backward import EngineReverse
from ...compiling import Stage
from ...frontend import bind_index
from .._op import Op


class Outside(NamedTuple):
    """An index outside an array: of which kernel, where, along which axis, and how many elements there are."""

    kernel: str
    array: str
    place: str
    axis: int
    position: int
    size: int


class EngineHazards:
    """The checks of an op's gradient, for code that launches its kernels without the op.

    `instead` says what may be done where a gradient is refused.
    """

    def __init__(self, op: Op, instead: Callable[[], str] | None = None) -> None:
        self._signature = op._core.signature
        self._reverse = EngineReverse(self._signature, instead)

    def check(self, active: frozenset[str], values: Mapping[str, Any]) -> None:
        """Raise GradientError where the gradients of these inputs are not available by kernels that are run whole.

        `values` are arguments that are not arrays: an index may be made of them.
        """
        numbers = {name: value for name, value in values.items() if type(value) is int}
        self._reverse.check(active, numbers)
        self._reverse.check_whole(active)

    def is_written(self, name: str) -> bool:
        """Whether a kernel stores to an array, or uses it in a way that could not be followed."""
        roles = (stage.roles[name] for stage in self._signature.stages if name in stage.roles)
        return any(role.is_written for role in roles)

    def outside(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> Outside | None:
        """An index that is surely outside its array: a number, once the arguments are known, which no branch guards.

        Of a kernel that is launched many times the first and the last launch are looked at.
        """
        ends: dict[Stage, list[Stage]] = {}
        for stage in self._signature.stages:
            seen = ends.setdefault(stage.first, [stage])
            seen[1:] = [stage]
        chosen = (stage for pair in ends.values() for stage in dict.fromkeys(pair))
        return next((outside for stage in chosen for outside in _outside(stage, shapes, values)), None)

    def stacks(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> tuple[int, ...]:
        """For each kernel the depth that its gradient stack needs; 0 leaves it to the engine.

        Raises:
            GradientError: the stack would overflow, of which the process would die.
        """
        return self._reverse.stacks(frozenset(self._signature.arrays), shapes, values)


def _outside(stage: Stage, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> Iterator[Outside]:
    numbers = {name: values.get(stage.scalar_names.get(name, name)) for name in stage.first.parameters}
    known = {name: value for name, value in numbers.items() if type(value) is int}
    for name, role in stage.roles.items():
        for access in role.accesses:
            is_empty = any(one.extent is not None and one.extent[0] > one.extent[1] for one in access.loops)
            index = [bind_index(part, known) for part in access.index]
            if access.is_guarded or is_empty or any(part.wide for part in index):
                # A vector as an index spans several axes.
                continue
            for axis, (part, size) in enumerate(zip(index, shapes.get(name, ()), strict=False)):
                if part.number is not None and not 0 <= part.number < size:
                    yield Outside(stage.name, name, access.place, axis, part.number, size)
