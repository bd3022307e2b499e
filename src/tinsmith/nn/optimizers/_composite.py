"""Composite: several optimizers, each with parameters of its own, as one."""

from __future__ import annotations

from ._wrapper import Wrapper


class Composite(Wrapper):
    """Steps all its parts. Its groups are theirs, in order; for the state of a parameter ask the part."""

    def _step(self) -> None:
        for part in self.parts:
            part.step()
