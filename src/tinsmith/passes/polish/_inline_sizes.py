"""Locals of a kernel's top level that follow from sizes and arguments, put where they are used."""

from __future__ import annotations

from ...analyses import definitions, single_definitions
from ...ir import nodes, walk


def inline_sizes(body: nodes.Block) -> nodes.Block:
    """Statements in which locals of the top level that are computed from sizes and arguments are no more."""
    single = single_definitions(definitions(body))
    known: dict[str, nodes.Expr] = {}
    kept: list[nodes.Stmt] = []
    for one in body:
        if known:
            one = walk.transform(one, lambda expr: walk.substitute(expr, known))
        if isinstance(one, nodes.Assign) and one.name in single and walk.is_invariant(one.value):
            known[one.name] = one.value
        else:
            kept.append(one)
    return tuple(kept)
