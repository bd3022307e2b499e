"""Reads of objects: what a body asks of a Python object that it names as a whole."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from ..._errors import KernelError
from ...engines import Engine
from .._fingerprints import is_steady
from .._nodes import unwrap_call
from .._read import Source, read

_UNFOLLOWED = (
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Global,
    ast.Nonlocal,
    ast.Try,
    ast.With,
    ast.Match,
)
"""Statements and expressions of a Python function that bind names otherwise than by assigning them."""
_REFLECTIVE = frozenset(["super", "globals", "locals", "eval", "exec", "__class__"])
"""Names by which a Python function reads what it does not name."""


def find_tested(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of a statement or expression that are used only for their type or truth value."""
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.Assert(test):
            yield unwrap_call(test, "static")
        case ast.BoolOp(values=values):
            yield from (unwrap_call(value, "static") for value in values)
        case ast.UnaryOp(ast.Not(), operand):
            yield unwrap_call(operand, "static")
        case ast.Compare(left, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
            yield unwrap_call(left, "static")
        case ast.Call(ast.Name("isinstance" | "type" | "callable"), [tested, *_]):
            yield tested


def has_truth_value(value: Any) -> bool:
    """Return True if the truth value of an object depends on what it holds."""
    return hasattr(type(value), "__bool__") or hasattr(type(value), "__len__")


def read_python_function(value: Any, engine: Engine) -> Source | None:
    """Return the source of a user's Python function; None for other values, and if the source hides what it reads."""
    # A wrapper's source would be that of the function that it wraps.
    if not isinstance(value, FunctionType) or engine.owns(value) or is_steady(value) or hasattr(value, "__wrapped__"):
        return None
    try:
        source = read(value)
    except KernelError:
        return None
    is_hidden = any(isinstance(node, _UNFOLLOWED) for node in source.nodes) or source.used_names & _REFLECTIVE
    return None if is_hidden or _takes_more(source) else source


def _takes_more(source: Source) -> bool:
    """Return True if there are parameters that `Source.parameters` does not list."""
    arguments = source.tree.args
    return bool(arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs)
