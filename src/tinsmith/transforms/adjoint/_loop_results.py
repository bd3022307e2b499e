"""What loops leave, kept by the forward pass: how often they ran, and the last values of what they hand on.

The reverse of a loop whose chain is run backwards starts from these. Without them it has to run the whole loop once
more first, which for blending and compositing costs as much as the forward pass. An iteration of the parallel loop
keeps an element for each local.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...source.ir import nodes, types
from .._algebra import cast, compare, constant, either, minus
from .._names import Names

Block = list[nodes.Stmt]
MINUS_ONE = constant(-1, "i32")


@dataclass
class LoopResults:
    """Memory for what loops leave.

    Attributes:
        names: names of the task.
        place: the number of an iteration among the parallel ones.
        arrays: the memory, by local; one that counts how often a loop ran holds that it `ended` early too.
    """

    names: Names
    place: nodes.Expr
    arrays: dict[str, nodes.Array] = field(default_factory=dict)

    def load(self, values: Sequence[str], trips: str | None, ended: Sequence[str]) -> Block:
        """Statements that give locals the values that were kept.

        Args:
            values: locals.
            trips: the one that counts how often a loop ran.
            ended: those that say by which of its conditions it ended.
        """
        statements: Block = []
        if trips is not None and ended:
            kept, first = self._load(trips), nodes.Local(ended[0], "u1")
            word = self.names.local(f"{trips}_kept", "i32")
            statements.append(nodes.Assign(word.name, kept))
            statements.append(nodes.Assign(first.name, compare("<", word, constant(0, "i32"))))
            statements.append(nodes.Assign(trips, _flip_where(first, word)))
            trips, ended = None, ended[1:]
        locals_ = [*values, *ended] + ([] if trips is None else [trips])
        return [*statements, *(nodes.Assign(name, self._load(name)) for name in locals_)]

    def store(self, values: Sequence[str], trips: str | None, ended: Sequence[str]) -> Block:
        """Statements that keep locals, of those that have memory; the arguments are those of `load`."""
        kept: dict[str, nodes.Expr] = {name: nodes.Local(name, self.names.types[name]) for name in (*values, *ended)}
        if trips is not None:
            count = nodes.Local(trips, "i32")
            kept[trips] = _flip_where(nodes.Local(ended[0], "u1"), count) if ended else count
        return [self._store(name, value) for name, value in kept.items() if name in self.arrays]

    def _load(self, local: str) -> nodes.Expr:
        kind = self.names.types[local]
        if local not in self.arrays:
            name = self.names.reserve_shared(f"left_{self.names.root(local)}")
            self.arrays[local] = nodes.Array(name, types.keeping(kind), 1)
        array = self.arrays[local]
        load = nodes.Load(array.name, (self.place,), (), array.type)
        return compare("!=", load, constant(0, load.type)) if kind == "u1" else cast(load, kind)

    def _store(self, local: str, value: nodes.Expr) -> nodes.Stmt:
        array = self.arrays[local]
        return nodes.Store(array.name, (self.place,), (), cast(value, array.type))


def _flip_where(condition: nodes.Expr, count: nodes.Expr) -> nodes.Expr:
    """A count, or -1 less the count: a sign that holds a truth, of 0 too. Done twice, the count itself."""
    return either(condition, minus(MINUS_ONE, count), count)
