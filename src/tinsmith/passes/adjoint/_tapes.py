"""Tapes: memory on which an iteration keeps what it cannot compute again. Last in, first out.

There is one tape for numbers of each width, and one for each array that is overwritten (`Log`): where, and what was
there. Every parallel iteration has a part of each tape for itself, and a local that says how far it is filled.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

from ...ir import Names, Operator, Type, cast, compare, constant, integer, nodes, number, plus, restore, times, types

Block = list[nodes.Stmt]


def array_key(array: str) -> str:
    """Return the key of the tape for an array's overwritten values.

    The mark tells it from the keys of tapes for numbers, which are types: an array may be called `f32`.
    """
    return f"@{array}"


@dataclass(frozen=True)
class Tape:
    """A tape: an array, the local that says how far it is filled, and how many numbers an entry has.

    Attributes:
        array: its name.
        top: the local.
        type: of the numbers on it.
        of: the array whose overwritten values it keeps, "" for any numbers.
        where: for such a one, the array with their places: `rank` numbers an entry.
        width: numbers of an entry.
    """

    array: str
    top: nodes.Local
    type: Type
    of: str = ""
    where: str = ""
    rank: int = 0
    element: tuple[int, ...] = ()

    @property
    def key(self) -> str:
        return array_key(self.of) if self.of else self.type

    @property
    def label(self) -> str:
        """Return the word in the names of locals and arrays that belong to this tape."""
        return self.of or self.type

    @property
    def width(self) -> int:
        return math.prod(self.element)

    def slot(self, place: nodes.Expr, width: int | None = None) -> nodes.Expr:
        """Return the index of number `place` of the entry at the top; entries have `width` numbers."""
        return plus(times(constant(self.width if width is None else width, Type.I32), self.top), place)


@dataclass
class Tapes:
    """The tapes of one task."""

    names: Names
    by_key: dict[str, Tape] = field(default_factory=dict)

    def for_type(self, kind: Type) -> Tape:
        """Return the tape for numbers of a type; create it at the first request."""
        kept = types.keeping(kind)
        if kept not in self.by_key:
            top = self.names.local(f"top_{kept}", Type.I32)
            # Tasks of an op share the names of memory, so that of the array must differ; the local is the task's own.
            self.by_key[kept] = Tape(self.names.reserve_shared(f"tape_{kept}"), top, kept)
        return self.by_key[kept]

    def for_array(self, array: nodes.Array) -> Tape:
        """Return the tape for overwritten values of an array; create it at the first request."""
        key = array_key(array.name)
        if key not in self.by_key:
            names = [self.names.reserve_shared(f"{array.name}_{word}") for word in ("was", "where")]
            top = self.names.local(f"top_{array.name}", Type.I32)
            self.by_key[key] = Tape(names[0], top, array.type, array.name, names[1], array.rank, array.element)
        return self.by_key[key]

    def top_of(self, array: nodes.Array) -> nodes.Local:
        """Return the local that says how far the tape for an array's overwritten values is filled."""
        return self.for_array(array).top

    def push(self, value: nodes.Local) -> Block:
        """Return statements that push the value of a local onto the tape of its type."""
        tape = self.for_type(value.type)
        return [nodes.Store(tape.array, (tape.top,), (), cast(value, tape.type)), _move_top(tape, Operator.ADD)]

    def pop(self, local: nodes.Local) -> Block:
        """Return statements that pop the last value from the tape of a local's type and assign it to the local."""
        tape = self.for_type(local.type)
        kept = nodes.Load(tape.array, (tape.top,), (), tape.type)
        return [_move_top(tape, Operator.SUB), nodes.Assign(local.name, restore(kept, local.type))]

    def log(self, tape: Tape, index: tuple[nodes.Expr, ...], line: int) -> Block:
        """Keep an element that is about to be overwritten in this line, and where it is."""
        block: Block = []
        for axis, place in enumerate(index):
            block.append(nodes.Store(tape.where, (tape.slot(number(axis), tape.rank),), (), place, line))
        for at, entry in enumerate(itertools.product(*map(range, tape.element))):
            old = nodes.Load(tape.of, index, entry, tape.type)
            block.append(nodes.Store(tape.array, (tape.slot(number(at)),), (), old, line))
        return [*block, _move_top(tape, Operator.ADD)]

    def undo(self, tape: Tape, mark: nodes.Local, line: int) -> Block:
        """Put back what was kept since `mark`, the latest first. `line` is that of the loop whose stores it undoes."""
        index = tuple(
            nodes.Load(tape.where, (tape.slot(number(axis), tape.rank),), (), Type.I32) for axis in range(tape.rank)
        )
        block: Block = [
            nodes.If(compare(Operator.LE, tape.top, mark), (nodes.Break(),)),
            _move_top(tape, Operator.SUB),
        ]
        # Read once for all numbers of the element.
        names = [self.names.fresh(f"{tape.of}_row", Type.I32) for _ in index]
        block += [nodes.Assign(name, place, line) for name, place in zip(names, index, strict=True)]
        places = tuple(nodes.Local(name, Type.I32) for name in names)
        for at, entry in enumerate(itertools.product(*map(range, tape.element))):
            old = nodes.Load(tape.array, (tape.slot(number(at)),), (), tape.type)
            block.append(nodes.Store(tape.of, places, entry, old, line))
        return [nodes.While(tuple(block), line)]


def _move_top(tape: Tape, way: Operator) -> nodes.Assign:
    return nodes.Assign(tape.top.name, integer(way, tape.top, constant(1, Type.I32)))


@dataclass(frozen=True)
class TapeSize:
    """How large a task's tape is to be.

    Attributes:
        arrays: its arrays: name, type, and how many numbers an entry has in each.
        depth: name of the argument that says how many entries an iteration may need, and its formula; with it, that
            many are reserved for each.
        starts: else name of an array that says where each iteration's part starts, and of the one in which they
            were counted.
        is_whole: whether the depth is that of all iterations together.
    """

    arrays: tuple[tuple[str, Type, int], ...]
    depth: tuple[str, nodes.Expr] | None
    starts: tuple[str, str] | None
    is_whole: bool = False

    def first_entry(self, iteration: nodes.Expr) -> nodes.Expr:
        """Return the position on the tape at which the entries of an iteration begin."""
        if self.depth is not None:
            return times(iteration, nodes.Argument(self.depth[0], Type.I32))
        assert self.starts is not None
        return nodes.Load(self.starts[0], (iteration,), (), Type.I32)


def size_tape(names: Names, label: str, arrays: tuple[tuple[str, Type, int], ...], most: nodes.Expr | None) -> TapeSize:
    """Describe a tape's size: `most` entries an iteration, or, if that is None, those that a kernel counts."""
    if most is not None:
        return TapeSize(arrays, (names.reserve_shared(f"depth_{label}"), most), None)
    start, count = (names.reserve_shared(f"{word}_{label}") for word in ("start", "count"))
    return TapeSize(arrays, None, (start, count))
