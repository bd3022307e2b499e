"""Excerpts: the lines of a file to show around findings."""

from __future__ import annotations

import linecache
import os
import warnings
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager

from ..engines import file_lines, name_file
from ..frontend import find_function_spans

_AROUND = 2  # lines above and below a line outside of functions


def read_lines(path: str) -> list[str]:
    """Return the lines of a file or of a notebook's cell, without line ends; empty if there is no such file."""
    linecache.checkcache(path)
    return [line.rstrip("\r\n") for line in file_lines(path)]


def choose_excerpts(lines: list[str], marked: Collection[int]) -> list[range]:
    """Return ranges of line numbers, from 1, to show around the marked lines.

    A line inside a function is shown with the whole function, another one with two lines above and below.
    """
    with ignore_syntax_warnings():
        # Empty if the text is not valid Python.
        functions = find_function_spans("\n".join(lines))
    spans = sorted(_expand_line(line, functions, len(lines)) for line in marked if 1 <= line <= len(lines))
    joined: list[range] = []
    for first, last in spans:
        if joined and first <= joined[-1].stop:
            joined[-1] = range(joined[-1].start, max(joined[-1].stop, last + 1))
        else:
            joined.append(range(first, last + 1))
    return joined


def describe_lines(lines: Sequence[int]) -> str:
    """Format line numbers, with consecutive ones as a range.

    Example:
        >>> describe_lines([3, 4, 5, 9])
        'lines 3-5, 9'
    """
    spans: list[list[int]] = []
    for line in lines:
        if spans and line == spans[-1][1] + 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in spans]
    return f"line{'s' if len(lines) > 1 else ''} {', '.join(texts)}"


@contextmanager
def ignore_syntax_warnings() -> Generator[None]:
    """Suppress warnings of Python's parser about strings in users' files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        warnings.simplefilter("ignore", DeprecationWarning)  # the category before Python 3.12
        yield


def shorten_path(path: str) -> str:
    """Return a path relative to the working directory if it is below that, or else unchanged; a notebook's cell as
    "In[4]".
    """
    name = name_file(path)
    try:
        short = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return name if name != path or short.startswith("..") else short


def find_common_folder(paths: Collection[str]) -> str:
    """Return the folder that all paths are in, if it is not below the working directory; "" otherwise."""
    try:
        folder = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    except ValueError:  # no paths, or several drives
        return ""
    return folder if shorten_path(folder) == folder and folder != os.path.abspath(os.sep) else ""


def _expand_line(line: int, functions: Iterable[tuple[int, int]], count: int) -> tuple[int, int]:
    inside = [span for span in functions if span[0] <= line <= span[1]]
    if inside:
        return max(inside)  # the innermost one starts last
    return max(1, line - _AROUND), min(count, line + _AROUND)
