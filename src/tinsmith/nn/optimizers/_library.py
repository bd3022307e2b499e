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
from ._wrappers import Wrapper, check_saved_by, list_parameters


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


_RMSPROP, _NO_GRAFT = 3, 0  # its LayerWiseGrafting
_TENSORS = ("statistics", "pre_conditioners")


class Shampoo(Borrowed):
    """ScalableShampoo of pytorch_optimizer, with the options of a section (Gupta et al. 2018; Anil et al. 2020).

    Its settings are as close to tiny-cuda-nn's as possible. Both precondition the gradient with inverse roots of L and
    R (moving averages of g g' and g' g), keep a moving average of the result, and scale it to the norm that a diagonal
    method's update would have. Options that only tiny-cuda-nn has are refused when the configuration is read, except
    `cg_on_momentum`, which has no effect.

    learning_rate, l2_reg (added to the gradient) and epsilon mean the same as in tiny-cuda-nn. beta3 averages L and R,
    beta_shampoo the updates, and identity is the library's ridge, in units of the largest eigenvalue. With
    frobenius_normalization an update has the norm that RMSProp's would have. L and R are always those of the gradient,
    as if cg_on_momentum were off. The roots are recomputed in every tenth step.
    """

    def __init__(self, section: Section, parameters: Sequence[torch.Tensor]) -> None:
        o = section.options
        library = import_from_library(section, "ScalableShampoo")(
            list(parameters),
            lr=o["learning_rate"],
            betas=(o["beta_shampoo"], o["beta3"]),
            moving_average_for_momentum=True,
            nesterov=False,
            start_preconditioning_step=2,
            preconditioning_compute_steps=10,
            graft_type=_RMSPROP if o["frobenius_normalization"] else _NO_GRAFT,
            diagonal_eps=o["epsilon"],
            matrix_eps=o["identity"],
        )
        super().__init__(library, o["l2_reg"], 0.0, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a resumed run needs, as tensors and plain values.

        The library's own state contains its preconditioner objects; this one contains their tensors.
        """
        saved = super().state_dict()
        (library,) = saved["parts"]
        return {**saved, "parts": [{**library, "state": {i: _flatten_state(s) for i, s in library["state"].items()}}]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters."""
        (library,) = state_dict["parts"]
        super().load_state_dict({**state_dict, "parts": [{**library, "state": {}}]})
        parameters = list_parameters(self)
        with lend_gradients(
            parameters, [torch.zeros_like(p) if i in library["state"] else None for i, p in enumerate(parameters)]
        ):
            for group in self.param_groups:
                self.nested.init_group(group)  # type: ignore[attr-defined]
        for i, parameter in enumerate(parameters):
            if i in library["state"]:
                _restore_state(self.state[parameter], library["state"][i])


def _flatten_state(state: dict[str, Any]) -> dict[str, Any]:
    preconditioner, graft = state["pre_conditioner"], state["graft"]
    kept = {name: getattr(preconditioner, name) for name in _TENSORS}
    return {"momentum": state["momentum"], **kept, "graft": dict(vars(graft))}


def _restore_state(state: dict[str, Any], saved: dict[str, Any]) -> None:
    state["momentum"].copy_(saved["momentum"])
    for name in _TENSORS:
        setattr(state["pre_conditioner"], name, _copy_state(saved[name], state["momentum"]))
    for name, value in saved["graft"].items():
        setattr(state["graft"], name, _copy_state(value, state["momentum"]))


def _copy_state(value: Any, like: torch.Tensor) -> Any:
    if isinstance(value, list):
        return [_copy_state(item, like) for item in value]
    return value.to(like.device).clone() if isinstance(value, torch.Tensor) else value
