"""Loop headers: what a top-level loop runs over, taken apart into variables and sizes.

Engines know four kinds of loop over more than a range: over an array, grouped, over an
`ndrange`, and over both. Rewritten as one `ndrange` they can be given one more dimension, or
run in order.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import NamedTuple

from ...source import called, parse_expression


class NotRewritable(Exception):
    """A kernel cannot be rewritten; the words say where and why."""

    def __init__(self, reason: str, node: ast.AST) -> None:
        super().__init__(f"line {getattr(node, 'lineno', '?')}: {reason}")


class Header(NamedTuple):
    """A loop's variables, the sizes it runs over, and statements that go first in its body."""

    targets: list[ast.expr]
    sizes: list[ast.expr]
    first: list[ast.stmt]


def header(loop: ast.For, ranks: Mapping[str, int]) -> Header:
    """Take a loop's header apart. `ranks` are the dims of every array, and of fields by name. Raises NotRewritable."""
    kind, iterator = called(loop.iter), loop.iter
    if name_of(iterator) in ranks:
        return Header(_targets(loop), _extent(name_of(iterator), ranks), [])
    if isinstance(iterator, ast.Call) and kind == "range" and len(iterator.args) in (1, 2):
        return Header([loop.target], [_range_size(iterator)], [])
    if (
        isinstance(iterator, ast.Call)
        and kind == "ndrange"
        and (isinstance(loop.target, ast.Tuple) or len(iterator.args) == 1)
    ):
        return Header(_targets(loop), list(iterator.args), [])
    if isinstance(iterator, ast.Call) and kind == "grouped" and isinstance(loop.target, ast.Name):
        return _grouped(loop.target, iterator.args[0], loop, ranks)
    raise NotRewritable(f"loop over `{ast.unparse(iterator)}`", loop)


def is_over_array(loop: ast.For, ranks: Mapping[str, int]) -> bool:
    """Whether a loop runs over an array's own indices (a struct-for)."""
    inner = loop.iter.args[0] if called(loop.iter) == "grouped" and isinstance(loop.iter, ast.Call) else loop.iter
    return name_of(inner) in ranks


def name_of(node: ast.AST) -> str:
    """What an array or field is called: `x`, `self.x`; "" for what is no name."""
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _grouped(target: ast.Name, inner: ast.expr, loop: ast.For, ranks: Mapping[str, int]) -> Header:
    sizes: list[ast.expr] = []
    if name_of(inner) in ranks:
        sizes = _extent(name_of(inner), ranks)
    elif isinstance(inner, ast.Call) and called(inner) == "ndrange":
        sizes = list(inner.args)
    if not sizes or any(isinstance(size, ast.Starred) for size in sizes):
        raise NotRewritable(f"loop over `{ast.unparse(loop.iter)}`, whose rank is not known", loop)
    names = [f"_{target.id}_{axis}" for axis in range(len(sizes))]
    vector = lang_call("Vector", ast.List([load(name) for name in names], ast.Load()))
    return Header([store(name) for name in names], sizes, [ast.Assign([store(target.id)], vector, lineno=loop.lineno)])


def _targets(loop: ast.For) -> list[ast.expr]:
    return list(loop.target.elts) if isinstance(loop.target, ast.Tuple) else [loop.target]


def _extent(array: str, ranks: Mapping[str, int]) -> list[ast.expr]:
    return [parse_expression(f"{array}.shape[{axis}]") for axis in range(ranks[array])]


def _range_size(iterator: ast.Call) -> ast.expr:
    return iterator.args[0] if len(iterator.args) == 1 else ast.Tuple(list(iterator.args), ast.Load())


def over(targets: list[ast.expr], sizes: list[ast.expr]) -> tuple[ast.expr, ast.expr]:
    """Target and iterator of one loop over all of `sizes`."""
    if len(sizes) == 1:
        bounds = sizes[0].elts if isinstance(sizes[0], ast.Tuple) else [sizes[0]]
        return targets[0], ast.Call(load("range"), list(bounds), [])
    return ast.Tuple(targets, ast.Store()), lang_call("ndrange", *sizes)


def store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def lang_call(name: str, *arguments: ast.expr) -> ast.Call:
    """A call of the engine's own `name`."""
    return ast.Call(ast.Attribute(load("_lang"), name, ast.Load()), list(arguments), [])
