"""State: Python values and fields of a forward pass as numbers in a tensor, which its backward pass compares.

A traced graph can only pass tensors from its forward to its backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._baked_values import changed_between
from .._core import Core
from .._field_contents import field_changed_between

LENGTH = 16
"""Numbers in a state: one for the Python values, the others for fields. A graph is traced before fields are counted, so
that further fields share the numbers of the first ones."""


def note_state(core: Core, templates: Mapping[str, Any]) -> torch.Tensor:
    """The state now."""
    numbers = [0] * LENGTH
    for place, _, number in _digests(core, templates):
        numbers[place] ^= number
    return torch.tensor(numbers, dtype=torch.int64)


def check_state(core: Core, templates: Mapping[str, Any], before: torch.Tensor) -> None:
    """Raise GradientError where the state is another one than it was."""
    now, then = note_state(core, templates).tolist(), before.tolist()
    if now == then:
        return
    for place, field, _ in _digests(core, templates):
        if now[place] != then[place]:
            op = core.signature.op
            raise field_changed_between(op, field) if field else changed_between(op)


def _digests(core: Core, templates: Mapping[str, Any]) -> Iterator[tuple[int, str, int]]:
    """Places in the state, names of fields ("" for Python values), and numbers."""
    fingerprints = core.fingerprints(templates)
    yield 0, "", hash(fingerprints)
    fields = [one for look in core.contents.looks(fingerprints) for one in look.digests()]
    for count, (name, number) in enumerate(fields):
        yield 1 + count % (LENGTH - 1), name, number
