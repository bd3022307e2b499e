"""Declare each local in the innermost block that contains all its uses, and give it a readable name.

    if p:                       s = 0.0
        s = x[i]                if p:
    else:               ->          s = x[i]
        s = 1.0                 else:
    y[i] = s                        s = 1.0
                                y[i] = s

A local that one block alone uses is declared by its first assignment there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ...ir import Type, nodes, types, walk


def declare_locals(
    body: Sequence[nodes.Stmt], kinds: Mapping[str, Type], visible: frozenset[str] = frozenset()
) -> nodes.Block:
    """Return statements that start a local at 0 before a block that gives it a value, if it is read outside of it.

    A local of a parallel loop is declared in that loop, whatever others do with the name: one that is declared before
    the loop would be shared by its iterations.

    Args:
        body: the statements.
        kinds: types of locals.
        visible: those that are declared around the statements.
    """
    shared = frozenset(walk.find_defined([one for one in body if not walk.is_parallel(one)]))
    return _Scoping(kinds, shared, set(visible)).block(tuple(body))


@dataclass(frozen=True)
class _Scoping:
    """Declares locals in the blocks that contain their uses.

    Attributes:
        kinds: their types.
        shared: those that are given a value outside of parallel loops.
        visible: those that are declared in the blocks around, as far as these have been written.
    """

    kinds: Mapping[str, Type]
    shared: frozenset[str]
    visible: set[str]
    # By identity, of statements that live as long as this. Each level of a nest asks for all statements inside, and
    # counting those again at each would take time quadratic in the depth.
    _known: dict[int, dict[str, int]] = field(default_factory=dict)

    def block(self, body: nodes.Block) -> nodes.Block:
        mentions = [self.mentions(one) for one in body]
        counts: dict[str, int] = {}
        for places in mentions:
            for name, count in places.items():
                counts[name] = counts.get(name, 0) + count
        own: list[str] = []
        declared: list[nodes.Stmt] = []
        for one, places in zip(body, mentions, strict=True):
            for name in places:
                # A local that one body alone mentions is declared in there.
                if name in self.visible or counts[name] < 2:
                    continue
                self.visible.add(name)
                own.append(name)
                # Engines scope a local to the block of its first assignment, as C does; Python has no blocks, so a
                # local that is read outside is declared before.
                if name not in walk.find_assigned(one) or isinstance(one, nodes.For):
                    declared.append(nodes.Assign(name, nodes.Const(types.zero(self.kinds[name]), self.kinds[name])))
            declared.append(self.statement(one) if walk.bodies(one) else one)
        self.visible.difference_update(own)
        return walk.keep_block(body, declared)

    def statement(self, one: nodes.Stmt) -> nodes.Stmt:
        """Declare locals in the blocks nested in a statement, and return the statement.

        Locals that the statement itself assigns, such as the variables of a loop, need no declaration there.
        """
        given = set(walk.find_assigned(one)) - self.visible
        self.visible.update(given)
        rewritten = walk.with_bodies(one, self.block)
        self.visible.difference_update(given)
        return rewritten

    def mentions(self, one: nodes.Stmt) -> dict[str, int]:
        """Return the locals that a statement mentions: 1 if one body inside it can declare it, otherwise 2 or more."""
        if not walk.bodies(one):
            # The order matters, which the order of new names follows.
            return dict.fromkeys([*walk.find_assigned(one), *sorted(walk.locals_read(one))], 2)
        counts = self._known.get(id(one))
        if counts is None:
            counts = self._known[id(one)] = self._count_mentions(one)
        return counts

    def _count_mentions(self, one: nodes.Stmt) -> dict[str, int]:
        counts = dict.fromkeys([*walk.find_assigned(one), *sorted(walk.locals_read(one))], 2)
        if isinstance(one, nodes.For):
            counts = {name: count for name, count in counts.items() if name not in one.names}
        for body in walk.bodies(one):
            inside: dict[str, int] = {}
            for inner in body:
                inside |= dict.fromkeys(self.mentions(inner), 1)
            for name in inside:
                if not (isinstance(one, nodes.For) and name in one.names):
                    counts[name] = counts.get(name, 0) + 1
        if walk.is_parallel(one):
            # A local of this loop alone is declared inside it, one for each iteration.
            counts = {name: count for name, count in counts.items() if name in self.shared}
        return counts


def name_locals(
    body: Sequence[nodes.Stmt], root: Callable[[str], str], taken: Collection[str], known: Collection[str]
) -> tuple[nodes.Block, dict[str, str]]:
    """Return statements with their locals renamed, and the new names by the old ones.

    Args:
        body: the statements.
        root: what a local stands for: `grad_s` for `grad_s_4`.
        taken: names that are not locals.
        known: names that people know: each goes to what it stands for, or to nothing.
    """
    new: dict[str, str] = {}
    used, numbers = set(taken), dict[str, int]()
    for one in walk.statements(body):
        # In the order of the text, and sorted where a set has none: the same kernel gets the same names in each run.
        for name in (*walk.find_assigned(one), *sorted(walk.locals_read(one))):
            if name not in new:
                new[name] = _free(root(name), used, known, numbers)
                used.add(new[name])

    renamed = {old for old, name in new.items() if old != name}

    def expression(expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Local):
            return nodes.Local(new[expr.name], expr.type) if expr.name in renamed else expr
        return walk.rebuild(expr, expression)

    def statement(one: nodes.Stmt) -> nodes.Stmt:
        if renamed.isdisjoint(walk.mentioned_in(one)):
            return one
        return walk.rename_results(walk.with_bodies(walk.with_expressions(one, expression), block), new.__getitem__)

    def block(body: nodes.Block) -> nodes.Block:
        return walk.keep_block(body, [statement(one) for one in body])

    return block(tuple(body)), new


def _free(wish: str, used: Collection[str], known: Collection[str], numbers: dict[str, int]) -> str:
    """Return a free name like `wish`. `numbers` are the last ones that were put behind each wish."""
    name = wish
    while name in used or (name in known and name != wish):
        numbers[wish] = numbers.get(wish, 0) + 1
        name = f"{wish}_{numbers[wish]}"
    return name
