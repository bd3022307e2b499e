"""Slips that run: a parameter in place of a global, and a parenthesis that closes too early."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ...engines import parse_lines
from ...frontend import walk
from .._finding import Finding
from .._subject import Subject


def hidden_globals(subject: Subject) -> Iterator[Finding]:
    """TS503. Calls of an op leave arguments out, so only plain kernels are looked at."""
    if not subject.is_kernel or subject.spec is not None:
        return
    arguments = subject.tree.args.args[len(subject.objects) :]
    for place, argument in enumerate(arguments):
        name = argument.arg
        if name not in subject.source.used_names or name in subject.source.assigned_names or name in subject.arrays:
            continue
        line = hidden_line(subject, name)
        if line and _is_always_zero(subject, name, place):
            words = f"`{name}` is the kernel's parameter, and every call in this file gives it 0: "
            words += f"the `{name}` of line {line}, which it hides, is not read"
            remedy = f"{subject.tree.name}(..., {name}={name}); or leave out the parameter"
            yield subject.finding("TS503", "info", argument, words, remedy)


@lru_cache(maxsize=4)
def _module(lines: tuple[str, ...]) -> ast.Module:
    """A file's tree."""
    return parse_lines(line.rstrip("\n") + "\n" for line in lines)


def hidden_line(subject: Subject, name: str) -> int:
    """The line at which the file gives a global of that name a number, or what a call makes; 0 where it does not."""
    if not any(line.startswith(name) for line in subject.lines):  # most files: they are not parsed
        return 0
    for one in _module(subject.lines).body:
        if isinstance(one, ast.Assign) and len(one.targets) == 1 and isinstance(one.targets[0], ast.Name):
            is_value = isinstance(one.value, ast.Call | ast.BinOp) or (
                isinstance(one.value, ast.Constant) and isinstance(one.value.value, int | float) and one.value.value
            )
            if one.targets[0].id == name and is_value:
                return one.lineno
    return 0


def _is_always_zero(subject: Subject, name: str, place: int) -> bool:
    """Whether the file calls the kernel, and always with the literal 0 for a parameter."""
    module, kernel = _module(subject.lines), subject.tree.name
    given: list[ast.expr | None] = []
    for node in walk(module):
        if isinstance(node, ast.Call) and kernel in (getattr(node.func, "id", ""), getattr(node.func, "attr", "")):
            by_name = next((word.value for word in node.keywords if word.arg == name), None)
            given.append(node.args[place] if place < len(node.args) else by_name)
    return bool(given) and all(isinstance(one, ast.Constant) and one.value == 0 for one in given)


def dropped_arithmetic(subject: Subject) -> Iterator[Finding]:
    """TS504: `atomic_add(y, a) ** 2`, where `atomic_add(y, a ** 2)` was meant."""
    for spot in subject.spots:
        if isinstance(spot.statement, ast.Expr):
            for call, meant in _operands(spot.statement.value, subject):
                words = f"what `{subject.resolve_builtin(call)}` returned is used in "
                words += f"`{subject.text(spot.statement.value)}`, "
                words += "whose result is not used: the parenthesis closes too early"
                yield subject.finding("TS504", "error", call, words, meant)


def _operands(node: ast.expr, subject: Subject) -> Iterator[tuple[ast.Call, str]]:
    """Atomics that an expression calculates with, each with what was meant."""
    if isinstance(node, ast.UnaryOp):
        yield from _operands(node.operand, subject)
    if not isinstance(node, ast.BinOp):
        return
    for side in (node.left, node.right):
        yield from _operands(side, subject)
        if isinstance(side, ast.Call) and subject.resolve_builtin(side).startswith("atomic_") and len(side.args) == 2:
            target, value = side.args
            parts = (value, node.right) if side is node.left else (node.left, value)
            meant = ast.Call(side.func, [target, ast.BinOp(parts[0], node.op, parts[1])], [])
            yield side, ast.unparse(meant)
