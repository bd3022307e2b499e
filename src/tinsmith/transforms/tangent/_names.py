"""Names for what the pass adds: companions, and locals for what is used twice."""

from __future__ import annotations

from ...source.ir import nodes, walk


class Names:
    """Hands out names that a kernel has not, and remembers the types of those that are locals."""

    def __init__(self, kernel: nodes.Kernel) -> None:
        loops = {name for one in walk.statements(kernel.body) for name in walk.assigned(one)}
        self._taken = {*kernel.arrays, *kernel.arguments, *kernel.locals, *loops, kernel.name}
        self._count: dict[str, int] = {}
        self.types: dict[str, str] = {}

    def like(self, wish: str) -> str:
        """This name, or, where it is taken, the first numbered one."""
        return self.numbered(wish) if wish in self._taken else self._take(wish)

    def numbered(self, stem: str) -> str:
        """The next name of a row: `stem_1`, `stem_2`..."""
        while True:
            self._count[stem] = self._count.get(stem, 0) + 1
            name = f"{stem}_{self._count[stem]}"
            if name not in self._taken:
                return self._take(name)

    def local(self, stem: str, kind: str) -> nodes.Local:
        """A fresh local."""
        name = self.numbered(stem)
        self.types[name] = kind
        return nodes.Local(name, kind)

    def _take(self, name: str) -> str:
        self._taken.add(name)
        return name
