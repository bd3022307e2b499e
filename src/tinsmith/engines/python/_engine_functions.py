"""Python implementations of the engines' built-in functions, by their names in the engine's package, and of Python's.

Functions that the engines' authors wrote in the language itself (`ti.math.mix`, `v.normalized()`) are not here: their
source is run, like that of a user's function.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ..._errors import KernelError, refusal
from .._operators import BINARY_FUNCTIONS, UNARY_FUNCTIONS
from ._containers import Ranges
from ._decompositions import compute_svd
from ._memory import ArrayView
from ._numbers import KINDS
from ._run import Run
from ._values import Matrix


def _unary(name: str) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        rule = run.operations.unary(name)

        def operate(value: Any) -> Any:
            value = run.capture(value)
            return rule(run.let(value) if not isinstance(value, Matrix) else value)

        return operate

    return build


def _binary(name: str) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        rule = run.operations.binary(name)
        return lambda left, right: rule(_convert_operand(run, left), _convert_operand(run, right))

    return build


def _convert_operand(run: Run, value: Any) -> Any:
    """Convert an operand: built-in functions, unlike operators, treat Python numbers as numbers of the kernel."""
    return value if type(value) in KINDS or isinstance(value, Matrix) else run.let(run.capture(value))


def _rounding(name: str) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        rule = run.operations.unary(name)

        def round_value(x: Any, dtype: Any = None) -> Any:
            result = rule(_convert_operand(run, x))
            return result if dtype is None else run.operations.cast(result, _dtype(run, dtype))

        return round_value

    return build


def _dtype(run: Run, value: Any) -> str:
    kind = run.dtype_name(value)
    if kind is None:
        raise TypeError(f"expected a dtype, got {value!r}")
    return kind


def _logic(*, is_and: bool) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        to_truth = run.operations.binary("!=")
        rule = run.operations.binary("&" if is_and else "|")
        return lambda left, right: rule(
            to_truth(_convert_operand(run, left), 0), to_truth(_convert_operand(run, right), 0)
        )

    return build


def _cast(run: Run) -> Callable[..., Any]:
    return lambda obj, dtype: run.operations.cast(obj, _dtype(run, dtype))


def _bit_cast(run: Run) -> Callable[..., Any]:
    def convert(obj: Any, dtype: Any) -> Any:
        kind, reinterpret = _dtype(run, dtype), run.operations.arithmetic.reinterpret
        return run.operations.each(lambda one: reinterpret(one, kind), _convert_operand(run, obj))

    return convert


def _random(run: Run) -> Callable[..., Any]:
    def draw(dtype: Any = float) -> Any:
        kind = _dtype(run, dtype)
        if kind[0] == "f":
            return run.operations.cast(np.float64(run.random.random()), kind)
        return run.operations.cast(int(run.random.integers(-(2**63), 2**63 - 1)), kind)

    return draw


def _build_extreme(name: str) -> Callable[[Run], Callable[..., Any]]:
    """Return the builder of `max` ("max") or `min` ("min") for any number of values."""

    def build(run: Run) -> Callable[..., Any]:
        rule = run.operations.binary(name)

        def extreme(*values: Any) -> Any:
            if len(values) == 1:
                return values[0]
            # Evaluated from the right: the first value, and the extreme of the others.
            return rule(values[0], extreme(*values[1:]))

        return extreme

    return build


def _frexp(_run: Run) -> Callable[..., Any]:
    raise KernelError(
        refusal("the Python engine has no `frexp`", remedy="Pass the results of `torch.frexp` as arguments.")
    )


TABLE: dict[str, dict[str, Callable[[Any], Callable[..., Any]]]] = {
    "lang.ops": {
        **{name: _unary(operator) for name, operator in UNARY_FUNCTIONS.items()},
        **{name: _binary(operator) for name, operator in BINARY_FUNCTIONS.items()},
        **{name: _rounding(name) for name in ("floor", "ceil", "round")},
        **{name: _build_extreme(name) for name in ("min", "max")},
        "logical_and": _logic(is_and=True),
        "logical_or": _logic(is_and=False),
        "cast": _cast,
        "bit_cast": _bit_cast,
        "random": _random,
        "select": lambda run: run.operations.select,
        "ifte": lambda run: run.operations.select,
        "frexp": _frexp,
    },
    "lang.matrix_ops": {
        "sum": lambda run: lambda mat: run.operations.fold("+", mat),
        "max": lambda run: lambda mat: run.operations.fold("max", mat),
        "min": lambda run: lambda mat: run.operations.fold("min", mat),
        "any": lambda run: lambda mat: run.operations.reduce_truths("any", mat),
        "all": lambda run: lambda mat: run.operations.reduce_truths("all", mat),
        "norm": lambda run: run.operations.norm,
        "norm_sqr": lambda run: run.operations.norm_sqr,
        "dot": lambda run: run.operations.dot,
        "trace": lambda run: run.operations.trace,
        "transpose": lambda run: run.operations.transpose,
        "outer_product": lambda run: run.operations.outer_product,
        "matmul": lambda run: run.operations.matmul,
        "cast": _cast,
        "fill": lambda run: _fill,
    },
}
"""Builders of the built-in functions of arithmetic, by module and name in the engine's package."""


