"""Paths: the name, attributes and items by which a kernel's source reaches a Python value; and what it asks of a Python
object that it names as a whole.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TypeAlias

from ..._errors import KernelError
from ...engines import Engine
from .._fingerprints import MISSING, Item, is_steady
from .._nodes import is_item, unwrap_call
from .._read import Source, read

Chain: TypeAlias = "tuple[Any, ...]"
"""A name, then attributes and items (`Item`)."""

_UNFOLLOWED = (
    ast.Lambda,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Import,
    ast.ImportFrom,
    ast.Global,
    ast.Nonlocal,
    ast.Try,
    ast.With,
    ast.Match,
)
"""Statements and expressions of a Python function that bind names otherwise than by assigning them."""
_REFLECTIVE = frozenset(["super", "globals", "locals", "eval", "exec", "__class__"])
"""Names by which a Python function reads what it does not name."""


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


def find_tested(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of a statement or expression that are used only for their type or truth value."""
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test) | ast.Assert(test):
            yield unwrap_call(test, "static")
        case ast.BoolOp(values=values):
            yield from (unwrap_call(value, "static") for value in values)
        case ast.UnaryOp(ast.Not(), operand):
            yield unwrap_call(operand, "static")
        case ast.Compare(left, [ast.Is() | ast.IsNot()], [ast.Constant(None)]):
            yield unwrap_call(left, "static")
        case ast.Call(ast.Name("isinstance" | "type" | "callable"), [tested, *_]):
            yield tested


def has_truth_value(value: Any) -> bool:
    """Return True if the truth value of an object depends on what it holds."""
    return hasattr(type(value), "__bool__") or hasattr(type(value), "__len__")


def read_python_function(value: Any, engine: Engine) -> Source | None:
    """Return the source of a user's Python function; None for other values, and if the source hides what it reads."""
    # A wrapper's source would be that of the function that it wraps.
    if not isinstance(value, FunctionType) or engine.owns(value) or is_steady(value) or hasattr(value, "__wrapped__"):
        return None
    try:
        source = read(value)
    except KernelError:
        return None
    is_hidden = any(isinstance(node, _UNFOLLOWED) for node in source.nodes) or source.used_names & _REFLECTIVE
    return None if is_hidden or _takes_more(source) else source


def _takes_more(source: Source) -> bool:
    """Return True if there are parameters that `Source.parameters` does not list."""
    arguments = source.tree.args
    return bool(arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.posonlyargs)
