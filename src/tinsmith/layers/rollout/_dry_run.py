"""Dry run: runs what was recorded so far on the fields themselves, so that Python can be told a value of now.

Recorded kernels have not run when the function of a rollout asks for a value that depends on them. The engine runs them
then, and afterwards the fields hold again what they held before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...calls import keep_order
from ...calls.fields import Copy, Transfer
from ...engines import Engine
from ..fields import Launch, LayerField, by_key, uses_of_each


class FieldCopies:
    """Copies what fields hold, and puts it back, one launch for any number of fields."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._transfers: dict[tuple[str, tuple[int, ...]], Transfer] = {}

    def take(self, fields: Sequence[LayerField]) -> list[torch.Tensor]:
        """Return what fields hold."""
        shapes = [one.facts.shape + one.facts.element for one in fields]
        pairs = zip(fields, shapes, strict=True)
        held = [torch.empty(shape, dtype=one.facts.dtype, device=one.runs_on) for one, shape in pairs]
        self._run("store", fields, held)
        return held

    def put(self, fields: Sequence[LayerField], contents: Sequence[torch.Tensor]) -> None:
        """Fill fields."""
        self._run("restore", fields, [one.detach().contiguous().resolve_neg() for one in contents])

    def _run(self, kind: Any, fields: Sequence[LayerField], tensors: Sequence[torch.Tensor]) -> None:
        if not fields:
            return
        key = kind, tuple([one.facts.key for one in fields])
        if key not in self._transfers:
            self._transfers[key] = Transfer(self._engine, [Copy(kind, one.field, one.facts) for one in fields])
        with keep_order(tensors[0].device):
            self._transfers[key].run(tensors, is_serial=False)


class DryRun:
    """One run on the fields.

    Args:
        copies: of the rollout.
        filled: the fields that a call fills, and with what.
        begin: what a call begins with, after that.
    """

    def __init__(
        self,
        copies: FieldCopies,
        filled: Sequence[tuple[LayerField, torch.Tensor]],
        begin: Sequence[Launch],
    ) -> None:
        self._copies = copies
        self._filled = filled
        self._begin = begin
        self._held: list[tuple[Sequence[LayerField], Sequence[torch.Tensor]]] = []
        self._saved: set[int] = set()
        self._has_begun = False

    def run(self, steps: Sequence[tuple[Launch, Callable[[], Any] | None]]) -> None:
        """Run launches: what the user called, or where that is None, the launch itself."""
        if not self._has_begun:
            self._has_begun = True
            fields = [one for one, _ in self._filled]
            self._save(fields)
            self._copies.put(fields, [tensor for _, tensor in self._filled])
            self.run([(launch, None) for launch in self._begin])
        launches = [launch for launch, _ in steps]
        uses = [use for of_launch in uses_of_each(launches) for use in of_launch.values()]
        self._save([use.one for use in uses if use.is_written])
        for launch, call in steps:
            if call is not None:
                call()
            else:
                fingerprint = launch.launcher.fingerprint(launch.bound)
                launch.launcher.launch(launch.bound, fingerprint, adjoint=False)

    def _save(self, fields: Sequence[LayerField]) -> None:
        """Copy what fields hold that are about to be changed for the first time."""
        new = [one for key, one in by_key(fields).items() if key not in self._saved]
        self._saved |= by_key(new).keys()
        self._held.append((new, self._copies.take(new)))

    def restore(self) -> None:
        """Put back what the fields held."""
        for fields, contents in reversed(self._held):
            self._copies.put(fields, contents)
        self._held.clear()
