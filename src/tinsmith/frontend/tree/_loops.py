"""Loops of the top level: over an array's own indices (struct-fors) or over ranges, and on one thread.

    for i in x:                           for i in range(x.shape[0]):
        ...                                   ...
    for I in ti.grouped(m):        ->     for _I_0, _I_1 in _lang.ndrange(m.shape[0], m.shape[1]):
        ...                                   I = _lang.Vector([_I_0, _I_1])
                                              ...

Loops inside other loops stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from ...engines import copy_node, parse_expression, parse_statement
from .._loops import is_setting, is_static
from .._nodes import resolve_callee, unwrap_call
from .._read import Source


class NotRewritable(Exception):
    """A kernel cannot be rewritten.

    Attributes:
        reason: why.
        node: where.
        remedy: what to do about it, if there is more to say than where the error is raised.
        source: the function that the node is in; None for the kernel.
    """

    def __init__(self, reason: str, node: ast.AST, remedy: str = "", source: Source | None = None) -> None:
        super().__init__(f"line {getattr(node, 'lineno', '?')}: {reason}")
        self.reason = reason
        self.node = node
        self.remedy = remedy
        self.source = source


class Header(NamedTuple):
    """The variables of a loop, the sizes that it runs over, and statements to put first in its body."""

    targets: list[ast.expr]
    sizes: list[ast.expr]
    first: list[ast.stmt]


def header(loop: ast.For, ranks: Mapping[str, int]) -> Header:
    """Split a loop over an array, or over `ti.grouped` of one, into its parts.

    `ranks` holds the number of dims of each array and field, by name.
    """
    array = unwrap_call(loop.iter, "grouped")
    sizes = [parse_expression(f"{name_of(array)}.shape[{axis}]") for axis in range(ranks[name_of(array)])]
    if array is loop.iter:
        return Header(list(loop.target.elts) if isinstance(loop.target, ast.Tuple) else [loop.target], sizes, [])
    stem = ast.unparse(loop.target)
    names = [f"_{stem}_{axis}" for axis in range(len(sizes))]
    vector = lang_call("Vector", ast.List([load(name) for name in names], ast.Load()))
    return Header([store(name) for name in names], sizes, [ast.Assign([loop.target], vector, lineno=loop.lineno)])


def _find_rank(loop: ast.For, ranks: Mapping[str, int]) -> int:
    """Return the number of dims of the array whose indices a loop runs over; 0 if it runs over something else.

    A loop over an array without dims stays as it is, too.
    """
    return ranks.get(name_of(unwrap_call(loop.iter, "grouped")), 0)


def name_of(node: ast.AST) -> str:
    """Return the name of an array or field, `x` or `self.x`, or "" for other expressions."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def over(targets: list[ast.expr], sizes: list[ast.expr]) -> tuple[ast.expr, ast.expr]:
    """Build the target and the iterator (`range` or `ndrange`) of a loop over all indices of an array of `sizes`."""
    if len(sizes) == 1:
        return targets[0], ast.Call(load("range"), sizes, [])
    return ast.Tuple(targets, ast.Store()), lang_call("ndrange", *sizes)


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def lang_call(name: str, *arguments: ast.expr) -> ast.Call:
    """Return a call of the engine's function `name`."""
    return ast.Call(ast.Attribute(load("_lang"), name, ast.Load()), list(arguments), [])


def loop_over_ranges(tree: ast.FunctionDef, ranks: Mapping[str, int]) -> ast.FunctionDef:
    """Return a kernel whose top-level loops run over ranges: the same iterations, faster code.

    Measured on 2 CPU cores, both engines, 10 million float32: `for i in x` takes 19 ms and `for i in range(x.shape[0])`
    3.3 ms, because only the latter is vectorized. In two dimensions an `ndrange` takes 0.6 of the time. What an engine
    differentiates itself keeps its own loops.

    Args:
        tree: the kernel.
        ranks: the number of dims of every array.
    """
    # Only loops over arrays change, and most kernels have none; copying a large one takes as long as reading it.
    if not any(_has_array_loop(statement, ranks) for statement in tree.body):
        return tree
    twin = copy_node(tree)
    twin.body = [_over_range(statement, ranks) for statement in twin.body]
    return twin


def _has_array_loop(statement: ast.stmt, ranks: Mapping[str, int]) -> bool:
    if not isinstance(statement, ast.For):
        return False
    if is_static(statement):
        return any(_has_array_loop(inner, ranks) for inner in statement.body)
    return _find_rank(statement, ranks) > 0


def _over_range(statement: ast.stmt, ranks: Mapping[str, int]) -> ast.stmt:
    if not isinstance(statement, ast.For):
        return statement
    if is_static(statement):
        # It is unrolled, so loops in it are loops of the top level.
        statement.body = [_over_range(inner, ranks) for inner in statement.body]
    elif _find_rank(statement, ranks) > 0:
        targets, sizes, first = header(statement, ranks)
        statement.target, statement.iter = over(targets, sizes)
        statement.body = first + statement.body
    return statement


def serialize_loops(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Put `_lang.loop_config(serialize=True)` before every top-level loop over a range: the kernel runs on one thread.

    Waking an engine's thread pool costs about 150 us, so one thread finishes a small problem sooner. This is for values
    and for generated gradients. An engine's own reverse mode gets the loops as the user wrote them: it reverses a
    serial outermost loop in another way than a parallel one.

    Engines do not serialize loops over an array or a field, and warn of each: `loop_over_ranges` runs before, and
    leaves only loops over a single element and over sparse fields.
    """
    twin = copy_node(tree)
    twin.body = _serialize(twin.body)
    return twin


def _serialize(statements: list[ast.stmt]) -> list[ast.stmt]:
    body: list[ast.stmt] = []
    for statement in statements:
        # Settings of a parallel loop, such as block_dim, mean nothing on one thread.
        if is_setting(statement):
            continue
        if is_static(statement):
            statement.body = _serialize(statement.body)
        elif isinstance(statement, ast.For) and _runs_over_ranges(statement):
            body.append(parse_statement("_lang.loop_config(serialize=True)"))
        body.append(statement)
    return body


def _runs_over_ranges(loop: ast.For) -> bool:
    return resolve_callee(unwrap_call(loop.iter, "grouped")) in ("range", "ndrange")
