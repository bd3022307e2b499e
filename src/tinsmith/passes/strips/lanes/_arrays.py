"""What several loops over lanes use lies in arrays, an element for each lane; the rest are numbers of one loop.

    for lane in 0 .. size:                       for lane in 0 .. size:
        t = 0.5                            ->        t = 0.5
    for lane in 0 .. size:                           t_lanes[lane] = t
        y[first + lane] = t                      for lane in 0 .. size:
                                                     t = t_lanes[lane]
                                                     y[first + lane] = t

Nothing else can point to these arrays, which is why compilers make vectors of the loops over lanes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ....analyses import Liveness
from ....ir import Names, Operator, Type, nodes, number, walk

Remade = Mapping[str, Sequence[nodes.Stmt]]
"""Locals that each loop over lanes computes again, and how."""


def with_arrays(
    body: Sequence[nodes.Stmt], lane: nodes.Local, width: int, varying: set[str], remade: Remade, names: Names
) -> tuple[list[nodes.Stmt], nodes.Block]:
    """Return the declarations of arrays for what several loops over lanes use, and statements that use these.

    Loops over lanes are those by the index `lane`. Locals that are `varying` have a value for each lane.
    """

    def is_over_lanes(one: nodes.Stmt) -> bool:
        return isinstance(one, nodes.For) and one.names == (lane.name,)

    loops = [one for one in walk.statements(body) if is_over_lanes(one)]
    inner = [part for one in loops for part in walk.statements([one]) if isinstance(part, nodes.For)]
    uses = Counter(name for one in loops for name in walk.find_mentioned([one]) & varying)
    # Variables of loops inside are one loop's own. What each loop computes again needs no array.
    of_one = {name for part in inner for name in part.names} | remade.keys()
    arrays: dict[str, nodes.LocalArray] = {}
    for name in sorted(name for name, count in uses.items() if count > 1 and name not in of_one):
        kind = Type.I32 if names.types[name] == Type.U1 else names.types[name]
        arrays[name] = nodes.LocalArray(names.fresh(f"{name}_lanes", kind), kind, width)

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For) or not is_over_lanes(one):
            return [one]
        given = sorted(walk.find_defined(one.body) & arrays.keys())
        # All that is assigned is stored at the end. If only some paths assign it, the old value is needed, too.
        _, live = Liveness().block(one.body, {*given})
        loads = [part for name in sorted(live & {*arrays, *remade}) for part in remade.get(name) or [load(name)]]
        stores = [store(name) for name in given]
        return [replace(one, body=(*loads, *one.body, *stores))]

    def load(name: str) -> nodes.Stmt:
        value: nodes.Expr = nodes.Load(arrays[name].name, (lane,), (), arrays[name].type)
        is_truth = names.types[name] == Type.U1
        return nodes.Assign(name, nodes.Binary(Operator.NE, value, number(0), Type.U1) if is_truth else value)

    def store(name: str) -> nodes.Stmt:
        value: nodes.Expr = nodes.Local(name, names.types[name])
        value = nodes.Cast(value, Type.I32) if value.type == Type.U1 else value
        return nodes.Store(arrays[name].name, (lane,), (), value)

    return [*arrays.values()], walk.rewrite(body, change)
