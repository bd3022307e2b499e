"""ExponentialDecay: a learning rate that decays at regular intervals.

torch's schedulers warn if their optimizer was not stepped before them, which is normal within `Batched`. They also
overwrite the learning rate; here it is multiplied, so that a change by the user persists.
"""

from __future__ import annotations

from typing import Any

import torch

from ._wrapper import Wrapper


def count_decays(step: int, start: int, end: int, interval: int) -> int:
    """Return how many times the learning rate has decayed by the step with this number, counted from 0."""
    return 0 if step < start or end < start else (min(step, end) - start) // interval + 1


class ExponentialDecay(Wrapper):
    """A wrapper that multiplies the learning rates by `base` before step `start`, and every `interval` steps after it.

    Steps are counted from 0; after step `end` there are no further decays.
    """

    def __init__(self, nested: torch.optim.Optimizer, base: float, start: int, end: int, interval: int) -> None:
        super().__init__(nested)
        self.base = base
        self._when = (start, end, interval)
        self._steps = 0

    def _step(self) -> None:
        if count_decays(self._steps, *self._when) > count_decays(self._steps - 1, *self._when):
            for group in self.param_groups:
                group["lr"] *= self.base
        self._steps += 1
        self.nested.step()

    def _collect_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]
