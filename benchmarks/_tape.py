"""The tape: how many bytes a generated backward pass asks for to keep what its reverse sweep needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tinsmith.bridge import _runner


@contextmanager
def tape_of() -> Iterator[list[int]]:
    """Watch the one place where tapes are made: the sizes in bytes of those made inside, in order."""
    sizes: list[int] = []
    made = _runner.Runner.tape

    def tape(runner: Any, *given: Any) -> Any:
        found = made(runner, *given)
        sizes.append(found.nbytes)
        return found

    with patch.object(_runner.Runner, "tape", tape):
        yield sizes
