"""An engine's own instructions, by their names in the engine's package.

Functions that the engines' authors wrote in the language itself (`ti.math.mix`, `v.normalized()`) are not here: they
are lowered from their source, like a user's.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ...engines import BINARY_FUNCTIONS, UNARY_FUNCTIONS
from ...ir import PARTS, AtomicOperator, Deadly, Misfit, Operator, Part, Type, nodes, operators
from . import _assignments, _blocks, _constructors
from ._constructors import dtype
from ._logic import apply_logic
from ._lowering import Lowering
from ._matrix_operations import OPERATIONS, SQUARE, check_square
from ._values import ArrayValue, Matrix, Ranges, is_expression, is_number, plain, read_ranges


def _build_lowering(function: str) -> Callable[..., Matrix | tuple[Matrix, ...]]:
    def lower_decomposition(low: Lowering, A: Any, dt: Any = None) -> Matrix | tuple[Matrix, ...]:
        kind = low.ops.defaults.fp if dt is None else dtype(low, dt)
        if kind is None or kind not in (Type.F32, Type.F64):
            raise Misfit(f"`{function}` in {kind}")
        matrix = low.ops.tensor(A)
        shape = matrix.shape if isinstance(matrix, Matrix) else ()
        largest = low.language.largest_decomposed(function)
        if not isinstance(matrix, Matrix) or shape not in [(side, side) for side in range(2, largest + 1)]:
            raise Misfit(
                f"`{function}` of a matrix of shape {shape}: {low.engine.name} supports "
                f"square matrices of 2 to {largest} rows"
            )
        first, *others = _split(low, function, matrix, kind)
        return (first, *others) if others else first

    return lower_decomposition


def _split(low: Lowering, function: str, matrix: Matrix, kind: Type) -> tuple[Matrix, ...]:
    side = matrix.shape[0]
    parts = PARTS[function](side)
    locals_ = [[low.state.local(part.name, kind) for _ in part.entries] for part in parts]
    names = tuple(local.name for group in locals_ for local in group)
    # Of a 2 x 2 matrix, Taichi 1.7.4 returns the greatest eigenvalue first.
    is_descending = function == "sym_eig" and low.language.sorts_eigenvalues_down(side)
    low.state.emit(nodes.Decompose(function, matrix.entries, names, kind, is_descending, low.state.line))
    return tuple(_whole(part, group, kind) for part, group in zip(parts, locals_, strict=True))


def _whole(part: Part, entries: list[nodes.Local], kind: Type) -> Matrix:
    """Return a part of a decomposition as the engine does: a diagonal as a square matrix."""
    if not part.is_diagonal:
        return Matrix(part.shape, tuple(entries))
    zero, side = nodes.Const(0.0, kind), part.shape[0]
    return Matrix((side, side), tuple(entries[i] if i == j else zero for i in range(side) for j in range(side)))


LOWERED = {f"_funcs.{function}": _build_lowering(function) for function in PARTS}
"""The functions that lower decompositions, by the engines' names for them."""


UNARY = {
    **{name: Operator(sign) for name, sign in UNARY_FUNCTIONS.items()},
    "_floor": Operator.FLOOR,
    "_ceil": Operator.CEIL,
    "_round": Operator.ROUND,
}
ROUNDING = ("floor", "ceil", "round")
BINARY = {
    **{name: Operator(sign) for name, sign in BINARY_FUNCTIONS.items()},
    "logical_and": Operator.AND,
    "logical_or": Operator.OR,
}
FILLED = frozenset({"cols", "diag", "identity", "one", "rows", "unit", "zero"})
"""Functions of the matrix class that build a matrix."""


def apply_instruction(
    low: Lowering, name: str, function: Any, positional: list[Any], named: dict[str, Any], node: ast.expr
) -> Any:
    """Lower a call of an instruction; return NotImplemented for any other function."""
    room, _, last = name.rpartition(".")
    if room == "lang.ops":
        return _operation(low, last, function, positional, named)
    if room == "lang.matrix_ops" and last in OPERATIONS:
        return OPERATIONS[last](low, *positional, **named)
    if room == "lang.matrix_ops" and last in SQUARE:
        check_square(low, last, *positional, **named)
    if name == "lang.impl.stop_grad":
        return _stop_grad(low, node, *positional, **named)
    special = _SPECIAL.get(name)
    if special is not None:
        return special(low, *positional, **named)
    if room == "lang.matrix.Matrix":
        return _fill(low, last, positional, named)
    if low.language.function_of(function) is not None or room == "_funcs":
        return NotImplemented
    if low.state.is_static or low.state.frame.is_library:
        return plain(function(*positional, **named))
    raise low.make_refusal(f"`{ast.unparse(getattr(node, 'func', node))}`, which is {name} of {low.engine.name}", node)


