"""From a rewritten kernel to a Python function: its text, a synthetic file, and the function."""

from __future__ import annotations

import ast
import linecache
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from .._cache import digest_of
from ..engines import keep_lines, parse_statement


class _File:
    """Marks a synthetic source file as in use: each function compiled from it holds a reference to it."""

    __slots__ = ("__weakref__",)


_FILES: weakref.WeakValueDictionary[str, _File] = weakref.WeakValueDictionary()
"""Synthetic files by their path."""


def build(tree: ast.FunctionDef, namespace: dict[str, Any], label: str) -> tuple[Callable[..., Any], str]:
    """Build a function from `tree`; return it and its text.

    The text is registered in `linecache` under a synthetic file name, because engines ask
    `inspect` for the source of what they compile. The name depends on the text alone, so
    that an engine's offline cache, which may key on it, finds the kernel in the next process.
    """
    text = unparse(tree)
    return build_printed(text, tree.name, namespace, label), text


def build_from_text(text: str, namespace: dict[str, Any], label: str) -> Callable[..., Any]:
    """Build the function that a `def` in `text` defines, as `build` does from a tree."""
    tree = parse_statement(text)
    assert isinstance(tree, ast.FunctionDef)
    function, _ = build(tree, namespace, label)
    return function


def build_printed(text: str, name: str, namespace: dict[str, Any], label: str) -> Callable[..., Any]:
    """Build the function `name` from the text that `unparse` gave for its tree."""
    path = _name_file(text, label)
    scope = dict(namespace)
    # Not this file's `from __future__ import annotations`: engines read annotations as values.
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    function = scope[name]
    keep_file(function, path, text)
    keep_lines(function, text.splitlines(keepends=True))
    return function


def keep_file(function: FunctionType, path: str, text: str) -> None:
    """Keep the source lines of a generated function in `linecache` until no function of that file is left.

    Engines ask for them each time they compile the function: without them Taichi reads the lines of the function's
    module instead.
    """
    file = _FILES.get(path)
    if file is None:
        file = _FILES[path] = _File()
        weakref.finalize(file, _drop_lines, path).atexit = False
    vars(function)["tinsmith_file"] = file
    # Without a time of change (None), `linecache.checkcache` keeps the entry though there is no such file.
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)


def _drop_lines(path: str) -> None:
    if path in _FILES:
        return
    entry = linecache.cache.pop(path, None)
    if path in _FILES and entry is not None:
        # Another thread made the file again meanwhile.
        linecache.cache[path] = entry


def write_file(tree: ast.FunctionDef, label: str) -> tuple[str, str]:
    """Return the text of a tree and the path of its synthetic file, which depends on the label and the text alone."""
    text = unparse(tree)
    return text, _name_file(text, label)


def unparse(tree: ast.FunctionDef) -> str:
    """Return the text of a tree, as it stands in its synthetic file."""
    return ast.unparse(tree) + "\n"


def _name_file(text: str, label: str) -> str:
    return f"<tinsmith {label} {digest_of(text)}>"


def map_lines(tree: ast.FunctionDef, text: str) -> dict[int, int]:
    """Map the lines of a text that was printed from a tree to lines of the tree, statement by statement."""
    pairs = list(zip(_statements(tree), _statements(parse_statement(text)), strict=False))
    if any(type(old) is not type(new) for old, new in pairs):
        return {}
    return {new.lineno: old.lineno for old, new in pairs if hasattr(old, "lineno")}


def _statements(tree: ast.stmt) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