def _fill(mat: Any, val: Any) -> Any:
    """Set all entries of a local vector or matrix, or of a field, to one value."""
    if isinstance(mat, ArrayView):
        mat.fill(val)
    else:
        mat.store([val] * len(mat.entries))
    return mat


def _static(*values: Any) -> Any:
    return values[0] if len(values) == 1 else list(values)


def _static_assert(cond: Any, msg: Any = None) -> None:
    if not cond:
        raise AssertionError(msg)


def _build_ranges(run: Run) -> Callable[..., Any]:
    def build(*args: Any, axes: Any = None) -> Ranges:
        bounds = [tuple(one) if isinstance(one, list | tuple) else (0, one) for one in args]
        return Ranges(bounds, () if axes is None else tuple(axes), run.operations)

    return build


def _build_group(run: Run) -> Callable[..., Any]:
    def group(x: Any) -> Any:
        x = run.capture(x)
        known = run.language.ranges_of(x)
        if known is not None:
            x = Ranges(*known, run.operations)
        elif isinstance(x, ArrayView):
            ends = [(start, start + int(size)) for start, size in zip(x.first, x.shape, strict=True)]
            x = Ranges(ends, (), run.operations)
        elif not isinstance(x, Ranges):
            views = getattr(x, "views", None)
            if views:
                return group(next(iter(views.values())))
            return x
        x.is_grouped = True
        return x

    return group


def _build_no_operation(_run: Run) -> Callable[..., Any]:
    return lambda *_positional, **_named: None


def _build_svd(run: Run) -> Callable[..., Any]:
    """Build the 3x3 `svd`."""

    def decompose(A: Any, dt: Any, iters: int | None = None) -> tuple[Matrix, Matrix, Matrix]:  # noqa: ARG001
        kind = _dtype(run, dt)
        u, s, v = compute_svd(torch.from_numpy(np.array(A.rows, dtype=np.float64)))
        # Python's own floats would be rounded to the engine's default precision.
        first, diagonal, last = (run.operations.matrix(list(map(list, one.numpy())), kind) for one in (u, s.diag(), v))
        return first, diagonal, last

    return decompose


