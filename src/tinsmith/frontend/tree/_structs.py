"""Structs as parameters: one that is a struct becomes a parameter for each of the struct's members.

    def f(camera, x):                                     def f(camera_focal, camera_eye, x):
        for i in x:                                           for i in x:
            x[i] = camera.focal * dist(camera)     ->             x[i] = camera_focal * dist(
                                                                      Camera(focal=camera_focal, eye=camera_eye))

A member is a number or an array, which an op can pass and differentiate; a struct is neither.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TypeAlias

from ...engines import copy_node, walk
from .._nodes import replace_nodes, root
from ._loops import NotRewritable, load

Path: TypeAlias = "tuple[str, ...]"
"""The path to a member: the struct's name, then names of members."""
Members: TypeAlias = "Mapping[Path, str]"
"""Parameters by their paths."""


def flatten_structs(tree: ast.FunctionDef, members: Members, types: Mapping[Path, str]) -> ast.FunctionDef:
    """Return a kernel that takes the members of structs instead of the structs.

    Where it uses a whole struct, in a call or by a method, the struct is built from its members there.

    Args:
        tree: the kernel.
        members: the parameters for the members.
        types: the kernel's names of the types of the structs, and of structs in them.

    Raises:
        NotRewritable: the kernel assigns to a struct, or to a member of one.
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
    """Return the parameter of a member, or a call that builds a struct from its members."""
    if path in members:
        return load(members[path])
    names = dict.fromkeys(one[len(path)] for one in members if one[: len(path)] == path)
    parts = [ast.keyword(name, _build_member((*path, name), members, types)) for name in names]
    return ast.Call(load(types[path]), [], parts)


def _path(node: ast.AST) -> Path:
    """Return the names in `camera.pose.turn`, or () for an expression that does not begin with a name."""
    if isinstance(node, ast.Name):
        return (node.id,)
    before = _path(node.value) if isinstance(node, ast.Attribute) else ()
    return (*before, node.attr) if before and isinstance(node, ast.Attribute) else ()
