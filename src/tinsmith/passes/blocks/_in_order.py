"""Blocks in order: a parallel loop with barriers becomes one over blocks, with loops over lanes between the barriers.

    parallel for i in 0 .. n [block_size = 64]:      parallel for block in 0 .. (n + 63) // 64:
        near[i % 64] = x[i]                              for lane in 0 .. 64:
        barrier                                              if 64 * block + lane < n:
        y[i] = near[63 - i % 64]               ->                near[block, lane] = x[64 * block + lane]
                                                         for lane in 0 .. 64:
                                                             if 64 * block + lane < n:
                                                                 y[64 * block + lane] = near[block, 63 - lane]

This is loop fission, as MCUDA and POCL do it on CPUs. `for i in range(n)` in blocks of 64 iterations becomes a parallel
loop over the blocks. In it, statements between two barriers become a loop over the 64 lanes of the block. A loop or a
branch with a barrier inside is the same for all lanes (`_uniform`), so it changes places with the loops over lanes. An
array that threads share becomes an array with one more axis, that of the blocks, and so does a local that a lane needs
behind a barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...analyses import Expander, definitions, single_definitions
from ...ir import (
    IN_A_PARALLEL_LOOP,
    ONE,
    ZERO,
    Names,
    NotCovered,
    Operator,
    Type,
    cast,
    compare,
    constant,
    integer,
    minus,
    nodes,
    plus,
    restore,
    times,
    types,
    walk,
)
from .._evaluate import can_evaluate
from ._layout import BlockLayout
from ._regions import Item, Region, RegionLocals, Uniform, locals_across, regions_in, split_at_barriers
from ._uniform import BlockLevel


def run_blocks_in_order(kernel: nodes.Kernel) -> nodes.Kernel:
    """Return a kernel that has blocks without barriers: each block gets memory of its own.

    Where the loop's length is not a multiple of the block's size, the last block runs fewer iterations. Memory of a
    block is zero when the kernel starts.

    Raises:
        NotCovered: iterations of a block may not reach a barrier alike, or only a run can tell how many there are.
    """
    kernel = replace(kernel, body=walk.number_statements(kernel.body))
    names = Names.of_kernel(kernel)
    arrays = {name: array for name, array in kernel.arrays.items() if name not in kernel.block_memory}
    memory: dict[str, tuple[nodes.Expr, ...]] = {}
    body: list[nodes.Stmt] = []
    for one in kernel.body:
        if not any(_is_in_blocks(part, kernel) for part in walk.statements([one])):
            body.append(one)
            continue
        ordering = _Ordering(kernel, _parallel_loop(one, kernel), names)
        body.append(ordering.task())
        arrays |= ordering.arrays
        memory |= ordering.memory
    return replace(kernel, arrays=arrays, locals=names.types, body=walk.number_statements(body), block_memory=memory)


def _is_in_blocks(one: nodes.Stmt, kernel: nodes.Kernel) -> bool:
    """Return True if a statement waits for a block, or touches its memory."""
    if isinstance(one, nodes.Barrier | nodes.Vote):
        return True
    accesses = (nodes.Load, nodes.Store, nodes.Atomic)
    parts = (one, *walk.parts(*walk.expressions(one)))
    return any(isinstance(part, accesses) and part.array in kernel.block_memory for part in parts)


def _parallel_loop(one: nodes.Stmt, kernel: nodes.Kernel) -> nodes.For:
    """Return a statement of the top level that is a parallel loop. Raise NotCovered for another one."""
    if walk.is_parallel(one):
        return one
    words = "shared memory of a block or `sync()` outside a parallel loop"
    raise NotCovered(words, one.line, kernel.path, remedy=IN_A_PARALLEL_LOOP)


class _Ordering:
    """Writes one parallel loop.

    Attributes:
        arrays: memory of blocks.
        memory: its sizes.
    """

    def __init__(self, kernel: nodes.Kernel, loop: nodes.For, names: Names) -> None:
        self.kernel = kernel
        self.names = names
        self.loop = loop
        # How much memory blocks need follows from the bounds, and has to be known before the launch.
        self.loop = replace(loop, bounds=tuple((self.resolve_bound(a), self.resolve_bound(b)) for a, b in loop.bounds))
        block, lane = (nodes.Local(names.fresh(word), Type.I32) for word in ("block", "lane"))
        self.layout = BlockLayout(self.loop, block, lane)
        self.iterations = names.local("iterations", Type.I32)
        self.level = BlockLevel(self.layout, loop.body, kernel)
        self.level.check_order()
        self.items = split_at_barriers(loop.body, self.level)
        self.handed = locals_across([*regions_in(self.items)], self.level)
        self.arrays: dict[str, nodes.Array] = {}
        self.memory: dict[str, tuple[nodes.Expr, ...]] = {}
        self.shared_copies: dict[str, nodes.Array] = {}
        self.share()

    def resolve_bound(self, bound: nodes.Expr) -> nodes.Expr:
        """Return a bound in terms of sizes and arguments. Raise NotCovered if only a run can tell it."""
        resolved = Expander(single_definitions(definitions(self.kernel.body)))(bound)
        if can_evaluate(resolved):
            return resolved
        words = "a loop that uses `sync()` or the shared memory of a block, with bounds that are computed at run time"
        remedy = "Compute the bounds of the loop from sizes and arguments"
        raise NotCovered(words, self.loop.line, self.kernel.path, remedy=remedy)

    def share(self) -> None:
        """Declare the memory of blocks: shared arrays with one more axis, and locals that live across barriers."""
        touched = walk.find_touched(self.loop.body)
        for name, sizes in self.kernel.block_memory.items():
            if name in touched:
                array = self.kernel.arrays[name]
                self.arrays[name] = replace(array, rank=array.rank + 1)
                self.memory[name] = (self.layout.blocks, *sizes)
        for name in sorted({name for one in self.handed.values() for name in (*one.loaded, *one.stored)}):
            # Bools are kept as integers; `loads` and `stores` convert.
            kind = types.keeping(self.kernel.locals[name])
            array = nodes.Array(self.names.fresh(f"{name}_of_lanes"), kind, 2, is_of_blocks=True)
            self.shared_copies[name] = self.arrays[array.name] = array
            self.memory[array.name] = (self.layout.blocks, constant(self.layout.size, Type.I32))

    # Statements -------------------------------------------------------------------------------

    def task(self) -> nodes.For:
        """Write the parallel loop over the blocks, in which each block runs its lanes in order."""
        line = self.loop.line
        body = self.write_items(self.items)
        head: list[nodes.Stmt] = []
        if self.iterations.name in walk.find_read(body):
            head.append(nodes.Assign(self.iterations.name, self.layout.total, line))
        for name in self.loop.names:
            self.names.types[name] = Type.I32
            if not self.is_lanes(name):
                head.append(nodes.Assign(name, self.layout.variables[name], line))
        body = walk.change_parts((*head, *body), self.redirect_block_memory)
        return nodes.For((self.layout.block.name,), ((ZERO, self.layout.blocks),), body, True, line)

    def is_lanes(self, name: str) -> bool:
        """Return True if a variable of the loop differs from lane to lane."""
        return self.layout.lane in walk.parts(self.layout.variables[name])

    def write_items(self, items: Sequence[Item]) -> nodes.Block:
        statements: list[nodes.Stmt] = []
        for one in items:
            statements += self.region(one) if isinstance(one, Region) else [self.uniform(one)]
        return tuple(statements)

    def uniform(self, item: Uniform) -> nodes.Stmt:
        """Write a statement that the block runs once, instead of once for each lane."""
        one = walk.with_expressions(item.statement, self.alike)
        bodies = [self.write_items(part) for part in item.bodies]
        match one:
            case nodes.If():
                return replace(one, body=bodies[0], orelse=bodies[1])
            case nodes.For() | nodes.While():
                return replace(one, body=bodies[0])
            case _:
                return one

    def alike(self, expr: nodes.Expr) -> nodes.Expr:
        uniform = self.level.form(expr)
        assert uniform is not None, f"{expr} must have the same value for all iterations of a block"
        return uniform

    def region(self, region: Region) -> nodes.Block:
        """Write the loop over lanes that runs a region."""
        handed = self.handed[region]
        body = tuple([walk.transform(one, self.layout.rewrite_in_blocks) for one in region.body])
        # A `continue` would skip the stores that follow the body. In a loop of one iteration it ends that one alone.
        if region.is_left_early and handed.stored:
            once = self.names.fresh("once")
            body = (nodes.For((once,), ((ZERO, ONE),), body, line=self.loop.line),)
        body = (*body, *self.count_vote(region.vote), *self.stores(handed))
        head = [*self.repeats(handed), *self.loads(handed)]
        wanted = walk.find_read((*head, *body))
        mine = [name for name in self.loop.names if self.is_lanes(name) and name in wanted]
        variables = [nodes.Assign(name, self.layout.variables[name], self.loop.line) for name in mine]
        lanes = self.over_lanes((*variables, *head, *body))
        return (*self.start_vote(region.vote), lanes, *self.decide_vote(region.vote))

    def over_lanes(self, body: nodes.Block) -> nodes.For:
        """Write a loop over the lanes of a block; its length is known, so that tapes have a formula."""
        # So the last block has a test in each lane, not a shorter loop.
        if not self.layout.are_full:
            body = (nodes.If(compare(Operator.LT, self.layout.number, self.iterations), body, (), self.loop.line),)
        lanes = ((ZERO, constant(self.layout.size, Type.I32)),)
        return nodes.For((self.layout.lane.name,), lanes, body, line=self.loop.line)

    def repeats(self, handed: RegionLocals) -> list[nodes.Stmt]:
        values = ((name, self.layout.rewrite_in_blocks(self.level.pure[name])) for name in handed.repeated)
        return [nodes.Assign(name, value, self.loop.line) for name, value in values]

    def loads(self, handed: RegionLocals) -> list[nodes.Stmt]:
        statements: list[nodes.Stmt] = []
        for name in handed.loaded:
            array = self.shared_copies[name]
            value = nodes.Load(array.name, (self.layout.block, self.layout.lane), (), array.type)
            statements.append(nodes.Assign(name, restore(value, self.kernel.locals[name]), self.loop.line))
        return statements

    def stores(self, handed: RegionLocals) -> list[nodes.Stmt]:
        statements: list[nodes.Stmt] = []
        for name in handed.stored:
            array = self.shared_copies[name]
            value = cast(nodes.Local(name, self.kernel.locals[name]), array.type)
            index = self.layout.block, self.layout.lane
            statements.append(nodes.Store(array.name, index, (), value, self.loop.line))
        return statements

    # Votes ------------------------------------------------------------------------------------

    def start_vote(self, vote: nodes.Vote | None) -> list[nodes.Stmt]:
        return [] if vote is None else [nodes.Assign(vote.result, ZERO, vote.line)]

    def count_vote(self, vote: nodes.Vote | None) -> list[nodes.Stmt]:
        """Write a lane's part of a vote: count the iterations that agree."""
        if vote is None:
            return []
        agrees = compare(Operator.NE, vote.value, ZERO)
        return [nodes.Assign(vote.result, plus(nodes.Local(vote.result, Type.I32), cast(agrees, Type.I32)), vote.line)]

    def decide_vote(self, vote: nodes.Vote | None) -> list[nodes.Stmt]:
        """Write the result of a vote, once all lanes are counted."""
        if vote is None or vote.operator == "count":
            return []
        count = nodes.Local(vote.result, Type.I32)
        # All lanes of the last block agree if those agree that exist.
        first = times(constant(self.layout.size, Type.I32), self.layout.block)
        lanes = integer(Operator.MIN, constant(self.layout.size, Type.I32), minus(self.iterations, first))
        holds = compare(Operator.GT, count, ZERO) if vote.operator == "any" else compare(Operator.EQ, count, lanes)
        return [nodes.Assign(vote.result, cast(holds, Type.I32), vote.line)]

    # Memory -----------------------------------------------------------------------------------

    def redirect_block_memory(self, one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        """Put the block's number in front of an index into memory of blocks."""
        if isinstance(one, nodes.Load | nodes.Store | nodes.Atomic) and one.array in self.kernel.block_memory:
            return replace(one, index=(self.layout.block, *one.index))
        return one