SPECIAL: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "lang.impl.static": lambda _run: _static,
    "lang.impl.static_assert": lambda _run: _static_assert,
    "lang.impl.static_print": lambda _run: print,
    "lang.impl.grouped": _build_group,
    "lang.impl.stop_grad": _build_no_operation,
    "lang._ndrange.ndrange": _build_ranges,
    "lang.impl.zero": lambda run: lambda x: run.multiply(x, 0),
    "lang.impl.one": lambda run: lambda x: run.add(run.multiply(x, 0), 1),
    "lang.impl.get_runtime": lambda run: run.engine.lang.lang.impl.get_runtime,
    "lang.impl.is_python_backend": lambda _run: lambda: False,
    "_funcs._svd3d": _build_svd,
    "lang.misc.loop_config": _build_no_operation,
    "lang.misc.block_local": _build_no_operation,
    "lang.misc.assume_in_range": lambda _run: lambda value, *_, **__: value,
    "lang.misc.no_activate": _build_no_operation,
    "types.compound_types.vector": lambda run: run.engine.lang.types.vector,
    "types.compound_types.matrix": lambda run: run.engine.lang.types.matrix,
}
"""Builders of functions that are not arithmetic, such as `static` and `ndrange`, by name in the engine's package.

A builder takes the interpreter and returns the function.
"""


def fill_matrix(run: Run, name: str) -> Callable[..., Any]:
    """Return the constructor of a special matrix: `ti.Vector.zero`, `one`, `unit`, `ti.Matrix.identity`, `diag`,
    `rows`, `cols`.
    """
    make = run.operations.build_matrix

    def fill(dt: Any, n: int, m: int | None = None) -> Matrix:
        shape = (n,) if m is None else (n, m)
        return make([int(name == "one")] * (n if m is None else n * m), shape, _dtype(run, dt))

    def unit(n: int, i: int, dt: Any = None) -> Matrix:
        return make([int(i == j) for j in range(n)], (n,), _dtype(run, int if dt is None else dt))

    def identity(dt: Any, n: int) -> Matrix:
        return make([int(i == j) for i in range(n) for j in range(n)], (n, n), _dtype(run, dt))

    def diagonal(dim: int, val: Any) -> Matrix:
        return make([val if i == j else 0 for i in range(dim) for j in range(dim)], (dim, dim))

    def of_rows(rows: Any) -> Matrix:
        return run.operations.matrix(rows)

    def of_columns(cols: Any) -> Matrix:
        return run.operations.transpose(run.operations.matrix(cols))

    functions = {
        "zero": fill,
        "one": fill,
        "unit": unit,
        "identity": identity,
        "diag": diagonal,
        "rows": of_rows,
        "cols": of_columns,
    }
    if name not in functions:
        raise KernelError(
            refusal(
                f"the Python engine has no `Matrix.{name}` of {run.engine.name}",
                remedy=f"Run it on {run.engine.name}, or build the matrix from its entries.",
            )
        )
    return functions[name]


# Python's own ----------------------------------------------------------------------------------


def _build_conversion(python: type) -> Callable[[Run], Callable[..., Any]]:
    def build(run: Run) -> Callable[..., Any]:
        kind = run.dtype_name(python)
        assert kind is not None

        def convert(value: Any) -> Any:
            value = run.capture(value)
            is_run_time = type(value) in KINDS or isinstance(value, Matrix)
            return run.operations.cast(value, kind) if is_run_time else python(value)

        return convert

    return build


def _absolute(run: Run) -> Callable[..., Any]:
    rule = run.operations.unary("abs")
    return lambda value: rule(value) if type(value) in KINDS or not isinstance(value, int | float) else abs(value)


def _total(run: Run) -> Callable[..., Any]:
    def total(items: Any, start: Any = 0) -> Any:
        result = start
        for item in items:
            result = run.add(result, item)
        return result

    return total


BUILTINS: dict[Any, Callable[[Run], Callable[..., Any]]] = {
    builtins.int: _build_conversion(int),
    builtins.float: _build_conversion(float),
    builtins.bool: _build_conversion(bool),
    builtins.abs: _absolute,
    builtins.min: _build_extreme("min"),
    builtins.max: _build_extreme("max"),
    builtins.pow: lambda run: run.operations.binary("pow"),
    builtins.len: lambda run: lambda value: len(run.capture(value)),
    builtins.sum: _total,
    builtins.any: lambda run: lambda value: run.operations.reduce_truths("any", value),
    builtins.all: lambda run: lambda value: run.operations.reduce_truths("all", value),
}
"""Builders of Python's functions that kernels may call: `int`, `min`, `len` and the like."""
