"""EMA: an exponential moving average of the weights, for inference."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel

from ._wrapper import Wrapper, list_parameters, list_weights

_HALVES = (torch.float16, torch.bfloat16)


class EMA(Wrapper):
    """A wrapper that keeps a debiased exponential moving average of the weights, which is used for inference.

        average := (sum over steps s of decay**(t - s) * w_s) / (sum over s of decay**(t - s))

    After one step it equals the weights. It does not affect training. With `full_precision` the average of float16 and
    bfloat16 weights is kept in float32; else in their own dtype. It is stored by `torch.optim.swa_utils.AveragedModel`.
    """

    def __init__(self, nested: torch.optim.Optimizer, decay: float, full_precision: bool) -> None:
        super().__init__(nested)
        self.decay = decay
        self._updates = 0
        self._average = AveragedModel(_as_module(list_weights(nested)), avg_fn=self._next)
        if full_precision:
            for average in self._average.parameters():
                average.data = average.data.float() if average.dtype in _HALVES else average.data

    def _next(self, average: torch.Tensor, weight: torch.Tensor, _: Any) -> torch.Tensor:
        newest = (1 - self.decay) / (1 - self.decay**self._updates)
        return average.lerp(weight.to(average.dtype), newest)

    def _step(self) -> None:
        self.nested.step()
        self._updates += 1
        self._average.update_parameters(_as_module(list_weights(self.nested)))

    def weights(self) -> list[torch.Tensor]:
        """Return the average of each parameter; before the first step the parameters themselves."""
        return list(self._average.parameters()) if self._updates else list_parameters(self)

    def _collect_state(self) -> dict[str, Any]:
        return {"updates": self._updates, "average": self._average.state_dict()}

    def _restore(self, saved: dict[str, Any]) -> None:
        self._updates = saved["updates"]
        self._average.load_state_dict(saved["average"])


def _as_module(weights: list[torch.Tensor]) -> torch.nn.Module:
    """Return a module with these weights as its parameters: AveragedModel takes only modules."""
    return torch.nn.ParameterList([torch.nn.Parameter(weight, requires_grad=False) for weight in weights])
