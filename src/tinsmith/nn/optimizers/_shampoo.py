"""Shampoo: pytorch_optimizer's ScalableShampoo, set as near to tiny-cuda-nn's as it goes.

Both precondition the gradient with inverse roots of L and R (moving averages of g g' and g' g), keep a moving
average of the result, and give it the length that a diagonal method's update would have. What tiny-cuda-nn
alone has is refused where it is read, but for `cg_on_momentum`, which makes no difference here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..config import Section
from ._gradients import lend_gradients
from ._library import Borrowed, from_library
from ._wrapper import parameters_of

_RMSPROP, _NO_GRAFT = 3, 0  # its LayerWiseGrafting
_TENSORS = ("statistics", "pre_conditioners")


class Shampoo(Borrowed):
    """ScalableShampoo of pytorch_optimizer from a section.

    learning_rate, l2_reg (added to the gradient) and epsilon are what they are there. beta3 averages L and R,
    beta_shampoo the updates, and identity is the library's ridge, in units of the largest eigenvalue. With
    frobenius_normalization an update is as long as RMSProp's would be. L and R are always those of the gradient,
    as with cg_on_momentum off. The roots are computed again at each tenth step.
    """

    def __init__(self, section: Section, parameters: Sequence[torch.Tensor]) -> None:
        o = section.options
        library = from_library(section, "ScalableShampoo")(
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
        """Everything that a resumed run needs; tensors only, where the library's own has objects."""
        saved = super().state_dict()
        (library,) = saved["parts"]
        return {**saved, "parts": [{**library, "state": {i: _flat(s) for i, s in library["state"].items()}}]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a run with the same configuration and parameters."""
        (library,) = state_dict["parts"]
        super().load_state_dict({**state_dict, "parts": [{**library, "state": {}}]})
        parameters = parameters_of(self)
        with lend_gradients(
            parameters, [torch.zeros_like(p) if i in library["state"] else None for i, p in enumerate(parameters)]
        ):
            for group in self.param_groups:
                self.nested.init_group(group)  # type: ignore[attr-defined]
        for i, parameter in enumerate(parameters):
            if i in library["state"]:
                _fill(self.state[parameter], library["state"][i])


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    preconditioner, graft = state["pre_conditioner"], state["graft"]
    kept = {name: getattr(preconditioner, name) for name in _TENSORS}
    return {"momentum": state["momentum"], **kept, "graft": dict(vars(graft))}


def _fill(state: dict[str, Any], saved: dict[str, Any]) -> None:
    state["momentum"].copy_(saved["momentum"])
    for name in _TENSORS:
        setattr(state["pre_conditioner"], name, _copy_state(saved[name], state["momentum"]))
    for name, value in saved["graft"].items():
        setattr(state["graft"], name, _copy_state(value, state["momentum"]))


def _copy_state(value: Any, like: torch.Tensor) -> Any:
    if isinstance(value, list):
        return [_copy_state(item, like) for item in value]
    return value.to(like.device).clone() if isinstance(value, torch.Tensor) else value
