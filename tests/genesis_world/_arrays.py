"""Arrays that a launch may read or write: what its arguments reach, and fields of the engine."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch


class Array:
    """An array of the engine or of torch, with a name that says how a launch reaches it.

    Attributes:
        name: a path from an argument, as `dyn_state.links.pos`.
        owner: what a user would register or pass: a `qd.Tensor`, a field, an ndarray, a torch tensor, a NumPy array.
    """

    def __init__(self, name: str, owner: Any) -> None:
        self.name = name
        self.owner = owner

    @property
    def identity(self) -> int:
        """The identity of the memory, whichever wrapper reaches it."""
        return id(getattr(self.owner, "_impl", self.owner))

    @property
    def kind(self) -> str:
        """Of which kind its owner is, for records."""
        inner = getattr(self.owner, "_impl", self.owner)
        wrapped = "qd.Tensor of " if inner is not self.owner else ""
        return wrapped + type(inner).__name__

    def read(self) -> np.ndarray:
        """Return a copy of its content."""
        if isinstance(self.owner, np.ndarray):
            return self.owner.copy()
        if isinstance(self.owner, torch.Tensor):
            return self.owner.detach().numpy().copy()
        return np.array(self.owner.to_numpy())

    def write(self, content: np.ndarray) -> None:
        """Set its content."""
        if isinstance(self.owner, np.ndarray):
            self.owner[...] = content
        elif isinstance(self.owner, torch.Tensor):
            self.owner.detach().copy_(torch.from_numpy(content))
        else:
            self.owner.from_numpy(np.array(content, order="C"))


def find_arrays(names: tuple[str, ...], arguments: tuple[Any, ...]) -> list[Array]:
    """Return the arrays that a launch may use, each once: those of its arguments, then all fields of the engine."""
    arrays: dict[int, Array] = {}
    seen: set[int] = set()
    for name, argument in zip(names, arguments, strict=True):
        for array in _walk(name, argument, seen, 0):
            arrays.setdefault(array.identity, array)
    if any(getattr(type(one), "_data_oriented", False) and not _is_plain(one) for one in arguments):
        for name, field in _list_fields():
            arrays.setdefault(id(field), Array(name, field))
    return [one for one in arrays.values() if _is_usable(one)]


def hold_arguments(arguments: tuple[Any, ...], annotations: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a launch, and what structs hold, with ndarrays of the engine instead of other arrays.

    A layer takes the first as its inputs and outputs, and the second as constants.
    """
    return tuple(_hold(one, of) for one, of in zip(arguments, annotations, strict=True))


def _hold(value: Any, annotation: Any) -> Any:
    import quadrants as qd

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        held = {one.name: _hold(getattr(value, one.name), one.type) for one in dataclasses.fields(value)}
        is_changed = any(held[name] is not getattr(value, name) for name in held)
        return dataclasses.replace(value, **held) if is_changed else value
    if not isinstance(value, (np.ndarray, torch.Tensor)):
        return value
    content = np.asarray(value.detach() if isinstance(value, torch.Tensor) else value)
    kinds = {"float64": qd.f64, "float32": qd.f32, "int32": qd.i32, "int64": qd.i64, "bool": qd.u1, "uint8": qd.u8}
    if 0 in content.shape or content.dtype.name not in kinds:
        return value
    of, kind = getattr(annotation, "dtype", None), kinds[content.dtype.name]
    element = {"VectorType": 1, "MatrixType": 2}.get(type(of).__name__, 0)
    sizes = content.shape[content.ndim - element :]
    if element:
        kind = qd.types.vector(*sizes, kind) if element == 1 else qd.types.matrix(*sizes, kind)
    held = qd.ndarray(kind, content.shape[: content.ndim - element])
    held.from_numpy(np.array(content, order="C"))
    return held


def _walk(name: str, value: Any, seen: set[int], depth: int) -> Iterator[Array]:
    from quadrants.lang._ndarray import Ndarray
    from quadrants.lang.field import Field
    from quadrants.lang.struct import StructField

    inner = getattr(value, "_impl", value)
    if isinstance(inner, (Field, Ndarray)) and not isinstance(value, StructField):
        yield Array(name, value)
        if inner.grad is not None and ".grad" not in name:
            yield Array(f"{name}.grad", value.grad)
    elif isinstance(value, (np.ndarray, torch.Tensor)):
        yield Array(name, value)
    elif id(value) not in seen and depth < 5:
        seen.add(id(value))
        for key, one, is_nested in _list_parts(value, depth == 0):
            yield from _walk(name + key, one, seen, depth + is_nested)


def _list_parts(value: Any, is_argument: bool) -> Iterator[tuple[str, Any, bool]]:
    """Yield what an object holds, with its name and whether it counts as deeper: members of structs do not."""
    from quadrants.lang.struct import StructField

    if isinstance(value, StructField):
        yield from ((f".{key}", value.get_member_field(key), False) for key in value.keys)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{one.name}", getattr(value, one.name), False) for one in dataclasses.fields(value))
    elif getattr(type(value), "_data_oriented", False) or (is_argument and hasattr(value, "__dict__")):
        # An engine bakes in arrays of Python that an object holds.
        held = [(key, one) for key, one in vars(value).items() if not isinstance(one, (np.ndarray, torch.Tensor))]
        yield from ((f".{key}", one, True) for key, one in held)
    elif isinstance(value, (list, tuple)) and len(value) < 100:
        yield from ((f"[{number}]", one, True) for number, one in enumerate(value))


def _is_plain(value: Any) -> bool:
    """Return True if an object holds Python's values alone, as static configurations do."""
    return all(isinstance(one, (int, float, str, bool, type(None))) for one in vars(value).values())


def _list_fields() -> list[tuple[str, Any]]:
    """Return all fields of the engine with names: gradients are called so."""
    from quadrants.lang.field import ScalarField
    from quadrants.lang.matrix import MatrixField

    fields = [one for one in gc.get_objects() if isinstance(one, (ScalarField, MatrixField))]
    gradients = {id(one.grad) for one in fields if one.grad is not None}
    return [(f"field{'.grad' if id(one) in gradients else ''} {number}", one) for number, one in enumerate(fields)]


def _is_usable(array: Array) -> bool:
    """Return True if an array has memory that can be read and written."""
    try:
        if 0 in tuple(array.owner.shape):
            return False
        array.read()
    except Exception:  # noqa: BLE001  # an engine raises what it likes for a field of an earlier start
        return False
    return True
