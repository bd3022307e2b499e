"""Warnings, and finding the line of the user's code that led to a warning or an error."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Collection
from pathlib import Path
from types import FrameType

import torch

_NOT_THEIRS = (*(str(Path(file).parent) + "/" for file in (__file__, torch.__file__)), contextlib.__file__)
"""Folders and files whose frames are not the user's: this library, torch, and the module that runs its contexts."""


class TruncationWarning(UserWarning):
    """A kernel assigns a float to an integer without a cast.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("error", category=ts.TruncationWarning)
    """


class RaceWarning(UserWarning):
    """Iterations of a parallel loop may access one element, so that the result may depend on their order.

    On the CPU such a loop runs in order. `races="allow"` of `tinsmith.op` turns the check off.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("error", category=ts.RaceWarning)
    """


class SlowEngineWarning(UserWarning):
    """The Python engine got an array that is large for it: it runs some 100,000 statements a second.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=ts.SlowEngineWarning)
    """


class SlowPreparationWarning(UserWarning):
    """The first call of an op took over three seconds to generate and compile its kernels.

    The warning says which part took how long, and which setting shortens it. The time is that of the clock on the wall
    or of the processor, whichever is less.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=ts.SlowPreparationWarning)
    """


def warn(words: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the innermost caller outside this library and torch.

    A backward pass in a thread of torch has no such caller; the warning then names the outermost one.
    """
    warnings.warn(words, category, stacklevel=_find_user()[1])


def find_line_of_user(packages: Collection[str] = ()) -> tuple[str, int]:
    """Return the file and the line of the innermost caller outside this library, torch and these packages."""
    frame = _find_user(packages)[0]
    return frame.f_code.co_filename, frame.f_lineno


def _find_user(packages: Collection[str] = ()) -> tuple[FrameType, int]:
    """Return the frame of the innermost caller outside this library, torch and `packages`, and its stack
    level from 1.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith(_NOT_THEIRS)
        or frame.f_globals.get("__name__", "").partition(".")[0] in packages
    ):
        level, frame = level + 1, frame.f_back
    return frame, level
