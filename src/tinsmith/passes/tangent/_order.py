"""What depends on the order in which parallel iterations run: all that an atomic's old value reaches.

A tangent is computed by a run of its own, and iterations come in another order there. So an element that belongs to
one iteration in the forward pass may belong to another here: the tangent would be that of another result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...analyses import Edge, find_reachable
from ...ir import NotCovered, nodes, walk

Reasons = Mapping[str, NotCovered]


def find_order_dependent(
    kernel: nodes.Kernel, sources: Mapping[str, NotCovered], before: Reasons
) -> dict[str, NotCovered]:
    """Arrays whose values depend on the order of parallel iterations, each with the reason.

    Args:
        kernel: the kernel.
        sources: locals that hold what an atomic returned in a parallel loop, with the reason.
        before: arrays that did already before the kernel ran.
    """
    if not sources and not before:
        return {}
    flow = _Flow()
    flow.block(kernel.body, frozenset())
    starts = {**sources, **{f"@{name}": reason for name, reason in before.items()}}
    reasons: dict[str, NotCovered] = {}
    for name, reason in starts.items():
        arrays = (one for one in find_reachable([name], flow.edges) if one.startswith("@"))
        reasons |= {one.removeprefix("@"): reasons.get(one.removeprefix("@"), reason) for one in arrays}
    return reasons


@dataclass
class _Flow:
    """Collects from what to what values go, by conditions, bounds and indices too."""

    edges: list[Edge] = field(default_factory=list)

    def block(self, body: Sequence[nodes.Stmt], around: frozenset[str]) -> None:
        """Statements; `around` decides whether they run."""
        for one in body:
            self.statement(one, around)

    def statement(self, one: nodes.Stmt, around: frozenset[str]) -> None:
        read = around.union(*map(_read, walk.expressions(one)))
        targets = [
            *walk.find_assigned(one),
            *([f"@{one.array}"] if isinstance(one, nodes.Store | nodes.Atomic) else []),
        ]
        self.edges += [(source, target) for source in read for target in targets]
        if isinstance(one, nodes.Atomic) and one.result is not None:
            self.edges.append((f"@{one.array}", one.result))
        if isinstance(one, nodes.For | nodes.While):
            read |= frozenset(_exits(one.body, frozenset()))
        for part in walk.bodies(one):
            self.block(part, read)


def _exits(body: Sequence[nodes.Stmt], conditions: frozenset[str]) -> Iterator[str]:
    """What decides whether a loop's iteration is left early; loops inside have exits of their own."""
    for one in body:
        if isinstance(one, nodes.Break | nodes.Continue):
            yield from conditions
        elif isinstance(one, nodes.If):
            for part in walk.bodies(one):
                yield from _exits(part, conditions | _read(one.condition))


def _read(expr: nodes.Expr) -> frozenset[str]:
    """Locals, and arrays with an `@` before them, that an expression reads."""
    loads = (f"@{one.array}" for one in walk.parts(expr) if isinstance(one, nodes.Load))
    return frozenset(walk.locals_in([expr])).union(loads)


def first_refused(reasons: Reasons, arrays: Collection[str]) -> NotCovered | None:
    """The reason of the first array that has a tangent and depends on the order."""
    return next((reasons[name] for name in arrays if name in reasons), None)
