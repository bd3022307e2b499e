"""Checkpoints: a loop becomes a loop over blocks of its iterations, so that a tape holds one block at a time.

    for k in range(n):                      for block in range(blocks):
        t = t * sin(x[k] + t)      ->           for k in range(block * size, min(block * size + size, n)):
                                                    t = t * sin(x[k] + t)

What n iterations hand on takes a tape of n entries. In a nest, the reverse runs an inner loop forward again before it
reverses it: so blocks of k iterations take n / k entries for what each block was handed, the checkpoints, and k for the
block that is reversed. It costs one more forward run. With k about the root of n that is the least memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ...analyses import Activity
from ...ir import FALSE, Names, Operator, Type, integer, nodes, number, walk
from ._ssa import Step
from ._tasks import Task
from .decide import decide_task
from .emit import Reversed, TaskReverse, write_task
from .normalize import AdjointOptions

SMALLEST, LARGEST = 8, 256
"""Iterations of a block."""
OF_WHILE = 32
"""Those of a block, where their number is unknown."""


def use_checkpoints(made: Reversed, options: AdjointOptions) -> Reversed:
    """Let loops with long tapes run in blocks: each block is run again from its first values, then reversed."""
    if not options.has_checkpoints:
        return made

    def shorten(task: Task, reverse: TaskReverse) -> TaskReverse:
        if not reverse.taped:
            return reverse
        steps = walk.rewrite(task.steps, _Splitting(reverse.taped, task.activity, task.names, made.form.numbers).step)
        # Decided again, since a loop over blocks and the loop of a block are loops that no plan knows.
        task = replace(task, steps=steps)
        plan, draft = decide_task(task)
        # `taped` offers a shorter form (`AdjointProgram.has_long_tapes`). Of blocks there is none.
        return replace(draft or write_task(task, plan), taped=frozenset())

    return replace(made, reverses=list(map(shorten, made.tasks, made.reverses)))


class _Splitting:
    def __init__(self, loops: Collection[int], activity: Activity, names: Names, numbers: Iterator[int]) -> None:
        self.loops = loops
        self.activity = activity
        self.names = names
        self.numbers = numbers

    def step(self, loop: Step) -> list[Step]:
        """Return a loop over blocks with the assignments before it; any other step is returned as it is."""
        if not isinstance(loop, nodes.Loop) or loop.number not in self.loops:
            return [loop]
        before, bounds, names, inner = self.ranges(loop) if loop.names else self.counts(loop)
        pairs = [self.carry_over_blocks(one) for one in loop.carried]
        ended = None
        if loop.exit is not None:
            # An exit leaves the loop of a block only. The block hands out
            # that it ended early, and the loop over blocks ends, too.
            pair = self.ending(loop.exit)
            ended = nodes.Local(pair.last, Type.U1)
            inner = replace(inner, carried=(*(one for _, one in pairs), pair))
        else:
            inner = replace(inner, carried=tuple(one for _, one in pairs))
        outer = nodes.Loop(
            names, bounds, (inner,), tuple(one for one, _ in pairs), ended, line=loop.line, number=next(self.numbers)
        )
        return [*before, replace(outer, has_blocks=True)]

    def ranges(
        self, loop: nodes.Loop
    ) -> tuple[list[Step], tuple[tuple[nodes.Expr, nodes.Expr], ...], tuple[str], nodes.Loop]:
        """Split a range: return assignments before the loop over blocks, its bounds and name, and the inner loop."""
        (first, end), line = loop.bounds[0], loop.line
        count, size, blocks = (self.names.local(word, Type.I32) for word in ("count", "block_size", "blocks"))
        # A range may end before it starts, and then it has no
        # iterations: a negative count would give a negative size.
        whole = integer(Operator.MAX, integer(Operator.SUB, end, first), number(0))
        before: list[Step] = [
            self.assign(count, whole, line),
            self.assign(size, block_size(count), line),
            self.assign(
                blocks,
                integer(Operator.FLOOR_DIV, integer(Operator.ADD, count, integer(Operator.SUB, size, number(1))), size),
                line,
            ),
        ]
        place = self.names.local("block", Type.I32)
        begin = integer(Operator.ADD, first, integer(Operator.MUL, place, size))
        inner = replace(
            loop, bounds=((begin, integer(Operator.MIN, integer(Operator.ADD, begin, size), end)),), most=size
        )
        return before, ((number(0), blocks),), (place.name,), inner

    def counts(self, loop: nodes.Loop) -> tuple[list[Step], tuple[()], tuple[()], nodes.Loop]:
        """Split a loop of unknown length, whose exit ends the last block early. Return the same as `ranges`."""
        place = self.names.fresh("in_block", Type.I32)
        inner = replace(loop, names=(place,), bounds=((number(0), number(OF_WHILE)),), most=number(OF_WHILE))
        return [], (), (), inner

    def assign(self, local: nodes.Local, value: nodes.Expr, line: int) -> Step:
        return nodes.Assign(local.name, value, line, next(self.numbers))

    def carry_over_blocks(self, one: nodes.CarriedLocal) -> tuple[nodes.CarriedLocal, nodes.CarriedLocal]:
        """Return what the loop over blocks carries, and what the loop of a block carries, for one carried local."""
        kind = self.names.types[one.head]
        head, cell = self.like(one.head), self.like(one.cell)
        # It goes into the next block, too, so it has a gradient wherever a head has one.
        last = self.like(one.last, one.head)
        outer = nodes.CarriedLocal(one.first, head, nodes.Local(last, kind), one.last, cell)
        return outer, nodes.CarriedLocal(nodes.Local(head, kind), one.head, one.next, last, one.cell)

    def like(self, local: str, *others: str) -> str:
        """Create a local of another one's type. It has a gradient if that one, or one of the others, has."""
        name = self.names.like(local)
        if any(one in self.activity for one in (local, *others)):
            self.activity.add(name)
        return name

    def ending(self, leaves: nodes.Local) -> nodes.CarriedLocal:
        """Return the carried truth by which the loop of a block says whether the whole loop ended in it."""
        head, last, cell = (self.names.fresh("ended", Type.U1) for _ in range(3))
        return nodes.CarriedLocal(FALSE, head, leaves, last, cell)


def block_size(count: nodes.Expr) -> nodes.Expr:
    """Return the number of iterations of a block: a power of two near the square root of `count`.

    8 for up to 128 iterations, 16 for up to 512, and so on; there are between half and twice as many blocks then. It
    is known before the launch if `count` is.
    """
    # Integers alone: the launch reserves the tape by this formula, and the kernel computes it again. A square root
    # might differ in its last digit between the two, and then the kernel would write behind the end.
    last = integer(Operator.MAX, integer(Operator.SUB, count, number(1)), number(0))
    steps: nodes.Expr = number(0)
    # A block of `size` serves up to 2 * size ** 2 iterations, which is 2 ** shift.
    size, shift = SMALLEST, 2 * SMALLEST.bit_length() - 1
    while size < LARGEST:
        steps = integer(
            Operator.ADD, steps, integer(Operator.MIN, integer(Operator.SHIFT_RIGHT, last, number(shift)), number(1))
        )
        size, shift = 2 * size, shift + 2
    return integer(Operator.SHIFT_LEFT, number(SMALLEST), steps)
