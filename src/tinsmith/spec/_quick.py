"""Quick solving: a spec as straight Python code, for inputs whose ranks are known.

Work on ragged data has new sizes in every call. The code does what `solve` does where everything fits; it gives up
where anything does not, and `solve` then says in words what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ._arithmetic import Tree
from ._dims import Arithmetic, Batch, Dim, Fixed, Item, Named, Rest, Spec
from ._misfits import Sizes

Found: TypeAlias = "tuple[Sizes, tuple[Sizes, ...]]"
"""The sizes of `*b`, and the shapes of outputs and scratch in their order."""
QuickSolver: TypeAlias = Callable[[Sequence[Sizes], Any], "Found | None"]
"""From the shapes of inputs and from values by name to what is found; None where something does not fit."""


def quick_solver(spec: Spec, ranks: Sequence[int], names: Sequence[str]) -> QuickSolver | None:
    """Code that solves a spec.

    Args:
        spec: what `parse` read.
        ranks: of the inputs, in their order.
        names: of the values that a call gives besides, scalars and keyword dims.

    Returns:
        None where ranks do not tell how many dims `*b` and `...` stand for.

    Example:
        >>> from tinsmith.spec import parse
        >>> quick = quick_solver(parse("x[n], k[m] -> y[n - m + 1]"), (1, 1), ())
        >>> quick([(10,), (3,)], {}), quick([(2,), (5,)], {})
        (((), ((8,),)), None)
    """
    groups = _group_ranks(spec, ranks)
    if groups is None or any(name not in names for name in spec.free_dims):
        return None
    text = "\n    ".join(_Code(spec, names, *groups).lines())
    namespace: dict[str, Any] = {}
    exec(f"def quick(shapes, values):\n    {text}", namespace)  # of numbers alone
    return namespace["quick"]


def _group_ranks(spec: Spec, ranks: Sequence[int]) -> tuple[int, int] | None:
    """How many dims `*b` and `...` stand for."""
    known: dict[str, int] = {}
    by_name = dict(zip((item.name for item in spec.inputs), ranks, strict=True))
    for item in spec.solving_order:
        has_batch, has_rest, _, plain = item.layout
        spare = by_name[item.name] - len(plain)
        if has_batch and has_rest:
            if not known:
                return None
            known.setdefault("*", spare - known.get("...", 0))
            known.setdefault("...", spare - known["*"])
            fits = known["*"] + known["..."] == spare
        elif has_batch or has_rest:
            fits = known.setdefault("*" if has_batch else "...", spare) == spare
        else:
            fits = spare == 0
        if not fits or min(known.values(), default=0) < 0:
            return None
    return known.get("*", 0), known.get("...", 0)


class _Code:
    """The lines of such a function."""

    def __init__(self, spec: Spec, names: Sequence[str], batch: int, rest: int) -> None:
        self.spec = spec
        self.names = names
        self.count = {Batch: batch, Rest: rest}
        self.known: dict[str, str] = {}
        self.groups: dict[type, list[str]] = {}

    def lines(self) -> Iterator[str]:
        for number, item in enumerate(self.spec.inputs):
            yield from self.read(number, item)
        for name in self.names:
            if name in self.known:
                yield self.unless(f"values[{name!r}] == {self.known[name]}")
            elif name in self.spec.free_dims:
                self.known[name] = f"v{len(self.known)}"
                yield f"{self.known[name]} = values[{name!r}]"
                yield self.unless(f"type({self.known[name]}) is int and {self.known[name]} >= 0")
        made = []
        for number, item in enumerate(self.spec.made):
            sizes = []
            for place, dim in enumerate(item.dims):
                sizes += yield from self.sizes_of(f"y{number}_{place}", dim)
            made.append(f"({''.join(f'{size}, ' for size in sizes)})")
        batch = "".join(f"{one}, " for one in self.groups.get(Batch, ()))
        yield f"return ({batch}), ({''.join(f'{one}, ' for one in made)})"

    def unless(self, condition: str) -> str:
        """Give up unless something holds."""
        return f"if not ({condition}): return None"

    def read(self, number: int, item: Item) -> Iterator[str]:
        """Take an input's shape apart, and compare."""
        axes: list[str] = []
        checks: list[str] = []
        for dim in item.dims:
            first = len(axes)
            count = self.count.get(type(dim), 1)
            axes += [f"x{number}_{first + place}" for place in range(count)]
            new = axes[first:]
            if isinstance(dim, (Batch, Rest)):
                old = self.groups.setdefault(type(dim), new)
            elif isinstance(dim, Named):
                old = [self.known.setdefault(dim.name, new[0])]
            else:
                old = [str(dim.size)] if isinstance(dim, Fixed) else new
            checks += [self.unless(f"{a} == {b}") for a, b in zip(old, new, strict=True) if a != b]
        if axes:
            yield f"{''.join(f'{axis}, ' for axis in axes)} = shapes[{number}]"
        yield from checks

    def sizes_of(self, name: str, dim: Dim) -> Any:
        """The sizes that a dim of an output stands for."""
        if isinstance(dim, (Batch, Rest)):
            return self.groups.get(type(dim), [])
        if isinstance(dim, Fixed):
            return [str(dim.size)]
        if isinstance(dim, Named):
            return [self.known[dim.name]]
        assert isinstance(dim, Arithmetic), "parse refuses `_` in what is made"
        for divisor in _divisors(dim.tree):
            yield self.unless(f"{self.text(divisor)} != 0")
        yield f"{name} = {self.text(dim.tree)}"
        yield self.unless(f"{name} >= 0")
        return [name]

    def text(self, tree: Tree) -> str:
        if isinstance(tree, tuple):
            return f"({self.text(tree[1])} {tree[0]} {self.text(tree[2])})"
        return self.known[tree] if isinstance(tree, str) else str(tree)


def _divisors(tree: Tree) -> Iterator[Tree]:
    """What a tree divides by, innermost first."""
    if isinstance(tree, tuple):
        yield from _divisors(tree[1])
        yield from _divisors(tree[2])
        if tree[0] == "//":
            yield tree[2]
