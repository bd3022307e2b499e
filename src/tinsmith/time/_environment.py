"""The environment of a step: torch's random numbers, autocast and default device, and values besides arguments.

A recomputed step must draw the same random numbers as in the first run, and compute in the same dtypes and on the same
device. torch's checkpointing does the first two (`torch.utils.checkpoint`, `preserve_rng_state`). The default device is
thread-local, and the backward pass of a GPU's tensors runs in another thread.

If a Python value or a field that an op reads has changed since, the gradient would belong to another simulation. Values
are compared when an op is called, since a step may write a field that it reads.
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
    """The states of torch's random generators: the CPU's, and those of the GPUs that a scan uses."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._devices = sorted({one.device.index or 0 for one in tensors if one.device.type == "cuda"})
        self._last: list[Tensor] = []

    def note(self) -> list[Tensor]:
        """Return the current states. As long as nothing is drawn, these are the same tensors every time."""
        now = self._states()
        if len(self._last) != len(now) or not all(map(torch.equal, now, self._last)):
            self._last = now
        return self._last

    def restore(self, states: Sequence[Tensor]) -> None:
        """Set the generators to these states, so that the same numbers are drawn again."""
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1:], strict=True):
            torch.cuda.set_rng_state(state, device)

    @contextmanager
    def preserve_states(self) -> Iterator[None]:
        """Enter a context after which the generators have their previous states again."""
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
    """The settings of torch's autocast, and its default device."""

    autocast: tuple[Autocast, ...]
    device: torch.device


def note_surroundings(tensors: Sequence[Tensor]) -> Surroundings:
    """Return the current autocast settings, for the kinds of devices of these tensors, and the default device."""
    kinds = sorted({"cpu", *(one.device.type for one in tensors)} - {"meta"})
    autocast = [Autocast(kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in kinds]
    return Surroundings(tuple(autocast), torch.get_default_device())


@contextmanager
def restore_surroundings(noted: Surroundings) -> Iterator[None]:
    """Enter a context with these autocast settings and this default device."""
    with ExitStack() as stack:
        for one in noted.autocast:
            if one.is_enabled != torch.is_autocast_enabled(one.device) or one.is_enabled:
                stack.enter_context(torch.autocast(one.device, enabled=one.is_enabled, dtype=one.dtype))
        if noted.device != torch.get_default_device():
            stack.enter_context(noted.device)
        yield


class FirstCalls:
    """Notes of the Python values and fields that ops and layers read in their first calls in step 0."""

    def __init__(self) -> None:
        self._noted: dict[Any, Note | None] = {}

    def note(self) -> Any:
        """Return a context manager that notes the first call of each op and layer, for the first run of step 0."""

        def visit(caller: Any, note: Callable[[], Note | None]) -> None:
            if caller not in self._noted:
                self._noted[caller] = note()

        return _visit_calls(visit)

    def compare(self) -> Any:
        """Return a context manager in which calls are compared with the notes: for another run of step 0.

        A call raises GradientError if it depends on values that have changed.
        """
        left = dict(self._noted)

        def visit(caller: Any, _: Callable[[], Note | None]) -> None:
            noted = left.pop(caller, None)
            if noted is not None:
                noted.check()

        return _visit_calls(visit)


@contextmanager
def _visit_calls(visit: Callable[[Any, Callable[[], Note | None]], None]) -> Generator[None]:
    """Enter a context in which `visit(caller, note)` is called before each call of an op or of a layer on fields.

    `note()` returns a note of the values that the call depends on, or None.
    """

    def look(op: Op[Any], run: Callable[[], Any], arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        visit(op, lambda: op.note_values(arguments, named))
        return run()

    with watch_calls(look, visit):
        yield
