"""Names for people: every local is called what it stands for, with a number only where two would be the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from ...source.ir import nodes, walk

Block = tuple[nodes.Stmt, ...]


def called(
    body: Sequence[nodes.Stmt], root: Callable[[str], str], taken: Collection[str], known: Collection[str]
) -> tuple[Block, dict[str, str]]:
    """Statements with their locals renamed, and the new names by the old ones.

    Args:
        body: the statements.
        root: what a local stands for: `grad_s` for `grad_s_4`.
        taken: names that are no locals.
        known: names that people know: each goes to what it stands for, or to nothing.
    """
    new: dict[str, str] = {}
    used = set(taken)
    for one in walk.statements(body):
        for name in (*walk.assigned(one), *sorted(walk.locals_in(walk.expressions(one)))):
            if name not in new:
                new[name] = _free(root(name), used, known)
                used.add(new[name])

    def expression(expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Local):
            return replace(expr, name=new[expr.name])
        return walk.rebuilt(expr, expression)

    def statement(one: nodes.Stmt) -> nodes.Stmt:
        return walk.renamed(one, new.__getitem__)

    return tuple(walk.changed(one, expression, statement) for one in body), new


def _free(wish: str, used: Collection[str], known: Collection[str]) -> str:
    name, number = wish, 0
    while name in used or (name in known and name != wish):
        number += 1
        name = f"{wish}_{number}"
    return name
