"""Composite: several optimizers, each with its own parameters, as one optimizer."""

from __future__ import annotations

from ._wrapper import Wrapper


class Composite(Wrapper):
    """A wrapper that steps several optimizers. Its groups are theirs, in order; each keeps its own state."""

    def _step(self) -> None:
        for part in self.parts:
            part.step()
