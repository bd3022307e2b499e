"""Narrow values: finds float64 values that are rounded to float32.

A local that begins as a literal is float32 for good, and so is a `vec3`.
"""

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


def find_narrow_values(kernel: nodes.Kernel, columns: Columns, module: str) -> Iterator[Finding]:
    """Yield findings (TS609) for literals and vectors of the default type that hold float64 values.

    Explicit types are intended, so they are not reported. `module` is the engine's name in the kernel's file.
    """
    yield from _locals(kernel, module)
    cut = (stmt.line for stmt in walk.statements(kernel.body) if any(map(_is_cut, walk.expressions(stmt))))
    for line in dict.fromkeys(cut):
        yield from _vector(kernel.path, line, columns, module)


def _vector(path: str, line: int, columns: Columns, module: str) -> Iterator[Finding]:
    """Yield a finding for the first `tm.vec3(...)` on a line, which rounds float64."""
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
    """Return True if a value is float64, or an operand of it is rounded from float64 to float32."""
    return value.type == "f64" or _is_cut(value)


def _is_cut(value: nodes.Expr) -> bool:
    """Return True if an expression rounds a float64 variable to float32."""
    casts = (one for one in walk.parts(value) if isinstance(one, nodes.Cast) and one.type == "f32")
    return any(one.value.type == "f64" and _is_variable(one.value) for one in casts)


def _is_variable(value: nodes.Expr) -> bool:
    return any(isinstance(one, nodes.Load | nodes.Local) for one in walk.parts(value))


def _report_narrowing(path: str, first: nodes.Assign, line: int, module: str) -> Iterator[Finding]:
    text = linecache.getline(path, first.line)
    if _SAID.match(text):
        return
    own = re.search(rf"\b{re.escape(first.name)}\b", text)
    match = own or _GIVEN.search(text)  # the name of a function's local or of a vector's entry is not on the line
    name, column = (match[match.re.groups], match.start(match.re.groups) + 1) if match else (first.name, 0)
    words = f"`{name}` begins as a literal, so it is float32, and line {line} gives it a float64 value: "
    words += "all but 24 of its 53 bits are lost"
    is_vector = re.search(r"\b(?:vec|mat)[234]\(|\b(?:Vector|Matrix)\(", text)
    typed = f"`{module}.Vector([...], {module}.f64)`" if is_vector else f"`{module}.f64(0.0)`"
    yield Finding("TS609", "warning", path, first.line, column, words, f"say its type, {typed}, {_default(module)}")


def _default(module: str) -> str:
    return f"or start the engine with default_fp={module}.f64"
