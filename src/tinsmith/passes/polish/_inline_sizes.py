"""Locals of a kernel's top level that follow from sizes and arguments, put where they are used.

    n = x.shape[0] - 1
    for i in range(n):          ->      for i in range(x.shape[0] - 1):
        y[i] = x[i + 1] * n                 y[i] = x[i + 1] * (x.shape[0] - 1)

So bounds and indices are expressions of sizes and arguments, which analyses compare.
"""

from __future__ import annotations

from ...analyses import definitions, single_definitions
from ...ir import nodes, walk


def inline_sizes(body: nodes.Block) -> nodes.Block:
    """Return statements without the locals of the top level that are computed from sizes and arguments."""
    single = single_definitions(definitions(body))
    known: dict[str, nodes.Expr] = {}
    kept: list[nodes.Stmt] = []
    for one in body:
        # First, since a local that is computed from another size follows from sizes only once that is in its place.
        if known:
            one = walk.transform(one, lambda expr: walk.substitute(expr, known))
        if isinstance(one, nodes.Assign) and one.name in single and walk.is_invariant(one.value):
            known[one.name] = one.value
        else:
            kept.append(one)
    return tuple(kept)
