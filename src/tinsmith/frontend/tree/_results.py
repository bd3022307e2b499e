"""Returned values: what a kernel returns is stored to arrays without dims, or dropped.

    def f(x) -> ti.f32:               def f(x, loss):
        loss = 0.0                        loss_ = 0.0
        for i in x:             ->        for i in x:
            loss += x[i]                      loss_ += x[i]
        return loss                       for _ in range(1):
                                              loss[None] = loss_

So gradients, batches and compiled graphs need no code for returned values (docs/about/decisions/results.md).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from ...engines import copy_node, walk
from .._field_arguments import free
from .._nodes import resolve_callee
from ._loops import NotRewritable, load, store
from ._parameters import rename_parameters

_LOCAL = "_returned"


def store_results(tree: ast.FunctionDef, names: Sequence[str]) -> ast.FunctionDef:
    """Return a kernel that stores its results to arrays of these names, which become its last parameters.

    Raises:
        NotRewritable: a `return` stands in a loop or in a run-time branch, or has another number of values; a path
            through the kernel has none; or the kernel uses one of the names for something else.
    """
    if not names:
        return tree
    twin = _free_names(copy_node(tree), names)
    twin.body = _with_ends(twin.body, tree, lambda one: [_stores(one, names)])
    twin.args.args += [ast.arg(name) for name in names]
    twin.returns = None
    return twin


def drop_results(tree: ast.FunctionDef) -> ast.FunctionDef:
    """Return a kernel without results. A kernel with a `return` where engines refuse one stays as it is."""
    if not any(isinstance(node, ast.Return) and node.value is not None for node in walk(tree)):
        return tree
    twin = copy_node(tree)
    try:
        twin.body = _with_ends(twin.body, tree, lambda _: [])
    except NotRewritable:
        # The engine refuses such a kernel itself when it compiles it.
        return tree
    twin.returns = None
    return twin


def _free_names(tree: ast.FunctionDef, names: Sequence[str]) -> ast.FunctionDef:
    """Rename the locals that have the name of an output: `loss = 0.0 ... return loss`."""
    nodes = [node for node in walk(tree) if isinstance(node, ast.Name)]
    stored = {node.id for node in nodes if isinstance(node.ctx, ast.Store)}
    taken = {node.id for node in nodes} | {node.arg for node in walk(tree) if isinstance(node, ast.arg)}
    renamed: dict[str, str] = {}
    for node in nodes:
        if node.id not in names or node.id in renamed:
            continue
        if node.id not in stored:
            words = f"the output `{node.id}` has the name of another variable that the kernel uses"
            raise NotRewritable(words, node, f"Give the output another name, as `{node.id}_out[...]`.")
        renamed[node.id] = free(f"{node.id}_", taken)
    return rename_parameters(tree, renamed)


def _with_ends(body: Sequence[ast.stmt], block: ast.AST, end: Callable[[ast.Return], list[ast.stmt]]) -> list[ast.stmt]:
    """Replace each `return` by the statements of `end`, and drop what follows one.

    If a branch of `if static(...)` returns, what follows the `if` moves into the branches that do not: only one of them
    is compiled.
    """
    for place, statement in enumerate(body):
        if isinstance(statement, ast.Return):
            # A kernel that only returned needs a body.
            return [*body[:place], *end(statement)] or [ast.copy_location(ast.Pass(), statement)]
        inner = next((node for node in walk(statement) if isinstance(node, ast.Return)), None)
        if inner is None:
            continue
        if not (isinstance(statement, ast.If) and resolve_callee(statement.test) == "static"):
            raise NotRewritable("a `return` is in a loop, or in an `if` whose condition is not `static(...)`", inner)
        rest = body[place + 1 :]
        # Copies for one of the branches: this function changes statements where they are.
        statement.body = _with_ends([*statement.body, *map(copy_node, rest)], statement, end)
        statement.orelse = _with_ends([*statement.orelse, *rest], statement, end)
        return [*body[:place], statement]
    raise NotRewritable("a path through the kernel ends without `return`", block)


def _stores(end: ast.Return, names: Sequence[str]) -> ast.stmt:
    """Return a loop that stores the results: in a loop the engines also take vectors."""
    value = end.value or ast.Constant(None)
    stores: list[ast.stmt] = []
    if len(names) == 1:
        values = [value]
    elif isinstance(value, ast.Tuple | ast.List):
        values = value.elts
    else:
        # A local that is a tuple, or a call that returns one, which must run once.
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
