"""Generated statements made short: as a person would write them, who knows what is needed where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import Type, nodes
from ._branches import merge_branches, sink_constants, start_sums
from ._coalesce import coalesce_locals
from ._copies import eliminate_common_loads, propagate_copies
from ._dead_code import eliminate_dead_code
from ._declarations import declare_locals


def simplify(body: Sequence[nodes.Stmt], kinds: Mapping[str, Type]) -> nodes.Block:
    """Statements that do the same, with every local declared where an engine sees it.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    statements, before = eliminate_dead_code(body), None
    while statements != before:
        before = statements
        statements = merge_branches(sink_constants(statements))
    statements = propagate_copies(eliminate_common_loads(start_sums(statements), kinds), kinds)
    return declare_locals(eliminate_dead_code(coalesce_locals(eliminate_dead_code(statements), kinds)), kinds)
