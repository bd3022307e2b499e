"""Annotations of kernel parameters, which Taichi and Quadrants share: reading them, and writing them as source.

The functions get the engine's module and types as arguments and import no engine.
"""

from __future__ import annotations

import inspect
import math
import types
import typing
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch

from ._contract import Parameter

DTYPES: dict[str, torch.dtype] = {
    "f16": torch.float16,
    "f32": torch.float32,
    "f64": torch.float64,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "u1": torch.bool,
    "u8": torch.uint8,
    "u16": torch.uint16,
    "u32": torch.uint32,
    "u64": torch.uint64,
}
SPEC_DTYPES: dict[str, torch.dtype] = {**DTYPES, "bf16": torch.bfloat16}
"""Dtypes that a spec may name. No engine has bfloat16, so kernels compute such arrays in float32."""
NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}
FLOATS = (torch.float16, torch.float32, torch.float64)
HALVES = (torch.float16, torch.bfloat16)
INTEGERS = tuple(dtype for name, dtype in DTYPES.items() if name[0] in "iu" and name != "u1")
_PYTHON_TYPES = (float, int, bool)
"""Python types that an annotation may have instead of an engine's dtype."""
_BOUNDARIES = {0: "unsafe", 1: "clamp"}


def read_annotations(function: object) -> Mapping[str, Any]:
    """Return a function's annotations as values: evaluate those that are text, and reduce `T | None` to `T`.

    Under `from __future__ import annotations` all of them are text. Quadrants 1.3.3 evaluates them in the same way.
    If one cannot be evaluated, return all of them as they are.
    """
    annotations: dict[str, Any] = getattr(function, "__annotations__", None) or {}
    if any(isinstance(one, str) for one in annotations.values()):
        try:
            annotations = inspect.get_annotations(typing.cast(Any, function), eval_str=True)
        # A text may be any expression.
        except Exception:  # noqa: BLE001
            return annotations
    return {name: _without_none(one) for name, one in annotations.items()}


def _without_none(annotation: Any) -> Any:
    """Return the `T` of an annotation `T | None`; return any other annotation unchanged."""
    if type(annotation).__name__ == "_OptionalNdarray":
        # What Quadrants 1.3.3 makes of `NDArray[...] | None`.
        return annotation.inner
    if not isinstance(annotation, types.UnionType) and typing.get_origin(annotation) is not typing.Union:
        return annotation
    others = [one for one in typing.get_args(annotation) if one is not types.NoneType]
    return others[0] if len(others) == 1 else annotation


def dtypes_of(declared: Any) -> tuple[torch.dtype, ...] | None:
    """Return the torch dtypes that a declared dtype accepts, None for any.

    Python's `float` accepts every float dtype.
    """
    if declared is None:
        return None
    if declared is float:
        return FLOATS
    if declared is int:
        return INTEGERS
    if declared is bool:
        return (torch.bool,)
    return (DTYPES[declared.to_string()],)


def dtype_text(declared: Any) -> str:
    """Return the source text of a declared dtype, such as `_lang.f32`."""
    return declared.__name__ if declared in _PYTHON_TYPES else f"_lang.{declared.to_string()}"


def find_setter(declared: Any) -> str:
    """Return which setter of a launch context takes a scalar of this dtype: "float", "int" or "uint"."""
    letter = declared.__name__[0] if declared in _PYTHON_TYPES else declared.to_string()[0]
    return {"f": "float", "i": "int", "u": "uint", "b": "uint"}[letter]


def element_of(matrix: Any) -> tuple[int, ...]:
    """Return the dims of a vector or matrix type: (n,) or (n, m)."""
    return (matrix.n,) if matrix.ndim == 1 else (matrix.n, matrix.m)


def matrix_text(matrix: Any) -> str:
    """Return the source text of a vector or matrix type, such as `_lang.types.vector(3, _lang.f32)`."""
    dims = ", ".join(str(size) for size in element_of(matrix))
    maker = "vector" if matrix.ndim == 1 else "matrix"
    return f"_lang.types.{maker}({dims}, {dtype_text(matrix.dtype)})"


