"""Runs a function in a process that is forked from the test's, which it may kill or hang."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable

import torch

_DEADLY = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)

_MOST = 60_000
"""Characters of an answer: a pipe holds no more, and nobody reads it before the process is over."""


def run_forked(function: Callable[[], object], seconds: float = 60.0) -> str:
    """Return what a function returns in a forked process, as text, or the name and message of what it raises.

    Raises AssertionError where the process dies or hangs.
    """
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of a fork with threads
        child = os.fork()
    if child == 0:
        try:
            # Engines' own handlers print a trace, which takes seconds.
            for one in _DEADLY:
                signal.signal(one, signal.SIG_DFL)
            torch.set_num_threads(1)  # as a DataLoader does
            os.write(writer, _describe(function).encode())
        finally:
            os._exit(0)
    os.close(writer)
    end = time.monotonic() + seconds
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reader)
            raise AssertionError(f"the process hung for {seconds} s")
        time.sleep(0.01)
    status = os.waitstatus_to_exitcode(done[1])
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode()
    assert status == 0, f"the process died: {signal.Signals(-status).name}"
    return text


def _describe(function: Callable[[], object]) -> str:
    try:
        return str(function())[:_MOST]
    except BaseException as error:  # noqa: BLE001  # whatever it is, the test says whether it is right
        return f"{type(error).__name__}: {error}"[:_MOST]
