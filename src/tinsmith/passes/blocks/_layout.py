"""How the iterations of a parallel loop fall into blocks, and its variables as formulas in block and lane.

Iteration number f, counted from 0 with the last loop variable fastest, is lane `f % size` of block `f // size`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ...analyses import affine
from ...ir import BLOCK_SIZE, ZERO, Operator, Type, constant, integer, iteration_number, minus, nodes, plus, times, walk


@dataclass(frozen=True)
class BlockLayout:
    """A parallel loop in blocks.

    Attributes:
        loop: the loop; its bounds follow from sizes and arguments.
        block, lane: the variables that number blocks, and iterations of one block.
    """

    loop: nodes.For
    block: nodes.Local
    lane: nodes.Local

    @property
    def size(self) -> int:
        """The number of iterations of a block."""
        return self.loop.block_size or BLOCK_SIZE

    @cached_property
    def extents(self) -> tuple[nodes.Expr, ...]:
        """The number of values of each variable of the loop; it may be negative where there are none."""
        return tuple([minus(end, first) for first, end in self.loop.bounds])

    @cached_property
    def total(self) -> nodes.Expr:
        """The number of iterations."""
        # Each extent is clamped: the product of two negative ones, of a loop that does not run, would be positive.
        count: nodes.Expr = constant(1, Type.I32)
        for one in self.extents:
            count = _product(count, one if isinstance(one, nodes.Const) else integer(Operator.MAX, one, ZERO))
        return count

    @property
    def are_full(self) -> bool:
        """Whether every block has all of its iterations, whatever the sizes are."""
        # An extent of `64 * n + 128` is a multiple of 64 for every n, and the total a multiple of all such numbers.
        factors = (affine(one, {}) for one in self.extents)
        return math.prod(math.gcd(one.constant, *one.terms.values()) for one in factors) % self.size == 0

    @property
    def blocks(self) -> nodes.Expr:
        """The number of blocks."""
        if isinstance(self.total, nodes.Const):
            return constant(-(-int(self.total.value) // self.size), Type.I32)
        last = constant(self.size - 1, Type.I32)
        return integer(Operator.FLOOR_DIV, plus(self.total, last), constant(self.size, Type.I32))

    @property
    def number(self) -> nodes.Expr:
        """The number of an iteration."""
        return plus(times(constant(self.size, Type.I32), self.block), self.lane)

    @cached_property
    def variables(self) -> Mapping[str, nodes.Expr]:
        """The loop's variables."""
        formulas: dict[str, nodes.Expr] = {}
        stride: nodes.Expr = constant(1, Type.I32)
        pairs = list(zip(self.loop.names, self.loop.bounds, strict=True))
        for place, (name, (first, _)) in reversed(list(enumerate(pairs))):
            extent = self.extents[place]
            here = self.divide_number(stride)
            formulas[name] = plus(first, here if place == 0 else self._remainder(here, stride, extent))
            stride = _product(stride, extent)
        return formulas

    def divide_number(self, stride: nodes.Expr) -> nodes.Expr:
        """Return the number of an iteration `// stride`, for a positive stride."""
        if not isinstance(stride, nodes.Const):
            return integer(Operator.FLOOR_DIV, self.number, stride)
        whole = int(stride.value)
        # A quotient that is made of the block alone is alike for all lanes, so that a barrier may depend on it.
        if whole % self.size == 0:
            return _quotient(self.block, whole // self.size)
        if self.size % whole == 0:
            return plus(times(constant(self.size // whole, Type.I32), self.block), _quotient(self.lane, whole))
        return integer(Operator.FLOOR_DIV, self.number, stride)

    def remainder(self, divisor: int) -> nodes.Expr:
        """Return the number of an iteration `% divisor`."""
        return self._remainder(self.number, constant(1, Type.I32), constant(divisor, Type.I32))

    def _remainder(self, here: nodes.Expr, stride: nodes.Expr, extent: nodes.Expr) -> nodes.Expr:
        """Return `here % extent`, where `here` is the number of an iteration `// stride`."""
        if isinstance(stride, nodes.Const) and isinstance(extent, nodes.Const):
            inner, outer = int(stride.value), int(stride.value) * int(extent.value)
            if inner and self.size % inner == 0 and outer % self.size == 0:
                # Lanes of one block never carry over: the rest is that of blocks.
                rest = integer(Operator.MOD, self.block, constant(outer // self.size, Type.I32))
                head = ZERO if outer == self.size else times(constant(self.size // inner, Type.I32), rest)
                return plus(head, _quotient(self.lane, inner))
            if outer and self.size % outer == 0:
                return integer(Operator.MOD, _quotient(self.lane, inner), extent)
        return integer(Operator.MOD, here, extent)

    def rewrite_in_blocks(self, expr: nodes.Expr) -> nodes.Expr:
        """Replace `f // c` and `f % c`, f an iteration number and c a constant, by formulas in block and lane."""
        expr = walk.rebuild(expr, self.rewrite_in_blocks)
        match expr:
            case nodes.Binary(
                Operator.FLOOR_DIV | Operator.MOD as operator, left, nodes.Const(value, Type.I32), Type.I32
            ) if value > 0:
                if left in (self._numbering, self.number):
                    whole = int(value)
                    return self.divide_number(constant(whole, Type.I32)) if operator == "//" else self.remainder(whole)
        return expr

    @cached_property
    def _numbering(self) -> nodes.Expr:
        return iteration_number(self.loop.names, self.loop.bounds)


def _quotient(expr: nodes.Expr, divisor: int) -> nodes.Expr:
    return expr if divisor == 1 else integer(Operator.FLOOR_DIV, expr, constant(divisor, Type.I32))


def _product(one: nodes.Expr, other: nodes.Expr) -> nodes.Expr:
    if isinstance(one, nodes.Const) and isinstance(other, nodes.Const):
        return constant(one.value * other.value, Type.I32)
    return times(one, other)
