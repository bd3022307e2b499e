"""Runs kernels on the Python engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinsmith.calls.fields._launcher import Launcher
from tinsmith.engines import Checks, run_on


@contextmanager
def use_python_engine(**checks: bool) -> Iterator[None]:
    """Enter a context in which Python runs the kernels of ops that are made."""
    run_on("python", Checks(**checks))
    try:
        yield
    finally:
        run_on(None)


def run_by_python(kernel: Any, *arguments: Any, **checks: bool) -> None:
    """Launch a kernel as its engine would, by Python."""
    with use_python_engine(**checks):
        launcher = Launcher(kernel, "a test", allows_races=True)
        bound = launcher.bind_arguments(arguments)
        launcher.fields(bound)
        launcher.launch(bound, launcher.fingerprint(bound), adjoint=False)
