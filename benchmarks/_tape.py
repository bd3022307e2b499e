"""The tape: how many bytes a generated backward pass asks for to keep what its reverse sweep needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tinsmith.bridge.backward import _runner, _straight


@contextmanager
def tape_of() -> Iterator[list[int]]:
    """Watch the two places where tapes are made: the sizes in bytes of those made inside, in order."""
    sizes: list[int] = []
    made, ran = _runner.Runner.tape, _straight.Straight.run

    def tape(runner: Any, *given: Any) -> Any:
        found = made(runner, *given)
        sizes.append(found.nbytes)
        return found

    def run(straight: Any, *given: Any) -> Any:
        sizes.append(straight.tape_bytes)
        return ran(straight, *given)

    with patch.object(_runner.Runner, "tape", tape), patch.object(_straight.Straight, "run", run):
        yield sizes
