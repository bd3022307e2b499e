"""Batched: gradient accumulation. The nested optimizer steps once for several steps, on the mean of their gradients."""

from __future__ import annotations

from typing import Any

import torch

from ._gradients import gradient, lend_gradients
from ._wrapper import Wrapper, list_parameters


class Batched(Wrapper):
    """A wrapper that collects the gradients of `multiplier` steps and then steps the nested optimizer on their mean.

    Clear the gradients between steps, as for any optimizer.
    """

    def __init__(self, nested: torch.optim.Optimizer, multiplier: int) -> None:
        super().__init__(nested)
        self.multiplier = multiplier
        self._collected = 0
        self._means: list[torch.Tensor | None] = [None for _ in list_parameters(self)]

    def _step(self) -> None:
        parameters = list_parameters(self)
        self._means = [
            _add_share(mean, gradient(p), 1 / self.multiplier) for mean, p in zip(self._means, parameters, strict=True)
        ]
        self._collected += 1
        if self._collected == self.multiplier:
            with lend_gradients(parameters, self._means):
                self.nested.step()
            self._collected = 0
            self._means = [None for _ in parameters]

    def _collect_state(self) -> dict[str, Any]:
        return {"collected": self._collected, "means": self._means}

    def _restore(self, saved: dict[str, Any]) -> None:
        pairs = zip(saved["means"], list_parameters(self), strict=True)
        self._means = [None if mean is None else mean.to(p).clone() for mean, p in pairs]
        self._collected = saved["collected"]


def _add_share(mean: torch.Tensor | None, addend: torch.Tensor | None, share: float) -> torch.Tensor | None:
    if addend is None:
        return mean
    return addend * share if mean is None else mean.add_(addend, alpha=share)
