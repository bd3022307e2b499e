"""Calls: of Python's functions, of the engine's, of types, of functions written in the language."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Container
from types import FunctionType, MethodType
from typing import Any

from ...engines import module_name
from ...ir import REWRITE_LINE, Misfit, Operator, Type
from .. import lowering
from .._calls import is_breakpoint
from . import _constructors, _elements, _engine_functions
from ._lowering import Lowering
from ._matrix_operations import OPERATIONS
from ._stopped_gradients import without_derivative
from ._targets import list_items, unpack_starred
from ._values import ArrayValue, BoundFunction, Matrix, Ranges, Struct, is_expression, kind_of, plain


def lower_call(low: Lowering, node: ast.Call) -> Any:
    """Lower a call and return its value."""
    # No engine has these two functions: the printer marks the calls that stand for them (`codegen/_kernel.py`).
    if vars(node).get("is_norm"):
        return low.ops.unary(Operator.NORM, low.number(node.args[0]))
    if vars(node).get("is_stopped"):
        return without_derivative(low.number(node.args[0]))
    function = low.value(node.func)
    outer, name = low.state.is_static, low.language.name_of(function)
    is_atomic = name.startswith("lang.ops.atomic_")
    low.state.is_static = outer or name in ("lang.impl.static", "lang.impl.static_assert")
    try:
        positional = unpack_starred(low, node.args, low.python_value)
        if is_atomic and node.args and isinstance(node.args[0], ast.Subscript):
            # The entry itself, not what is read of it: its index may be known to the run alone.
            positional[0] = _elements.place(low, node.args[0])
        named: dict[str, Any] = {}
        for keyword in node.keywords:
            value = low.python_value(keyword.value)
            named.update(value if keyword.arg is None else {keyword.arg: value})
    finally:
        low.state.is_static = outer
    return apply(low, function, positional, named, node)


def apply(low: Lowering, function: Any, positional: list[Any], named: dict[str, Any], node: ast.expr) -> Any:
    """Apply a function to arguments and return its value."""
    given, given_named = positional, named
    positional, named = [plain(one) for one in given], {key: plain(one) for key, one in given_named.items()}
    if isinstance(function, BoundFunction):
        if function.function == "get_shape":
            return function.owner.shape
        return apply(low, function.function, [function.owner, *positional], named, node)
    if _is_one_of(_ARRANGING, function):
        return _call_python(function, positional, named)
    if _is_one_of(_BUILTINS, function):
        if named and function is not builtins.print:
            raise Misfit(f"`{function.__name__}` with the argument `{next(iter(named))}`")
        return _BUILTINS[function](low, positional)
    made = _constructors.construct(low, function, positional, named)
    if made is not NotImplemented:
        return made
    name = low.language.name_of(function)
    method = _matrix_method(low, name)
    if method is not None:
        return apply(low, method, positional, named, node)
    if name:
        known = _engine_functions.apply_instruction(low, name, function, positional, named, node)
        if known is not NotImplemented:
            return known
    written = low.language.function_of(function)
    if written is not None:
        owner = low.language.owner_of(function)
        first = [] if owner is None else [owner]
        values = [*first, *positional]
        is_library, is_method = low.engine.owns(function), low.language.is_method(function)
        is_real = low.language.is_real(function)
        return lowering.inline_call(
            low, written, values, named, node, is_library=is_library, is_method=is_method, is_real=is_real
        )
    # The engine's own functions in plain Python: they choose a function of the language by shape, and call it.
    if name.startswith("_funcs."):
        return lowering.inline_call(low, function, positional, named, node, is_library=True, is_python=True)
    return _ordinary(low, function, given, given_named, node)


def _matrix_method(low: Lowering, name: str) -> object | None:
    """Return the function behind a method called on the class, `ti.Vector.normalized(v)`, or None."""
    room, _, last = name.rpartition(".")
    is_method = room == "lang.matrix.Matrix" and last not in _engine_functions.FILLED
    return low.language.matrix_operation(last) if is_method else None


def _is_one_of(known: Container[Any], function: Any) -> bool:
    try:
        return function in known
    except TypeError:
        return False


def _ordinary(low: Lowering, function: Any, positional: list[Any], named: dict[str, Any], node: ast.expr) -> Any:
    """Call a Python function whose arguments are known at compile time."""
    if is_breakpoint(function):
        # What stops a kernel that Python runs changes nothing in what it computes.
        return None
    if not callable(function):
        raise Misfit(f"a call of {kind_of(function)}")
    if any(_depends_on_run(value) for value in (*positional, *named.values())):
        name = ast.unparse(getattr(node, "func", node))
        words = f"a call of the Python function `{name}` with a value computed at run time"
        lang = module_name(low.engine.name, low.state.frame.source.function)
        remedy = f"Decorate the function `{name}` with `@{lang}.func`"
        if getattr(function, "__name__", "") == "<lambda>":
            remedy = f"{remedy}, and write it as a `def`"
        is_users = isinstance(function, FunctionType | MethodType)
        raise low.make_refusal(Misfit(words, remedy) if is_users else words, node)
    try:
        return function(*positional, **named)
    except Exception as reason:
        # A user's function may raise anything; the refusal names its line in the kernel.
        raise low.make_refusal(
            f"`{ast.unparse(node)}`, which raises {type(reason).__name__}: {reason}", node
        ) from reason


def _depends_on_run(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_depends_on_run(item) for item in value)
    if isinstance(value, dict):
        return any(_depends_on_run(item) for item in value.values())
    return is_expression(value) or isinstance(value, Matrix | Struct | ArrayValue | BoundFunction | Ranges)


# Python's own functions, which the engines know ----------------------------------------------------


def _build_conversion(python: type, kind: Callable[[Lowering], Type]) -> Callable[[Lowering, list[Any]], Any]:
    def convert(low: Lowering, values: list[Any]) -> Any:
        if len(values) == 1 and low.engine.matrix_entries(values[0]) is not None:
            # A captured vector: the engines convert each number of it.
            values = [low.ops.tensor(values[0])]
        if len(values) != 1 or not low.ops.is_run_time(values[0]):
            return python(*values)
        return low.ops.cast(values[0], kind(low))

    return convert


def _total(low: Lowering, values: list[Any]) -> Any:
    total: Any = values[1] if len(values) > 1 else 0
    for item in list_items(values[0]):
        total = low.ops.binary(Operator.ADD, total, item)
    return total


def _call_python(function: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    """Call a Python function that only arranges values, such as `zip`; the items may be known or not."""
    if any(is_expression(value) or isinstance(value, Matrix | ArrayValue) for value in positional):
        remedy = "Index the value instead, as `v[k]` in a loop over `static(range(n))`"
        raise Misfit(f"`{function.__name__}` of a value that is computed at run time", remedy)
    return function(*positional, **named)


def _measure_length(value: Any) -> int:
    """Return how many items a value has. Raise Misfit for an array or a number: engines compute no length of these."""
    if isinstance(value, Matrix):
        return value.shape[0]
    try:
        return len(value)
    except TypeError:
        remedy = "Write `.shape[0]`" if isinstance(value, ArrayValue) else REWRITE_LINE
        raise Misfit(f"`len` of {kind_of(value)}", remedy) from None


_ARRANGING = frozenset({tuple, list, zip, enumerate})
_BUILTINS: dict[Any, Callable[[Lowering, list[Any]], Any]] = {
    builtins.min: lambda low, values: _engine_functions.extreme(low, Operator.MIN, values),
    builtins.max: lambda low, values: _engine_functions.extreme(low, Operator.MAX, values),
    builtins.int: _build_conversion(int, lambda low: low.ops.defaults.ip),
    builtins.float: _build_conversion(float, lambda low: low.ops.defaults.fp),
    builtins.bool: _build_conversion(bool, lambda low: Type.U1),
    builtins.abs: lambda low, values: (
        low.ops.unary(Operator.ABS, *values) if low.ops.is_run_time(*values) else abs(*values)
    ),
    builtins.pow: lambda low, values: low.ops.binary(Operator.POW, *values),
    builtins.len: lambda _low, values: _measure_length(values[0]),
    builtins.sum: _total,
    builtins.any: lambda low, values: OPERATIONS["any"](low, *values),
    builtins.all: lambda low, values: OPERATIONS["all"](low, *values),
    builtins.print: lambda _low, _values: None,
}
