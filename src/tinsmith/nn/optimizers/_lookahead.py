"""Lookahead: pytorch_optimizer's Lookahead as a wrapper of this library."""

from __future__ import annotations

from typing import Any

import torch

from ..._errors import ArgumentError
from ._library import explain_pickling
from ._wrapper import Wrapper, check_saved_by, list_parameters


class Lookahead(Wrapper):
    """A wrapper that keeps slow weights, which are used for inference (Zhang et al. 2019).

    Every `n_steps` steps: slow := slow + alpha * (weights - slow), and the weights are set to slow.

    pytorch_optimizer counts steps in the groups, which a nested Lookahead shares; here each counts its own steps.

    Args:
        nested: the optimizer of the fast weights.
        library: pytorch_optimizer's Lookahead around it.
        alpha: the interpolation factor; 1 is allowed too, although the library's constructor refuses it.
        n_steps: the number of steps between two updates of the slow weights.
    """

    def __init__(self, nested: torch.optim.Optimizer, library: Any, alpha: float, n_steps: int) -> None:
        super().__init__(nested)
        self._library = library
        library.alpha = alpha
        self.n_steps = n_steps
        self._steps = 0

    def __getstate__(self) -> dict[str, Any]:
        raise ArgumentError(explain_pickling(self._library))

    def _step(self) -> None:
        self.nested.step()
        self._steps += 1
        if self._steps % self.n_steps == 0:
            for group in self.param_groups:
                self._library.update(group)

    def weights(self) -> list[torch.Tensor]:
        """Return the slow weights, which are used for inference."""
        return [self._library.state[parameter]["slow_params"] for parameter in list_parameters(self)]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue bitwise the same."""
        return {"wrapper": type(self).__name__, "library": self._library.state_dict(), "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters."""
        check_saved_by(type(self).__name__, state_dict)
        self._library.load_state_dict(state_dict["library"])
        self._steps = state_dict["steps"]
        self._share()
