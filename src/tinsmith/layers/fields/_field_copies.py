"""Field copies: what fields hold, taken into tensors and put back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...calls import make_recycled
from ...calls.fields import Copy, Transfer
from ...engines import Engine
from ...tracing import keep_order
from .._pool import gradient_field
from ._layer_field import LayerField


class FieldCopies:
    """Copies what fields and their gradients hold, and puts it back, in one transfer for any number of fields."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._transfers: dict[tuple[Any, ...], Transfer] = {}

    def take(self, fields: Sequence[LayerField], graded: Sequence[LayerField] = ()) -> list[torch.Tensor]:
        """Return what fields hold, and then what the gradients of `graded` hold."""
        kinds = [(one.facts.shape + one.facts.element, one.facts.dtype, one.runs_on) for one in (*fields, *graded)]
        held = [make_recycled(shape, dtype, torch.device(device)) for shape, dtype, device in kinds]
        self._run("store", fields, graded, held)
        return held

    def put(
        self, fields: Sequence[LayerField], contents: Sequence[torch.Tensor], graded: Sequence[LayerField] = ()
    ) -> None:
        """Write contents: the first into `fields`, the rest into the gradients of `graded`."""
        self._run("restore", fields, graded, [one.detach().contiguous().resolve_neg() for one in contents])

    def _run(
        self, kind: Any, fields: Sequence[LayerField], graded: Sequence[LayerField], tensors: Sequence[torch.Tensor]
    ) -> None:
        if not tensors:
            return
        key = kind, *[one.facts.key for one in fields], None, *[one.facts.key for one in graded]
        if key not in self._transfers:
            copies = [Copy(kind, one.field, one.facts) for one in fields]
            copies += [Copy(kind, gradient_field(one.field), one.gradient_facts) for one in graded]
            self._transfers[key] = Transfer(self._engine, copies)
        with keep_order(self._engine, tensors[0].device, "a copy of fields"):
            self._transfers[key].run(tensors, is_serial=False)
