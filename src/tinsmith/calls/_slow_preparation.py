"""The warning of an op whose first call took long: which part took how long, and which setting helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .._config import config
from .._errors import refusal
from .._preparation import is_in_test
from .._user_warnings import SlowPreparationWarning, warn
from ..engines import ENGINE_TIMES, Engine, EngineTimes, Moment

LIMIT = 3.0
"""The seconds above which the preparation of a pass is slow."""


class PreparationTimer:
    """Adds up how long it takes to prepare one pass of an op, forward or backward, and warns once if it is slow.

    Args:
        op: the op's name.
        engine: the engine that compiles the pass's kernels.
        now: returns the current moment.
        times: what the engines took so far.
    """

    def __init__(
        self, op: str, engine: Engine, now: Callable[[], Moment] = Moment.now, times: EngineTimes = ENGINE_TIMES
    ) -> None:
        self._op, self._engine = op, engine
        self._now, self._times = now, times
        self._seconds = self._front_end = self._compiler = 0.0
        self._kernels = 0
        self._has_warned = False
        self._depth = 0
        self._before = self._read()

    def _read(self) -> tuple[Moment, float, float, int]:
        times = self._times
        return self._now(), times.front_end, times.compiler, times.kernels

    # Not a generator: the warning would name the line of `contextlib` that runs it.
    def __enter__(self) -> None:
        """Begin to measure. What begins inside of that is a part of it."""
        self._depth += 1
        if self._depth == 1:
            self._before = self._read()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Add the time since `__enter__`. Warn if the sum is above the limit for the first time."""
        self._depth -= 1
        if self._depth or kind is not None:
            return
        start, front_end, compiler, kernels = self._before
        times = self._times
        self._seconds += self._now().seconds_since(start)
        self._front_end += times.front_end - front_end
        self._compiler += times.compiler - compiler
        self._kernels += times.kernels - kernels
        # A test under a strict filter would fail on a slow machine only.
        if self._seconds > LIMIT and not self._has_warned and not is_in_test():
            self._has_warned = True
            warn(self.describe(), SlowPreparationWarning)

    def describe(self) -> str:
        """Return the warning: the seconds by part, and the settings that help."""
        own = max(0.0, self._seconds - self._front_end - self._compiler)
        engine = self._engine.name
        rows = [
            ("tinsmith", f"{own:.1f} s to analyze the kernels and generate code"),
            (engine, f"{self._front_end:.1f} s to read the code, {self._compiler:.1f} s to compile it"),
            ("kernels", str(self._kernels)),
        ]
        words = f"the first call of op `{self._op}` took {self._seconds:.1f} s to prepare"
        return refusal(words, rows, " ".join(self._list_remedies(own)))

    def _list_remedies(self, own: float) -> Iterator[str]:
        """Yield what makes the next first call faster."""
        engine = self._engine
        is_cached, is_kept = config().cache, engine.keeps_compiled()
        if not is_cached:
            yield "Unset TINSMITH_CACHE=0: then the next process reads the generated code from disk."
        if not is_kept:
            yield (
                f"Leave out `offline_cache=False` where {engine.name} is started: then the next process reads the "
                "compiled kernels from disk."
            )
        if is_cached and is_kept:
            yield "The results are kept on disk, so the next process takes less."
        if self._compiler + self._front_end > own:
            yield "Unrolled loops (`static`) and functions that are called often make kernels long: use plain loops."
