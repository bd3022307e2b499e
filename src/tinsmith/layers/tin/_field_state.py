"""The state of a layer on fields: its checkpoints and its copies.

Fields are an engine's memory, and kernels refer to them by themselves. So a checkpoint has the content of fields, a
copy works on the same ones, and nothing of a layer can be pickled.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

import torch
from typing_extensions import Self

from ..._errors import CheckpointError, TinsmithError, refusal
from ..fields import LayerField, fill, read
from ._kernels import Kernels
from ._weights import follow

_SHARED = ("_inputs", "_outputs", "_internals", "_weights", "_kernels", "_program", "data_oriented")
"""What a copy of a layer has in common with it: the engine's objects, and what was made of them."""


class FieldState(torch.nn.Module):
    """A module whose internal fields belong into checkpoints, as far as they are persistent."""

    _internals: dict[str, LayerField]
    _persistent: set[str]

    @property
    def _label(self) -> str:
        return type(self).__name__

    @abstractmethod
    def write_weights(self) -> None:
        """Write the weights' parameters into their fields."""

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Parameters, and the content of every persistent internal field."""
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
        follow(self, self.parameters())
        self.write_weights()

    def _find_saved_internals(self) -> list[str]:
        return [name for name in self._internals if name in self._persistent]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A layer with parameters of its own on the same fields, which every call fills again.

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
        follow(twin, twin.parameters())
        return twin

    def __getstate__(self) -> Any:
        words = f"{self._label} cannot be pickled: its fields are an engine's memory, and its kernels refer to them"
        raise CheckpointError(refusal(words, remedy="Save `layer.state_dict()`, and load it into a new layer."))
