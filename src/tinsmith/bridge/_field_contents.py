"""Field contents: a backward pass reads an op's fields again, and must find what the forward pass found.

Fields belong to the user, and no engine counts their changes. So their contents are looked at when a call that may
have a gradient begins, and again when its backward pass does. NumPy's arrays hold them: a transform of torch that is
under way does not see those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._config import config
from .._errors import GradientError, refusal
from ..engines import COMPILING, NAMES, Engine, FieldFacts
from ._signature import Signature
from ._transfer import Copy, Transfer


class Content(NamedTuple):
    """What one field held. Calls that found the same share `values`."""

    name: str
    values: np.ndarray

    def equals(self, other: Content) -> bool:
        """Whether both are the same, bit by bit."""
        if self.values is other.values:
            return True
        mine, theirs = (np.ascontiguousarray(one.values).reshape(-1) for one in (self, other))
        return self.values.shape == other.values.shape and np.array_equal(mine.view(np.uint8), theirs.view(np.uint8))


def _numpy_type(name: str) -> str:
    """NumPy's name of a type that an engine calls `f32`."""
    return "bool" if name == "u1" else {"f": "float", "i": "int", "u": "uint"}[name[0]] + name[1:]


class FieldContents:
    """Looks at the fields that an op's kernels read."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._last: dict[int, Content] = {}
        self._readers: dict[int, tuple[object, Transfer]] = {}

    def now(self) -> tuple[Content, ...]:
        """What they hold."""
        stages = [stage for stage in self._signature.firsts if stage.uses_fields]
        if not stages:
            return ()
        found = {}
        for stage in stages:
            uses = (use for use in stage.field_uses() if use.is_read)
            leaves = [leaf for use in uses for leaf in stage.home.leaf_fields(use.field, use.name)]
            for name, field in leaves:
                facts = stage.home.field_facts(field, name)
                if facts.key not in found:
                    found[facts.key] = self._content(name, self._read(stage.home, field, facts), facts.key)
        self._last = found
        return tuple(found.values())

    def _read(self, engine: Engine, field: object, facts: FieldFacts) -> np.ndarray:
        """A field's values. An engine's own `to_numpy` takes milliseconds where its threads are asleep."""
        with COMPILING:
            if engine.device_type() != "cpu" or not facts.is_dense:
                return field.to_numpy()  # type: ignore[attr-defined]  # of an engine's field
            runtime, reader = self._readers.get(facts.key, (None, None))
            if reader is None or runtime is not engine.runtime():
                reader = Transfer(engine, [Copy("store", field, facts)])
                self._readers[facts.key] = (engine.runtime(), reader)
            values = np.empty(facts.shape + facts.element, _numpy_type(NAMES[facts.dtype]))
            reader.run_at([values.ctypes.data], is_serial=facts.count < config().serial_below)
            return values

    def _content(self, name: str, values: np.ndarray, key: int) -> Content:
        content = Content(name, values)
        before = self._last.get(key)
        return before if before is not None and before.equals(content) else content

    def check(self, before: tuple[Content, ...]) -> None:
        """Raise GradientError where a field holds something else than `before`."""
        for then, now in zip(before, self.now() if before else (), strict=True):
            if not then.equals(now):
                op = self._signature.op
                words = (
                    f"the field `{then.name}` that op `{op}` reads changed between its forward and its backward pass"
                )
                remedy = f"Change it after the backward pass, or make `{then.name}` an array parameter of the kernel."
                raise GradientError(refusal(words, remedy=remedy))
