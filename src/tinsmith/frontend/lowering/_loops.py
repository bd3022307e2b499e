"""Loops: over ranges, over arrays, static ones, and `while`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...ir import Misfit, NotCovered, Operator, Type, nodes
from . import _elements
from ._lowering import Lowering
from ._targets import find_stored_names, give, list_items
from ._values import ArrayValue, Matrix, Ranges, Scalar, kind_of, read_ranges

Bounds = tuple[tuple[Scalar, Scalar], ...]


@contextmanager
def _inside(low: Lowering, *, is_static: bool) -> Iterator[None]:
    """Open the body of a loop, which `break` and `continue` in it refer to."""
    frame = low.state.frame
    frame.loops.append([is_static, 0])
    try:
        yield
    finally:
        frame.loops.pop()


def over(low: Lowering, loop: ast.For) -> None:
    """Lower a `for` loop over a range, an array, a field or a static list."""
    if loop.orelse:
        raise low.make_refusal("`else` of a `for`", loop)
    if isinstance(loop.iter, ast.IfExp):
        # One whose condition is static was made a branch when the kernel was read.
        chosen, condition = ast.unparse(loop.iter), ast.unparse(loop.iter.test)
        words = f"the loop over `{chosen}`, where `{condition}` is computed at run time"
        raise low.make_refusal(Misfit(words, f"Write `if {condition}:` with a loop in each branch"), loop)
    if low.is_static(loop.iter):
        _unroll(low, loop)
    elif _is_range(loop.iter):
        assert isinstance(loop.iter, ast.Call)
        _over_range(low, loop, loop.iter.args)
    else:
        name = low.callee_name(loop.iter)
        value = read_ranges(low.language, low.value(loop.iter))
        if isinstance(value, Ranges):
            _over_ranges(low, loop, value)
        else:
            _over_array(low, loop, value, is_grouped=name == "lang.impl.grouped")


def _is_range(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"


def _unroll(low: Lowering, loop: ast.For) -> None:
    frame = low.state.frame
    values = read_ranges(low.language, low.value(loop.iter))
    items = [_vector(low, item) for item in values] if isinstance(values, Ranges) and values.is_grouped else values
    for item in list_items(items):
        with low.state.scope(), _inside(low, is_static=True):
            # `for i in static(ndrange(3))` gives numbers, not tuples of one.
            one = item[0] if isinstance(values, Ranges) and not values.is_grouped and _is_one(loop, item) else item
            give(low, loop.target, one)
            low.run(loop.body)
        # `continue` ends one copy of the body, `break` all that follow; a `return` ends the function too.
        if frame.status == "continue":
            frame.status = ""
        if frame.status == "break":
            frame.status = ""
            return
        if frame.status:
            return


def _is_one(loop: ast.For, item: tuple[Any, ...]) -> bool:
    return isinstance(loop.target, ast.Name) and len(item) == 1


def _vector(low: Lowering, index: tuple[int, ...]) -> Any:
    return low.ops.matrix(list(index))


def _over_range(low: Lowering, loop: ast.For, arguments: list[ast.expr]) -> None:
    if not isinstance(loop.target, ast.Name):
        raise _make_variables_refusal(low, loop, 1)
    if len(arguments) not in (1, 2):
        words = f"`{ast.unparse(loop.iter)}`, where a loop's `range` takes 1 or 2 arguments and has no step"
        raise low.make_refusal(Misfit(words, "Loop over `range(n)` and compute the index, `i = 2 * k`"), loop)
    bounds = [_cast_bound(low, low.number(argument)) for argument in arguments]
    first = bounds[0] if len(bounds) == 2 else nodes.Const(0, Type.I32)
    name = loop.target.id
    # Both engines ignore `i += 2` in the body (Taichi 1.7.4, Quadrants 1.3.3). A local changes, as in Python.
    _emit_loop(
        low, loop, (name,), ((first, bounds[-1]),), [Type.I32 if name in low.fact(find_stored_names, loop) else None]
    )


def _cast_bound(low: Lowering, number: Scalar) -> Scalar:
    if number.type[0] == "f":
        raise Misfit("a float as a bound of a loop")
    return low.ops.cast(number, Type.I32)


def _over_ranges(low: Lowering, loop: ast.For, ranges: Ranges) -> None:
    starts = [low.ops.scalar(first) for first, _ in ranges.bounds]
    # The engines count in i32 and add the start: a variable has the type of that sum.
    kinds = [low.ops.binary(Operator.ADD, nodes.Const(0, Type.I32), start).type for start in starts]
    bounds = tuple(
        (_cast_bound(low, s), _cast_bound(low, low.ops.scalar(end)))
        for s, (_, end) in zip(starts, ranges.bounds, strict=True)
    )
    names = _names(low, loop, len(bounds), is_grouped=ranges.is_grouped)
    changed = low.fact(find_stored_names, loop)
    if ranges.is_grouped:
        own: list[Type | None] = [Type.I32 if ast.unparse(loop.target) in changed else None] * len(names)
    else:
        own = [
            None if kind == Type.I32 and name not in changed else kind for name, kind in zip(names, kinds, strict=True)
        ]
    _emit_loop(low, loop, names, bounds, own, ranges.order)


def _over_array(low: Lowering, loop: ast.For, value: Any, *, is_grouped: bool) -> None:
    array = _elements.array_of(
        low, value, loop.iter.args[0] if is_grouped and isinstance(loop.iter, ast.Call) else loop.iter
    )
    if array is None:
        array = _of_struct_field(low, value, loop)
    # Only the engine knows which elements of a sparse field are active.
    if not array.is_dense:
        raise low.make_refusal(f"the loop over `{ast.unparse(loop.iter)}`, a sparse field", loop)
    first = [low.ops.scalar(start) for start in array.first]
    ends = [
        low.ops.scalar(low.ops.binary(Operator.ADD, start, size) if start else size)
        for start, size in zip(array.first, array.shape, strict=True)
    ]
    names = _names(low, loop, len(ends), is_grouped=is_grouped)
    bounds = tuple((_cast_bound(low, start), _cast_bound(low, end)) for start, end in zip(first, ends, strict=True))
    changed = low.fact(find_stored_names, loop)
    is_vector = is_grouped and isinstance(loop.target, ast.Name) and loop.target.id in changed
    own: list[Type | None] = [Type.I32 if is_vector or name in changed else None for name in names]
    _emit_loop(low, loop, names, bounds, own)


def _of_struct_field(low: Lowering, value: Any, loop: ast.For) -> ArrayValue:
    """Return the first field of numbers in a field of structs, whose members all have the same indices."""
    label = ast.unparse(loop.iter)
    facts = low.language.struct_of(value) if low.engine.is_field(value) else None
    if facts is None:
        words = f"the loop over `{label}`, {kind_of(value)}"
        raise low.make_refusal(Misfit(words, "Loop over a range, an array or a field"), loop)
    while facts is not None:
        name, value = next(iter(facts.members.items()))
        label = f"{label}.{name}"
        facts = low.language.struct_of(value)
    return low.fields.array(value, label)


def _names(low: Lowering, loop: ast.For, rank: int, *, is_grouped: bool) -> tuple[str, ...]:
    if isinstance(loop.target, ast.Name):
        if is_grouped:
            return tuple(f"{loop.target.id}_{axis}" for axis in range(rank))
        names: tuple[str, ...] = (loop.target.id,)
    else:
        assert isinstance(loop.target, ast.Tuple)
        names = tuple(part.id for part in loop.target.elts if isinstance(part, ast.Name))
    if len(names) != rank:
        raise _make_variables_refusal(low, loop, rank)
    return names


def _make_variables_refusal(low: Lowering, loop: ast.For, rank: int) -> NotCovered:
    words = f"loop variables `{ast.unparse(loop.target)}` for the {rank} dim(s) of `{ast.unparse(loop.iter)}`"
    return low.make_refusal(Misfit(words, "Use one loop variable per dim"), loop)


def _emit_loop(
    low: Lowering,
    loop: ast.For,
    names: tuple[str, ...],
    bounds: Bounds,
    kinds: list[Type | None],
    order: tuple[int, ...] = (),
) -> None:
    """Emit a run-time loop. A variable with a kind becomes a local of that type: it is not i32, or the body changes it.

    `order` lists the variables from the outermost loop to the innermost one, if that is not their own order.
    """
    state = low.state
    # As in the engines: loops inside another loop or a branch run in order.
    is_parallel = state.depth == 0 and not state.is_serial_next
    block_size = state.block_size_next if is_parallel else 0
    # Settings hold for one loop.
    state.is_serial_next, state.block_size_next = False, 0
    state.is_parallel = state.is_parallel or is_parallel
    line = state.line
    own = tuple(state.fresh(name) for name in names)
    # Nothing may be assigned to a counter itself (`_assignments._write`).
    state.loop_names |= set(own)
    nest = [(own[place], bounds[place]) for place in order or range(len(own))]
    counters, limits = tuple(name for name, _ in nest), tuple(bound for _, bound in nest)
    if is_parallel:
        state.parallel = nodes.For(counters, limits, (), True, line, block_size=block_size)
    with state.block() as written, state.scope(), _inside(low, is_static=False):
        variables: list[Any] = [nodes.Local(name, Type.I32) for name in own]
        for axis, kind in enumerate(kinds):
            if kind is not None:
                variables[axis] = state.bind(own[axis], low.ops.cast(variables[axis], kind))
        for name, variable in zip(names, variables, strict=True):
            state.let(name, variable)
        if isinstance(loop.target, ast.Name) and loop.target.id not in names:
            state.let(loop.target.id, Matrix((len(own),), tuple(variables)))
        low.run(loop.body)
    # Whatever left the body, statements after the loop may be reached.
    state.frame.status = ""
    state.is_parallel = state.is_parallel and not is_parallel
    state.parallel = None if is_parallel else state.parallel
    # Over an array without dims, once. The adjoint took a loop without names for one that a condition ends.
    if not own:
        counters, limits = (state.fresh("once"),), ((nodes.Const(0, Type.I32), nodes.Const(1, Type.I32)),)
    state.emit(nodes.For(counters, limits, tuple(written), is_parallel, line, block_size=block_size))


def while_true(low: Lowering, loop: ast.While) -> None:
    """Lower a `while` to a loop whose body begins with the test of the condition."""
    if loop.orelse:
        raise low.make_refusal("`else` of a `while`", loop)
    line = low.state.line
    with low.state.block() as written, low.state.scope(), _inside(low, is_static=False):
        condition = low.ops.truth(low.number(loop.test))
        if condition != nodes.Const(True, Type.U1):
            low.state.emit(nodes.If(nodes.Unary(Operator.NOT, condition, Type.U1), (nodes.Break(line),), (), line))
        low.run(loop.body)
    low.state.frame.status = ""
    low.state.emit(nodes.While(tuple(written), line))
