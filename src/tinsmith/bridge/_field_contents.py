"""Field contents: a backward pass reads an op's fields again, and must find what the forward pass found.

Fields belong to the user, and no engine counts their changes. So their contents are looked at when a call that may
have a gradient begins, and again when its backward pass does. NumPy's arrays hold them: a transform of torch that is
under way does not see those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .._errors import GradientError, refusal
from ..engines import COMPILING
from ._signature import Signature


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


class FieldContents:
    """Looks at the fields that an op's kernels read."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._last: dict[int, Content] = {}

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
                key = stage.home.field_facts(field, name).key
                if key not in found:
                    found[key] = self._read(key, name, field)
        self._last = found
        return tuple(found.values())

    def _read(self, key: int, name: str, field: object) -> Content:
        with COMPILING:
            content = Content(name, field.to_numpy())  # type: ignore[attr-defined]  # of an engine's field
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
