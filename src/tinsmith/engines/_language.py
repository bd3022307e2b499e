"""The meaning of an engine's objects inside a kernel, for code that reads kernel source.

Kernels name functions that make an instruction, functions written in the language itself (`ti.math.mix`, `v.norm()`),
and types that are called. What they are is read from names and attributes that Taichi and Quadrants share;
tests/engines/test_language.py tests each.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import _annotations, _readiness
from ._contract import Engine

_SWIZZLES = ("xyzw", "rgba", "stpq")


def find_swizzle(name: str, size: int) -> tuple[int, ...] | None:
    """Return the entries of a vector of this size that a swizzle such as `zyx` selects; None for another name."""
    for letters in _SWIZZLES:
        if len(name) <= 4 and set(name) <= set(letters[:size]):
            return tuple(letters.index(letter) for letter in name)
    return None


class StructFacts(NamedTuple):
    """Members and methods of a struct, a struct type or a field of structs. Members are values, types or fields."""

    members: Mapping[str, Any]
    methods: Mapping[str, Any]

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, type and value of each member of a struct constructed from these arguments.

        Missing ones are 0.

        Raises TypeError for arguments without a member.
        """
        unknown = next((name for name in named if name not in self.members), None)
        if unknown is not None:
            raise TypeError(f"a struct with the members {', '.join(self.members)} has no `{unknown}`")
        if len(positional) > len(self.members):
            words = f"{len(positional)} values for a struct of {len(self.members)} members: {', '.join(self.members)}"
            raise TypeError(words)
        for place, (name, kind) in enumerate(self.members.items()):
            yield name, kind, positional[place] if place < len(positional) else named.get(name, 0)


