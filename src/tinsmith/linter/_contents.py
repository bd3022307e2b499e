"""Contents of a file: how many kernels it defines, and which of its ops have no example, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from ..source import parse_module, resolve_callee, walk
from ._scan import scan_file, statements_in_blocks


class FileContents(NamedTuple):
    """What a file defines.

    Attributes:
        kernels: how many kernels, in functions and classes too.
        ops_without_examples: names of ops at its top level that get no example there.
    """

    kernels: int
    ops_without_examples: tuple[str, ...]


def describe_file(path: str, text: str) -> FileContents:
    """Count the kernels of a file, and name its ops without examples.

    Raises:
        SyntaxError: it is no Python.
    """
    module = parse_module(text, path)
    kernels = sum(subject.is_kernel for subject in scan_file(path, text))
    with_examples = {
        node.value.id
        for node in walk(module)
        if isinstance(node, ast.Attribute) and node.attr == "example" and isinstance(node.value, ast.Name)
    }
    return FileContents(kernels, tuple(name for name in _op_names(module) if name not in with_examples))


def _op_names(module: ast.Module) -> Iterator[str]:
    """`conv` of `@ts.op(...) def conv`, and of `conv = ts.op(...)(kernel)`."""
    for node in statements_in_blocks(module.body):
        if isinstance(node, ast.FunctionDef) and any(_makes_op(one) for one in node.decorator_list):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _makes_op(node.value.func):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _makes_op(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and resolve_callee(node) == "op"