def _operation(low: Lowering, name: str, function: Any, positional: list[Any], named: dict[str, Any]) -> Any:
    if name.startswith("atomic_") and name.removeprefix("atomic_") in operators.ATOMIC and len(positional) == 2:
        return _assignments.apply_atomic(low, AtomicOperator(name.removeprefix("atomic_")), *positional)
    if name == "random":
        return _random(low, *positional, **named)
    if name in ("max", "min"):
        return extreme(low, Operator(name), positional)
    if name == "cast":
        return _cast(low, *positional, **named)
    if name == "bit_cast":
        obj, kind = (*positional, *named.values())
        return low.ops.with_bits(obj, _wanted_dtype(low, kind))
    if all(_is_known(low, value) for value in (*positional, *named.values())):
        # The only one that both engines refuse outside a kernel.
        if name == "bit_shr":
            return low.ops.binary(Operator.SHIFT_RIGHT, *positional, *named.values())
        return plain(function(*positional, **named))
    if name in ROUNDING:
        return _round(low, Operator(name), *positional, **named)
    if name in ("select", "ifte"):
        return low.ops.select(*_in_order(positional, named, ("cond", "x1", "x2")))
    if name in UNARY:
        return low.ops.unary(UNARY[name], *positional)
    if name in BINARY:
        return _two(low, BINARY[name], *positional, *named.values())
    # Both engines end the process on `frexp`.
    raise Deadly("the function `frexp`", _INSTEAD_OF_FREXP) if name == "frexp" else Misfit(f"the function `{name}`")


_INSTEAD_OF_FREXP = (
    "Take the exponent from `floor(log(abs(x)) / log(2.0)) + 1.0`, or pass the results of `torch.frexp` as arguments"
)


def _two(low: Lowering, operator: Operator, left: Any, right: Any) -> Any:
    if operator in (Operator.AND, Operator.OR):
        return apply_logic(low, operator is Operator.AND, left, right)
    return low.binary(operator, left, right)


def _is_known(low: Lowering, value: Any) -> bool:
    return is_number(value) or low.language.rows_of(value) is not None


def _in_order(positional: list[Any], named: dict[str, Any], names: tuple[str, ...]) -> list[Any]:
    return [*positional, *(named[name] for name in names[len(positional) :])]


def extreme(low: Lowering, operator: Operator, values: list[Any]) -> Any:
    """Lower `max(a, b, c)` as the maximum of `a` and that of the others."""
    if len(values) == 1:
        return values[0]
    other = extreme(low, operator, values[1:])
    if is_number(values[0]) and is_number(other):
        return (max if operator is Operator.MAX else min)(values[0], other)
    return _two(low, operator, values[0], other)


def _cast(low: Lowering, obj: Any, dtype: Any) -> Any:
    return low.ops.cast(obj, _wanted_dtype(low, dtype))


def _wanted_dtype(low: Lowering, value: Any) -> Type:
    kind = _constructors.dtype(low, value)
    if kind is None:
        raise Misfit("None, which is not a dtype")
    return kind


def _round(low: Lowering, name: Operator, x: Any, dtype: Any = None) -> Any:
    result = low.ops.unary(name, x)
    return result if dtype is None else _cast(low, result, dtype)


def _random(low: Lowering, dtype: Any = float) -> Any:
    kind = _wanted_dtype(low, dtype)
    local = low.state.local("random", kind)
    low.state.emit(nodes.Draw(local.name, kind, low.state.line))
    return local


def _static(_low: Lowering, x: Any, *xs: Any) -> Any:
    for value in (x, *xs):
        if is_expression(value):
            raise Misfit("`static` of a value that is computed at run time")
    return [x, *xs] if xs else x


def _static_assert(_low: Lowering, cond: Any, msg: Any = None) -> Any:
    if not cond:
        raise Misfit(f"a `static_assert` that failed: {msg}")


def _ranges(_low: Lowering, *args: Any, axes: Any = None) -> Ranges:
    bounds = [tuple(arg) if isinstance(arg, list | tuple) else (0, arg) for arg in args]
    if any(len(bound) != 2 for bound in bounds):
        raise Misfit("a range of `ndrange` that is neither a number nor a pair (start, end)")
    order = () if axes is None else tuple(axes)
    if axes is not None and (any(map(is_expression, order)) or sorted(order) != list(range(len(bounds)))):
        raise Misfit(f"`ndrange` of {len(bounds)} dims whose `axes` are not a permutation of its dims")
    return Ranges(tuple((plain(first), plain(end)) for first, end in bounds), order=order)


