"""Structs taken apart: a kernel's parameter that is a struct becomes one parameter for each of its members."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TypeAlias

from ...source import copy_node, walk
from ._loops import NotRewritable, load

Path: TypeAlias = "tuple[str, ...]"
"""The way to a member: the struct's name, and the members that lead there."""
Members: TypeAlias = "Mapping[Path, str]"
"""Parameters by the way to them."""


def flatten_structs(tree: ast.FunctionDef, members: Members, types: Mapping[Path, str]) -> ast.FunctionDef:
    """A kernel that takes the members of structs instead of the structs.

    Where it uses one whole, in a call or by a method, the struct is made of its members there.

    Args:
        tree: the kernel.
        members: the members' own parameters.
        types: what the structs' types, and those of structs in them, are called in the kernel.

    Raises:
        NotRewritable: it assigns to a struct, or to a member of one.
    """
    if not types:
        return tree
    _refuse_changes(tree, types)
    twin = copy_node(tree)
    rewriter = _Rewriter(members, types)
    twin.body = [rewriter.visit(statement) for statement in twin.body]
    twin.args.args = [new for one in twin.args.args for new in _arguments(one, members)]
    return ast.fix_missing_locations(twin)


def _arguments(one: ast.arg, members: Members) -> list[ast.arg]:
    parts = [ast.arg(name) for path, name in members.items() if path[0] == one.arg]
    return parts or [one]


def _refuse_changes(tree: ast.FunctionDef, types: Mapping[Path, str]) -> None:
    for node in walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            owner = node
            while isinstance(owner, ast.Attribute | ast.Subscript):
                owner = owner.value
            if isinstance(owner, ast.Name) and (owner.id,) in types:
                raise NotRewritable(f"`{ast.unparse(node)}` is assigned to, and is the caller's", node)


class _Rewriter(ast.NodeTransformer):
    def __init__(self, members: Members, types: Mapping[Path, str]) -> None:
        self.members = members
        self.types = types

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        path = _path(node)
        is_part = path in self.members or path in self.types
        return ast.copy_location(self._build_member(path), node) if is_part else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(self._build_member((node.id,)), node) if (node.id,) in self.types else node

    def _build_member(self, path: Path) -> ast.expr:
        """A member's parameter, or a struct made of its members."""
        if path in self.members:
            return load(self.members[path])
        names = dict.fromkeys(one[len(path)] for one in self.members if one[: len(path)] == path)
        parts = [ast.keyword(name, self._build_member((*path, name))) for name in names]
        return ast.Call(load(self.types[path]), [], parts)


def _path(node: ast.expr) -> Path:
    """`camera.pose.turn` as names; empty for what does not begin with one."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before and isinstance(node, ast.Attribute) else ()
