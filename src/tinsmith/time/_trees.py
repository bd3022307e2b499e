"""Trees: structures of nested tuples, lists and dicts of tensors, which are flattened to lists and rebuilt.

autograd and the loops of a scan use lists of tensors. Arguments and results of a user's step have the user's
structure. Two structures are equal if their containers, lengths and keys are equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tree:
    """The structure of a nested value.

    Attributes:
        kind: the container's class; None for a leaf, and `type(None)` for the value None.
        keys: the keys of a dict.
        children: the structures of the container's items.
    """

    kind: type | None = None
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    @property
    def count(self) -> int:
        """The number of leaves."""
        return 1 if self.kind is None else sum(child.count for child in self.children)

    @property
    def is_flat(self) -> bool:
        """True for a leaf, and for a container that contains only leaves."""
        return all(child.kind is None for child in self.children)

    @property
    def is_dict(self) -> bool:
        """True for a dict, whose leaves have names."""
        return self.kind is not None and issubclass(self.kind, dict)

    def put_together(self, leaves: Sequence[Any]) -> Any:
        """Build the value with this structure from its leaves."""
        return self._build(iter(leaves))

    def _build(self, leaves: Iterator[Any]) -> Any:
        if self.kind is None:
            return next(leaves)
        if self.kind is type(None):
            return None
        children = [child._build(leaves) for child in self.children]
        if self.is_dict:
            return dict(zip(self.keys, children, strict=True))
        if hasattr(self.kind, "_fields"):
            return self.kind(*children)
        return children if issubclass(self.kind, list) else tuple(children)

    def names(self, root: str) -> list[str]:
        """Return the expression of each leaf, starting with `root`, such as `state[0]` or `state['x']`."""
        if self.kind is None:
            return [root]
        keys = self.keys or range(len(self.children))
        return [
            name for key, child in zip(keys, self.children, strict=True) for name in child.names(f"{root}[{key!r}]")
        ]

    def __str__(self) -> str:
        """Return the structure as text for messages, such as `(tensor, tensor)`."""
        if self.kind is None:
            return "tensor"
        if self.kind is type(None):
            return "None"
        inner = [str(child) for child in self.children]
        if self.is_dict:
            return "{" + ", ".join(f"{key!r}: {one}" for key, one in zip(self.keys, inner, strict=True)) + "}"
        if issubclass(self.kind, list):
            return f"[{', '.join(inner)}]"
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"


LEAF = Tree()
NOTHING = Tree(type(None))


def take_apart(value: Any) -> tuple[list[Any], Tree]:
    """Flatten a value into its leaves and its structure. Anything but a tuple, list, dict or None is a leaf."""
    leaves: list[Any] = []
    return leaves, _structure(value, leaves)


def _structure(value: Any, leaves: list[Any]) -> Tree:
    if value is None:
        return NOTHING
    if isinstance(value, dict):
        return Tree(dict, tuple(value), tuple(_structure(one, leaves) for one in value.values()))
    if isinstance(value, (tuple, list)):
        kind = type(value) if hasattr(value, "_fields") else list if isinstance(value, list) else tuple
        return Tree(kind, (), tuple(_structure(one, leaves) for one in value))
    leaves.append(value)
    return LEAF
