"""Assignments: to locals, to entries of vectors, to members, to elements of arrays; and atomics on them."""

from __future__ import annotations

import ast
from typing import Any

from ...codegen import ATOMIC_AUGMENTED, BINARY
from ...ir import AtomicOperator, Misfit, nodes, operators, walk
from . import _blocks, _constructors, _elements
from ._lowering import Lowering
from ._state import is_place
from ._targets import give, list_items
from ._values import DynamicEntry, Matrix, Scalar, Struct, is_expression, is_number, kind_of, map_numbers


def lower_assign(low: Lowering, statement: ast.Assign) -> None:
    """Lower `a = value`, `a = b = value` or `a, x[i] = value`."""
    value = low.value(statement.value)
    if low.state.is_static or low.is_static(statement.value):
        # `a = ti.static(x)` makes `a` another name of `x`, not a copy.
        for target in statement.targets:
            give(low, target, value)
        return
    pairs = [pair for target in statement.targets for pair in _pairs(low, target, value)]
    # In `a, b = b, a` both values are read before either name changes. No value can read a name that is new.
    if len(pairs) > 1 and not all(_is_new(low, target) for target, _ in pairs):
        value = _freeze_value(low, value)
        pairs = [pair for target in statement.targets for pair in _pairs(low, target, value)]
    for target, item in pairs:
        assign(low, target, item)


def lower_annotated_assign(low: Lowering, statement: ast.AnnAssign) -> None:
    """Lower `a: ti.f32 = value`."""
    if statement.value is None or not isinstance(statement.target, ast.Name):
        raise low.make_refusal(f"`{ast.unparse(statement)}`", statement)
    kind = low.scalar_type(low.value(statement.annotation))
    if kind is None:
        raise low.make_refusal(f"the annotation `{ast.unparse(statement.annotation)}`", statement)
    assign(low, statement.target, low.ops.cast(low.value(statement.value), kind))


def _pairs(low: Lowering, target: ast.expr, value: Any) -> list[tuple[ast.expr, Any]]:
    """Pair each target with its value."""
    if not isinstance(target, ast.Tuple | ast.List):
        return [(target, value)]
    values = list_items(value)
    if len(values) != len(target.elts):
        raise low.make_refusal(f"an assignment of {len(values)} values to the targets `{ast.unparse(target)}`", target)
    return list(zip(target.elts, values, strict=True))


