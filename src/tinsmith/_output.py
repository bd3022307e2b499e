"""Standard output and error on which failed writes raise nothing.

A command then completes its work, and writes its files, after the reader of its output has exited (`| head -1`).
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
from typing import Any, TextIO

_BROKEN_PIPE = 141  # what a shell reports of a program that SIGPIPE ended
_CANNOT_WRITE = 2
_ERRORS = "tinsmith.ascii"
_LINES = {"─": "-", "━": "-", "╸": "-", "╺": "-", "│": "|", "▲": "^", "⋯": "..."}


class LastingOutput(io.FileIO):
    """A file descriptor whose first failed write is kept as `error`; from then on, what is written is dropped."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int | None:
        """Write bytes; return the number of those written or dropped."""
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


def keep_writing() -> None:
    """Replace standard output and error: failed writes raise nothing, and any character can be written.

    Of characters that the encoding does not have, lines are drawn with ASCII, and others are written as escapes.
    """
    is_original = sys.stdout is sys.__stdout__
    sys.stdout, sys.stderr = _make_lasting(sys.stdout), _make_lasting(sys.stderr)
    if is_original:
        # Taichi takes any other stdout for a graphical shell's, and says so (1.7).
        sys.__stdout__ = sys.stdout


def finish_output() -> int:
    """Flush standard output, and return the exit code: 0, 141 if its reader has gone, or 2 if it could not be written.

    The reason of the last is written to standard error.
    """
    error = _flush(sys.stdout)
    if error is None:
        return 0
    if error.errno == errno.EPIPE:
        return _BROKEN_PIPE
    sys.stderr.write(f"tinsmith: standard output cannot be written: {error.strerror}\n")
    sys.stderr.flush()
    return _CANNOT_WRITE


def _make_lasting(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper):  # None without a console; something else in tests
        return stream
    stream.flush()
    codecs.register_error(_ERRORS, _write_in_ascii)
    raw = LastingOutput(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, _ERRORS, line_buffering=stream.line_buffering)


def _write_in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace what an encoding does not have, as an error handler of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = error.object[error.start : error.end]
    written = (_LINES.get(one) or one.encode("ascii", "backslashreplace").decode() for one in letters)
    return "".join(written), error.end


def _flush(stream: TextIO) -> OSError | None:
    if not isinstance(stream, io.TextIOWrapper):
        return None
    stream.flush()
    raw = getattr(stream.buffer, "raw", None)
    return raw.error if isinstance(raw, LastingOutput) else None
