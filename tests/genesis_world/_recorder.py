"""Listens to the launches of Genesis' kernels in a scene, and tries some of them before they happen."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Self

from ._trial import Outcome, format_error, try_launch

LOOKING = 5.0
"""How much longer it may take to find the arrays of a launch, of which tinsmith has no part, than to try it."""
AGAIN = 5.0
"""Seconds after which a trial that went on after its limit is stopped again."""
SOME_TRIES = 3
"""How many launches are tried while a kernel has nothing to differentiate."""
BUILDING = re.compile("init|_add_|store|reorder|surface|precompute|support|hessian|invweight|cartesian")
"""In names of kernels that may run only while a scene is built: these are tried at once."""


class Recorder:
    """Counts launches by kernel, with the kinds of the arguments of the first one; tries those that are wanted.

    Args:
        scene: its name, for records.
        folder: where outcomes go; None only counts.
        limit: seconds of processor time for a trial.
        wants: whether a kernel is to be tried, by its key.

    Attributes:
        launches: counts by kernel, before and after the scene was ready.
        forms: the kinds of arguments of each kernel's first launch.
    """

    def __init__(self, scene: str, folder: Path | None, limit: float, wants: Callable[[str], bool]) -> None:
        self._scene, self._folder, self._limit, self._wants = scene, folder, limit, wants
        self._is_busy = False
        self.is_ready = False
        self.launches: dict[str, list[int]] = {}
        self.forms: dict[str, dict[str, str]] = {}
        self.earlier: dict[str, list[int]] = {}
        self._tries: dict[str, int] = {}

    def __enter__(self) -> Self:
        from quadrants.lang.kernel import Kernel
        from quadrants.types.enums import AutodiffMode

        self._kernel_class, self._launch = Kernel, Kernel.__call__
        forward, recorder, launch = AutodiffMode.NONE, self, Kernel.__call__

        def call(kernel: Any, *arguments: Any, **named: Any) -> Any:
            if not recorder._is_busy and kernel.autodiff_mode == forward:
                recorder._note(kernel, arguments, named)
            return launch(kernel, *arguments, **named)

        Kernel.__call__ = call
        return self

    def __exit__(self, *_: object) -> None:
        self._kernel_class.__call__ = self._launch

    def _note(self, kernel: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        module = kernel.func.__module__
        if not module.startswith("genesis."):
            return
        key = f"{module.removeprefix('genesis.')}.{kernel.func.__qualname__}"
        counts = self.launches.setdefault(key, [0, 0])
        counts[self.is_ready] += 1
        names = tuple(one.name for one in kernel.arg_metas)
        given = dict(zip(names, arguments, strict=False)) | named
        if key not in self.forms:
            self.forms[key] = {name: _describe(one) for name, one in given.items()}
        if self._folder is None or not self._wants(key) or not self._is_time(key):
            return
        self._is_busy = True
        try:
            self._try(key, kernel, names, given)
        finally:
            self._is_busy = False

    def _is_time(self, key: str) -> bool:
        """Return True if this launch is to be tried: the first one, or the first after the scene is ready."""
        earlier = self.earlier.get(key, [0, 0 if BUILDING.search(key) else 1])
        if not self.is_ready and earlier[1]:
            return False
        number = self.launches[key][self.is_ready]
        return self._tries.get(key, 0) < SOME_TRIES and number in (1, 4, 12)

    def _try(self, key: str, kernel: Any, names: tuple[str, ...], given: dict[str, Any]) -> None:
        assert self._folder is not None
        claim = self._folder / f"{key}.claim"  # another scene may be running
        if claim.exists():
            return
        claim.touch()
        begun = self._folder / f"{self._scene}.begun"
        begun.write_text(json.dumps({"key": key, "at": time.time()}))
        self._tries[key] = self._tries.get(key, 0) + 1
        arguments = tuple(given[name] for name in names)
        is_method = bool(names) and names[0] == "self"
        callable_ = kernel.quadrants_callable
        bound = getattr(arguments[0], kernel.func.__name__) if is_method else callable_
        try:
            # Genesis launches some kernels in a backward pass, where torch records no gradients.
            with _time_limit(LOOKING * self._limit), torch.enable_grad():
                annotations = [one.annotation for one in kernel.arg_metas]
                run = partial(self._launch, kernel)
                outcome = try_launch(run, names, arguments, annotations, bound, partial(_limit_time, self._limit))
        except TimeoutError as error:
            numbers = {"limit": self._limit, "error": format_error(error)}
            outcome = Outcome("timeout", f"took more than {self._limit:.0f} s", numbers)
        except Exception as error:  # noqa: BLE001  # of the trial itself, which must not end the scene
            outcome = Outcome("broken", f"{type(error).__name__}: {error}"[:300], {"error": format_error(error)})
        begun.unlink()
        claim.unlink()
        if outcome.verdict == "nothing" and self._tries[key] < SOME_TRIES:
            write_outcome(self._folder, key, self._scene, outcome, is_final=False)
        else:
            self._tries[key] = SOME_TRIES
            write_outcome(self._folder, key, self._scene, outcome)


def write_outcome(folder: Path, key: str, scene: str, outcome: Outcome, is_final: bool = True) -> None:
    """Keep an outcome, one file for a kernel and a scene."""
    content = {"kernel": key, "scene": scene, "is_final": is_final, **asdict(outcome)}
    path = folder / f"{key}@{scene}.json"
    path.with_suffix(".part").write_text(json.dumps(content, indent=1, default=str))
    path.with_suffix(".part").rename(path)


def _describe(value: Any) -> str:
    inner = getattr(value, "_impl", value)
    wrapped = "qd.Tensor of " if inner is not value else ""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return f"{type(value).__name__} {str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if getattr(type(value), "_data_oriented", False):
        return f"data_oriented {type(value).__name__}"
    if isinstance(value, (bool, int, float)):
        return type(value).__name__
    return f"{wrapped}{type(inner).__name__}"


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after some seconds of processor time: a busy machine changes no outcome."""

    def stop(*_: object) -> None:
        _limit_time(AGAIN)  # an engine that compiles makes another error of the first one
        raise TimeoutError

    earlier = signal.signal(signal.SIGPROF, stop)
    _limit_time(seconds)
    try:
        yield
    finally:
        _limit_time(0)
        signal.signal(signal.SIGPROF, earlier)


def _limit_time(seconds: float) -> None:
    """Count the processor time of a limit from now on."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
