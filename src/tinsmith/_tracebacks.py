"""Tracebacks that show the user's own frames of an error, and hide those of tinsmith, torch and the engine.

A message of tinsmith names the op, the argument and what to do. The 27 to 99 frames between the user's call and the
check that failed say nothing more. They are hidden in two places, by one rule (`_keep_user_frames`):

    hide_frames     called where an op, a layer or a rollout raises: also shortens what a program logs
    install         once, at import: shortens what Python prints when an error ends a program or a thread, and what
                    IPython prints below a cell, where frames of torch lie between the user's call and the op
                    (`torch.compile`)

Errors that are bugs of tinsmith or of torch keep all frames, and so does every error with `TINSMITH_TRACEBACK=full`.
JAX does the same (jax/_src/traceback_util.py).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any

from ._errors import TinsmithError

PYTHON_LAUNCHES: set[CodeType] = set()
"""Code objects in which the Python engine, once it is imported, calls a kernel."""

NOTE = "Frames of tinsmith, torch and the engine are hidden. To see them, set TINSMITH_TRACEBACK=full."

_ENGINES = frozenset({"taichi", "quadrants"})
_HIDDEN = frozenset({"tinsmith", "torch", "contextlib", "functools"}) | _ENGINES
"""Packages whose frames are hidden. `torch.no_grad()` as a decorator calls through contextlib."""

_GENERATED = "<a call of "
"""How the name of a file with generated code begins."""
_SHORTENED = "_tinsmith_is_shortened"
"""The attribute that marks an error from whose traceback `hide_frames` removed frames."""


def hide_frames(error: BaseException) -> None:
    """Remove hidden frames from the traceback of an error that is being handled, and from those of its causes.

    Do nothing for an error that is neither raised by tinsmith nor by a kernel that Python runs.
    """
    first = error.__traceback__
    if first is None or not _is_shortened(error):
        return
    # The first frame is the one that handles the error: Python prints it whatever is done here.
    kept = _keep_user_frames(first.tb_next)
    is_hidden = _count_frames(kept) < _count_frames(first.tb_next)
    first.tb_next = kept
    _shorten_causes(error, is_hidden)
    # The frame of the launch, by which an error inside a kernel is recognized, is gone now.
    setattr(error, _SHORTENED, True)


def install() -> None:
    """Replace Python's hooks for uncaught errors by ones that hide frames, and then call the previous hooks."""
    print_error, print_error_of_thread = sys.excepthook, threading.excepthook

    def print_shortened(_kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        shown = _shorten(error, traceback)
        print_error(type(shown), shown, shown.__traceback__)

    def print_shortened_of_thread(arguments: Any) -> None:
        _kind, error, traceback, thread = arguments
        if error is not None:
            shown = _shorten(error, traceback)
            arguments = threading.ExceptHookArgs((type(shown), shown, shown.__traceback__, thread))
        print_error_of_thread(arguments)

    sys.excepthook, threading.excepthook = print_shortened, print_shortened_of_thread
    # IPython calls neither hook. Its shell runs before a program of the user can import tinsmith.
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        _shorten_in_ipython(shell.InteractiveTB)


def _shorten_in_ipython(printer: Any) -> None:
    """Replace the method by which IPython's traceback printer formats errors, so that it formats shortened ones."""
    write = printer.structured_traceback

    def write_shortened(kind: Any, error: Any = None, traceback: Any = None, *rest: Any, **options: Any) -> Any:
        # For a cause, IPython's plain mode calls this function again with a tuple.
        if isinstance(error, BaseException) and isinstance(traceback, TracebackType):
            shown = _shorten(error, traceback)
            kind, error, traceback = type(shown), shown, shown.__traceback__
        return write(kind, error, traceback, *rest, **options)

    printer.structured_traceback = write_shortened


def _shorten(error: BaseException, traceback: TracebackType | None) -> BaseException:
    """Return the error to print, with only the user's frames; the error itself if it is not to be shortened."""
    if traceback is None or not _is_shortened(error):
        return error
    kept = _keep_user_frames(traceback)
    is_hidden = _count_frames(kept) < _count_frames(traceback)
    shown = _find_reported(error)
    if shown is not error:
        # What led to it is torch's own handling.
        shown.__cause__, shown.__suppress_context__ = None, True
    shown.__traceback__ = kept
    _shorten_causes(shown, is_hidden)
    for one in _walk_chain(shown):
        cause = one.__cause__
        # The message has the engine's words already. Its report shows lines of generated code, not of the user's.
        if isinstance(one, TinsmithError) and cause is not None and _get_package(type(cause).__module__) in _ENGINES:
            one.__cause__, one.__suppress_context__ = None, True
    return shown


def _find_reported(error: BaseException) -> BaseException:
    """Return the error of tinsmith that an error of torch's compiler wraps; otherwise the error itself.

    torch.compile raises an error of its own, which quotes the message in one line, and hides the one that it handles.
    """
    one: BaseException | None = error
    while one is not None and _get_package(type(one).__module__) == "torch":
        one = one.__cause__ or one.__context__
    return one if isinstance(one, TinsmithError) else error


def _shorten_causes(error: BaseException, is_hidden: bool) -> None:
    """Remove hidden frames from the tracebacks of an error's causes. Add the note if any frame is hidden."""
    for cause in _walk_chain(error):
        if cause is not error and cause.__traceback__ is not None:
            kept = _keep_user_frames(cause.__traceback__)
            is_hidden = is_hidden or _count_frames(kept) < _count_frames(cause.__traceback__)
            cause.__traceback__ = kept
    # Python 3.10 has no notes.
    notes = [note for one in _walk_chain(error) for note in getattr(one, "__notes__", ())]
    if is_hidden and sys.version_info >= (3, 11) and NOTE not in notes:
        error.add_note(NOTE)


def _is_shortened(error: BaseException) -> bool:
    """Return True if an error is a user's mistake: one that tinsmith reports, or one inside a kernel run by Python."""
    # The setting itself may be misspelled, which `config()` would report instead of this error.
    if os.environ.get("TINSMITH_TRACEBACK", "").strip() == "full":
        return False
    if hasattr(error, _SHORTENED):
        return True
    chain = list(_walk_chain(_find_reported(error)))
    reported = [one for one in chain if isinstance(one, TinsmithError)]
    if reported:
        return not any(one.is_internal for one in reported)
    frames = list(_walk_frames(error.__traceback__))
    launches = [place for place, one in enumerate(frames) if one.tb_frame.f_code in PYTHON_LAUNCHES]
    # Without a frame of the kernel's, the fault is tinsmith's own.
    return bool(launches) and _keep_user_frames(frames[launches[-1]]) is not None


def _walk_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the ones that Python prints before it."""
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__


def _walk_frames(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _keep_user_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Copy a traceback without the frames of hidden packages."""
    kept: TracebackType | None = None
    for one in reversed(list(_walk_frames(traceback))):
        if not _is_hidden(one.tb_frame):
            kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _is_hidden(frame: FrameType) -> bool:
    # The code that runs a pass is generated for each kind of calls, and belongs to no module.
    is_generated = frame.f_code.co_filename.startswith(_GENERATED)
    return is_generated or _get_package(str(frame.f_globals.get("__name__", ""))) in _HIDDEN


def _get_package(module: str) -> str:
    return module.partition(".")[0]


def _count_frames(traceback: TracebackType | None) -> int:
    return sum(1 for _ in _walk_frames(traceback))