class Language:
    """Classifies the objects that kernel source of one engine can name."""

    def __init__(self, engine: Engine) -> None:
        self._given = engine
        self.engine = engine = engine.home
        self._matrix_operations = importlib.import_module(f"{engine.name}.lang.matrix_ops")
        self._matrix_type = importlib.import_module(f"{engine.name}.lang.matrix").MatrixType
        self._structs = importlib.import_module(f"{engine.name}.lang.struct")
        functions = importlib.import_module(f"{engine.name}._funcs")
        self.field_filler: object = getattr(functions, f"field_fill_{engine.name}_scope")
        """The function that `x.fill(value)` of a field calls in a kernel."""

    @property
    def default_types(self) -> tuple[str, str]:
        """The engine's current types for Python's floats and integers, such as ("f32", "i32")."""
        if not self._given.runs_source:
            _readiness.require_started(self._given)
        return self._given.default_types

    def name_of(self, value: Any) -> str:
        """Return the name of an engine's own object inside its package, such as "lang.ops.sin"; "" for any other
        object.
        """
        name = getattr(value, "__qualname__", None)
        if not isinstance(name, str) or not self.engine.owns(value):
            return ""
        return f"{value.__module__.removeprefix(self.engine.name).lstrip('.')}.{name}"

    def function_of(self, value: object) -> Callable[..., Any] | None:
        """Return the Python function of an engine function, written by a user or by the engine's authors; None for
        others.
        """
        if not getattr(value, f"_is_{self.engine.name}_function", False):
            return None
        return inspect.unwrap(getattr(value, "quadrants_callable", getattr(value, "__func__", value)))  # type: ignore[arg-type]

    def owner_of(self, function: object) -> object | None:
        """Return the object that a bound function is called on, or None."""
        if not self.engine.is_bound(function):
            return None
        owner = getattr(function, "__self__", None)
        return getattr(function, "instance", None) if owner is None else owner

    def is_method(self, value: object) -> bool:
        """Return True if an engine function was defined in a class: its first parameter is the object itself, not a
        copy.
        """
        bare = getattr(value, "quadrants_callable", getattr(value, "__func__", value))
        holder = getattr(bare, "wrapper", None) or getattr(bare, "func", None)
        return bool(getattr(holder, "classfunc", False))

    def is_real(self, value: object) -> bool:
        """Return True for a `real_func`, which is compiled separately rather than inlined, so it may return early."""
        return bool(getattr(value, "_is_real_function", False))

    def largest_decomposed(self, function: str) -> int:
        """Return the largest number of rows for which a matrix decomposition of this name is defined."""
        return 6 if self.engine.name == "quadrants" and function in ("sym_eig", "make_spd") else 3

    def sorts_eigenvalues_down(self, side: int) -> bool:
        """Return True if `sym_eig` returns the largest eigenvalue first for a matrix with `side` rows."""
        return self.engine.name == "taichi" and side == 2

    def matrix_operation(self, name: str) -> object | None:
        """Return the engine's function that implements a method of vectors and matrices, or None."""
        operation = getattr(self._matrix_operations, name, None)
        return operation if callable(operation) else None

    def scalar_type(self, value: Any) -> str | None:
        """Return the name of an engine's dtype, such as "f32"; None for anything else."""
        text = getattr(value, "to_string", None)
        if not self.engine.owns(value) or isinstance(value, self._matrix_type) or not callable(text):
            return None
        name = str(text())
        return name if name in _annotations.DTYPES else None

    def matrix_type(self, value: Any) -> tuple[tuple[int, ...], str | None] | None:
        """Return the dims and the dtype's name of a vector or matrix type; None for anything else."""
        if not isinstance(value, self._matrix_type):
            return None
        kind = value.dtype
        return _annotations.element_of(value), None if kind is None else kind.to_string()

    def default_of(self, value: Any) -> str | None:
        """Return which default dtype, "fp" or "ip", a type of `ti.math` such as `vec3` follows; None for
        other types.
        """
        names = [name for name, one in vars(self.engine.lang.math).items() if one is value]
        kinds = {"vec": "fp", "mat": "fp", "ivec": "ip"}
        return next((kinds[name[:-1]] for name in names if name[:-1] in kinds), None)

    def struct_type(self, value: Any) -> StructFacts | None:
        """Return the members and methods that a struct type declares; None for anything else."""
        if not isinstance(value, self._structs.StructType):
            return None
        return StructFacts(value.members, value.methods)

    def struct_of(self, value: Any) -> StructFacts | None:
        """Return the members and methods of a Python-scope struct or a field of structs; None for anything else."""
        if isinstance(value, self._structs.StructField):
            return StructFacts({key: value.get_member_field(key) for key in value.keys}, value.struct_methods)
        if isinstance(value, self._structs.Struct):
            return StructFacts(dict(value.items), value.methods)
        return None

    def ranges_of(self, value: Any) -> tuple[list[tuple[int, int]], tuple[int, ...]] | None:
        """Return the bounds of a Python-scope `ndrange`, and its dims from outermost loop to innermost; else None."""
        if self.name_of(type(value)) != "lang._ndrange._Ndrange":
            return None
        bounds = [(int(first), int(end)) for first, end in value.bounds]
        # Quadrants has `axes`: the bounds are then in the order of the loops, not in that of the indices.
        order = tuple(getattr(value, "axes", None) or range(len(bounds)))
        return [bounds[order.index(dim)] for dim in range(len(bounds))], order

    def rows_of(self, value: Any) -> list[Any] | None:
        """Return the numbers of a Python-scope vector or matrix as its constructor takes them; None for
        anything else.
        """
        return value.to_list() if self.engine.matrix_entries(value) is not None else None

    def is_template(self, annotation: object) -> bool:
        """Return True if a parameter of a `ti.func` with this annotation is passed by reference.

        Quadrants 1.3.3 passes a copy if the annotation is the class `template` rather than `template()`.
        """
        # `ref(f32)`, of real functions, is a class that the engines do not export.
        return isinstance(annotation, self.engine.lang.template) or type(annotation).__name__ == "RefType"

    def is_array(self, annotation: object) -> bool:
        """Return True if a parameter with this annotation is an array."""
        return isinstance(annotation, self.engine.lang.types.ndarray)
