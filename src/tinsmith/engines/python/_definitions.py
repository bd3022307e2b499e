"""Parsing of a function's source to a syntax tree, and compilation of a rewritten tree to a Python function."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from .._parsing import parse_definition
from .._trees import complete_places, list_children

ENGINE = "__engine__"
"""The name by which a rewritten function refers to its interpreter."""
_INNER = "__rewritten__"
"""A rewritten function's temporary name during compilation, so that a recursive call by name finds the original."""
MISSING = object()
"""The value of a name that has none before the kernel runs."""


class Definition(NamedTuple):
    """A function to rewrite.

    Attributes:
        tree: its syntax tree, with the line numbers of its file.
        path: its file.
        function: the Python function, in whose globals and closure names are looked up.
    """

    tree: ast.FunctionDef
    path: str
    function: Callable[..., Any]


def read_definition(function: Callable[..., Any]) -> Definition:
    """Return the syntax tree and file of a Python function. Parse it on first use."""
    made = getattr(function, "tinsmith_source", None)
    if made is not None:
        return Definition(made.tree, made.path, made.function)
    tree = _TREES.get(function)
    if tree is None:
        tree = _TREES[function] = parse_definition(function)
    return Definition(tree, function.__code__.co_filename, function)


_TREES: WeakKeyDictionary[Callable[..., Any], ast.FunctionDef] = WeakKeyDictionary()
"""Syntax trees of the functions that were parsed."""


def build_function(definition: Definition, run: Any, body: list[ast.stmt], names: Mapping[str, Any]) -> FunctionType:
    """Compile a rewritten body to a Python function.

    Its names are looked up in `names`, then as in the original function: in its closure and globals. `run` is its
    interpreter.
    """
    tree, old = definition.tree, definition.function
    code: CodeType | None = getattr(old, "__code__", None)
    cells = dict(zip(code.co_freevars, getattr(old, "__closure__", None) or (), strict=True)) if code else {}
    cells |= {name: CellType(value) for name, value in names.items()}
    cells[ENGINE] = CellType(run)
    arguments = ast.arguments(
        tree.args.posonlyargs,
        [ast.copy_location(ast.arg(one.arg), one) for one in tree.args.args],
        None if tree.args.vararg is None else ast.copy_location(ast.arg(tree.args.vararg.arg), tree.args.vararg),
        [ast.copy_location(ast.arg(one.arg), one) for one in tree.args.kwonlyargs],
        [None] * len(tree.args.kwonlyargs),
        None if tree.args.kwarg is None else ast.copy_location(ast.arg(tree.args.kwarg.arg), tree.args.kwarg),
        [],
    )
    # Under a temporary name: a function that calls itself finds itself where the original function does.
    made = ast.copy_location(ast.FunctionDef(_INNER, arguments, body, []), tree)
    inputs = ast.arguments([], [ast.arg(name) for name in cells], None, [], [], None, [])
    around = ast.copy_location(ast.FunctionDef("around", inputs, [made], []), tree)
    for one in (made, around):
        if "type_params" in ast.FunctionDef._fields:
            one.type_params = []  # type: ignore[attr-defined]
    module = ast.Module([around], [])
    # Statements that were inserted into the kernel have no line yet.
    complete_places(module)
    outer = _code(compile(module, definition.path, "exec", dont_inherit=True), "around")
    names_shown: Any = {"co_name": tree.name}
    if hasattr(outer, "co_qualname"):
        names_shown["co_qualname"] = getattr(old, "__qualname__", tree.name)
    inner = _code(outer, _INNER).replace(**names_shown)
    scope = getattr(old, "__globals__", {"__builtins__": builtins})
    closure = tuple(cells[name] for name in inner.co_freevars)
    function = FunctionType(inner, scope, tree.name, getattr(old, "__defaults__", None), closure)
    function.__kwdefaults__ = getattr(old, "__kwdefaults__", None)
    return function


def _code(outer: CodeType, name: str) -> CodeType:
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)


def look_up(function: Callable[..., Any], name: str) -> Any:
    """Return the value of a name in a function's closure, its globals or the builtins; MISSING if it has none."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is not None and name in code.co_freevars:
        cell = (getattr(function, "__closure__", None) or ())[code.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING
    scope = getattr(function, "__globals__", {})
    return scope[name] if name in scope else getattr(builtins, name, MISSING)


def give_place(node: ast.AST, around: ast.AST) -> None:
    """Give nodes without a position that of the node around them; if that spans several lines, its first line.

    For a method call over several lines, Python uses the line of the method: a debugger would stop there first.
    """
    if isinstance(node, ast.stmt) and hasattr(node, "lineno"):
        # A statement of an inner block, and all that is in it, has got its position already.
        return
    if "lineno" in node._attributes and not hasattr(node, "lineno"):
        ast.copy_location(node, around)
        if getattr(node, "end_lineno", None) != node.lineno:  # type: ignore[attr-defined]
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    for child in list_children(node):
        give_place(child, node if hasattr(node, "lineno") else around)
