"""The environment of a step: torch's random numbers, autocast and default device.

A step that is run again must draw the numbers that it drew at first, and compute in the same dtypes and places. Torch's
checkpointing does the first two (`torch.utils.checkpoint`, `preserve_rng_state`). The default device is a thread's own,
and the backward pass of a GPU's tensors runs in another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class RandomStates:
    """States of torch's generators: of the CPU, and of the devices that a scan uses."""

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
        """Restore states, so that the same numbers are drawn again."""
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    @contextmanager
    def preserve_states(self) -> Iterator[None]:
        """Within, numbers may be drawn; afterwards the generators are restored."""
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


class Surroundings(NamedTuple):
    """Torch's autocast, and its default device."""

    autocast: tuple[Autocast, ...]
    device: torch.device


def note_surroundings(tensors: Sequence[Tensor]) -> Surroundings:
    """What they are now."""
    kinds = sorted({"cpu", *(one.device.type for one in tensors)} - {"meta"})
    autocast = [Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    return Surroundings(tuple(autocast), torch.get_default_device())


@contextmanager
def within(noted: Surroundings) -> Iterator[None]:
    """Within, they are as they were noted."""
    with ExitStack() as stack:
        for one in noted.autocast:
            if one.is_enabled != torch.is_autocast_enabled(one.device) or one.is_enabled:
                stack.enter_context(torch.autocast(one.device, enabled=one.is_enabled, dtype=one.dtype))
        if noted.device != torch.get_default_device():
            stack.enter_context(noted.device)
        yield
