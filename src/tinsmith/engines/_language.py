"""An engine's language: what the objects that a kernel's names stand for are, to who reads the source.

Both engines' front ends are Python packages of one descent: functions that make an instruction, functions
written in the language itself (`ti.math.mix`, `v.norm()`), types that are called. Everything here is read off
names and attributes that both have; tests/engines/test_language.py holds each.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from . import _annotations, _readiness
from ._contract import Engine


class StructFacts(NamedTuple):
    """Members of a struct, of its type or of a field of structs: values, types or fields; and functions on it."""

    members: Mapping[str, Any]
    methods: Mapping[str, Any]

    def bind(self, positional: Sequence[Any], named: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
        """Yield the name, type and value of each member of a struct that is made of these arguments; 0 by default.

        Raises TypeError for arguments that no member takes.
        """
        if not named.keys() <= self.members.keys() or len(positional) > len(self.members):
            raise TypeError(f"arguments that a struct with {', '.join(self.members)} has no member for")
        for place, (name, kind) in enumerate(self.members.items()):
            yield name, kind, positional[place] if place < len(positional) else named.get(name, 0)


class Language:
    """What one engine's objects mean in a kernel."""

    def __init__(self, engine: Engine) -> None:
        self._given = engine
        self.engine = engine = engine.home
        self._matrix_operations = importlib.import_module(f"{engine.name}.lang.matrix_ops")
        self._matrix_type = importlib.import_module(f"{engine.name}.lang.matrix").MatrixType
        self._structs = importlib.import_module(f"{engine.name}.lang.struct")
        functions = importlib.import_module(f"{engine.name}._funcs")
        self.field_filler: object = getattr(functions, f"field_fill_{engine.name}_scope")
        """The function that `x.fill(value)` of a field is in a kernel."""

    @property
    def default_types(self) -> tuple[str, str]:
        """Types of Python's floats and integers, in the engine as it runs now."""
        if not self._given.runs_source:
            _readiness.require_started(self._given)
        return self._given.default_types

    def name_of(self, value: Any) -> str:
        """What an object of the engine's own is called inside its package: "lang.ops.sin"; "" for a stranger's."""
        name = getattr(value, "__qualname__", None)
        if not isinstance(name, str) or not self.engine.owns(value):
            return ""
        return f"{value.__module__.removeprefix(self.engine.name).lstrip('.')}.{name}"

    def function_of(self, value: object) -> Callable[..., Any] | None:
        """The Python function of anything written in the language, by a user or by the engine's authors."""
        if not getattr(value, f"_is_{self.engine.name}_function", False):
            return None
        return inspect.unwrap(getattr(value, "quadrants_callable", getattr(value, "__func__", value)))  # type: ignore[arg-type]

    def owner_of(self, function: object) -> object | None:
        """The object that a bound function is called on."""
        if not self.engine.is_bound(function):
            return None
        owner = getattr(function, "__self__", None)
        return getattr(function, "instance", None) if owner is None else owner

    def is_method(self, value: object) -> bool:
        """Whether a function was written inside a class: then its first parameter is the very object."""
        bare = getattr(value, "quadrants_callable", getattr(value, "__func__", value))
        holder = getattr(bare, "wrapper", None) or getattr(bare, "func", None)
        return bool(getattr(holder, "classfunc", False))

    def is_real(self, value: object) -> bool:
        """Whether a function is compiled for itself, not put in place of its calls: it may return early."""
        return bool(getattr(value, "_is_real_function", False))

    def largest_decomposed(self, function: str) -> int:
        """The most rows of a matrix that a decomposition takes."""
        return 6 if self.engine.name == "quadrants" and function in ("sym_eig", "make_spd") else 3

    def sorts_eigenvalues_down(self, side: int) -> bool:
        """Whether `sym_eig` of a matrix of so many rows gives the greatest eigenvalue first."""
        return self.engine.name == "taichi" and side == 2

    def matrix_operation(self, name: str) -> object | None:
        """The function behind a method of a vector or matrix."""
        operation = getattr(self._matrix_operations, name, None)
        return operation if callable(operation) else None

    def scalar_type(self, value: Any) -> str | None:
        """A dtype's name; None for anything else."""
        text = getattr(value, "to_string", None)
        if not self.engine.owns(value) or isinstance(value, self._matrix_type) or not callable(text):
            return None
        name = str(text())
        return name if name in _annotations.DTYPES else None

    def matrix_type(self, value: Any) -> tuple[tuple[int, ...], str | None] | None:
        """Dims and dtype of a vector or matrix type."""
        if not isinstance(value, self._matrix_type):
            return None
        kind = value.dtype
        return _annotations.element_of(value), None if kind is None else kind.to_string()

    def default_of(self, value: Any) -> str | None:
        """Which default, "fp" or "ip", the numbers of a matrix type follow, as those of `ti.math.vec3` do."""
        names = [name for name, one in vars(self.engine.lang.math).items() if one is value]
        kinds = {"vec": "fp", "mat": "fp", "ivec": "ip"}
        return next((kinds[name[:-1]] for name in names if name[:-1] in kinds), None)

    def struct_type(self, value: Any) -> StructFacts | None:
        """What a struct type declares."""
        if not isinstance(value, self._structs.StructType):
            return None
        return StructFacts(value.members, value.methods)

    def struct_of(self, value: Any) -> StructFacts | None:
        """The members of a struct, or of a field of structs, that Python holds."""
        if isinstance(value, self._structs.StructField):
            return StructFacts({key: value.get_member_field(key) for key in value.keys}, value.struct_methods)
        if isinstance(value, self._structs.Struct):
            return StructFacts(dict(value.items), value.methods)
        return None

    def rows_of(self, value: Any) -> list[Any] | None:
        """The numbers of a Python-scope vector or matrix, as its constructor takes them."""
        return value.to_list() if self.engine.matrix_entries(value) is not None else None

    def is_template(self, annotation: object) -> bool:
        """Return True if a function's parameter with this annotation stands for the very thing that it is given.

        A parameter that has the class itself, `template` and not `template()`, is given a copy in Quadrants 1.3.3.
        """
        # `ref(f32)`, of real functions, is a class that the engines do not export.
        return isinstance(annotation, self.engine.lang.template) or type(annotation).__name__ == "RefType"

    def is_array(self, annotation: object) -> bool:
        """Whether a parameter is declared an array."""
        return isinstance(annotation, self.engine.lang.types.ndarray)
