"""The tape: how many bytes a generated backward pass asks for to keep what its reverse sweep needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tinsmith.bridge import _executor


@contextmanager
def tape_of() -> Iterator[list[int]]:
    """Watch the places where tapes are made: the sizes in bytes of those made inside, in order."""
    sizes: list[int] = []
    made, ran = _executor.unread, _executor.Executor.run

    def unread(*given: Any) -> Any:
        found = made(*given)
        sizes.append(found.nbytes)
        return found

    def run(executor: Any, *given: Any) -> Any:
        sizes.append(executor.tape_bytes)
        return ran(executor, *given)

    with patch.object(_executor, "unread", unread), patch.object(_executor.Executor, "run", run):
        yield sizes
