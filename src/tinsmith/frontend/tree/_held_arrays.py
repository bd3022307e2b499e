"""Held arrays: torch tensors and NumPy arrays that a kernel reads as members of dataclasses become its parameters.

    def run(self, state, y):                       def run(state, y, state_w):
        for i in y:                          ->        for i in y:
            y[i] = self.gain * state.w[i]                  y[i] = self.gain * state_w[i]

Fields and numbers stay members. The object that a method belongs to becomes a name that the kernel captures.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...engines import Engine, walk
from .._field_arguments import LiveFieldPasser, free, pass_fields_as_arrays, rebuild_function
from .._fingerprints import Same, is_tensor
from .._nodes import resolve_callee
from .._read import Source
from ._loops import NotRewritable


@dataclass(frozen=True)
class HeldArray:
    """An array that a kernel reads as a member of a dataclass.

    Attributes:
        name: of the parameter that replaces it.
        owner: the dataclass, in which it is `attribute`.
        path: what the kernel calls it, `state.w`.
    """

    name: str
    owner: Any
    attribute: str
    path: str

    @property
    def value(self) -> Any:
        """The array that the dataclass holds now."""
        return getattr(self.owner, self.attribute)


def is_struct(value: Any) -> bool:
    """Return True for an object of a Python dataclass."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def pass_held_arrays(
    source: Source, engine: Engine, templates: Mapping[str, Any], owner: Any = None
) -> tuple[Source, list[HeldArray]]:
    """Return a kernel in which arrays that it reads as members of dataclasses are its last parameters; and the arrays.

    Functions that use them get them as arguments.

    Args:
        source: the kernel.
        engine: the engine of the functions that it calls.
        templates: the Python objects that parameters stand for.
        owner: the object of a method, whose first parameter becomes a name that the kernel captures.

    Raises:
        NotRewritable: the kernel assigns to such a member.
    """
    captured = {} if owner is None else {source.parameters[0]: owner}
    objects = {**captured, **templates}
    arrays = _HeldArrays(engine, source, objects)
    rewritten = pass_fields_as_arrays(source.with_objects(objects), arrays)
    held = [*arrays.held.values()]
    if not held:
        return source, held
    tree = rewritten.tree
    kept = [one for one in tree.args.args if one.arg not in captured]
    tree.args.args = [*kept, *(ast.arg(one.name) for one in held)]
    function = rebuild_function(source, ast.fix_missing_locations(tree), {**captured, **rewritten.names})
    return replace(source, function=function, tree=tree), held


class _HeldArrays(LiveFieldPasser):
    """Passes the arrays in dataclasses as arguments, and records those that the kernel uses in `held`."""

    def __init__(self, engine: Engine, source: Source, objects: Mapping[str, Any]) -> None:
        super().__init__(engine)
        self.held: dict[tuple[Same, str], HeldArray] = {}
        self._taken = source.all_names()
        self._paths = {Same(one): path for name, value in objects.items() for one, path in _list_structs(value, name)}
        self._early: dict[Any, frozenset[str]] = {}

    def array(self, source: Source, node: ast.expr) -> str:
        if not isinstance(node, ast.Attribute):
            return ""
        owner = source.value(node.value)
        if not is_struct(owner):
            return ""
        value = getattr(owner, node.attr, None)
        if not (is_tensor(value) or isinstance(value, np.ndarray)) or self._is_early(source, node):
            return ""
        if not isinstance(node.ctx, ast.Load):
            raise NotRewritable(f"the kernel assigns to `{ast.unparse(node)}`, which belongs to the caller", node)
        key = Same(owner), node.attr
        if key not in self.held:
            path = f"{self._paths.get(key[0]) or ast.unparse(node.value)}.{node.attr}"
            name = free("_".join(part for part in path.split(".") if part.isidentifier()), self._taken)
            self.held[key] = HeldArray(name, owner, node.attr, path)
        return self.held[key].name

    def _is_early(self, source: Source, node: ast.Attribute) -> bool:
        """Return True if Python uses the array at compile time: inside of `static`, or by one of its methods."""
        key = source.identity
        if key not in self._early:
            statics = (one for call in source.calls if resolve_callee(call) == "static" for one in walk(call))
            methods = (inner for inner, name in source.attributes_taken.items() if name != "shape")
            # As text, since this is asked of nodes of a copy, too.
            chains = (one for one in (*statics, *methods) if isinstance(one, ast.Attribute))
            self._early[key] = frozenset(map(ast.unparse, chains))
        return ast.unparse(node) in self._early[key]


def _list_structs(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield a dataclass and the dataclasses in it, with their paths."""
    if is_struct(value):
        yield value, path
        for one in dataclasses.fields(value):
            yield from _list_structs(getattr(value, one.name, None), f"{path}.{one.name}")
