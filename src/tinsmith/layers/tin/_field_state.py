"""The state of a layer on fields: its checkpoints and its copies.

Fields are an engine's memory, and kernels refer to them by themselves. So a checkpoint has the content of fields, a
copy works on the same ones, and nothing of a layer can be pickled.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from typing_extensions import Self

from ..._errors import CheckpointError, TinsmithError, refusal
from ..._user_warnings import warn
from ...torch_side import Layer, set_parameter
from ..fields import LayerField, fill, is_whole, read
from ._kernels import Kernels
from ._weights import check_accessible, follow_parameters

_SHARED = ("_inputs", "_outputs", "_internals", "_weights", "_initial", "_kernels", "_program", "data_oriented")
"""What a copy of a layer has in common with it: the engine's objects, and what was made of them."""


class FieldState(Layer):
    """A module whose internal fields belong into checkpoints, as far as they are persistent."""

    _internals: dict[str, LayerField]
    _weights: dict[str, LayerField]
    _persistent: set[str]
    _initial: dict[str, torch.Tensor]
    _without_value: set[str]

    @property
    def _label(self) -> str:
        return type(self).__name__

    def _make_parameters(self) -> None:
        """Make the weights' parameters, with what their fields hold; on the meta device if that is torch's default."""
        is_meta = torch.empty(0).is_meta
        for name, one in self._weights.items():
            content = self._initial[name] = read(one, self._label)
            data = content.to("meta") if is_meta else content.clone()
            self.register_parameter(name, torch.nn.Parameter(data, requires_grad=one.needs_grad))
        follow_parameters(self, self.parameters())

    def _name_internals(self) -> None:
        """Make each saved internal field an attribute: torch.distributed.checkpoint looks keys up as attributes."""
        for name in self._find_saved_internals():
            if not hasattr(self, name):
                vars(self)[name] = self._internals[name].field

    def reset_parameters(self) -> None:
        """Set each weight to its initial value: the `value` it was registered with, or what its field held before.

        For a model made on the meta device, after `to_empty`. Of a sharded weight (DTensor) each process sets its
        shard.

        Raises:
            DeviceError: FullyShardedDataParallel has left this process only a shard of a weight.
        """
        for name, content in self._initial.items():
            parameter = getattr(self, name)
            if parameter.is_meta:
                continue
            check_accessible(self._weights[name], parameter, self._label)
            if name in self._without_value:
                words = f"the `value` of weight `{name}` of {self._label} was on the meta device, and has no numbers"
                remedy = "Make it with `device='cpu'`, or load a state dict; now the weight has what its field held."
                warn(refusal(words, remedy=remedy))
            set_parameter(parameter, content)
        self.refresh_fields()

    def refresh_fields(self) -> None:
        """Write into their fields the weights that this process holds whole. A call writes those that it does not."""
        for name, one in self._weights.items():
            tensor = getattr(self, name)  # no parameter, where it is parametrized or pruned
            if is_whole(one, tensor):
                fill(one, tensor, self._label)

    def write_weights(self) -> None:
        """Write the weights' parameters into their fields, for kernels and code outside of this layer.

        Calls of a layer on fields, optimizer steps and `load_state_dict` do this automatically; call it after changing
        a parameter by hand.

        If the weights are sharded over processes (`fully_shard`, DTensor), only calls do it automatically. Then all
        processes call this together, since it gathers the weights.

        Raises:
            DeviceError: FullyShardedDataParallel has left this process only a shard of a weight.
        """
        for name, one in self._weights.items():
            check_accessible(one, getattr(self, name), self._label)
            fill(one, getattr(self, name), self._label)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Follow the parameters that `to_empty` and the like make in place of the ones before."""
        super()._apply(fn, recurse)
        follow_parameters(self, self.parameters())
        return self

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Save parameters, and the content of every persistent internal field."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self._find_saved_internals():
            destination[prefix + name] = read(self._internals[name], self._label)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name in self._find_saved_internals():
            tensor = state_dict.pop(prefix + name, None)
            if tensor is None:
                missing_keys.append(prefix + name)
                continue
            try:
                fill(self._internals[name], tensor, self._label)
            except TinsmithError as misfit:
                error_msgs.append(str(misfit))
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        # `load_state_dict(assign=True)` replaces the parameter objects that are followed.
        follow_parameters(self, self.parameters())
        self.refresh_fields()

    def _find_saved_internals(self) -> list[str]:
        return [name for name in self._internals if name in self._persistent]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Copy the layer: the copy has its own parameters and uses the same fields, which every call fills.

        Raises:
            CheckpointError: an internal field holds what both layers would share.
        """
        if self._find_saved_internals():
            words = f"{self._label} cannot be copied: its internal fields are one memory, which the copy would share"
            rows = [("fields", ", ".join(self._find_saved_internals()))]
            remedy = "Register weights by register_weight_field, and fields without state with persistent=False."
            raise CheckpointError(refusal(words, rows, remedy))
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        shared = {name: value for name, value in vars(self).items() if name in _SHARED}
        memo |= {
            id(value): copy.copy(value) if isinstance(value, list | dict | Kernels) else value
            for value in shared.values()
        }
        vars(twin).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        follow_parameters(twin, twin.parameters())
        return twin

    def __getstate__(self) -> Any:
        words = f"{self._label} cannot be pickled: its fields are an engine's memory, and its kernels refer to them"
        raise CheckpointError(refusal(words, remedy="Save `layer.state_dict()`, and load it into a new layer."))
