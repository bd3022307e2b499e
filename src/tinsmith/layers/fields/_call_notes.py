"""Call notes: what a call of a layer on fields depends on besides its tensors, recorded for a repeated run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ..._errors import GradientError, refusal
from ...compiling import build_changed_value_error
from ...tracing import suspend_transforms
from ._layer_field import LayerField
from ._roles import Launch
from ._transfer import read


class NotedFields(NamedTuple):
    """The Python values that a layer's kernels bake in, and the contents of fields that it begins a call with."""

    layer: str
    launches: Sequence[Launch]
    fingerprints: tuple[Any, ...]
    fields: Sequence[LayerField]
    contents: Sequence[torch.Tensor]

    @classmethod
    def of(cls, layer: str, launches: Sequence[Launch], fields: Sequence[LayerField]) -> NotedFields:
        """Note the present fingerprints of launches and contents of fields."""
        return cls(layer, launches, fingerprints_of(launches), fields, _contents(fields, layer))

    def check(self) -> None:
        """Raise GradientError where they are others by now."""
        for before, now in zip(self.fingerprints, fingerprints_of(self.launches), strict=True):
            if before != now:
                raise build_changed_value_error(self.layer, before, now)
        self.check_fields()

    def check_fields(self) -> None:
        """Raise GradientError where a field holds something else by now."""
        for one, now, before in zip(self.fields, _contents(self.fields, self.layer), self.contents, strict=True):
            if not torch.equal(now, before):
                words = f"{self.layer} is run again for the backward pass, but its field `{one.name}` has changed since"
                remedy = (
                    "Change the field after the backward pass. If kernels keep a state there from call to call, "
                    "make it an input and an output."
                )
                place = tuple((now != before).nonzero()[0].tolist())
                rows = [("field", str(one)), ("element", str(list(place)))]
                rows += [("in the forward pass", str(before[place].item())), ("now", str(now[place].item()))]
                raise GradientError(refusal(words, rows, remedy))


def fingerprints_of(launches: Iterable[Launch]) -> tuple[Any, ...]:
    """Return a fingerprint of the Python values that each launch bakes in now."""
    return tuple([launch.launcher.fingerprint(launch.bound) for launch in launches])


def _contents(fields: Sequence[LayerField], layer: str) -> list[torch.Tensor]:
    with suspend_transforms():
        return [read(one, layer) for one in fields]
