"""The tape: how many bytes a generated backward pass asks for to keep what its reverse sweep needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from tinsmith.calls._tape_room import TapeRoom


@contextmanager
def tape_of() -> Iterator[list[int]]:
    """Enter a context that yields a list of the tapes allocated inside: their sizes in bytes, in order."""
    sizes: list[int] = []
    make = TapeRoom.__call__

    def made(room: TapeRoom, *given: Any) -> Any:
        tape = make(room, *given)
        sizes.append(tape.nbytes)
        return tape

    with patch.object(TapeRoom, "__call__", made):
        yield sizes
