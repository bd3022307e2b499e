"""Passing what Python asks an engine to do to a listener, instead of doing it.

Calling a kernel calls a `Kernel` object; accessing a field's elements, `fill`, `from_numpy` and `to_torch` call a few
methods. While a listener is active these methods are replaced, for one thread.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._custom_gradients import find_gradient

READS = ("__getitem__", "to_numpy", "to_torch", "to_dlpack")
"""Methods of a field or an ndarray that return its contents."""
LOADS = ("from_numpy", "from_torch")
"""Methods that fill a field or an ndarray from an array. Those of a field check the array and call `_FIELD_LOAD`."""
_FIELD_LOAD = "_from_external_arr"


class Listener(ABC):
    """Receives calls of kernels and accesses to fields.

    Attributes:
        is_paused: whether calls are currently executed as if there were no listener.
    """

    is_paused = False

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Enter a context in which calls are executed instead of passed to the listener."""
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False

    @abstractmethod
    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any], *, is_taped: bool) -> Any:
        """Handle the call of a kernel and return what the call returns. A method's first argument is its object.

        `is_taped` tells whether the engine's tape would record the call, as it does outside `no_grad` and
        `grad_replaced`.
        """

    @abstractmethod
    def enter_replaced(self, gradient: Callable[..., Any] | None, arguments: tuple[Any, ...]) -> None:
        """Handle the start of a function decorated by `no_grad` or `grad_replaced`.

        Its gradient is None before `grad_for` defines one.
        """

    @abstractmethod
    def read_field(self, field: Any, execute: Callable[[], Any]) -> Any:
        """Handle Python reading a field's contents, and return them.

        `execute` reads them while this listener is paused.
        """

    @abstractmethod
    def write_element(self, field: Any, index: Any, value: Any) -> None:
        """Handle `field[index] = value`."""

    @abstractmethod
    def fill_field(self, field: Any, value: Any) -> None:
        """Handle `field.fill(value)`."""

    @abstractmethod
    def load_field(self, field: Any, array: Any) -> None:
        """Handle `field.from_numpy(array)` or `field.from_torch(array)`."""


@contextlib.contextmanager
def redirect_to_listener(listener: Listener, kernel: type, fields: Sequence[type], runtime: Any) -> Iterator[None]:
    """Enter a context that passes this thread's calls to a listener. Only one thread at a time may do this.

    Args:
        listener: receives the calls.
        kernel: the engine's class of kernels.
        fields: its classes of fields and ndarrays that hold numbers.
        runtime: the engine's state. Functions decorated by `no_grad` and `grad_replaced` insert themselves into its
            `target_tape`, and set its `grad_replaced` while they run.
    """
    thread = threading.get_ident()
    writes: dict[str, Callable[..., None]] = {
        "__setitem__": listener.write_element,
        "fill": listener.fill_field,
        _FIELD_LOAD: listener.load_field,
        **dict.fromkeys(LOADS, listener.load_field),
    }

    def call_kernel(one: Any, *given: Any, **named: Any) -> Any:
        return listener.call_kernel(one, given, named, is_taped=not runtime.grad_replaced)

    def reader(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda one, *given, **named: listener.read_field(one, functools.partial(method, one, *given, **named))

    def replace_method(owner: type, name: str, replacement: Callable[..., Any]) -> None:
        stack.enter_context(_replace_method(owner, name, replacement, thread, listener))

    with contextlib.ExitStack() as stack:
        stack.enter_context(_replace_tape(runtime, _Tape(listener, thread)))
        for owner in fields:
            left_alone = LOADS if hasattr(owner, _FIELD_LOAD) else ()
            for name in (writes.keys() & vars(owner).keys()).difference(left_alone):
                replace_method(owner, name, writes[name])
            for name in {*READS} & vars(owner).keys():
                replace_method(owner, name, reader(vars(owner)[name]))
        replace_method(kernel, "__call__", call_kernel)
        yield


@contextlib.contextmanager
def _replace_method(
    owner: type, name: str, replacement: Callable[..., Any], thread: int, listener: Listener
) -> Iterator[None]:
    """Enter a context in which a class's method is replaced for one thread, except while the listener is paused."""
    method = vars(owner)[name]

    def dispatch(one: Any, *given: Any, **named: Any) -> Any:
        if threading.get_ident() != thread or listener.is_paused:
            return method(one, *given, **named)
        return replacement(one, *given, **named)

    setattr(owner, name, dispatch)
    try:
        yield
    finally:
        setattr(owner, name, method)


class _Tape:
    """Replaces an engine's tape: notifies a listener of functions with a custom gradient."""

    grad_checker = None  # Quadrants reads it

    def __init__(self, listener: Listener, thread: int) -> None:
        self._listener = listener
        self._thread = thread

    def insert(self, function: Any, arguments: tuple[Any, ...]) -> None:
        """Notify the listener that a function with a custom gradient begins. Ignore calls from other threads."""
        if threading.get_ident() == self._thread and not self._listener.is_paused:
            self._listener.enter_replaced(find_gradient(function), arguments)


@contextlib.contextmanager
def _replace_tape(runtime: Any, tape: _Tape) -> Iterator[None]:
    before, runtime.target_tape = runtime.target_tape, tape
    try:
        yield
    finally:
        runtime.target_tape = before
