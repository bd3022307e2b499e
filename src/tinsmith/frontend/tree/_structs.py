"""Structs taken apart: a kernel's parameter that is a struct becomes one parameter for each of its members."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TypeAlias

from .._nodes import replace_nodes, root
from .._walk import copy_node, walk
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

    def replace(node: ast.AST) -> ast.AST | None:
        path = _path(node)
        return _build_member(path, members, types) if path in members or path in types else None

    twin = copy_node(tree)
    twin.body = [replace_nodes(statement, replace) for statement in twin.body]
    twin.args.args = [new for one in twin.args.args for new in _arguments(one, members)]
    return ast.fix_missing_locations(twin)


def _arguments(one: ast.arg, members: Members) -> list[ast.arg]:
    parts = [ast.arg(name) for path, name in members.items() if path[0] == one.arg]
    return parts or [one]


def _refuse_changes(tree: ast.FunctionDef, types: Mapping[Path, str]) -> None:
    for node in walk(tree):
        is_target = isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load)
        if is_target and (root(node),) in types:
            raise NotRewritable(f"`{ast.unparse(node)}` is assigned to, and is the caller's", node)


def _build_member(path: Path, members: Members, types: Mapping[Path, str]) -> ast.expr:
    """A member's parameter, or a struct made of its members."""
    if path in members:
        return load(members[path])
    names = dict.fromkeys(one[len(path)] for one in members if one[: len(path)] == path)
    parts = [ast.keyword(name, _build_member((*path, name), members, types)) for name in names]
    return ast.Call(load(types[path]), [], parts)


def _path(node: ast.AST) -> Path:
    """`camera.pose.turn` as names; empty for what does not begin with one."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before and isinstance(node, ast.Attribute) else ()
