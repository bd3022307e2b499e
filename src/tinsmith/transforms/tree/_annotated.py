"""Annotations of our own: a kernel's signature written for one set of dtypes and ranks.

This is what lets a kernel written with `ti.template()` fields run on torch tensors, and tells
the engine which arrays have a gradient without asking any tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ...source import copied, parse_expression


def annotated(tree: ast.FunctionDef, annotations: Mapping[str, str]) -> ast.FunctionDef:
    """A kernel with new annotations: their source, for every parameter."""
    twin = copied(tree)
    twin.returns = None
    for argument in twin.args.args:
        argument.annotation = parse_expression(annotations[argument.arg])
    return twin
