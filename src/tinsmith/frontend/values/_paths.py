"""Paths: the name, attributes and items by which a kernel's source reaches a Python value."""

from __future__ import annotations

import ast
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from .._fingerprints import MISSING, Item
from .._nodes import is_item
from .._read import Source

Chain: TypeAlias = "tuple[Any, ...]"
"""A name, then attributes and items (`Item`)."""


@dataclass(frozen=True)
class Path:
    """Where a value is found: a free name of `source` or a template argument, then attributes and items."""

    source: Source | None
    name: str
    steps: tuple[str | Item, ...] = ()

    def value(self, templates: Mapping[str, Any]) -> Any:
        """Return the current value; MISSING if there is none."""
        try:
            value = self.source.lookup(self.name) if self.source else templates[self.name]
            for step in self.steps:
                value = value[step.key] if isinstance(step, Item) else getattr(value, step)
        except (AttributeError, LookupError):
            return MISSING
        return value

    @property
    def is_captured(self) -> bool:
        """True if it starts at a closure's variable or a parameter: kernels with the same text may differ in those."""
        return self.source is None or self.name in self.source.function.__code__.co_freevars

    def __str__(self) -> str:
        return text_of((self.name, *self.steps))

    def then(self, *steps: str | Item) -> Path:
        return Path(self.source, self.name, (*self.steps, *steps))


def chains(tree: ast.FunctionDef, left_out: Container[ast.AST] = ()) -> list[Chain]:
    """Return every maximal `name.attribute["item"]` in a body, as tuples, but for the nodes that are left out."""
    return list(dict.fromkeys(chain for statement in tree.body for chain in chains_in(statement, left_out)))


def chains_in(part: ast.AST, left_out: Container[ast.AST] = ()) -> list[Chain]:
    """Return every maximal `name.attribute["item"]` in a part of a body, with repetitions."""
    chains: list[Chain] = []

    def visit(node: ast.AST, tail: tuple[str | Item, ...]) -> None:
        if node in left_out:
            return
        if isinstance(node, ast.Attribute):
            visit(node.value, (node.attr, *tail))
        elif is_item(node):
            assert isinstance(node.slice, ast.Constant)
            visit(node.value, (Item(node.slice.value), *tail))
        elif isinstance(node, ast.Name):
            chains.append((node.id, *tail))
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, ())

    visit(part, ())
    return chains


def text_of(chain: tuple[str | Item, ...]) -> str:
    """Return a chain as the source writes it."""
    name, *steps = chain
    return str(name) + "".join(f"[{step.key!r}]" if isinstance(step, Item) else f".{step}" for step in steps)
