"""Functions of a higher package that a lower package calls without importing it.

The higher package registers them. `tinsmith/__init__`, which knows all packages, says how to import that package on
demand.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any


class Offer:
    """A function that another package registers."""

    def __init__(self) -> None:
        self._function: Callable[..., Any] | None = None
        self._load: Callable[[], object] | None = None

    def load_by(self, load: Callable[[], object]) -> None:
        """Set the function that imports the package which registers it."""
        self._load = load

    def register(self, function: Callable[..., Any]) -> None:
        """Set the function that is called."""
        self._function = function

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Call the registered function; import the package that registers it first if needed."""
        if self._function is None and self._load is not None:
            self._load()
        assert self._function is not None, "nobody registered it"
        return self._function(*arguments, **named)


checking = Offer()
"""Checks a call of an op: `Op.check`."""
checking_scan = Offer()
"""Checks the gradient of a call of `scan`: `scan.check`."""
describing_origin = Offer()
"""Describes the operation that made a step's numbers not finite."""
scan_operators = Offer()
"""Returns the names of the torch operators of scans over an op."""
leaving_programs = Offer()
"""Removes the programs from the engines, in a process that was just forked."""


def _after_fork() -> None:
    if "taichi" in sys.modules or "quadrants" in sys.modules:
        leaving_programs()


# Registered on import of tinsmith: an engine may run, and a process be forked, before anything else of it is used.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
