"""Standard output and error streams that do not raise when a write fails.

A command then completes its work and writes its files even after the reader of its output has exited (`| head -1`).
"""

from __future__ import annotations

import codecs
import errno
import io
import sys
from typing import Any, TextIO

_BROKEN_PIPE = 141  # the exit code that a shell reports for a program ended by SIGPIPE
_CANNOT_WRITE = 2
_ERRORS = "tinsmith.ascii"
_LINES = {"─": "-", "━": "-", "╸": "-", "╺": "-", "│": "|", "▲": "^", "⋯": "..."}


class LastingOutput(io.FileIO):
    """A file descriptor that stores its first write error as `error`; later output is dropped."""

    error: OSError | None = None

    def write(self, data: Any, /) -> int | None:
        """Write bytes; return the number of bytes written or dropped."""
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


def keep_writing() -> None:
    """Replace standard output and error, so that failed writes do not raise, and any character can be written.

    For characters missing in the encoding, lines are drawn in ASCII, and others are written as escapes.
    """
    is_original = sys.stdout is sys.__stdout__
    sys.stdout, sys.stderr = _make_lasting(sys.stdout), _make_lasting(sys.stderr)
    if is_original:
        # Taichi 1.7 assumes a graphical shell if `sys.stdout` is another object, and prints that.
        sys.__stdout__ = sys.stdout


def finish_output() -> int:
    """Flush standard output, and return the exit code: 0, 141 if its reader has exited, or 2 for another write error.

    The reason for exit code 2 is written to standard error.
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
    if not isinstance(stream, io.TextIOWrapper):  # None without a console; another class in tests
        return stream
    stream.flush()
    codecs.register_error(_ERRORS, _write_in_ascii)
    raw = LastingOutput(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, _ERRORS, line_buffering=stream.line_buffering)


def _write_in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters missing in an encoding by ASCII. An error handler for `codecs`."""
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