def _group(low: Lowering, x: Any) -> Any:
    x = read_ranges(low.language, x)
    return replace(x, is_grouped=True) if isinstance(x, Ranges) else x


# As both engines define them (Taichi 1.7.4, Quadrants 1.3.3): the result has the shape and the type of `x * 0`.
def _zero(low: Lowering, x: Any) -> Any:
    return low.ops.binary(Operator.MUL, x, 0)


def _one(low: Lowering, x: Any) -> Any:
    return low.ops.binary(Operator.ADD, low.ops.binary(Operator.MUL, x, 0), 1)


def _loop_config(
    low: Lowering, *, serialize: bool = False, parallelize: Any = None, block_dim: Any = None, **_others: Any
) -> None:
    # A loop on one thread runs in order. Several settings may stand before one loop.
    low.state.is_serial_next = low.state.is_serial_next or bool(serialize) or parallelize == 1
    if block_dim is not None:
        if not isinstance(block_dim, int) or block_dim < 1:
            raise Misfit(f"`loop_config(block_dim={block_dim})`, which is not a positive integer")
        low.state.block_size_next = block_dim


def _stop_grad(low: Lowering, node: ast.expr, x: Any) -> None:
    array = x
    if low.engine.is_field(x):
        array = low.fields.array(x, ast.unparse(node.args[0] if isinstance(node, ast.Call) and node.args else node))
    if not isinstance(array, ArrayValue):
        raise Misfit("`stop_grad` of a value that is neither a field nor an array")
    low.state.stopped.add(array.array.name)


def _nothing(_low: Lowering, *_positional: Any, **_named: Any) -> None:
    return None


def _fill(low: Lowering, name: str, positional: list[Any], named: dict[str, Any]) -> Matrix:
    """Lower `ti.Vector.zero(dt, n)`, `one`, `unit(n, i, dt)`, `ti.Matrix.identity(dt, n)`, `diag(dim, val)`."""
    if name in ("zero", "one"):
        dt, n, *m = _in_order(positional, named, ("dt", "n", *(["m"] if "m" in named else [])))
        shape = (n, m[0]) if m and m[0] is not None else (n,)
        size = n if len(shape) == 1 else n * shape[1]
        return low.ops.build_matrix([int(name == "one")] * size, shape, _constructors.dtype(low, dt))
    if name == "unit":
        n, i, *dt = _in_order(positional, named, ("n", "i", *(["dt"] if "dt" in named else [])))
        return low.ops.build_matrix(
            [int(i == j) for j in range(n)], (n,), _constructors.dtype(low, dt[0] if dt else int)
        )
    if name == "identity":
        dt, n = _in_order(positional, named, ("dt", "n"))
        entries = [int(i == j) for i in range(n) for j in range(n)]
        return low.ops.build_matrix(entries, (n, n), _constructors.dtype(low, dt))
    if name == "diag":
        dim, val = _in_order(positional, named, ("dim", "val"))
        value = low.state.share(low.ops.scalar(val))
        return low.ops.build_matrix([value if i == j else 0 for i in range(dim) for j in range(dim)], (dim, dim), None)
    if name in ("rows", "cols"):
        matrix = low.ops.matrix(positional[0])
        return matrix if name == "rows" else OPERATIONS["transpose"](low, matrix)
    raise Misfit(f"`Matrix.{name}`")


_SPECIAL: dict[str, Callable[..., Any]] = {
    "lang.impl.static": _static,
    "lang.impl.static_assert": _static_assert,
    "lang.impl.static_print": _nothing,
    "lang.impl.grouped": _group,
    "lang._ndrange.ndrange": _ranges,
    "lang.impl.zero": _zero,
    "lang.impl.one": _one,
    "lang.misc.loop_config": _loop_config,
    # Hints to the compiler, which change no value of a dense field.
    "lang.misc.block_local": _nothing,
    "lang.misc.assume_in_range": lambda low, value, *_, **__: value,
    "lang.misc.no_activate": _nothing,
    "lang.matrix_ops.cast": _cast,
    "types.compound_types.vector": lambda low, *positional, **named: low.engine.lang.types.vector(*positional, **named),
    "types.compound_types.matrix": lambda low, *positional, **named: low.engine.lang.types.matrix(*positional, **named),
    **LOWERED,
    **_blocks.LOWERED,
}
