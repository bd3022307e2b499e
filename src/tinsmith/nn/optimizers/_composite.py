"""Composite: several optimizers, each with its own parameters, as one."""

from __future__ import annotations

from ._wrapper import Wrapper


class Composite(Wrapper):
    """Steps all its parts. Its groups are theirs, in order; the state of a parameter is in its part."""

    def _step(self) -> None:
        for part in self.parts:
            part.step()
