"""Programs in float32, as CPUs run them in machine vectors: strips and lanes (`passes.strip_functions`).

A fuzz works on few elements, of which no strip is made, and with sums too short to be worth it. So their lengths and
thresholds are made small while programs are tried. What does not agree is tried again without strips and lanes: where
that is the same, float32 has too few digits for the program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from tinsmith import passes
from tinsmith.ir import nodes
from tinsmith.passes import strip_functions
from tinsmith.passes.strips import _elementwise, _engine_vectors, _parts, _strips
from tinsmith.passes.strips.lanes import _run

_LENGTHS: tuple[tuple[Any, str], ...] = (
    (_parts, "LENGTH"),
    (_strips, "LENGTH"),
    (_elementwise, "LENGTH"),
    (_run, "_WIDTH"),
    (_run, "_SHARED_WIDTH"),
)
"""Where the length of a strip or the width of a block stands."""
_THRESHOLDS: tuple[tuple[Any, str, int], ...] = (
    (_parts, "SHORTEST", 2),
    (_strips, "SHORTEST", 2),
    (_strips, "_LANES", 2),
    (_elementwise, "SHORTEST", 2),
    (_run, "_GATHER", 0),
    (_engine_vectors, "WIDTH", 2),
    (_elementwise, "WIDTH", 2),
    (_strips, "WIDTH", 2),
)
"""Where a threshold or the width of the engine's vectors stands, and what it is made."""


class Counted:
    """Counts the kernels that were given strips or lanes."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kernel: nodes.Kernel, **options: bool) -> nodes.Kernel:
        stripped = strip_functions(kernel, **options)
        self.count += stripped is not kernel
        return stripped


@contextlib.contextmanager
def small_vectors(seed: int) -> Iterator[Counted]:
    """Compile kernels with short strips and narrow lanes inside, even where that does not pay.

    By the seed they have length 2 or 4: of rows and columns there are as many, or one more.
    """
    counted, shift = Counted(), 1 + seed // 2 % 2
    lengths = [(module, name, 2**shift) for module, name in _LENGTHS]
    with contextlib.ExitStack() as stack:
        for module, name, value in (*lengths, *_THRESHOLDS, (_parts, "SHIFT", shift)):
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(_replaced(counted))
        yield counted


@contextlib.contextmanager
def no_vectors() -> Iterator[None]:
    """Compile kernels without strips and lanes inside."""
    with _replaced(lambda kernel, **_: kernel):
        yield


@contextlib.contextmanager
def _replaced(function: Any) -> Iterator[None]:
    with patch.object(passes, "strip_functions", function):
        yield
