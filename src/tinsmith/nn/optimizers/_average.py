"""Average: the mean of the weights of the last steps, for inference."""

from __future__ import annotations

from typing import Any

import torch

from ._wrapper import Wrapper, list_parameters, list_weights


class Average(Wrapper):
    """A wrapper that keeps the weights of the last `n_samples` steps, whose mean is used for inference.

    This needs `n_samples` times the memory of the weights. With fewer steps so far, it is the mean of those.
    (tiny-cuda-nn counts the missing ones as zeros.) torch's AveragedModel cannot drop old weights.
    """

    def __init__(self, nested: torch.optim.Optimizer, n_samples: int) -> None:
        super().__init__(nested)
        self.n_samples = n_samples
        self._steps = 0
        self._samples = [weight.new_zeros((n_samples, *weight.shape)) for weight in list_weights(nested)]

    def _step(self) -> None:
        self.nested.step()
        for sample, weight in zip(self._samples, list_weights(self.nested), strict=True):
            sample[self._steps % self.n_samples] = weight
        self._steps += 1

    def weights(self) -> list[torch.Tensor]:
        """Return the mean of the last weights of each parameter; before the first step the parameters themselves."""
        there = min(self._steps, self.n_samples)
        return [sample[:there].mean(0) for sample in self._samples] if there else list_parameters(self)

    def _collect_state(self) -> dict[str, Any]:
        return {"steps": self._steps, "samples": self._samples}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._steps = saved["steps"]
        for sample, was in zip(self._samples, saved["samples"], strict=True):
            sample.copy_(was)
