"""Dry run: runs what was recorded so far on the fields themselves, so that Python can be told a value of now.

Recorded kernels have not run when the function of a rollout asks for a value that depends on them. The engine runs them
then. What the fields held before is kept: the op of the rollout begins with it, and an error puts it back. A call
without a gradient needs no op, and ends on the fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from ...engines import FieldKey
from ...tracing import keep_order
from ..fields import FieldCopies, Launch, LayerField, Use, by_key, uses_of_each

MOST_KNOWN = 1 << 10
"""Sets of Python values for which the fields of kernels are remembered."""


class KnownUses:
    """Which fields the kernels of a rollout use, by the Python values that they bake in."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[dict[str, Use], frozenset[int]]] = {}

    def look_up(self, launch: Launch) -> tuple[dict[str, Use], frozenset[int]]:
        """Return the uses of a launch, and the parts of the fields that it reads, for what it returns too."""
        key = launch.kind, launch.launcher.fingerprint(launch.bound)
        if key not in self._known:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            (uses,) = uses_of_each([launch])
            self._known[key] = uses, launch.launcher.find_read_fields(launch.bound)
        return self._known[key]


class DryRun:
    """One run on the fields.

    Args:
        copies: copies fields.
        known: which fields kernels use, of this run and of those before.
        filled: the fields that a call fills, and with what.
        begin: what a call begins with, after that.

    Attributes:
        has_begun: whether anything has run.
    """

    def __init__(
        self,
        copies: FieldCopies,
        known: KnownUses,
        filled: Sequence[tuple[LayerField, torch.Tensor]],
        begin: Sequence[Launch],
    ) -> None:
        self._copies = copies
        self._known = known
        self._filled = filled
        self._begin = begin
        self._uses: dict[tuple[Any, ...], tuple[dict[str, Use], frozenset[int]]] = {}
        self._saved: dict[FieldKey, tuple[LayerField, torch.Tensor]] = {}
        self.has_begun = False

    @property
    def contents(self) -> Mapping[FieldKey, torch.Tensor]:
        """What fields held, by key, whose content this run has changed."""
        return {key: content for key, (_, content) in self._saved.items()}

    def look_up(self, launch: Launch) -> tuple[dict[str, Use], frozenset[int]]:
        """Return what `KnownUses` says of a launch. Python values are compared once in a run."""
        if launch.kind not in self._uses:
            self._uses[launch.kind] = self._known.look_up(launch)
        return self._uses[launch.kind]

    def run(self, steps: Sequence[tuple[Launch, Callable[[], Any] | None]]) -> None:
        """Run launches: what the user called, or where that is None, the launch itself."""
        if not self.has_begun:
            self.has_begun = True
            fields = [one for one, _ in self._filled]
            self._save(fields)
            self._copies.put(fields, [tensor for _, tensor in self._filled])
            self.run([(launch, None) for launch in self._begin])
        kinds = {launch.kind: launch for launch, _ in steps}
        uses = [use for launch in kinds.values() for use in self.look_up(launch)[0].values()]
        self._save([use.one for use in uses if use.is_written])
        for launch, call in steps:
            launcher = launch.launcher
            # A call of the user's has no order with torch's current stream by itself.
            with keep_order(launcher.engine, torch.device(launcher.engine.device_type()), launcher.signature.op):
                if call is not None:
                    call()
                else:
                    launcher.launch(launch.bound, launcher.fingerprint(launch.bound), adjoint=False)

    def _save(self, fields: Sequence[LayerField]) -> None:
        """Copy what fields hold that are about to be changed for the first time."""
        new = {key: one for key, one in by_key(fields).items() if key not in self._saved}
        contents = self._copies.take([*new.values()])
        self._saved |= {key: (one, held) for (key, one), held in zip(new.items(), contents, strict=True)}

    def restore(self, filled_since: Collection[FieldKey] = ()) -> None:
        """Put back what fields held, but for those with the keys `filled_since`."""
        pairs = [pair for key, pair in self._saved.items() if key not in filled_since]
        self._copies.put([one for one, _ in pairs], [content for _, content in pairs])
        self._saved.clear()
