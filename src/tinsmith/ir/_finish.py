"""After each pass: verify its output, and pass it to observers.

A pipeline calls `finish_pass` after each pass, so one place checks the IR, and one can print it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .. import ir
from .._config import config
from . import _nodes as nodes

Observer = Callable[[str, nodes.Kernel], None]
"""Called with the name of a pass, and a kernel that it returned."""

_OBSERVERS: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observe_passes(observer: Observer) -> Iterator[None]:
    """Call `observer` after each pass that ends inside the `with` block, in this thread."""
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


def is_observed() -> bool:
    """Return True if passes of this thread have observers now."""
    return bool(_OBSERVERS.get())


def finish_pass(name: str, kernels: Iterable[nodes.Kernel], *, is_changed: bool = True, is_ssa: bool = False) -> None:
    """Verify the kernels that a pass returned, in tests and with `TINSMITH_VERIFY=1`, and call the observers.

    Args:
        name: the pass.
        kernels: what it left.
        is_changed: whether it changed what it was given; what did not change was verified before.
        is_ssa: whether the kernels are in SSA form.

    Raises:
        InvalidKernel: a kernel breaks a rule of the IR; the message names the pass.
    """
    observers = _OBSERVERS.get()
    is_verified = is_changed and config().verify
    if not (observers or is_verified):
        return
    for kernel in kernels:
        if is_verified:
            try:
                # Loaded here: a program verifies nothing by default.
                ir.verify(kernel, is_ssa=is_ssa)
            except ir.InvalidKernel as fault:
                raise ir.InvalidKernel(f"after the pass `{name}`, {fault}") from None
        for observer in observers:
            observer(name, kernel)
