"""Lookahead: pytorch_optimizer's, as a wrapper like the others."""

from __future__ import annotations

from typing import Any

import torch

from ..._errors import ArgumentError
from ._library import cannot_be_pickled
from ._wrapper import Wrapper, check_saved_by, parameters_of


class Lookahead(Wrapper):
    """Every `n_steps` steps, sets the weights to `alpha` of the way since the last time; these are for inference.

    The library counts steps in the groups, which a nested Lookahead shares; here each counts its own steps.

    Args:
        nested: what takes the steps.
        library: pytorch_optimizer's Lookahead around it.
        alpha: the part of the way; 1 is allowed, which the library's constructor refuses.
        n_steps: how often.
    """

    def __init__(self, nested: torch.optim.Optimizer, library: Any, alpha: float, n_steps: int) -> None:
        super().__init__(nested)
        self._library = library
        library.alpha = alpha
        self.n_steps = n_steps
        self._steps = 0

    def __getstate__(self) -> dict[str, Any]:
        raise ArgumentError(cannot_be_pickled(self._library))

    def _step(self) -> None:
        self.nested.step()
        self._steps += 1
        if self._steps % self.n_steps == 0:
            for group in self.param_groups:
                self._library.update(group)

    def weights(self) -> list[torch.Tensor]:
        """The slow weights."""
        return [self._library.state[parameter]["slow_params"] for parameter in parameters_of(self)]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs to continue bitwise the same."""
        return {"wrapper": type(self).__name__, "library": self._library.state_dict(), "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters."""
        check_saved_by(type(self).__name__, state_dict)
        self._library.load_state_dict(state_dict["library"])
        self._steps = state_dict["steps"]
        self._share()
