"""Annotations of our own: a kernel's signature written for one set of dtypes and ranks.

This is what lets a kernel written with `ti.template()` fields run on torch tensors, makes a
scalar differentiable (`m` becomes the 0-d array `m[None]`), and tells the engine which
arrays have a gradient without asking any tensor.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable, Mapping


def annotated(tree: ast.FunctionDef, annotations: Mapping[str, str], lifted: Iterable[str] = ()) -> ast.FunctionDef:
    """A kernel with new annotations.

    Args:
        tree: the kernel.
        annotations: source of the annotation for every parameter.
        lifted: scalar parameters that become 0-d arrays: each use `m` turns into `m[None]`.
    """
    twin = copy.deepcopy(tree)
    for argument in twin.args.args:
        argument.annotation = ast.parse(annotations[argument.arg], mode="eval").body
    lifter = _Lift(frozenset(lifted))
    twin.body = [lifter.visit(statement) for statement in twin.body]
    return twin


class _Lift(ast.NodeTransformer):
    """Turns each read of a lifted scalar into a read of its only element."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names or not isinstance(node.ctx, ast.Load):
            return node
        return ast.Subscript(node, ast.Constant(None), ast.Load())
