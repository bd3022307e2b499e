"""The text of a kernel: what `parse_ir` reads again.

    kernel smooth
      array x: f32[1]
      array y: f32[1]
      locals i32: i
      locals f32: mean
      parallel for i in 1 .. (x.shape[0] - 1):  @5
        mean = (x[i - 1] + x[i + 1]) * 0.5  @6
        if mean > 0.0:  @7
          y[i] = mean  @7
        else:
          atomic add y[0], mean  @9

A number without a type is an i32 or, with a point, an f32; others say what they are, `0.5:f64`. So does an operation
whose type does not follow from its operands. `@5` is the line of the source.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from . import _nodes as nodes
from . import _types as types
from ._operators import COMPARISONS, SYMBOLS
from ._types import Type

PRECEDENCE: dict[str, int] = {
    "or": 1,
    "and": 2,
    **dict.fromkeys(COMPARISONS, 3),
    "|": 4,
    "^": 5,
    "&": 6,
    **dict.fromkeys(("<<", ">>", ">>>"), 7),
    **dict.fromkeys(("+", "-"), 8),
    **dict.fromkeys(("*", "/", "//", "%"), 9),
}
"""How strongly operators bind; all bind to the left."""

TIGHTEST = 10
FOR_OPTIONS = ("block_size", "vector_width", "may_race", "is_independent")
"""Fields of a `For` that are written in brackets after its ranges, unless they have their defaults."""
DEFAULTS = types.Defaults()


def print_ir(kernel: nodes.Kernel) -> str:
    """Return a kernel as text.

    Example:
        >>> print(print_ir(nodes.Kernel("one", "", {"y": nodes.Array("y", "f32", 0)}, {}, {},
        ...                             (nodes.Store("y", (), (), nodes.Const(1.0, "f32"), line=3),))), end="")
        kernel one
          array y: f32[0]
          y[] = 1.0  @3
    """
    lines = [f"kernel {kernel.name}", *(f"  {line}" for line in _print_header(kernel))]
    return "\n".join([*lines, *(f"  {line}" for line in print_block(kernel.body))]) + "\n"


def _print_header(kernel: nodes.Kernel) -> Iterator[str]:
    if kernel.path:
        yield f"file {kernel.path!r}"
    for array in kernel.arrays.values():
        yield _print_array(array, is_cell=array.name in kernel.cells)
    for name, (kind, dims) in kernel.arguments.items():
        yield f"argument {name}: {kind}{_print_dims(dims)}"
    for kind in dict.fromkeys(kernel.locals.values()):
        yield f"locals {kind}: {', '.join(name for name, one in kernel.locals.items() if one == kind)}"
    for name, sizes in kernel.block_memory.items():
        yield f"block_memory {name}: {', '.join(map(print_expression, sizes))}"
    for source in dict.fromkeys(kernel.source_names.values()):
        yield f"written {source}: {', '.join(name for name, one in kernel.source_names.items() if one == source)}"


def _print_array(array: nodes.Array, *, is_cell: bool) -> str:
    text = f"{'cell' if is_cell else 'array'} {array.name}: {array.type}[{array.rank}]{_print_dims(array.element)}"
    facts = {"field": array.label, "offset": array.offset, "dims": array.dims, "vector_width": array.vector_width}
    text += "".join(f" {name}={value!r}" for name, value in facts.items() if value)
    words = {"of_blocks": array.is_of_blocks, "clamped": array.is_clamped, "detached": not array.is_differentiable}
    return text + "".join(f" {word}" for word, holds in words.items() if holds)


def _print_dims(dims: Sequence[int]) -> str:
    return f" of {'x'.join(map(str, dims))}" if dims else ""


# Statements -----------------------------------------------------------------------------------


def print_block(body: Sequence[nodes.Stmt]) -> Iterator[str]:
    """Return the lines of statements, without the indentation of the first."""
    for one in body:
        first, *rest = print_statement(one)
        yield f"{first}  @{one.line}" if one.line else first
        yield from rest


def print_statement(one: nodes.Stmt) -> Iterator[str]:
    """Return the lines of a statement, the first without its line in the source."""
    match one:
        case nodes.If():
            yield f"if {print_expression(one.condition)}:"
            yield from _indent(one.body)
            if one.orelse:
                yield "else:"
                yield from _indent(one.orelse)
        case nodes.For():
            yield f"{'parallel ' * one.is_parallel}for {_print_ranges(one)}{_print_options(one)}:"
            yield from _indent(one.body)
        case nodes.While():
            yield "while:"
            yield from _indent(one.body)
        case nodes.Loop():
            yield f"{'parallel ' * one.is_parallel}loop {_print_ranges(one)}{_print_options(one)}:"
            for carried in one.carried:
                first, then = print_expression(carried.first), print_expression(carried.next)
                yield f"  carry {carried.head} = {first} then {then} last {carried.last} cell {carried.cell}"
            yield from _indent(one.body)
        case _:
            yield _print_plain(one)


def _indent(body: Sequence[nodes.Stmt]) -> Iterator[str]:
    return (f"  {line}" for line in print_block(body)) if body else iter(("  pass",))


def _print_ranges(one: nodes.For | nodes.Loop) -> str:
    ranges = ", ".join(f"{_print_tight(first)} .. {_print_tight(end)}" for first, end in one.bounds)
    # A loop in SSA form without names runs until its `exit`.
    return f"{', '.join(one.names)} in {ranges}" if one.names else "endlessly"


def _print_tight(expr: nodes.Expr) -> str:
    return print_expression(expr, TIGHTEST)


def _print_options(one: nodes.For | nodes.Loop) -> str:
    if isinstance(one, nodes.For):
        options = {name: getattr(one, name) for name in FOR_OPTIONS}
    else:
        exit_name = "" if one.exit is None else one.exit.name
        most = "" if one.most is None else print_expression(one.most)
        options = {"exit": exit_name, "most": most, "has_blocks": one.has_blocks}
    written = (name if value is True else f"{name} = {value}" for name, value in options.items() if value)
    text = "; ".join(written)
    return f" [{text}]" if text else ""


def _print_plain(one: nodes.Stmt) -> str:
    match one:
        case nodes.Assign():
            return f"{one.name} = {print_expression(one.value)}"
        case nodes.Draw():
            return f"{one.name} = random {one.type}"
        case nodes.Decompose():
            word = " descending" if one.is_descending else ""
            entries = ", ".join(map(print_expression, one.matrix))
            return f"{', '.join(one.results)} = decompose {one.function} {one.type}{word} of {entries}"
        case nodes.LocalArray():
            return f"array {one.name}: {one.type}[{one.length}]"
        case nodes.Store():
            return f"{'exchange ' * one.takes}{print_place(one)} = {print_expression(one.value)}"
        case nodes.Atomic():
            result = "" if one.result is None else f"{one.result} = "
            return f"{result}atomic {one.operator} {print_place(one)}, {print_expression(one.value)}"
        case nodes.Vote():
            return f"{one.result} = vote {one.operator} {one.value.name}"
    values = (getattr(one, name) for name in list_written_fields(type(one)))
    fields = [repr(value) if isinstance(value, str) else print_expression(value) for value in values]
    return type(one).__name__.lower() + (f"({', '.join(fields)})" if fields else "")


def list_written_fields(node: type) -> list[str]:
    """Return the fields of a statement's type that its text names: all but those that every statement has."""
    return [one.name for one in dataclasses.fields(node) if one.name not in ("line", "number")]


