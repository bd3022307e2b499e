"""Names that are not taken yet, and the types of locals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from . import _nodes as nodes
from . import _walk as walk
from ._types import Type


class Names:
    """Creates names that are not taken, and remembers the type of every local.

    Args:
        taken: names that are not free.
        mark: what stands behind names that must differ from those of other tasks.
    """

    def __init__(self, taken: Iterable[str], mark: str = "") -> None:
        self._taken = set(taken)
        self._mark = mark
        self._count: dict[str, int] = {}
        self._roots: dict[str, str] = {}
        self.types: dict[str, Type] = {}

    @classmethod
    def of_kernel(cls, kernel: nodes.Kernel) -> Names:
        """Return names with those of a kernel taken, and the types of its locals known."""
        names = cls(walk.names_of(kernel))
        names.types |= kernel.locals
        return names

    def fresh(self, wish: str, kind: Type | None = None) -> str:
        """Return a free name like `wish`, with a number if that is taken. With a `kind`, it is a local of that type."""
        name = wish if wish not in self._taken else ""
        stem = re.sub(r"_\d+$", "", wish)
        while not name:
            # Counts on from the last number of this stem. Counting from 1 each time would take quadratic time.
            self._count[stem] = self._count.get(stem, 0) + 1
            candidate = f"{stem}_{self._count[stem]}"
            name = candidate if candidate not in self._taken else ""
        self._taken.add(name)
        # Recorded, not read off the name: the number of `c_0`, a vector's entry, belongs to its wish.
        self._roots[name] = self.root(wish)
        if kind is not None:
            self.types[name] = kind
        return name

    def local(self, wish: str, kind: Type) -> nodes.Local:
        """Return a new local with a free name based on `wish`, and this type."""
        return nodes.Local(self.fresh(wish, kind), kind)

    def reserve_shared(self, wish: str) -> str:
        """Return a free name of memory or of an argument, which no other task of the op uses."""
        return self.fresh(f"{wish}{self._mark}")

    def root(self, name: str) -> str:
        """Return the wish that a name was made from, without numbers: `grad_s` for `grad_s_4`."""
        if name in self._roots:
            return self._roots[name]
        return f"grad_{self.root(name.removeprefix('grad_'))}" if name.startswith("grad_") else name

    def locals_after(self, count: int) -> Iterator[str]:
        """Yield all locals except the first `count`, in reverse order of creation."""
        return islice(reversed(self.types), len(self.types) - count)

    def copy(self) -> Names:
        """Return an independent copy with the same names taken."""
        other = Names(self._taken, self._mark)
        other._count, other._roots, other.types = dict(self._count), dict(self._roots), dict(self.types)
        return other

    def like(self, local: str, wish: str | None = None) -> str:
        """Declare a new local with the type of `local`, and return its name."""
        return self.fresh(wish or local, self.types[local])
