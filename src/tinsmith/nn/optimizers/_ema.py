"""EMA: an exponential moving average of the weights, for inference."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from ._wrapper import Wrapper, parameters_of, weights_of

_HALVES = (torch.float16, torch.bfloat16)


class EMA(Wrapper):
    """Keeps a debiased exponential moving average of the weights: after one step it equals the weights.

        average := (sum over steps s of decay**(t - s) * w_s) / (sum over s of decay**(t - s))

    It does not affect training. With `full_precision` the average of float16 and bfloat16 weights is
    kept in float32; else in their own dtype. `torch.optim.swa_utils.AveragedModel` keeps it.
    """

    def __init__(self, nested: torch.optim.Optimizer, decay: float, full_precision: bool) -> None:
        super().__init__(nested)
        self.decay = decay
        self._updates = 0
        self._average = AveragedModel(_as_module(weights_of(nested)), avg_fn=self._next)
        if full_precision:
            for average in self._average.parameters():
                average.data = average.data.float() if average.dtype in _HALVES else average.data

    def _next(self, average: torch.Tensor, weight: torch.Tensor, _: Any) -> torch.Tensor:
        newest = (1 - self.decay) / (1 - self.decay**self._updates)
        return average.lerp(weight.to(average.dtype), newest)

    def _step(self) -> None:
        self.nested.step()
        self._updates += 1
        self._average.update_parameters(_as_module(weights_of(self.nested)))

    def weights(self) -> list[torch.Tensor]:
        """The averages; before the first step the parameters."""
        return list(self._average.parameters()) if self._updates else parameters_of(self)

    def _collect_state(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self._average.state_dict()}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._updates = saved["updates"]
        self._average.load_state_dict(saved["average"])


def _as_module(weights: list[torch.Tensor]) -> torch.nn.Module:  # AveragedModel speaks of modules only
    return torch.nn.ParameterList([torch.nn.Parameter(weight, requires_grad=False) for weight in weights])
