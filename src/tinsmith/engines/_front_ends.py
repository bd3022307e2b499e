"""Faster replacements for parts of the engines' front ends, which turn a kernel's Python tree into the engine's own IR.

For each node of the tree, both engines (Taichi 1.7.4, Quadrants 1.3.3) format its source lines with carets below, for a
message that hardly any compilation prints; that took half of the front end's time. For each call of a function, both
search for its lines with Python's tokenizer. The replacements return the same, apart from long lines, which they do not
wrap. They are in place only while tinsmith compiles.
"""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from ._parsing import source_lines


@contextlib.contextmanager
def replace_attributes(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Enter a context in which attributes, given as (object, name, value), have other values."""
    before = [(owner, name, vars(owner).get(name, _MISSING)) for owner, name, _ in changes]
    for change in changes:
        setattr(*change)
    try:
        yield
    finally:
        for owner, name, value in before:
            if value is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


_MISSING = object()
_PLACE = "_tinsmith_place"
"""The attribute of a node of a tree that holds the description of its place."""


def describe_position(describe: Callable[[Any, Any], str]) -> Callable[[Any, Any], str]:
    """Return a faster form of an engine's function (context, node) that describes where a node is in the source.

    It remembers the description of each node, since engines build a node in a static loop once for each iteration.
    """

    def describe_again(context: Any, node: Any) -> str:
        known = vars(node).get(_PLACE)
        if known is None:
            known = vars(node)[_PLACE] = describe_first(context, node)
        return known

    def describe_first(context: Any, node: Any) -> str:
        place = node.lineno - 1
        if node.lineno != node.end_lineno or place >= len(context.src):
            return describe(context, node)
        code = context.src[place].rstrip()
        if not code.isprintable():
            return describe(context, node)
        start, end = context.indent + node.col_offset, context.indent + node.end_col_offset
        head = f'File "{context.file}", line {node.lineno + context.lineno_offset}, in {context.func.func.__name__}:'
        return f"{head}\n{code}\n{' ' * start}{'^' * (end - start)}\n"

    return describe_again


def find_lines(find: Callable[[Any], tuple[list[str], int]]) -> Callable[[Any], tuple[list[str], int]]:
    """Return a form of an engine's `getsourcelines` that remembers the lines of each function."""

    def find_again(function: Any) -> tuple[list[str], int]:
        try:
            return source_lines(function)
        except (OSError, TypeError):
            # Engines also find functions of interactive sessions.
            return find(function)

    return find_again


def _fill(line: str, *, tabsize: int, width: int) -> str:
    """Return what `textwrap.fill` does for a line of source, but never break it.

    Engines pass a width of 9,999, which the first line of a kernel with some 150 arrays exceeds; once it was broken,
    the lines of the tree were not those of the source, and Taichi raised IndexError.
    """
    code = line.rstrip("\n")
    if code.isprintable():
        return code.rstrip()
    return textwrap.fill(line, tabsize=tabsize, width=max(width, 2 * tabsize * len(line)))


WRAPPING = SimpleNamespace(fill=_fill, dedent=textwrap.dedent)
"""What engines use of `textwrap`."""
