"""Shampoo: pytorch_optimizer's ScalableShampoo, with settings as close to tiny-cuda-nn's as possible.

Both precondition the gradient with inverse roots of L and R (moving averages of g g' and g' g), keep a moving
average of the result, and scale it to the norm that a diagonal method's update would have. Options that only
tiny-cuda-nn has are refused when the configuration is read, except `cg_on_momentum`, which has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..config import Section
from ._gradients import lend_gradients
from ._library import Borrowed, import_from_library
from ._wrapper import list_parameters

_RMSPROP, _NO_GRAFT = 3, 0  # its LayerWiseGrafting
_TENSORS = ("statistics", "pre_conditioners")


class Shampoo(Borrowed):
    """ScalableShampoo of pytorch_optimizer, with the options of a section (Gupta et al. 2018; Anil et al. 2020).

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
