"""A gradient computed in a child process, since an engine's reverse mode may crash its process.

The child is a fork, so it has the op, whatever file the kernel came from. The engine is started again in it, since its
threads are not forked. Without fork (or with CUDA, which does not support it) the gradient is computed in this process.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..._errors import GradientError, refusal
from ...operation.examination import Examination
from ._function import Tensors, make_op_function, pull_back

SECONDS = 120.0
"""The time limit of a child; one that takes longer counts as hanging."""

_DEADLY = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV)


def pull_back_in_child(
    call: Examination, values: Mapping[str, torch.Tensor], cotangents: Mapping[str, torch.Tensor]
) -> Tensors:
    """Compute the gradient of a call (`pull_back`) in a child process; a call that uses fields, in this process.

    Raises:
        GradientError: the op refused, or the child crashed or hung.
    """
    engine = call.forkable_engine if sys.platform == "linux" else None
    if engine is None or any(one.device.type != "cpu" for one in values.values()):
        return pull_back(make_op_function(call), values, cotangents)
    with tempfile.TemporaryDirectory() as folder:
        answer, words = Path(folder, "answer"), Path(folder, "words")
        child = _fork_quietly()
        if child == 0:
            _work(call, values, cotangents, answer, words)
        status = _wait_for(child)
        result: dict[str, Any] = torch.load(answer) if status == 0 and answer.exists() else {}
        if "gradient" in result:
            return result["gradient"]
        if "refusal" in result:
            raise GradientError(result["refusal"])
        raise GradientError(_describe_crash(status, words))


def _fork_quietly() -> int:
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork with threads. The child uses none of the parent's: its engine is started again.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _work(
    call: Examination,
    values: Mapping[str, torch.Tensor],
    cotangents: Mapping[str, torch.Tensor],
    answer: Path,
    words: Path,
) -> None:
    """Compute the gradient in the child process, and write it or the refusal to `answer`. Never returns."""
    code = 1
    try:
        said = os.open(words, os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1)
        os.dup2(said, 2)
        torch.set_num_threads(1)
        # An engine's own handlers wait for its threads, which a fork does not have.
        for one in _DEADLY:
            signal.signal(one, signal.SIG_DFL)
        try:
            torch.save({"gradient": pull_back(make_op_function(call), values, cotangents)}, answer)
        except GradientError as reason:
            torch.save({"refusal": str(reason)}, answer)
        except Exception as reason:  # noqa: BLE001  # engines raise their own
            torch.save({"refusal": f"{type(reason).__name__}: {reason}"}, answer)
        code = 0
    finally:
        # Not `sys.exit`, which would run the parent's exit handlers and finalizers.
        os._exit(code)


def _wait_for(child: int) -> int | None:
    """Wait for the child to end; return its exit code, negative for a signal. Kill it after the time limit, and return
    None.
    """
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _describe_crash(status: int | None, words: Path) -> str:
    if status is None:
        return refusal(f"the backward pass did not end in {SECONDS:.0f} s, in a process of its own")
    name = signal.Signals(-status).name if status < 0 else f"exit code {status}"
    lines = [line.strip() for line in words.read_text(errors="replace").splitlines()] if words.exists() else []
    last = [line for line in lines if line and not line.startswith(("%", "["))][:1]
    rows = [("ended by", name), *(("it said", line[:200]) for line in last)]
    return refusal("the engine's reverse mode kills the process that it runs in", rows)
