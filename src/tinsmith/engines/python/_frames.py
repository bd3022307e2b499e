"""Tracebacks of what a kernel raised, without this library's frames."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ._engine import Launch

_PACKAGE = __name__.partition(".")[0]


def hide_frames(error: BaseException) -> None:
    """Drop this library's frames from the traceback of what a kernel raised, but for the caller's own.

    What was raised elsewhere is left as it is.
    """
    first = error.__traceback__
    frames = [] if first is None else list(_frames(first.tb_next))
    launches = [place for place, one in enumerate(frames) if one.tb_frame.f_code is Launch.__call__.__code__]
    if first is None or not launches:
        return
    traceback: TracebackType | None = None
    for one in reversed(frames[launches[-1] :]):
        if not str(one.tb_frame.f_globals.get("__name__", "")).startswith(_PACKAGE + "."):
            traceback = TracebackType(traceback, one.tb_frame, one.tb_lasti, one.tb_lineno)
    # Without a frame of the kernel's, the fault is this library's own.
    if traceback is not None:
        first.tb_next = traceback


def _frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
