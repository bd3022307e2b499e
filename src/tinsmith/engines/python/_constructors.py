"""Constructors of vectors, matrices and structs: `Vector([...])`, `vec3(...)`, `Ray(...)`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._run import Run
from ._values import Matrix, Struct


class Constructors:
    """The constructors of one engine's types.

    Args:
        run: the interpreter, which converts numbers and Python's objects.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._language, self._operations, self._defaults = run.language, run.operations, run.defaults

    def build_matrix(self, arr: Any, dt: Any = None) -> Matrix:
        """Build the result of `Vector(arr, dt)` or `Matrix(arr, dt)` in a kernel; `arr` is a list, an array or a
        matrix.
        """
        kind = self._run.dtype_name(dt)
        if isinstance(arr, Matrix):
            return self._operations.cast(arr, kind) if kind else arr
        if kind:
            return self._operations.matrix(arr.tolist() if isinstance(arr, np.ndarray) else arr, kind)
        return self._operations.tensor(arr)

    def matrix_type(self, value: Any) -> tuple[tuple[int, ...], str | None] | None:
        """Return the dims and dtype name of a vector or matrix type; None for anything else."""
        matrix = self._language.matrix_type(value)
        default = None if matrix is None else self._language.default_of(value)
        return matrix if matrix is None or default is None else (matrix[0], getattr(self._defaults, default))

    def build_struct(self, *positional: Any, **named: Any) -> Struct:
        """Build the result of `Struct(...)` in a kernel from a dict or keyword arguments."""
        members = positional[0] if positional else named
        return Struct({name: self._member(value) for name, value in members.items()}, {})

    def _member(self, value: Any) -> Any:
        return self.build_struct(value) if isinstance(value, dict) else self._run.let(value)

    def build_typed_struct(self, facts: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Struct:
        """Build a struct of a declared struct type from constructor arguments. Raise TypeError for unknown members."""
        members = {name: self._as_member(kind, value) for name, kind, value in facts.bind(positional, named)}
        return Struct(members, dict(facts.methods))

    def _as_member(self, kind: Any, value: Any) -> Any:
        scalar = self._language.scalar_type(kind)
        if scalar is not None:
            return self._operations.cast(value, scalar)
        matrix = self.matrix_type(kind)
        if matrix is not None:
            made = self._operations.typed_matrix(*matrix, [value])
            return self._operations.cast(made, matrix[1]) if matrix[1] else made
        facts = self._language.struct_type(kind)
        if facts is None:
            raise TypeError(f"a struct cannot have a member of type {kind!r}")
        value = self._run.capture(value)
        if isinstance(value, Struct | dict):
            members = value.members if isinstance(value, Struct) else value
            return self.build_typed_struct(facts, (), dict(members))
        return Struct({name: self._as_member(one, value) for name, one in facts.members.items()}, dict(facts.methods))
