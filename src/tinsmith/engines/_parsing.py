"""Parsing, one thread at a time.

`ast` of CPython 3.11 keeps the depth of its recursion for the whole process: of two threads that parse at once, one now
and then gets a SystemError. So no other file of the package calls `ast.parse`, or compiles a tree.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from ._compiling import COMPILING


@contextlib.contextmanager
def _parsing() -> Iterator[None]:
    with COMPILING:
        try:
            yield
        except MemoryError as cause:
            # Python's parser raises it, without a word, at some thousand levels; no memory is short.
            raise MemoryError("the source is nested too deeply for Python's parser") from cause


def parse_module(text: str, path: str = "<unknown>") -> ast.Module:
    """The tree of a file's text. Raises SyntaxError."""
    with _parsing():
        return ast.parse(text, path)


def parse_lines(lines: Iterable[str]) -> ast.Module:
    """The tree of a file's lines; an empty one of what Python does not read, as a notebook's cell with magics."""
    try:
        return parse_module("".join(lines))
    except SyntaxError:
        return ast.Module([], [])


def parse_statement(text: str) -> ast.stmt:
    """The tree of a text's first statement. Raises SyntaxError."""
    return parse_module(text).body[0]


def parse_expression(text: str) -> ast.expr:
    """The tree of an expression. Raises SyntaxError."""
    with _parsing():
        return ast.parse(text, mode="eval").body


def compile_expression(node: ast.expr, label: str) -> CodeType:
    """What `eval` takes, from the tree of an expression."""
    with COMPILING:
        return compile(ast.fix_missing_locations(ast.Expression(node)), label, "eval", dont_inherit=True)


# Passes read a function again and again, and finding its lines takes twice as long as parsing them: Python tokenizes
# them to see where they end.
_LINES: WeakKeyDictionary[Callable[..., Any], tuple[list[str], int]] = WeakKeyDictionary()


def source_lines(function: Callable[..., Any]) -> tuple[list[str], int]:
    """The lines of a function's source, and the number of the first. Raises OSError where there is none.

    `linecache`, which they come from, empties a file's entry before it reads the file again.
    """
    with COMPILING:
        known = _LINES.get(function)
        if known is None:
            known = _LINES[function] = inspect.getsourcelines(function)
        return known


def keep_lines(function: Callable[..., Any], lines: list[str]) -> None:
    """Note the lines of a function that is all that its file has, so that nobody needs to find them."""
    with COMPILING:
        _LINES[function] = lines, 1


def file_lines(path: str) -> list[str]:
    """Return a file's lines, also those of a notebook's cell; none where it cannot be read."""
    if os.path.exists(path) and not os.path.isfile(path):
        # Opening a named pipe would wait forever.
        return []
    try:
        return linecache.getlines(path)
    except (LookupError, UnicodeError):
        # `linecache` lets these escape for an encoding that is no text (`# coding: rot13`).
        return []


def column_of(path: str, line: int, offset: int) -> int:
    """The column of a node, in characters from 1: the parser counts bytes from 0."""
    return count_column(linecache.getline(path, line), offset)


def count_column(text: str, offset: int) -> int:
    """The column in a line of text, in characters from 1, at an offset of bytes from 0."""
    return len(text.encode()[:offset].decode(errors="replace")) + 1


def parse_definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """The tree of a function's `def`, without decorators, on the lines of its file. Raises OSError, TypeError."""
    lines, first = source_lines(function)
    tree = parse_indented(lines, first)
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"`{function.__name__}` is not a plain `def`, but {type(tree).__name__}")
    tree.decorator_list = []
    return tree


def parse_indented(lines: list[str], first: int) -> ast.stmt:
    """The statement that stands in `lines`, at its own indentation: texts and comments may stick out to the left."""
    if not lines[0][:1].isspace():
        tree = parse_statement("".join(lines))
        return tree if first == 1 else ast.increment_lineno(tree, first - 1)
    block = parse_statement("if True:\n" + "".join(lines))
    assert isinstance(block, ast.If)
    return ast.increment_lineno(block.body[0], first - 2)
