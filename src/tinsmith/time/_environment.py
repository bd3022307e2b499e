"""What a step depends on besides its arguments: torch's random numbers, and autocast.

A step that is run again must draw the numbers that it drew at first, and compute in the same dtypes. Torch's
checkpointing does the same (`torch.utils.checkpoint`, `preserve_rng_state`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class RandomStates:
    """Notes of torch's generators: of the CPU, and of the devices that a scan uses."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._devices = sorted({one.device.index or 0 for one in tensors if one.device.type == "cuda"})
        self._last: list[Tensor] = []

    def note(self) -> list[Tensor]:
        """The present states. Those of a step that draws nothing are the same tensors every time."""
        now = self._states()
        if len(self._last) != len(now) or not all(map(torch.equal, now, self._last)):
            self._last = now
        return self._last

    def restore(self, states: Sequence[Tensor]) -> None:
        """Draw the numbers again that came after a note."""
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    @contextmanager
    def preserve_states(self) -> Iterator[None]:
        """Within, numbers may be drawn; behind it the generators are as they were."""
        before = self._states()
        try:
            yield
        finally:
            self.restore(before)

    def _states(self) -> list[Tensor]:
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self._devices)]


class Autocast(NamedTuple):
    """Torch's autocast on one kind of device."""

    device: str
    is_enabled: bool
    dtype: torch.dtype


def note_autocast(tensors: Sequence[Tensor]) -> list[Autocast]:
    """What autocast is now."""
    kinds = sorted({"cpu", *(one.device.type for one in tensors)} - {"meta"})
    return [Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]


@contextmanager
def under_autocast(noted: Sequence[Autocast]) -> Iterator[None]:
    """Within, autocast is as it was noted."""
    with ExitStack() as stack:
        for one in noted:
            if one.is_enabled != torch.is_autocast_enabled(one.device) or one.is_enabled:
                stack.enter_context(torch.autocast(one.device, enabled=one.is_enabled, dtype=one.dtype))
        yield
