"""Contents of a file, read without running it: kernels, ops without examples, and what has a gradient to print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeGuard

from ..frontend import resolve_callee
from ..spec import Spec
from ._modules import parse_file, walk_file
from ._names import statements_in_blocks
from ._scan import read_spec, scan_file
from ._subject import Subject

_OP = re.compile(r"op(?<!\wop)[\s\\]*\(")
"""What stands in every file that makes an op."""


class FileContents(NamedTuple):
    """What a file defines.

    Attributes:
        kernels: how many kernels, in functions and classes too.
        ops_without_examples: names of ops at its top level that get no example there.
    """

    kernels: int
    ops_without_examples: tuple[str, ...]


class Showable(NamedTuple):
    """A kernel or an op at the top level of a file, whose gradient can be printed.

    Attributes:
        name: `conv`, or `Spring.step` for a method of a class.
        signature: the spec of an op, the parameters of a kernel.
        needs_spec: it is a kernel whose annotations leave the rank of an array open.
    """

    name: str
    signature: str
    needs_spec: bool = False


def describe_file(path: str, text: str, subjects: Iterable[Subject]) -> FileContents:
    """Count the kernels of a file, which are among `subjects`, and name its ops without examples.

    Raises:
        SyntaxError: it is no Python.
    """
    module = parse_file(path, text)
    kernels = sum(subject.is_kernel for subject in subjects)
    if _OP.search(text) is None:  # most files
        return FileContents(kernels, ())
    with_examples = {
        node.value.id
        for node in walk_file(module)
        if isinstance(node, ast.Attribute) and node.attr == "example" and isinstance(node.value, ast.Name)
    }
    ops = (name for name, node in _definitions(module.body) if _is_op(node) and "." not in name)
    return FileContents(kernels, tuple(name for name in ops if name not in with_examples))


def find_showable(path: str, text: str) -> list[Showable]:
    """Find the kernels and ops that a file defines at its top level, or in a class there, in the order of its lines.

    Left out is what the text shows to have no gradient that can be printed: kernels that write to none of their
    arrays, and ops with template arguments or with a dim `...`.

    Raises:
        SyntaxError: it is no Python.
    """
    module = parse_file(path, text)
    kernels = {subject.tree.lineno: subject for subject in scan_file(path, text) if subject.is_kernel}
    by_name = {subject.tree.name: subject for subject in kernels.values()}
    showable: list[Showable | None] = []
    for name, node in _definitions(module.body):
        if isinstance(node, ast.Assign):
            showable.append(_describe_assigned_op(name, node, by_name))
        elif node.lineno in kernels:
            describe = _describe_op if _is_op(node) else _describe_kernel
            showable.append(describe(name, kernels[node.lineno]))
    return [one for one in showable if one is not None]


def _definitions(statements: list[ast.stmt], owner: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.Assign]]:
    """Yield functions and assignments at the top level and in classes, each with the name that a caller uses."""
    for node in statements_in_blocks(statements):
        if isinstance(node, ast.FunctionDef):
            yield f"{owner}{node.name}", node
        elif isinstance(node, ast.Assign):
            yield from ((f"{owner}{one.id}", node) for one in node.targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.ClassDef):
            yield from _definitions(node.body, f"{owner}{node.name}.")


def _describe_kernel(name: str, kernel: Subject) -> Showable | None:
    arrays = [parameter for parameter, one in kernel.declared.items() if one.kind == "array"]
    templates = [parameter for parameter, one in kernel.declared.items() if one.kind == "template"]
    if not any(one in kernel.roles and kernel.roles[one].is_written for one in (*arrays, *templates)):
        return None
    is_open = bool(templates) or any(kernel.declared[one].rank is None for one in arrays)
    parameters = (one for one, facts in kernel.declared.items() if facts.kind != "object")
    return Showable(name, ", ".join(parameters), is_open)


def _describe_op(name: str, kernel: Subject | None, spec: Spec | None = None) -> Showable | None:
    spec = spec or (kernel.spec if kernel else None)
    if spec is None:
        return Showable(name, "")
    names = {item.name for item in spec.items}
    declared = kernel.declared if kernel else {}
    if any(one.kind == "template" and parameter not in names for parameter, one in declared.items()):
        return None
    return None if any(item.has_rest for item in spec.items) else Showable(name, str(spec))


def _describe_assigned_op(name: str, node: ast.Assign, kernels: Mapping[str, Subject]) -> Showable | None:
    """Describe an op that an assignment makes: `conv = ts.op("x[n] -> y[n]")(kernel)`, or one of `ts.chain`."""
    call = node.value
    if not isinstance(call, ast.Call):
        return None
    if _makes_op(call.func):
        kernel = kernels.get(call.args[0].id) if call.args and isinstance(call.args[0], ast.Name) else None
        return _describe_op(name, kernel, read_spec(call.func))
    spec = read_spec(call) if resolve_callee(call) == "chain" else None
    return spec and _describe_op(name, None, spec)


def _is_op(node: ast.FunctionDef | ast.Assign) -> bool:
    """Return True for a definition that makes an op: `@ts.op(...) def conv`, or `conv = ts.op(...)(kernel)`."""
    if isinstance(node, ast.FunctionDef):
        return any(map(_makes_op, node.decorator_list))
    return isinstance(node.value, ast.Call) and _makes_op(node.value.func)


def _makes_op(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and resolve_callee(node) == "op"
