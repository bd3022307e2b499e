"""Stored results: what a kernel returns becomes an element of an array without dims."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ...source import copied, walk
from ._loops import NotRewritable, load, store


def results_stored(tree: ast.FunctionDef, names: Sequence[str]) -> ast.FunctionDef:
    """A kernel that stores what it returns to arrays of these names, which become its last parameters.

    Raises:
        NotRewritable: it returns before its end, or something else than so many values.
    """
    if not names:
        return tree
    twin = copied(tree)
    returns = [node for statement in twin.body for node in walk(statement) if isinstance(node, ast.Return)]
    last = twin.body[-1]
    if len(returns) != 1 or not isinstance(last, ast.Return) or last.value is None:
        raise NotRewritable("`return` before the end", returns[0] if returns else twin)
    values = last.value.elts if len(names) > 1 and isinstance(last.value, ast.Tuple) else [last.value]
    if len(values) != len(names):
        raise NotRewritable(f"`{ast.unparse(last)}` is not {len(names)} values", last)
    pairs = zip(names, values, strict=True)
    stores: list[ast.stmt] = [ast.Assign([_element(name)], value, lineno=last.lineno) for name, value in pairs]
    # In a loop, where engines take vectors too.
    loop = ast.For(store("_"), ast.Call(load("range"), [ast.Constant(1)], []), stores, [])
    twin.body[-1] = ast.fix_missing_locations(ast.copy_location(loop, last))
    twin.args.args += [ast.arg(name) for name in names]
    twin.returns = None
    return twin


def _element(name: str) -> ast.Subscript:
    return ast.Subscript(load(name), ast.Constant(None), ast.Store())
