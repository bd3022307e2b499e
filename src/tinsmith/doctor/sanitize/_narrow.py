"""Narrow values: what begins as a literal is float32 for good, and so is a `vec3`: float64 values are rounded there."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator

from ...frontend import Columns
from ...ir import nodes, walk
from ...linter import Finding

_GIVEN = re.compile(r"(\w+)\s*=(?!=)")
_VECTORS = tuple(f"{kind}{size}" for kind in ("vec", "mat") for size in (2, 3, 4))
_SAID = re.compile(r"\s*\w+\s*:[^=]*=|.*\b(?:cast|f32)\(")


def narrow_values(kernel: nodes.Kernel, columns: Columns, module: str) -> Iterator[Finding]:
    """TS609, at literals and at vectors of the default type. What the source says to be float32 is meant so.

    `module` is what the kernel's file calls its engine.
    """
    yield from _locals(kernel, module)
    cut = (stmt.line for stmt in walk.statements(kernel.body) if any(map(_is_cut, walk.expressions(stmt))))
    for line in dict.fromkeys(cut):
        yield from _vector(kernel.path, line, columns, module)


def _vector(path: str, line: int, columns: Columns, module: str) -> Iterator[Finding]:
    """The first `tm.vec3(...)` of a statement in which float64 is rounded."""
    for name in _VECTORS:
        at, column = columns.operation(path, line, name)
        if column:
            words = f"`{name}` holds float32, and is given a float64 value: all but 24 of its 53 bits are lost"
            remedy = f"`{module}.Vector([...])`, which keeps float64, {_default(module)}"
            yield Finding("TS609", "warning", path, at, column, words, remedy)
            return


def _locals(kernel: nodes.Kernel, module: str) -> Iterator[Finding]:
    given = [one for one in walk.statements(kernel.body) if isinstance(one, nodes.Assign)]
    firsts: dict[str, nodes.Assign] = {}
    seen: set[int] = set()
    for one in given:
        first = firsts.setdefault(one.name, one)
        is_literal = kernel.locals[one.name] == "f32" and isinstance(first.value, nodes.Const)
        if is_literal and first.line not in seen and _is_rounded(one.value):
            seen.add(first.line)
            yield from _report_narrowing(kernel.path, first, one.line, module)


def _is_rounded(value: nodes.Expr) -> bool:
    """Whether a value, or what it is made of, is float64 and becomes float32."""
    return value.type == "f64" or _is_cut(value)


def _is_cut(value: nodes.Expr) -> bool:
    """Whether float64 becomes float32 in an expression."""
    casts = (one for one in walk.parts(value) if isinstance(one, nodes.Cast) and one.type == "f32")
    return any(one.value.type == "f64" and _is_variable(one.value) for one in casts)


def _is_variable(value: nodes.Expr) -> bool:
    return any(isinstance(one, nodes.Load | nodes.Local) for one in walk.parts(value))


def _report_narrowing(path: str, first: nodes.Assign, line: int, module: str) -> Iterator[Finding]:
    text = linecache.getline(path, first.line)
    if _SAID.match(text):
        return
    own = re.search(rf"\b{re.escape(first.name)}\b", text)
    match = own or _GIVEN.search(text)  # a function's local, or an entry of a vector, has a name that is not there
    name, column = (match[match.re.groups], match.start(match.re.groups) + 1) if match else (first.name, 0)
    words = f"`{name}` begins as a literal, so it is float32, and line {line} gives it a float64 value: "
    words += "all but 24 of its 53 bits are lost"
    is_vector = re.search(r"\b(?:vec|mat)[234]\(|\b(?:Vector|Matrix)\(", text)
    typed = f"`{module}.Vector([...], {module}.f64)`" if is_vector else f"`{module}.f64(0.0)`"
    yield Finding("TS609", "warning", path, first.line, column, words, f"say its type, {typed}, {_default(module)}")


def _default(module: str) -> str:
    return f"or start the engine with default_fp={module}.f64"
