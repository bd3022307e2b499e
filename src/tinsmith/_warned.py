"""Warnings that point at the line of the user's which led to them."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

_NOT_THEIRS = tuple(str(Path(file).parent) + "/" for file in (__file__, torch.__file__))
"""Folders of this library and of torch, through which calls come."""


def warn(words: str, category: type[Warning] = UserWarning) -> None:
    """Warn, at the line of the innermost caller that is neither this library's nor torch's.

    A backward pass that torch runs in a thread of its own has no such line; the warning then names the outermost one.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THEIRS):
        level, frame = level + 1, frame.f_back
    warnings.warn(words, category, stacklevel=level)
