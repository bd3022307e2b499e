"""Members: elements of fields of structs in one form, `particles.mass[i]` also for `particles[i].mass`.

In that form each member is an array of its own for every analysis, as it is in memory, and members are not confused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ..engines import copy_node, walk
from ..frontend import replace_nodes

_WRITTEN = "tinsmith_written"
_COMPONENTS = frozenset("xyzwrgbastpq")
_OF_VECTORS = frozenset({"n", "m", "shape", "dtype", "entries", "grad", "dual"})
"""Attributes of vectors, matrices and arrays, which are no members of structs."""


def chain_text(node: ast.AST) -> str:
    """Return the text of a name or a chain of attributes, `self.x.y`; "" for other expressions."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def find_struct_fields(nodes: Sequence[ast.AST]) -> frozenset[str]:
    """Return the texts of fields, `self.particles`, whose elements have members, judging by the names of these."""
    return frozenset(text for text, names in _find_members(nodes) if not is_swizzle(names[0]))


def put_members_first(definition: ast.FunctionDef, structs: frozenset[str]) -> None:
    """Rewrite `particles[i].mass` to `particles.mass[i]` in a function, in place, for the fields in `structs`."""
    if structs:
        _Rewriter(structs).visit(definition)


def restore_members(node: ast.AST) -> ast.AST:
    """Return a node as its author wrote it, `particles[i].mass`; the node itself if nothing in it was rewritten."""
    if not any(hasattr(one, _WRITTEN) for one in walk(node)):
        return node
    if hasattr(node, _WRITTEN):
        return restore_members(getattr(node, _WRITTEN))

    def restore(one: ast.AST) -> ast.AST | None:
        written = getattr(one, _WRITTEN, None)
        return None if written is None else restore_members(written)

    return replace_nodes(copy_node(node), restore)


def is_member_element(node: ast.AST) -> bool:
    """Return True for an element of a member that was rewritten: its entry `[0]` is one of a vector or matrix."""
    return hasattr(node, _WRITTEN)


def _find_members(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, list[str]]]:
    """Yield the field's text `p` and the members [`a`, `b`] for each `p[i].a.b` among the nodes of a file."""
    inner = {node.value for node in nodes if isinstance(node, ast.Attribute)}
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node not in inner:
            chain, names = _split(node, is_called=node in called)
            if chain is not None and names:
                yield chain_text(chain.value), names


def _split(node: ast.Attribute, *, is_called: bool) -> tuple[ast.Subscript | None, list[str]]:
    """Return `p[i]` and the names of members of `p[i].a.b`; None for what is no element of a field."""
    names: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        names.insert(0, inner.attr)
        inner = inner.value
    names = names[:-1] if is_called else names
    # `p[i].pos.x` is a component of the vector `p[i].pos`.
    last = next((k for k, name in enumerate(names) if name in _OF_VECTORS or (k and is_swizzle(name))), len(names))
    is_element = isinstance(inner, ast.Subscript) and bool(chain_text(inner.value))
    return (inner if is_element else None), names[:last]  # type: ignore[return-value]  # a subscript


def is_swizzle(name: str) -> bool:
    """Return True if a name consists of components of a vector, as `xy` does."""
    return _COMPONENTS.issuperset(name)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, structs: frozenset[str]) -> None:
        self._structs = structs

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.Attribute):
            return self._attribute(node, is_called=False)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node.func = self._attribute(node.func, is_called=True)
            node.args = [self.visit(one) for one in node.args]  # type: ignore[misc]  # expressions
            node.keywords = [self.visit(one) for one in node.keywords]  # type: ignore[misc]
            return node
        return self.generic_visit(node)

    def _attribute(self, node: ast.Attribute, *, is_called: bool) -> ast.expr:
        element, names = _split(node, is_called=is_called)
        if element is None or not names or chain_text(element.value) not in self._structs:
            self.generic_visit(node)
            return node
        element.slice = self.visit(element.slice)  # type: ignore[assignment]  # an expression
        return self._replace(node, len(names))

    def _replace(self, node: ast.Attribute, count: int) -> ast.expr:
        """Return an attribute with the element in its first `count` names behind the last of these."""
        chain: list[ast.Attribute] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner)
            inner = inner.value
        assert isinstance(inner, ast.Subscript)
        member, written = inner.value, chain[count - 1]
        for one in chain[:count]:
            member = ast.copy_location(ast.Attribute(member, one.attr, ast.Load()), one)
        new = ast.copy_location(ast.Subscript(member, inner.slice, written.ctx), written)
        setattr(new, _WRITTEN, written)
        if count == len(chain):
            return new
        chain[count].value = new
        return node
