"""Loops over an array's own indices (struct-fors), taken apart into variables and sizes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from ...source import called, parse_expression


class NotRewritable(Exception):
    """A kernel cannot be rewritten.

    Attributes:
        reason: why.
        node: where.
        remedy: what to do about it, if there is more to say than where the error is raised.
    """

    def __init__(self, reason: str, node: ast.AST, remedy: str = "") -> None:
        super().__init__(f"line {getattr(node, 'lineno', '?')}: {reason}")
        self.reason = reason
        self.node = node
        self.remedy = remedy


class Header(NamedTuple):
    """A loop's variables, the sizes it runs over, and statements that go first in its body."""

    targets: list[ast.expr]
    sizes: list[ast.expr]
    first: list[ast.stmt]


def header(loop: ast.For, ranks: Mapping[str, int]) -> Header:
    """Take apart a loop over an array, or over `ti.grouped` of one.

    `ranks` are the dims of arrays, and of fields by name.
    """
    array = _counted(loop)
    sizes = [parse_expression(f"{name_of(array)}.shape[{axis}]") for axis in range(ranks[name_of(array)])]
    if array is loop.iter:
        return Header(list(loop.target.elts) if isinstance(loop.target, ast.Tuple) else [loop.target], sizes, [])
    stem = ast.unparse(loop.target)
    names = [f"_{stem}_{axis}" for axis in range(len(sizes))]
    vector = lang_call("Vector", ast.List([load(name) for name in names], ast.Load()))
    return Header([store(name) for name in names], sizes, [ast.Assign([loop.target], vector, lineno=loop.lineno)])


def is_over_array(loop: ast.For, ranks: Mapping[str, int]) -> bool:
    """Whether a loop runs over an array's own indices."""
    return name_of(_counted(loop)) in ranks


def _counted(loop: ast.For) -> ast.expr:
    """What a loop runs over, without `ti.grouped`."""
    if isinstance(loop.iter, ast.Call) and called(loop.iter) == "grouped":
        return loop.iter.args[0]
    return loop.iter


def name_of(node: ast.AST) -> str:
    """What an array or field is called: `x`, `self.x`; "" for what is no name."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def over(targets: list[ast.expr], sizes: list[ast.expr]) -> tuple[ast.expr, ast.expr]:
    """Target and iterator of one loop over all of `sizes`."""
    if len(sizes) == 1:
        return targets[0], ast.Call(load("range"), sizes, [])
    return ast.Tuple(targets, ast.Store()), lang_call("ndrange", *sizes)


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def lang_call(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of the engine's own `name`."""
    return ast.Call(ast.Attribute(load("_lang"), name, ast.Load()), list(arguments), [])
