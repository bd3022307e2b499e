"""Parsing of Python source, in one thread at a time.

CPython 3.11's `ast` keeps its recursion depth in a global variable: if two threads parse at once, one of them now and
then gets a SystemError. So no other file of the package calls `ast.parse` or compiles a tree.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any
from weakref import WeakKeyDictionary

from ._compiling import COMPILING


@contextlib.contextmanager
def _hold_parser() -> Iterator[None]:
    with COMPILING:
        try:
            yield
        except MemoryError as cause:
            # Python's parser raises it, without a message, at some thousand levels of nesting; no memory is short.
            raise MemoryError("the source is nested too deeply for Python's parser") from cause


def parse_module(text: str, path: str = "<unknown>") -> ast.Module:
    """Parse a file's text into a syntax tree. Raise SyntaxError."""
    with _hold_parser():
        return ast.parse(text, path)


def parse_lines(lines: Iterable[str]) -> ast.Module:
    """Parse a file's lines into a syntax tree; return an empty one on a SyntaxError, as from a notebook cell with
    magics.
    """
    try:
        return parse_module("".join(lines))
    except SyntaxError:
        return ast.Module([], [])


def parse_statement(text: str) -> ast.stmt:
    """Parse a text and return its first statement. Raise SyntaxError."""
    return parse_module(text).body[0]


def parse_expression(text: str) -> ast.expr:
    """Parse an expression. Raise SyntaxError."""
    with _hold_parser():
        return ast.parse(text, mode="eval").body


def compile_expression(node: ast.expr, label: str) -> CodeType:
    """Compile an expression's syntax tree to code that `eval` takes. `label` is its file name in tracebacks."""
    with COMPILING:
        return compile(ast.fix_missing_locations(ast.Expression(node)), label, "eval", dont_inherit=True)


# Passes read a function again and again, and finding its lines takes twice as long as parsing them: Python tokenizes
# them to see where they end.
_LINES: WeakKeyDictionary[Callable[..., Any], tuple[CodeType | None, tuple[list[str], int]]] = WeakKeyDictionary()


def source_lines(function: Callable[..., Any]) -> tuple[list[str], int]:
    """Return a function's source lines and the number of the first. Raise OSError if there is no source.

    The lock is held because `linecache`, which provides them, empties a file's entry before it reads the file again.
    """
    with COMPILING:
        code = getattr(function, "__code__", None)
        known = _LINES.get(function)
        # Tools that reload edited files, as IPython's `%autoreload` does, put new code into the same function.
        if known is None or known[0] is not code:
            known = _LINES[function] = code, inspect.getsourcelines(function)
        return known[1]


def keep_lines(function: Callable[..., Any], lines: list[str]) -> None:
    """Store the source lines of a function that is its file's only content, so that `source_lines` need not search for
    them.
    """
    with COMPILING:
        _LINES[function] = getattr(function, "__code__", None), (lines, 1)


def file_lines(path: str) -> list[str]:
    """Return a file's lines, also those of a notebook cell; an empty list if it cannot be read."""
    if os.path.exists(path) and not os.path.isfile(path):
        # Opening a named pipe would wait forever.
        return []
    try:
        return linecache.getlines(path)
    except (LookupError, UnicodeError):
        # `linecache` does not catch these for an encoding that is not one of text (`# coding: rot13`).
        return []


def name_file(path: str) -> str:
    """Return the name of a file for people: "In[4]" for a cell of a notebook or of IPython, otherwise the path.

    IPython compiles each cell under the path of a file that does not exist, which says nothing to people.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # IPython has it from version 7.31 on.
    find = getattr(getattr(shell, "compile", None), "format_code_name", None)
    label_and_name = None if find is None else find(path)
    return path if label_and_name is None else label_and_name[1]


def name_place(path: str, line: int) -> str:
    """Return the place of a line for people: the name of its file, and its number."""
    return f"{name_file(path)}:{line}"


def column_of(path: str, line: int, offset: int) -> int:
    """Return the column of a node in a file, in characters from 1. `offset` is the parser's, in bytes from 0."""
    return count_column(linecache.getline(path, line), offset)


def count_column(text: str, offset: int) -> int:
    """Convert an offset in a line of text, in bytes from 0, to a column, in characters from 1."""
    return len(text.encode()[:offset].decode(errors="replace")) + 1


def parse_definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """Return the tree of a function's `def`, without decorators, with its file's line numbers.

    Raise OSError, TypeError.
    """
    lines, first = source_lines(function)
    tree = parse_indented(lines, first)
    if not isinstance(tree, ast.FunctionDef):
        raise TypeError(f"`{function.__name__}` must be defined by a `def`, not by a lambda or an `async def`")
    tree.decorator_list = []
    return tree


def parse_indented(lines: list[str], first: int) -> ast.stmt:
    """Parse one indented statement from `lines`, the first of which has number `first` in its file.

    Strings and comments may be indented less than the statement.
    """
    if not lines[0][:1].isspace():
        tree = parse_statement("".join(lines))
        return tree if first == 1 else ast.increment_lineno(tree, first - 1)
    block = parse_statement("if True:\n" + "".join(lines))
    assert isinstance(block, ast.If)
    return ast.increment_lineno(block.body[0], first - 2)
