"""Generated code that computes the sizes of all arrays of a call, for calls whose inputs have the same ranks.

Calls on ragged data always have new sizes. A spec becomes straight-line Python code that unpacks the inputs' shapes
into a few numbers; every other size is one of these. The code computes the same as `solve` if everything fits.
Otherwise it returns None, and `solve` then raises the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ._arithmetic import Tree, list_divisors
from ._dims import Anything, Arithmetic, Dim, Fixed, Item, Named, Rest, Spec


class Symbol(NamedTuple):
    """A size that differs from call to call: an index into the numbers of a call."""

    place: int

    def __str__(self) -> str:
        """Return its name in generated code."""
        return f"n{self.place}"


Size: TypeAlias = "Symbol | int"
Shape: TypeAlias = "tuple[Size, ...]"
Numbers: TypeAlias = "tuple[int, ...]"
"""The values of the symbols in one call, followed by the total number of elements of all arrays."""


@dataclass(frozen=True, eq=False)
class Sizing:
    """The sizes of all arrays, for calls whose inputs have the same ranks.

    Attributes:
        shapes: the shape of every array by name, including a leading batch dimension if it has one.
        solve: from the shapes of inputs, and values by name, computes the numbers of a call; None if these do not
            fit.
        batch: the size of the batch, None without one.
        symbols: the number of sizes that differ from call to call.
    """

    shapes: Mapping[str, Shape]
    solve: Callable[[Sequence[Sequence[int]], Mapping[str, Any]], Numbers | None]
    batch: Size | None
    symbols: int

    def evaluate(self, name: str, numbers: Numbers) -> tuple[int, ...]:
        """Return an array's shape in one call, given the call's numbers."""
        return tuple([numbers[one.place] if isinstance(one, Symbol) else one for one in self.shapes[name]])


def make_fixed_sizing(shapes: Mapping[str, tuple[int, ...]], batch: int | None) -> Sizing:
    """Return the sizing of calls with exactly these shapes, which are checked elsewhere."""
    numbers = (sum(math.prod(shape) for shape in shapes.values()),)
    return Sizing(shapes, lambda *_: numbers, batch, 0)


def make_sizing(
    spec: Spec,
    ranks: Mapping[str, int],
    names: Sequence[str],
    *,
    batched: frozenset[str] | None = None,
    ends: Mapping[str, Sequence[int]] | None = None,
) -> Sizing | None:
    """Generate the code that computes the sizes of an op's arrays.

    Args:
        spec: a parsed spec, without `*b`.
        ranks: the ranks of the inputs by name, without batch dimension, in the order of a call's shapes.
        names: names of the other values of a call: scalars and keyword dims.
        batched: inputs with a leading batch dimension, which all outputs and scratch then have; None without one.
        ends: for arrays of vectors, the sizes of their last dims.

    Returns:
        The sizing; None if the inputs cannot have these ranks, or if the size of a dim is not given.

    Example:
        >>> from tinsmith.spec import parse
        >>> found = make_sizing(parse("x[n], k[m] -> y[n - m + 1]"), {"x": 1, "k": 1}, ())
        >>> found.solve([(10,), (3,)], {}), found.solve([(2,), (5,)], {})
        ((10, 3, 8, 21), None)
        >>> found.evaluate("y", (10, 3, 8, 21))
        (8,)
    """
    rest = _count_rest(spec, ranks)
    if rest is None or any(name not in names for name in spec.free_dims):
        return None
    code = _Code(spec, tuple(ranks), names, rest, batched, ends or {})
    text = "\n    ".join(code.lines())
    namespace: dict[str, Any] = {}
    exec(f"def solve(shapes, values):\n    {text}", namespace)  # the text contains only numbers and names
    return Sizing(code.shapes, namespace["solve"], code.batch, code.symbols)


def _count_rest(spec: Spec, ranks: Mapping[str, int]) -> int | None:
    """Return the number of dims that `...` stands for; None if the ranks do not fit."""
    rest: int | None = None
    for item in spec.inputs:
        spare = ranks[item.name] - len(item.layout.plain)
        if not item.layout.has_rest:
            if spare:
                return None
            continue
        if spare < 0 or rest not in (None, spare):
            return None
        rest = spare
    return rest or 0


class _Code:
    """Writes the lines of the function `solve` of a `Sizing`."""

    def __init__(
        self,
        spec: Spec,
        order: Sequence[str],
        names: Sequence[str],
        rest: int,
        batched: frozenset[str] | None,
        ends: Mapping[str, Sequence[int]],
    ) -> None:
        self.spec = spec
        self.order = order
        self.names = names
        self.batched = batched
        self.ends = ends
        self.count = rest
        self.shapes: dict[str, Shape] = {}
        self.batch: Size | None = None
        self.known: dict[str, Size] = {}
        self.rest: Shape | None = None
        self.symbols = 0

    def symbol(self) -> Symbol:
        self.symbols += 1
        return Symbol(self.symbols - 1)

    def lines(self) -> Iterator[str]:
        for item in self.spec.inputs:
            yield from self.read(item)
        for name in self.names:
            if name in self.known:
                yield self.unless(f"values[{name!r}] == {self.known[name]}")
            elif name in self.spec.free_dims:
                symbol = self.known[name] = self.symbol()
                yield f"{symbol} = values[{name!r}]"
                yield self.unless(f"type({symbol}) is int and {symbol} >= 0")
        for item in self.spec.allocations:
            sizes: list[Size] = [] if self.batch is None else [self.batch]
            for dim in item.dims:
                sizes += yield from self.sizes_of(dim)
            yield from self.keep(item.name, tuple(sizes))
        products = [" * ".join(map(str, shape)) or "1" for shape in self.shapes.values()]
        numbers = "".join(f"{Symbol(place)}, " for place in range(self.symbols))
        yield f"return ({numbers}{' + '.join(products) or '0'},)"

    def unless(self, condition: str) -> str:
        """Return the line that makes the function return None unless a condition holds."""
        return f"if not ({condition}): return None"

    def keep(self, name: str, shape: Shape) -> Iterator[str]:
        """Store an array's shape, and yield lines that check the dims of its vectors."""
        self.shapes[name] = shape
        end = self.ends.get(name, ())
        if len(end) > len(shape):
            yield "return None"
            return
        for size, wanted in zip(shape[len(shape) - len(end) :], end, strict=True):
            if size != wanted:
                yield self.unless(f"{size} == {wanted}")

    def read(self, item: Item) -> Iterator[str]:
        """Yield lines that unpack an input's shape and compare its sizes."""
        axes: list[Symbol] = []
        shape: list[Size] = []
        checks: list[str] = []

        def axis(known: Size | None) -> Size:
            own = self.symbol()
            axes.append(own)
            shape.append(own if known is None else known)
            if known is not None:
                checks.append(self.unless(f"{own} == {known}"))
            return shape[-1]

        if self.batched is not None and item.name in self.batched:
            self.batch = axis(self.batch)
        for dim in item.dims:
            if isinstance(dim, Rest):
                known = self.rest or (None,) * self.count
                self.rest = tuple([axis(one) for one in known])
            elif isinstance(dim, Named):
                self.known[dim.name] = axis(self.known.get(dim.name))
            else:
                axis(dim.size if isinstance(dim, Fixed) else None)
        if axes:
            yield f"{''.join(f'{one}, ' for one in axes)} = shapes[{self.order.index(item.name)}]"
        yield from checks
        yield from self.keep(item.name, tuple(shape))

    def sizes_of(self, dim: Dim) -> Any:
        """Yield lines that compute the sizes of an output's dim, and return these sizes."""
        if isinstance(dim, Rest):
            return self.rest or ()
        if isinstance(dim, Fixed):
            return (dim.size,)
        if isinstance(dim, Named):
            return (self.known[dim.name],)
        assert isinstance(dim, Arithmetic) and not isinstance(dim, Anything), "parse refuses `_` in what is made"
        for divisor in list_divisors(dim.tree):
            yield self.unless(f"{self.text(divisor)} != 0")
        symbol = self.symbol()
        yield f"{symbol} = {self.text(dim.tree)}"
        yield self.unless(f"{symbol} >= 0")
        return (symbol,)

    def text(self, tree: Tree) -> str:
        if isinstance(tree, tuple):
            return f"({self.text(tree[1])} {tree[0]} {self.text(tree[2])})"
        return str(self.known[tree]) if isinstance(tree, str) else str(tree)
