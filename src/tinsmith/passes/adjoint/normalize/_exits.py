"""`break` and `continue` as conditions: what they skip is put under an `if`.

    for k in range(n):              for k in range(n):
        if x[k] < 0:                    leave, goes_on = False, True
            break          ->           if x[k] < 0:
        s = s + x[k]                        leave, goes_on = True, False
                                        else:
                                            s = s + x[k]

The loop asks `leave` after each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ....ir import FALSE, TRUE, Names, Type, nodes, walk

Leaves = Literal["never", "perhaps", "always"]


@dataclass(frozen=True)
class StructuredLoop:
    """A loop's body without `break` and `continue`; `exit` is the local that says that the loop ends."""

    body: nodes.Block
    exit: str | None


def structurize_exits(body: Sequence[nodes.Stmt], names: Names) -> StructuredLoop:
    """Return a loop's body in which each `break` and `continue` has become a truth; loops inside stay as they are."""
    jumps = [*walk.jumps_in(body)]
    if not jumps:
        return StructuredLoop(tuple(body), None)
    leave = names.fresh("leave", Type.U1) if any(isinstance(one, nodes.Break) for one in jumps) else None
    goes_on = names.fresh("goes_on", Type.U1)
    inner, _ = _Structuring(leave, goes_on).block(tuple(body))
    # In SSA form a local needs a value on every path to its use.
    first = [nodes.Assign(goes_on, TRUE)]
    if leave is not None:
        first.insert(0, nodes.Assign(leave, FALSE))
    return StructuredLoop((*first, *inner), leave)


@dataclass(frozen=True)
class _Structuring:
    leave: str | None
    goes_on: str

    def block(self, body: nodes.Block) -> tuple[nodes.Block, Leaves]:
        for place, one in enumerate(body):
            if isinstance(one, nodes.Break | nodes.Continue):
                return (*body[:place], *self.replace_exit(one)), "always"
            if isinstance(one, nodes.If) and any(walk.jumps_in([one])):
                rest, leaves = self.branch(one, body[place + 1 :])
                return (*body[:place], *rest), leaves
        return body, "never"

    def replace_exit(self, one: nodes.Break | nodes.Continue) -> nodes.Block:
        stop = nodes.Assign(self.goes_on, FALSE, one.line)
        if isinstance(one, nodes.Continue) or self.leave is None:
            return (stop,)
        return nodes.Assign(self.leave, TRUE, one.line), stop

    def branch(self, one: nodes.If, after: nodes.Block) -> tuple[nodes.Block, Leaves]:
        body, first = self.block(one.body)
        orelse, second = self.block(one.orelse)
        rest, then = self.block(after)
        if first == "always" and second == "always":
            return (replace(one, body=body, orelse=orelse),), "always"
        ends: Leaves = "always" if then == "always" else "perhaps"
        # One arm always leaves and the other never does, so what follows
        # goes into the other arm, and `goes_on` need not be asked.
        if first == "always" and second == "never":
            return (replace(one, body=body, orelse=(*orelse, *rest)),), ends
        if second == "always" and first == "never":
            return (replace(one, body=(*body, *rest), orelse=orelse),), ends
        joined = replace(one, body=body, orelse=orelse)
        if not rest:
            return (joined,), "perhaps"
        return (joined, nodes.If(nodes.Local(self.goes_on, Type.U1), rest, (), one.line)), ends