def print_place(one: nodes.Load | nodes.Store | nodes.Atomic) -> str:
    """Return the text of an element that is loaded or changed, as in `x[i, j]{0}`."""
    return f"{one.array}[{', '.join(map(print_expression, one.index))}]{_print_entry(one.entry)}"


def _print_entry(entry: Sequence[int]) -> str:
    return f"{{{', '.join(map(str, entry))}}}" if entry else ""


# Expressions ----------------------------------------------------------------------------------


def print_expression(expr: nodes.Expr, around: int = 0) -> str:
    """Return an expression; in parentheses where what is around binds more strongly."""
    match expr:
        case nodes.Const():
            return print_constant(expr)
        case nodes.Local():
            return expr.name
        case nodes.Argument():
            return expr.name + _print_entry(expr.entry)
        case nodes.Size():
            return f"{expr.array}.shape[{expr.axis}]" + _print_type(expr.type, Type.I32)
        case nodes.Load():
            return print_place(expr)
        case nodes.Cast():
            value = print_expression(expr.value)
            return f"bits({value}, {expr.type})" if expr.keeps_bits else f"{expr.type}({value})"
        case nodes.Select():
            values = map(print_expression, (expr.condition, expr.then, expr.otherwise))
            return f"select({', '.join(values)})" + _print_type(expr.type, expr.then.type)
        case nodes.Unary():
            usual = types.of_unary(expr.operator, expr.value.type, DEFAULTS)
            return f"{expr.operator}({print_expression(expr.value)})" + _print_type(expr.type, usual)
        case nodes.Binary():
            return _print_binary(expr, around)


def _print_binary(expr: nodes.Binary, around: int) -> str:
    suffix = _print_type(expr.type, types.of_operation(expr.operator, expr.left.type, expr.right.type, DEFAULTS))
    if expr.operator not in SYMBOLS:
        return f"{expr.operator}({print_expression(expr.left)}, {print_expression(expr.right)}){suffix}"
    strength = PRECEDENCE[expr.operator]
    # All operators bind to the left, so an equally strong one on the right needs parentheses: `a - (b - c)`.
    text = f"{print_expression(expr.left, strength)} {expr.operator} {print_expression(expr.right, strength + 1)}"
    return f"({text}){suffix}" if suffix or strength < around else text


def _print_type(kind: Type, usual: str) -> str:
    return "" if kind == usual else f":{kind}"


def print_constant(expr: nodes.Const) -> str:
    """Return a number with its type, where that is not i32 or f32."""
    if isinstance(expr.value, bool):
        return ("true" if expr.value else "false") + _print_type(expr.type, Type.U1)
    if isinstance(expr.value, float):
        text = repr(expr.value) if math.isfinite(expr.value) else str(expr.value)
        return text + _print_type(expr.type, Type.F32)
    return f"{expr.value}" + _print_type(expr.type, Type.I32)
