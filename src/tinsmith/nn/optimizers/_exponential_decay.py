"""ExponentialDecay: a learning rate that falls in steps.

torch's schedulers warn if their optimizer was not stepped before them, which is the normal case within `Batched`. They
also set the learning rate; here it is multiplied, so a rate that the user sets is kept.
"""

from __future__ import annotations

from typing import Any

import torch

from ._wrapper import Wrapper


def decays(step: int, start: int, end: int, interval: int) -> int:
    """How often the rate has fallen when the step with this number (from 0) is taken."""
    return 0 if step < start or end < start else (min(step, end) - start) // interval + 1


class ExponentialDecay(Wrapper):
    """Multiplies the learning rates by `base` before the step with number `start`, and each `interval` after it.

    Steps are counted from 0; past `end` there are no further decays.
    """

    def __init__(self, nested: torch.optim.Optimizer, base: float, start: int, end: int, interval: int) -> None:
        super().__init__(nested)
        self.base = base
        self._when = (start, end, interval)
        self._steps = 0

    def _step(self) -> None:
        if decays(self._steps, *self._when) > decays(self._steps - 1, *self._when):
            for group in self.param_groups:
                group["lr"] *= self.base
        self._steps += 1
        self.nested.step()

    def _collect_state(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]
