"""Replaced gradients: functions of `no_grad` and `grad_replaced`, and which of their gradients is generated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...engines import Listener, get, list_loaded
from ._kernels import identify


class CustomGradient(NamedTuple):
    """A call of a function of `no_grad` or `grad_replaced`: its gradient, None before `grad_for`, and its arguments."""

    gradient: Callable[..., Any] | None
    arguments: tuple[Any, ...]


class KernelCall(NamedTuple):
    """A call of a kernel: the Python function that it was made from, and what it is given."""

    function: Any
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()

    def is_same(self, other: KernelCall) -> bool:
        """Return True if another call does the same: arguments are compared by identity, numbers by value."""
        pairs = zip(self.arguments, other.arguments, strict=False)
        is_alike = len(self.arguments) == len(other.arguments) and self.named == other.named
        return self.function is other.function and is_alike and all(identify(a) == identify(b) for a, b in pairs)


class _GradientRecording(Listener):
    """What a custom gradient calls, as far as it can be known without running anything."""

    def __init__(self) -> None:
        self.forward: list[KernelCall] = []
        self.gradients: list[KernelCall] = []

    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], *, is_taped: bool) -> None:
        engine = next(get(name) for name in list_loaded() if type(kernel).__module__.startswith(f"{name}."))
        calls = self.gradients if engine.is_gradient(kernel) else self.forward
        calls.append(KernelCall(kernel.func, arguments, tuple(named.items())))

    def enter_replaced(self, gradient: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        return

    def read_field(self, field: Any, execute: Callable[[], Any]) -> Any:
        raise _UnknownGradient

    def write_element(self, field: Any, index: Any, value: Any) -> None:
        raise _UnknownGradient

    def fill_field(self, field: Any, value: Any) -> None:
        raise _UnknownGradient

    def load_field(self, field: Any, array: Any) -> None:
        raise _UnknownGradient


class _UnknownGradient(Exception):
    """A custom gradient uses what it would only find when it runs."""


def is_generated(customs: Sequence[CustomGradient], calls: Sequence[KernelCall], reading: Sequence[KernelCall]) -> bool:
    """Return True if a custom gradient only reruns kernels and calls their gradients in reverse order.

    Gradients of those that are not `reading` are 0, and need not be called.
    """
    if len(customs) != 1 or customs[0].gradient is None:
        return False
    recording = _GradientRecording()
    try:
        with contextlib.ExitStack() as stack:
            for name in list_loaded():
                stack.enter_context(get(name).redirect_calls(recording))
            customs[0].gradient(*customs[0].arguments)
    except Exception:  # noqa: BLE001  # whatever it is, the backward pass raises it again
        return False
    functions, needed = {one.function for one in calls}, {one.function for one in reading}
    gradients = [one for one in recording.gradients if one.function not in functions - needed]
    is_alike = len(gradients) == len(reading) and {one.function for one in recording.forward} <= functions
    return is_alike and all(one.is_same(other) for one, other in zip(gradients, reversed(reading), strict=True))
