"""ExponentialDecay: a learning rate that falls in steps.

torch's schedulers warn when the optimizer that they know was not stepped before them; within `Batched` it
mostly was not. And they set the learning rate; here it is multiplied, so that what a user set stays.
"""

from __future__ import annotations

from typing import Any

import torch

from ._wrapper import Wrapper


class ExponentialDecay(Wrapper):
    """Multiplies the learning rates by `base` before the step with number `start`, and each `interval` after it.

    Steps are counted from 0; past `end` there are no further decays.
    """

    def __init__(self, nested: torch.optim.Optimizer, base: float, start: int, end: int, interval: int) -> None:
        super().__init__(nested)
        self.base, self.start, self.end, self.interval = base, start, end, interval
        self._steps = 0

    def _step(self) -> None:
        since = self._steps - self.start
        if since >= 0 and since % self.interval == 0 and self._steps <= self.end:
            for group in self.param_groups:
                group["lr"] *= self.base
        self._steps += 1
        self.nested.step()

    def _kept(self) -> dict[str, Any]:
        return {"steps": self._steps}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]
