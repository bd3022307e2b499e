"""The environment of a step: torch's random numbers, autocast and default device, and values besides arguments.

A step that is run again must draw the numbers that it drew at first, and compute in the same dtypes and places. Torch's
checkpointing does the first two (`torch.utils.checkpoint`, `preserve_rng_state`). The default device is a thread's own,
and the backward pass of a GPU's tensors runs in another thread.

If a Python value or a field that an op reads changed since, the gradient would belong to another simulation. Values are
compared where an op is called, since a step may write a field that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..calls import Note, watch_calls
from ..operation import Op


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


class FirstCalls:
    """What was noted when step 0 ran for the first time: for each op and layer, at its first call there."""

    def __init__(self) -> None:
        self._noted: dict[Any, Note | None] = {}

    def note(self) -> Any:
        """Within, step 0 runs for the first time."""

        def visit(caller: Any, note: Callable[[], Note | None]) -> None:
            if caller not in self._noted:
                self._noted[caller] = note()

        return _visiting(visit)

    def compare(self) -> Any:
        """Within, step 0 runs again. Raises GradientError where a call depends on other values by now."""
        left = dict(self._noted)

        def visit(caller: Any, _: Callable[[], Note | None]) -> None:
            noted = left.pop(caller, None)
            if noted is not None:
                noted.check()

        return _visiting(visit)


@contextmanager
def _visiting(visit: Callable[[Any, Callable[[], Note | None]], None]) -> Generator[None]:
    """Within, `visit(caller, note)` is called before each call of an op or of a layer on fields."""

    def look(op: Op[Any], run: Callable[[], Any], arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        visit(op, lambda: op.note_values(arguments, named))
        return run()

    with watch_calls(look, visit):
        yield
