"""Optimizers of pytorch_optimizer, imported only when a configuration needs one."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from ..._errors import ArgumentError, refusal
from ..._extras import missing_package
from ..config import Section
from ._gradients import gradient, lend_gradients
from ._wrapper import Wrapper, list_parameters


def import_from_library(section: Section, name: str) -> Any:
    """Import pytorch_optimizer and return its class with this name.

    Raises:
        ConfigError: the package is not installed; says how to install it.
    """
    try:
        library = importlib.import_module("pytorch_optimizer")
    except ImportError as error:
        raise missing_package(f"`{section.where}`: {section.otype}", "nn", "pytorch_optimizer") from error
    return getattr(library, name)


def explain_pickling(optimizer: torch.optim.Optimizer) -> str:
    """Return the error message for pickling an optimizer of pytorch_optimizer.

    It would be restored without its settings, and fail in its first step.
    """
    headline = f"{type(optimizer).__name__} of pytorch_optimizer cannot be pickled or deep-copied"
    return refusal(headline, [], "Save its state_dict(), and load that into an optimizer made by make_optimizer.")


class Borrowed(Wrapper):
    """A wrapper of an optimizer of pytorch_optimizer that adds tiny-cuda-nn's decays.

    The optimizer gets copies of the gradients, which it may overwrite.

    With w the weights and r their learning rate before the step:

        gradient := gradient + l2_reg * w
        w        := update(w) - r * (relative_decay * w + absolute_decay * sign(w))
    """

    def __init__(self, nested: torch.optim.Optimizer, l2_reg: float, relative: float, absolute: float) -> None:
        super().__init__(nested)
        self.l2_reg, self.relative, self.absolute = l2_reg, relative, absolute

    def __getstate__(self) -> dict[str, Any]:
        raise ArgumentError(explain_pickling(self.nested))

    def _step(self) -> None:
        parameters = list_parameters(self)
        losses = self._decays()
        with lend_gradients(parameters, [self._add_l2(parameter) for parameter in parameters]):
            self.nested.step()
        for parameter, loss in losses:
            parameter.sub_(loss)

    def _add_l2(self, parameter: torch.Tensor) -> torch.Tensor | None:
        grad = gradient(parameter)
        return None if grad is None else grad + self.l2_reg * parameter

    def _decays(self) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        if not self.relative and not self.absolute:
            return []
        return [
            (p, group["lr"] * (self.relative * p + self.absolute * p.sign()))
            for group in self.param_groups
            for p in group["params"]
            if gradient(p) is not None
        ]
