"""Listening: what a Python function asks an engine to do is passed to a listener instead of being executed.

A kernel's call ends in the call of a `Kernel` object; a field's elements, `fill`, `from_numpy` and `to_torch` end in a
few methods. While somebody listens these are other functions, for one thread.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

READS = ("__getitem__", "to_numpy", "to_torch", "to_dlpack")
"""Methods of a field that give what it holds."""


class Listener(ABC):
    """What calls are passed to."""

    @abstractmethod
    def call_kernel(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A kernel is called; of a method the object is its first argument."""

    @abstractmethod
    def read_field(self, field: Any) -> None:
        """Python asks what a field holds."""

    @abstractmethod
    def write_element(self, field: Any, index: Any, value: Any) -> None:
        """`field[index] = value`."""

    @abstractmethod
    def fill_field(self, field: Any, value: Any) -> None:
        """`field.fill(value)`."""

    @abstractmethod
    def load_field(self, field: Any, array: Any) -> None:
        """`field.from_numpy(array)`, `field.from_torch(array)`."""


@contextlib.contextmanager
def redirect_to_listener(listener: Listener, kernel: type, fields: Sequence[type]) -> Iterator[None]:
    """Within, calls of this thread go to the listener. Only one thread at a time may do this.

    Args:
        listener: what the calls are passed to.
        kernel: the engine's class of kernels.
        fields: its classes of fields that hold numbers.
    """
    thread = threading.get_ident()
    methods: dict[str, Callable[..., None]] = {
        **dict.fromkeys(READS, lambda field, *_, **__: listener.read_field(field)),
        "__setitem__": listener.write_element,
        "fill": listener.fill_field,
        "_from_external_arr": listener.load_field,
    }
    with contextlib.ExitStack() as stack:
        for owner in fields:
            for name in methods.keys() & vars(owner).keys():
                stack.enter_context(_replace_method(owner, name, methods[name], thread))
        stack.enter_context(
            _replace_method(
                kernel, "__call__", lambda one, *given, **named: listener.call_kernel(one, given, named), thread
            )
        )
        yield


@contextlib.contextmanager
def _replace_method(owner: type, name: str, replacement: Callable[..., None], thread: int) -> Iterator[None]:
    """Within, a method is another function in one thread."""
    method = vars(owner)[name]

    def dispatch(one: Any, *given: Any, **named: Any) -> Any:
        if threading.get_ident() != thread:
            return method(one, *given, **named)
        return replacement(one, *given, **named)

    setattr(owner, name, dispatch)
    try:
        yield
    finally:
        setattr(owner, name, method)
