"""Returned values: what a kernel returns becomes elements of arrays without dims, or nothing."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from .._nodes import resolve_callee
from .._walk import copy_node, walk
from ._loops import NotRewritable, load, store
from ._parameters import rename_parameters

_LOCAL = "_returned"


def store_results(tree: ast.FunctionDef, names: Sequence[str]) -> ast.FunctionDef:
    """A kernel that stores what it returns to arrays of these names, which become its last parameters.

    Raises:
        NotRewritable: a loop or a branch that a run decides returns, something returns other than so many values,
            nothing returns, or a name means something else in the kernel.
    """
    if not names:
        return tree
    twin = _free_names(copy_node(tree), names)
    twin.body = _with_ends(twin.body, tree, lambda one: [_stores(one, names)])
    twin.args.args += [ast.arg(name) for name in names]
    twin.returns = None
    return twin


def drop_results(tree: ast.FunctionDef) -> ast.FunctionDef:
    """A kernel that returns nothing. One that returns where engines refuse it stays as it is."""
    if not any(isinstance(node, ast.Return) and node.value is not None for node in walk(tree)):
        return tree
    twin = copy_node(tree)
    try:
        twin.body = _with_ends(twin.body, tree, lambda _: [])
    except NotRewritable:
        return tree
    twin.returns = None
    return twin


def _free_names(tree: ast.FunctionDef, names: Sequence[str]) -> ast.FunctionDef:
    """The kernel with other names for its locals that are called as an output is: `loss = 0.0 ... return loss`."""
    nodes = [node for node in walk(tree) if isinstance(node, ast.Name)]
    stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    taken = {node.id for node in nodes} | {node.arg for node in walk(tree) if isinstance(node, ast.arg)}
    renamed: dict[str, str] = {}
    for node in nodes:
        if node.id not in names or node.id in renamed:
            continue
        if node.id not in stored:
            words = f"an output is called `{node.id}`, which the kernel uses for something else"
            raise NotRewritable(words, node, f"Give the output another name, as `{node.id}_out[...]`.")
        renamed[node.id] = f"{node.id}_"
        while renamed[node.id] in taken:
            renamed[node.id] += "_"
        taken.add(renamed[node.id])
    return rename_parameters(tree, renamed)


def _with_ends(body: Sequence[ast.stmt], block: ast.AST, end: Callable[[ast.Return], list[ast.stmt]]) -> list[ast.stmt]:
    """Statements with what `end` gives in place of each `return`, and without what comes after one.

    Where a branch of `if static(...)` returns, what follows the `if` moves into the branches that do not: one of them
    alone is compiled.
    """
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            return [*body[:place], *end(statement)] or [ast.copy_location(ast.Pass(), statement)]
        inner = next((node for node in walk(statement) if isinstance(node, ast.Return)), None)
        if inner is None:
            continue
        if not (isinstance(statement, ast.If) and resolve_callee(statement.test) == "static"):
            raise NotRewritable("`return` in a loop, or in a branch that a run decides", inner)
        rest = body[place + 1 :]
        statement.body = _with_ends([*statement.body, *map(copy_node, rest)], statement, end)
        statement.orelse = _with_ends([*statement.orelse, *rest], statement, end)
        return [*body[:place], statement]
    raise NotRewritable("a way through the kernel ends without `return`", block)


def _stores(end: ast.Return, names: Sequence[str]) -> ast.stmt:
    """Stores of what a `return` gives, in a loop, where engines take vectors too."""
    value = end.value or ast.Constant(None)
    stores: list[ast.stmt] = []
    if len(names) == 1:
        values = [value]
    elif isinstance(value, ast.Tuple | ast.List):
        values = value.elts
    else:  # a local or a call that is a tuple
        stores.append(ast.Assign([store(_LOCAL)], value, lineno=end.lineno))
        values = [_element(_LOCAL, place, ast.Load()) for place in range(len(names))]
    if len(values) != len(names):
        raise NotRewritable(f"`{ast.unparse(end)}` is not {len(names)} values", end)
    pairs = zip(names, values, strict=True)
    stores += [ast.Assign([_element(name, None, ast.Store())], one, lineno=end.lineno) for name, one in pairs]
    loop = ast.For(store("_"), ast.Call(load("range"), [ast.Constant(1)], []), stores, [])
    return ast.fix_missing_locations(ast.copy_location(loop, end))


def _element(name: str, place: int | None, context: ast.expr_context) -> ast.Subscript:
    return ast.Subscript(load(name), ast.Constant(place), context)
