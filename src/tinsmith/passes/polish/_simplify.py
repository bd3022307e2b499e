"""Generated statements made short: as a person would write them, who knows what is needed where.

    p = x[i] > 0.0                        p = x[i] > 0.0
    if p:                                 if p:
        a = x[i] * 2.0                        a = x[i] * 2.0
    s = 0.0                      ->           s = y[i]
    if p:                                     y[i] = a * s
        s = s + y[i]
        y[i] = a * s

The reverse of a branch is a branch on the same condition, and adjoints start at 0: hence such code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...ir import Type, nodes
from ._branches import merge_branches, sink_constants, start_sums
from ._coalesce import coalesce_locals
from ._copies import eliminate_common_loads, propagate_copies
from ._dead_code import eliminate_dead_code
from ._declarations import declare_locals


def simplify(body: Sequence[nodes.Stmt], kinds: Mapping[str, Type]) -> nodes.Block:
    """Return equivalent statements that are shorter, with every local declared where an engine sees it.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    statements, before = eliminate_dead_code(body), None
    # A constant that sinks may leave two branches side by side, and one merged branch may take more constants.
    while statements != before:
        before = statements
        statements = merge_branches(sink_constants(statements))
    # Coalescing would leave out most copies, too. But only where copies are propagated is it found that an array is
    # handed on and not copied (tests/bridge/test_handed_on.py).
    statements = propagate_copies(eliminate_common_loads(start_sums(statements), kinds), kinds)
    # Dead code goes first, as a dead local would conflict with others. Declarations come last, when it is settled which
    # block mentions what.
    return declare_locals(eliminate_dead_code(coalesce_locals(eliminate_dead_code(statements), kinds)), kinds)