def _is_new(low: Lowering, target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and not low.state.find(target.id)[0]


def _freeze_value(low: Lowering, value: Any) -> Any:
    """Return a value that later assignments do not change: copy numbers that they might change into locals."""

    def keep(number: Any) -> Any:
        is_steady = is_number(number) or isinstance(number, nodes.Const | nodes.Argument | nodes.Size)
        return number if is_steady else low.state.bind("part", number)

    return map_numbers(value, keep)


def assign(low: Lowering, target: ast.expr, value: Any) -> None:
    """Assign a value to one target."""
    state = low.state
    if isinstance(target, ast.Name):
        is_declared, place = state.find(target.id)
        if target.id in state.frame.fixed:
            raise low.make_refusal(f"an assignment to the parameter `{target.id}`", target)
        if not is_declared:
            _declare(low, target.id, value)
            return
    elif isinstance(target, ast.Subscript):
        place = _elements.place(low, target)
    else:
        place = low.value(target)
    if not is_place(place):
        raise low.make_refusal(f"an assignment to `{ast.unparse(target)}`", target)
    store(low, place, value)


def _declare(low: Lowering, name: str, value: Any) -> None:
    value = _blocks.name_array(low, name, value)
    low.state.let(name, low.state.bind_named(name, _constructors.convert_python_value(low, value), low.ops.scalar))


def store(low: Lowering, place: Any, value: Any) -> None:
    """Store a value entry by entry. What it reads is what was there before the first entry was stored."""
    if isinstance(place, DynamicEntry):
        _store_picked(low, place, value)
        return
    for target, number in _flatten_places(low, place, value):
        _write(low, target, number)


def _store_picked(low: Lowering, place: DynamicEntry, value: Any) -> None:
    """Store to the entry at a run-time index: a select for each local, a branch for each element of memory."""
    number = low.state.bind("part", low.ops.scalar(value))
    place = _steady(low, place)
    for index in place.matrix.indices:
        entry, hit = place.matrix[index], _elements.hits(low, place, index)
        if isinstance(entry, nodes.Load) or low.state.is_cell(entry):
            # Other iterations may change the other entries: storing what was read of them would undo that.
            with low.state.block() as written:
                _write(low, entry, number)
            low.state.emit(nodes.If(hit, tuple(written), (), low.state.line))
        else:
            _write(low, entry, nodes.Select(hit, low.ops.cast(number, entry.type), entry, entry.type))


def _steady(low: Lowering, place: DynamicEntry) -> DynamicEntry:
    """Copy an index that a store to its own matrix could change into a local: `v[v[0]] = 1`."""
    entries = place.matrix.entries

    def freeze(index: Any) -> Any:
        is_disturbed = is_expression(index) and any(_reads(index, entry) for entry in entries)
        return low.state.bind("part", index) if is_disturbed else index

    return DynamicEntry(place.matrix, tuple(freeze(index) for index in place.index))


def _flatten_places(low: Lowering, place: Any, value: Any) -> list[tuple[Any, Scalar]]:
    """Pair scalar places with numbers. A number that reads a place stored before it is first copied into a local."""
    pairs = _match_places(low, place, value)
    kept: list[tuple[Any, Scalar]] = []
    # `v = Vector([v.y, v.x])` stores `v.x` before `v.y`, whose number is the old `v.x`.
    for k, (target, number) in enumerate(pairs):
        is_disturbed = any(_reads(number, earlier) for earlier, _ in pairs[:k])
        kept.append((target, low.state.bind("part", number) if is_disturbed else number))
    return kept


def _match_places(low: Lowering, place: Any, value: Any) -> list[tuple[Any, Scalar]]:
    if isinstance(place, Struct):
        value = _constructors.convert_python_value(low, value)
        members = value.members if isinstance(value, Struct) else value
        if not isinstance(members, dict):
            raise Misfit(f"an assignment of {kind_of(value)} to a struct")
        if set(members) != set(place.members):
            names = ", ".join(members), ", ".join(place.members)
            raise Misfit(f"an assignment of a struct with the members {names[0]} to one with the members {names[1]}")
        return [pair for name, member in place.members.items() for pair in _match_places(low, member, members[name])]
    tensor = low.ops.tensor(value)
    if isinstance(place, Matrix):
        if not isinstance(tensor, Matrix):
            # One number for all entries, so it is computed once.
            tensor = Matrix(place.shape, (low.state.share(tensor),) * len(place.entries))
        if tensor.shape != place.shape:
            raise Misfit(f"an assignment of a value of shape {tensor.shape} to one of shape {place.shape}")
        return list(zip(place.entries, tensor.entries, strict=True))
    if isinstance(tensor, Matrix):
        raise Misfit(f"an assignment of a value of shape {tensor.shape} to a number")
    return [(place, tensor)]


def _reads(number: Scalar, target: Any) -> bool:
    """Return True if a number depends on what a store to `target` may change."""
    return any(_is_touched(part, target) for part in walk.parts(number))


def _is_touched(part: Scalar, target: Any) -> bool:
    if isinstance(part, nodes.Load) and isinstance(target, nodes.Load) and part.array == target.array:
        # Indices that are written differently, `x[i]` and `x[j]`, may name one element.
        return part.index != target.index or part.entry == target.entry
    return isinstance(part, nodes.Local) and part == target


def _write(low: Lowering, target: Any, number: Scalar) -> None:
    if isinstance(target, nodes.Load):
        low.state.emit(nodes.Store(target.array, target.index, target.entry, number, low.state.line))
    elif isinstance(target, nodes.Local) and target.name not in low.state.loop_names:
        # The local becomes memory of the kernel when all of the body is lowered (`Lowering.kernel`).
        low.state.cells |= {target.name} if low.state.is_cell(target) else set()
        low.state.emit(nodes.Assign(target.name, number, low.state.line))
    else:
        raise Misfit("an assignment to a loop variable", "Assign to a local that begins with its value")


def lower_augmented_assign(low: Lowering, statement: ast.AugAssign) -> None:
    """Lower `target += value` and other augmented assignments."""
    target = statement.target
    place = _elements.place(low, target) if isinstance(target, ast.Subscript) else low.value(target)
    if (isinstance(target, ast.Name) and target.id in low.state.frame.fixed) or not is_place(place):
        raise low.make_refusal(f"an assignment to `{ast.unparse(target)}`", statement)
    value = low.value(statement.value)
    # To the engines `x[i] += v` is an atomic, but `x[i] *= v` a load and a store.
    name = ATOMIC_AUGMENTED.get(type(statement.op))
    if name is not None:
        apply_atomic(low, name, place, value, is_wanted=False)
        return
    present = _elements.read(low, place)
    if isinstance(statement.op, ast.MatMult):
        raise low.make_refusal(f"`{ast.unparse(statement)}`", statement)
    store(low, place, low.binary(BINARY[type(statement.op)], present, value))


def apply_atomic(low: Lowering, name: AtomicOperator, place: Any, value: Any, *, is_wanted: bool = True) -> Any:
    """Apply an atomic operation to a place; return what it held before."""
    if not is_place(place) or isinstance(place, Struct):
        raise Misfit(f"an atomic `{name}` on an expression that is neither a variable nor an element of an array")
    if isinstance(place, DynamicEntry):
        return _change_dynamic_entry(low, name, place, value, is_wanted)
    results = [
        _change_entry(low, name, target, low.ops.cast(number, target.type), is_wanted)
        for target, number in _flatten_places(low, place, value)
    ]
    return Matrix(place.shape, tuple(results)) if isinstance(place, Matrix) else results[0]


def _change_dynamic_entry(low: Lowering, name: AtomicOperator, place: DynamicEntry, value: Any, is_wanted: bool) -> Any:
    """Apply an atomic to the entry at a run-time index."""
    number = low.state.bind("part", low.ops.cast(low.ops.scalar(value), place.matrix.entries[0].type))
    place = _steady(low, place)
    # Assigned before the branches: a local that begins in one would end with it.
    before = low.state.bind("before", _elements.read(low, place)) if is_wanted else None
    for index in place.matrix.indices:
        with low.state.block() as written:
            result = _change_entry(low, name, place.matrix[index], number, is_wanted)
            if before is not None:
                _write(low, before, result)
        low.state.emit(nodes.If(_elements.hits(low, place, index), tuple(written), (), low.state.line))
    return before


def _change_entry(low: Lowering, name: AtomicOperator, target: Any, number: Scalar, is_wanted: bool) -> Scalar:
    state = low.state
    if isinstance(target, nodes.Load) or state.is_cell(target):
        result = state.local("before", target.type) if is_wanted else None
        old = result.name if result else None
        place = (target.array, target.index, target.entry) if isinstance(target, nodes.Load) else (target.name, (), ())
        state.cells |= {target.name} if isinstance(target, nodes.Local) else set()
        state.emit(nodes.Atomic(name, *place, number, old, state.line))
        return result or target
    # No other iteration has this local, so the engines make an ordinary operation of the atomic.
    before = state.bind("before", target) if is_wanted else target
    _write(low, target, low.ops.binary(operators.ATOMIC[name], target, number))
    return before