def describe(
    name: str, annotation: Any, lang: ModuleType, matrix_type: type, is_scalar: Callable[[Any], bool]
) -> Parameter | None:
    """Return the parameter that an annotation declares, or None if parameters of its kind cannot be passed."""
    if isinstance(annotation, lang.template) or annotation is lang.template:
        return Parameter(name, "template", text="_lang.template()")
    if isinstance(annotation, lang.types.ndarray):
        return _array(name, annotation, matrix_type)
    if annotation in _PYTHON_TYPES or is_scalar(annotation):
        dtypes, text = dtypes_of(annotation), dtype_text(annotation)
        return Parameter(name, "scalar", dtypes, setter=find_setter(annotation), text=text)
    if isinstance(annotation, matrix_type):
        element, text = element_of(annotation), matrix_text(annotation)
        return Parameter(name, "matrix", dtypes_of(annotation.dtype), None, element, "matrix", text=text)
    return None


def _array(name: str, annotation: Any, matrix_type: type) -> Parameter:
    declared = annotation.dtype
    boundary = _BOUNDARIES[int(annotation.boundary)]
    is_matrix = isinstance(declared, matrix_type)
    scalar = declared.dtype if is_matrix else declared
    element = element_of(declared) if is_matrix else ()
    # `ndarray(element_dim=1)` and `NDArray[vector(), 1]`: sizes of elements, the dtype too, are those of the memory.
    open_dims = len(element) if None in element else 0
    is_whole = is_matrix and scalar is not None and not open_dims
    shown = matrix_text(declared) if is_whole else "" if scalar is None else dtype_text(scalar)
    parts = [f"dtype={shown}"] * bool(shown) + [f"ndim={annotation.ndim}"] * (annotation.ndim is not None)
    if is_matrix and not is_whole:
        parts.append(f"element_dim={open_dims}" if open_dims else f"element_shape={element}")
    text = f"_lang.types.ndarray({', '.join(parts)})"
    dtypes, element = dtypes_of(scalar), () if open_dims else element
    return Parameter(name, "array", dtypes, annotation.ndim, element, boundary=boundary, text=text, open_dims=open_dims)


def array_text(dtype: torch.dtype, ndim: int, element: tuple[int, ...], boundary: str, needs_grad: bool) -> str:
    """Return the source text of an array's annotation, in which `_lang` is the engine's module."""
    scalar = f"_lang.{NAMES[dtype]}"
    if len(element) == 1:
        scalar = f"_lang.types.vector({element[0]}, {scalar})"
    elif element:
        scalar = f"_lang.types.matrix({element[0]}, {element[1]}, {scalar})"
    edge = f", boundary={boundary!r}" if boundary != "unsafe" else ""
    return f"_lang.types.ndarray(dtype={scalar}, ndim={ndim}, needs_grad={needs_grad}{edge})"


def make_placeholders(
    function: Callable[..., Any], templates: dict[str, Any], lang: ModuleType, matrix_type: type
) -> list[Any]:
    """Return placeholder arguments with which an engine compiles `function`: they fix dtypes and ranks, and hold no
    memory.
    """
    values = []
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = parameter.annotation
        if name in templates:
            values.append(templates[name])
        elif isinstance(annotation, lang.types.ndarray):
            values.append(_stand_in_array(annotation, matrix_type))
        else:
            # A number, vector or struct: engines specialize on its annotation, and never look at its value.
            values.append(0)
    return values


def _stand_in_array(annotation: Any, matrix_type: type) -> torch.Tensor:
    declared = annotation.dtype
    element = element_of(declared) if isinstance(declared, matrix_type) else ()
    scalar = declared.dtype if element else declared
    # Without elements: what is compiled depends on dtype and rank alone, and nothing is launched.
    return torch.empty((0,) * annotation.ndim + element, dtype=DTYPES[scalar.to_string()])


def find_slots(metas: list[Any], lang: ModuleType, matrix_type: type, place: Callable[[int], Any]) -> dict[str, Any]:
    """Return the slot of each run-time argument in a launch context, by parameter name.

    Templates have no slot. That of a vector or matrix is the kind of its numbers, and the place of each of them.
    """
    runtime = [meta for meta in metas if not isinstance(meta.annotation, lang.template)]
    slots = {}
    for index, meta in enumerate(runtime):
        if isinstance(meta.annotation, matrix_type):
            count = math.prod(element_of(meta.annotation))
            slots[meta.name] = find_setter(meta.annotation.dtype), tuple((index, entry) for entry in range(count))
        else:
            slots[meta.name] = place(index)
    return slots
