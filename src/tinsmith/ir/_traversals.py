"""Traversals made from the grammar: for each node type, functions that read and replace what its fields hold.

They are compiled once, as the methods of a dataclass are, because passes call them a million times for a large kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from . import _nodes as nodes

_ROLES = {
    "Expr": "operand",
    "Local": "operand",
    "Inner": "inner",
    "InnerLocal": "inner",
    "Block": "body",
    "Defined": "result",
    "Loaded": "loaded",
    "Changed": "changed",
}
"""What a field holds, by its type."""


class Field(NamedTuple):
    """A field that holds other things of the IR.

    `role` is one of `_ROLES`. `holds` says how many of them: "one", "optional", "many", "pairs", or "parts", whose own
    fields hold them.
    """

    name: str
    role: str
    holds: str


def describe_fields(node: type) -> tuple[Field, ...]:
    """Return the fields of a node type that hold other things of the IR, in their order."""
    return tuple(one for field in fields(node) for one in _describe(field.name, str(field.type)))


def _describe(name: str, annotation: str) -> Iterator[Field]:
    # The types of fields are texts, since `_nodes` defers the evaluation of annotations.
    is_optional, annotation = annotation.endswith(" | None"), annotation.removesuffix(" | None")
    element = annotation.removeprefix("tuple[").removesuffix(", ...]")
    if annotation in _ROLES:
        yield Field(name, _ROLES[annotation], "optional" if is_optional else "one")
    elif element in _ROLES:
        yield Field(name, _ROLES[element], "many")
    elif element == "tuple[Expr, Expr]":
        yield Field(name, "operand", "pairs")
    elif element == "CarriedLocal":
        yield Field(name, "", "parts")


_PARTS = describe_fields(nodes.CarriedLocal)


def _getters(*roles: str) -> dict[type, Callable[[Any], tuple[Any, ...]]]:
    """Return functions that read what a node holds in some roles, by the types of nodes that hold anything in them."""
    getters = {}
    for node in nodes.NODE_TYPES:
        items = [item for field in describe_fields(node) if (item := _list_items(field, roles))]
        if items:
            # A field that is a tuple is returned as it is: `(*node.index,)` would copy it at each call.
            is_tuple = len(items) == 1 and items[0].startswith("*node.")
            getters[node] = _compile("lambda node: " + (items[0][1:] if is_tuple else f"({', '.join(items)},)"))
    return getters


def _list_items(field: Field, roles: Sequence[str]) -> str:
    """Return what a field holds in some roles, as text of items of a tuple; "" if it holds nothing in them."""
    value = f"node.{field.name}"
    if field.holds == "parts":
        inner = "".join(f"part.{one.name}, " for one in _PARTS if one.role in roles)
        return f"*[item for part in {value} for item in ({inner})]" if inner else ""
    if field.role not in roles:
        return ""
    return {
        "one": value,
        "optional": f"*(() if {value} is None else ({value},))",
        "many": f"*{value}",
        "pairs": f"*[item for pair in {value} for item in pair]",
    }[field.holds]


def _setters(*roles: str) -> dict[type, Callable[[Any, tuple[Any, ...]], Any]]:
    """Return functions that copy a node with other things in some roles, which are given in the order of its getter."""
    setters = {}
    for node in _getters(*roles):
        held = {field.name: field for field in describe_fields(node) if _list_items(field, roles)}
        # Arguments are computed in the order of the fields, as the getter lists them.
        arguments = [_take(held[one.name], roles) if one.name in held else f"node.{one.name}" for one in fields(node)]
        made = f"{node.__name__}({', '.join(arguments)})"
        setters[node] = _compile(f"lambda node, new: (lambda take: {made})(iter(new).__next__)")
    return setters


def _take(field: Field, roles: Sequence[str]) -> str:
    """Return the text of a field's new value, taken from the items that are left."""
    value = f"node.{field.name}"
    inner = ", ".join("take()" if one.role in roles else f"part.{one.name}" for one in _PARTS)
    return {
        "one": "take()",
        "optional": f"None if {value} is None else take()",
        "many": f"tuple([take() for _ in {value}])",
        "pairs": f"tuple([(take(), take()) for _ in {value}])",
        "parts": f"tuple([CarriedLocal({inner}) for part in {value}])",
    }[field.holds]


def _compile(text: str) -> Any:
    # Compiled text, since a closure for each field takes twice as long (docs/about/decisions/ir.md). The text is made
    # of names of the grammar alone.
    return eval(text, dict(vars(nodes)))


GET_OPERANDS, SET_OPERANDS = _getters("operand", "inner"), _setters("operand", "inner")
GET_OUTER, GET_INNER = _getters("operand"), _getters("inner")
GET_BODIES, SET_BODIES = _getters("body"), _setters("body")
GET_RESULTS, SET_RESULTS = _getters("result"), _setters("result")
GET_LOADED, GET_CHANGED = _getters("loaded"), _getters("changed")
