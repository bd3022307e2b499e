"""Functions written in the language, inlined at their calls.

    y[i] = squared(x[i] + 1.0)     ->     v = x[i] + 1.0
                                          y[i] = v * v

An argument is copied into a local, unless the parameter is a template: then it is the very thing that the call names,
and the caller sees what the function stores there.
"""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Callable
from typing import Any

from ..._errors import TinsmithError
from ...engines import read_annotations
from ...ir import Deadly, Misfit, NotCovered, nodes
from .._read import Source
from . import _constructors, _early_returns
from ._lowering import Lowering
from ._state import Frame
from ._targets import find_stored_names
from ._values import ArrayValue, Matrix, Struct, is_expression, is_number

# Calls inside each other: enough for a recursion that `static` ends, and reached soon by one that never ends.
DEEPEST = 64


def inline_call(
    low: Lowering,
    function: Callable[..., Any],
    positional: list[Any],
    named: dict[str, Any],
    node: ast.expr,
    *,
    is_library: bool,
    is_method: bool = False,
    is_python: bool = False,
    is_real: bool = False,
) -> Any:
    """Emit the statements of a function for these arguments, and return its result.

    In a function in plain Python (`is_python`), branches are decided at compile time. A real function (`is_real`) may
    return early, and none of its loops is parallel.
    """
    source = low.read(function)
    # Another function of the language may end its recursion while it is compiled, a real one only at run time.
    is_recursive = is_real and any(frame.source.identity == source.identity for frame in low.state.frames)
    if is_recursive:
        raise low.make_refusal(f"a call of `{function.__name__}` from inside itself", node)
    if len(low.state.frames) > DEEPEST:
        raise low.make_refusal(f"more than {DEEPEST} calls inside each other, the last of `{function.__name__}`", node)
    given = _bind_arguments(low, function, positional, named, node)
    frame = Frame(source, [{}], is_library=is_library or low.state.frame.is_library, is_quiet=low.state.is_quiet)
    # Without an annotation, a method gets the object itself and not a copy of it.
    owner = source.parameters[0] if is_method and source.parameters[0] not in function.__annotations__ else None
    for name, value in given.items():
        is_itself = is_python or name == owner
        given[name] = value if is_itself else _convert_argument(low, source, function, name, value, frame)
    frame.scopes[0].update(given)
    state = low.state
    # Each statement inside sets `is_quiet` for itself; the caller's statement goes on with its own.
    outer = state.is_quiet, state.is_static
    frame.early = _early_returns.plan_early_returns(low, function, source.tree) if is_real else None
    state.frames.append(frame)
    state.is_static = is_python
    # Only loops of depth 0 are parallel.
    state.depth += is_real
    try:
        low.run(source.tree.body)
    except RecursionError:
        raise low.make_refusal(f"`{function.__name__}`, which calls itself or nests too many calls", node) from None
    except Exception as reason:
        # For a function of the engine, the error names the line of the user's call, not one inside the engine.
        if not is_library or state.frames[-2].is_library or not _is_followed_no_further(reason):
            raise
        if isinstance(reason, NotCovered) and reason.ends_process:
            raise low.make_refusal(Deadly(reason.construct, reason.remedy), node) from None
        words = f"`{ast.unparse(node)}`, a function of {low.engine.name}'s own that cannot be followed"
        raise low.make_refusal(words, node) from reason
    finally:
        state.frames.pop()
        state.depth -= is_real
        state.is_quiet, state.is_static = outer
    return frame.result


def _is_followed_no_further(reason: Exception) -> bool:
    """Return True if the front end, or an engine that runs a function outside its compiler, cannot go on."""
    return not isinstance(reason, TinsmithError | AssertionError)


def _bind_arguments(
    low: Lowering, function: Callable[..., Any], positional: list[Any], named: dict[str, Any], node: ast.expr
) -> dict[str, Any]:
    """Return the arguments by parameter name, defaults included."""
    try:
        bound = inspect.signature(function).bind(*positional, **named)
    except TypeError as reason:
        raise low.make_refusal(f"the call `{ast.unparse(node)}`: {reason}", node) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _convert_argument(
    low: Lowering, source: Source, function: Callable[..., Any], name: str, value: Any, frame: Frame
) -> Any:
    """Convert an argument to the value of the parameter in the function, by the parameter's annotation."""
    annotation = read_annotations(function).get(name)
    language = low.language
    if language.is_template(annotation) or language.is_array(annotation):
        return value
    if isinstance(value, ArrayValue) or low.engine.is_field(value):
        return value
    kind = _constructors.number_type(low, annotation)
    if kind is not None:
        value = low.ops.cast(value, kind)
    is_steady = frame.is_library or low.state.is_quiet
    # A parameter that the function stores to must be a copy, or the caller would see the stores.
    if _needs_no_copy(value, is_steady) and name not in low.fact(find_stored_names, source.tree):
        return value
    return low.state.bind_named(name, _constructors.convert_python_value(low, value), low.ops.scalar)


def _needs_no_copy(value: Any, is_steady: bool) -> bool:
    """Return True if a value is simple and cannot change before the function's result is used.

    `is_steady` says that nothing in the calling statement, the function included, changes the caller's locals.
    """
    if isinstance(value, Matrix):
        return all(_needs_no_copy(entry, is_steady) for entry in value.entries)
    if isinstance(value, Struct):
        return all(_needs_no_copy(member, is_steady) for member in value.members.values())
    if isinstance(value, nodes.Local) or is_number(value):
        return is_steady
    # Everything else, a load from memory too, may change or take time to compute twice.
    return isinstance(value, nodes.Const | nodes.Argument | nodes.Size)


def lower_return(low: Lowering, statement: ast.Return) -> None:
    """Lower a `return`: at the end of a function or of a branch that is known; in a real function, anywhere."""
    frame = low.state.frame
    if len(low.state.frames) == 1 and statement.value is not None:
        raise low.make_refusal(f"`{ast.unparse(statement)}` of a kernel", statement)
    if frame.early is not None:
        value = None if statement.value is None else _convert_result(low, frame.source, low.value(statement.value))
        _early_returns.leave(low, frame.early, frame, value)
        return
    if frame.branches or any(not is_static for is_static, _ in frame.loops):
        words = f"`{ast.unparse(statement)}` inside a loop or branch that is not static"
        remedy = "Assign the result to a variable there, and return it once, at the end of the function"
        raise low.make_refusal(Misfit(words, remedy), statement)
    frame.status = "return"
    if statement.value is None:
        return
    frame.result = _convert_result(low, frame.source, low.value(statement.value))


def _convert_result(low: Lowering, source: Source, value: Any) -> Any:
    """Convert a result to the return annotation: numbers, and those of a vector or matrix to a dtype."""
    annotation = read_annotations(source.function).get("return")
    if typing.get_origin(annotation) is tuple:
        annotation = typing.get_args(annotation)
    if isinstance(annotation, list | tuple):
        if not isinstance(value, list | tuple) or len(value) != len(annotation):
            count = f"{len(value)} values" if isinstance(value, list | tuple) else "one value"
            raise Misfit(f"a `return` of {count}, where the annotation lists {len(annotation)}")
        return tuple(_as(low, kind, item) for kind, item in zip(annotation, value, strict=True))
    return _as(low, annotation, value)


def _as(low: Lowering, annotation: Any, value: Any) -> Any:
    kind = _constructors.number_type(low, annotation)
    is_numeric = is_expression(value) or is_number(value) or isinstance(value, Matrix)
    return low.ops.cast(value, kind) if kind is not None and is_numeric else value
