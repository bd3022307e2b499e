"""Checks for constructs in an op's kernels that an engine's reverse mode gets wrong, made before a launch.

They are for layers on fields, which launch the kernels themselves. An op's own passes check this in `backward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...calls.backward import EngineReverse
from ...compiling import Stage
from ...frontend import bind_index
from .._op import Op


class Outside(NamedTuple):
    """An index outside an array: the kernel, the array, the place in the source, the axis, the index, and the axis'
    size.
    """

    kernel: str
    array: str
    place: str
    axis: int
    position: int
    size: int


class EngineHazards:
    """The checks of an op's gradient, for code that launches its kernels without the op.

    `instead` returns the advice to give if a gradient is refused.
    """

    def __init__(self, op: Op, instead: Callable[[], str] | None = None) -> None:
        self._signature = op._core.signature
        self._reverse = EngineReverse(self._signature, instead)

    def check(self, active: frozenset[str], values: Mapping[str, Any]) -> None:
        """Raise GradientError if the engine has no correct gradient by these inputs.

        `values` are the arguments other than arrays, since indices may depend on them.
        """
        numbers = {name: value for name, value in values.items() if type(value) is int}
        self._reverse.check(active, numbers)
        self._reverse.check_whole(active)

    def is_written(self, name: str) -> bool:
        """Return True if a kernel stores to an array, or uses it in a way that cannot be analyzed."""
        roles = (stage.roles[name] for stage in self._signature.stages if name in stage.roles)
        return any(role.is_written for role in roles)

    def outside(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> Outside | None:
        """Return an unguarded index that is certainly out of range for these arguments, or None.

        For a kernel that is launched many times, only the first and the last launch are checked.
        """
        ends: dict[Stage, list[Stage]] = {}
        for stage in self._signature.stages:
            seen = ends.setdefault(stage.first, [stage])
            seen[1:] = [stage]
        chosen = (stage for pair in ends.values() for stage in dict.fromkeys(pair))
        return next((outside for stage in chosen for outside in _find_outside(stage, shapes, values)), None)

    def stacks(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> tuple[int, ...]:
        """Return, for each kernel, the depth that its gradient stack needs; 0 leaves it to the engine.

        Raises:
            GradientError: the stack would overflow, which would end the process.
        """
        return self._reverse.find_stack_depths(frozenset(self._signature.arrays), shapes, values)


def _find_outside(stage: Stage, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> Iterator[Outside]:
    numbers = {name: values.get(stage.scalar_names.get(name, name)) for name in stage.first.parameters}
    known = {name: value for name, value in numbers.items() if type(value) is int}
    for name, role in stage.roles.items():
        for access in role.accesses:
            is_empty = any(one.extent is not None and one.extent[0] > one.extent[1] for one in access.loops)
            index = [bind_index(part, known) for part in access.index]
            if access.is_guarded or is_empty or any(part.wide for part in index):
                # A vector index spans several axes.
                continue
            for axis, (part, size) in enumerate(zip(index, shapes.get(name, ()), strict=False)):
                if part.number is not None and not 0 <= part.number < size:
                    yield Outside(stage.name, name, access.place, axis, part.number, size)
