"""Paths: the name, attributes and items by which a kernel's source reaches a Python value."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
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
        """Evaluate the path now; return MISSING if it leads to nothing."""
        value = self.root_value(templates)
        for step in self.steps:
            if value is MISSING:
                break
            value = take_step(value, step)
        return value

    def root_value(self, templates: Mapping[str, Any]) -> Any:
        """Return the current value of the name that the path starts at; MISSING if there is none."""
        try:
            return self.source.lookup(self.name) if self.source else templates[self.name]
        except LookupError:
            return MISSING

    @property
    def is_captured(self) -> bool:
        """True if it starts at a closure's variable or a parameter: kernels with the same text may differ in those."""
        return self.source is None or self.name in self.source.function.__code__.co_freevars

    def __str__(self) -> str:
        return text_of((self.name, *self.steps))

    def then(self, *steps: str | Item) -> Path:
        return Path(self.source, self.name, (*self.steps, *steps))


def take_step(value: Any, step: str | Item) -> Any:
    """Return an attribute or an item of a value; MISSING if there is none, or if a property raises."""
    try:
        return value[step.key] if isinstance(step, Item) else getattr(value, step)
    # A property of a user's object may raise anything.
    except Exception:  # noqa: BLE001
        return MISSING


def chains(tree: ast.FunctionDef, without: Collection[ast.AST] = ()) -> list[Chain]:
    """Return every maximal `name.attribute["item"]` in a body but for those nodes, as tuples."""
    return list(dict.fromkeys(chain for statement in tree.body for chain in chains_in(statement, without)))


def chain_of(node: ast.AST) -> Chain | None:
    """Return an expression as a chain if it consists of one; None otherwise."""
    steps: list[str | Item] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(node.attr)
        elif is_item(node):
            assert isinstance(node.slice, ast.Constant)
            steps.append(Item(node.slice.value))
        else:
            return None
        node = node.value
    return (node.id, *reversed(steps))


def chains_in(part: ast.AST, without: Collection[ast.AST] = ()) -> list[Chain]:
    """Return every maximal `name.attribute["item"]` in a part of a body but for those nodes, with repetitions."""
    chains: list[Chain] = []

    def visit(node: ast.AST, tail: tuple[str | Item, ...]) -> None:
        if node in without:
            return
        if isinstance(node, ast.Attribute):
            visit(node.value, (node.attr, *tail))
        elif is_item(node):
            assert isinstance(node.slice, ast.Constant)
            visit(node.value, (Item(node.slice.value), *tail))
        elif isinstance(node, ast.Name):
            # A name that is assigned is a local.
            chains.extend([(node.id, *tail)] if isinstance(node.ctx, ast.Load) else [])
        else:
            for child in ast.iter_child_nodes(node):
                visit(child, ())

    visit(part, ())
    return chains


def text_of(chain: tuple[str | Item, ...]) -> str:
    """Return the source text of a chain of attributes and items, as in `self.parts[0].mass`."""
    name, *steps = chain
    return str(name) + "".join(f"[{step.key!r}]" if isinstance(step, Item) else f".{step}" for step in steps)
