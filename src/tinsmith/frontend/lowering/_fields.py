"""Fields that a kernel names itself: arrays of its own, known by what the source calls them."""

from __future__ import annotations

import re
from typing import Any

from ..._errors import KernelError
from ...engines import NAMES, Engine
from ...ir import Misfit, Type, nodes
from ._state import State
from ._values import ArrayValue


class Fields:
    """The fields of one kernel. `objects` are the engine's objects, by the array's name."""

    def __init__(self, engine: Engine, state: State) -> None:
        self.engine = engine
        self.state = state
        self.objects: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def array(self, field: Any, label: str) -> ArrayValue:
        """A field of numbers as an array. Raises Misfit for what is none."""
        try:
            facts = self.engine.field_facts(field, label)
        except KernelError as reason:
            raise Misfit(str(reason).splitlines()[0]) from None
        if facts.key not in self._names:
            name = self.state.fresh(re.sub(r"\W+", "_", label.removeprefix("self.")).strip("_") or "field")
            kind = Type(NAMES[facts.dtype])
            self._names[facts.key] = name
            self.objects[name] = field
            offset = facts.offset if any(facts.offset) else ()
            self.state.arrays[name] = nodes.Array(name, kind, len(facts.shape), facts.element, label, offset)
        array = self.state.arrays[self._names[facts.key]]
        return ArrayValue(array, facts.shape, facts.offset, facts.is_dense)
