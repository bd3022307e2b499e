"""Arrays that begin as copies: what a kernel updates in place becomes an array of its own."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source import copied
from ._loops import lang_call, load, store


def begun_as_copies(
    tree: ast.FunctionDef, sources: Mapping[str, str], ranks: Mapping[str, int | None]
) -> ast.FunctionDef:
    """A kernel that first fills arrays with copies of others, which become parameters before them.

    Args:
        tree: the kernel.
        sources: names of the arrays that are copied, by those of the kernel's own.
        ranks: how many indices an element of the kernel's own has; None where that is not known.
    """
    if not sources:
        return tree
    twin = copied(tree)
    arguments: list[ast.arg] = []
    for argument in twin.args.args:
        arguments += [ast.arg(sources[argument.arg])] if argument.arg in sources else []
        arguments.append(argument)
    twin.args.args = arguments
    place = 1 if ast.get_docstring(twin, clean=False) is not None else 0
    copies = [_copy(source, own, ranks[own]) for own, source in sources.items()]
    for one in copies:
        ast.fix_missing_locations(ast.copy_location(one, tree.body[0]))
    twin.body[place:place] = copies
    return twin


def _copy(source: str, own: str, rank: int | None) -> ast.stmt:
    """A loop that copies all elements: over what it fills, which is as large."""
    names = ["_at"] if rank is None else [f"_at{axis}" for axis in range(rank)]
    index = _tuple([load(name) for name in names], ast.Load()) if names else ast.Constant(None)
    value = ast.Subscript(load(source), index, ast.Load())
    fill = ast.Assign([ast.Subscript(load(own), index, ast.Store())], value)
    if not names:
        return ast.For(store("_at"), ast.Call(load("range"), [ast.Constant(1)], []), [fill], [])
    over = lang_call("grouped", load(own)) if rank is None else load(own)
    return ast.For(_tuple([store(name) for name in names], ast.Store()), over, [fill], [])


def _tuple(parts: list[ast.expr], context: ast.expr_context) -> ast.expr:
    return parts[0] if len(parts) == 1 else ast.Tuple(parts, context)
