"""Unrun: what names mean in a file that is read and not run.

An engine's module becomes `EngineName`, its functions that stand in the file become `Unrun`, and `UnrunEngine`
answers for them what the analyses of a kernel's tree ask of an engine. Of everything else nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import CellType
from typing import Any, Literal

from .._lazy import lazy
from ..frontend import Source, Unrun, find_called_function

INTEGER_TYPES = frozenset({"int", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "bool"})
FLOAT_TYPES = frozenset({"float", "f16", "f32", "f64"})
Element = Literal["int", "float", ""]


def element_of(dtype: str) -> Element:
    """Return the kind of a dtype's numbers, "int" or "float"; "" if the dtype is unknown."""
    return "int" if dtype in INTEGER_TYPES else "float" if dtype in FLOAT_TYPES else ""


@dataclass(frozen=True)
class EngineName:
    """A name below an engine's module: `ti.math.length` is ("taichi", "math.length"); which engine may be unknown."""

    engine: str
    path: str = ""

    def __getattr__(self, name: str) -> EngineName:
        if name.startswith("__"):
            raise AttributeError(name)
        # Kept at this one, where Python looks first the next time.
        below = vars(self)[name] = EngineName(self.engine, f"{self.path}.{name}" if self.path else name)
        return below

    @property
    def last(self) -> str:
        """The name without what stands before it."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class MatrixTypeName(EngineName):
    """A vector or matrix type that a file makes, `ti.types.vector(3, ti.i32)`, with its dtype; "" is unknown."""

    dtype: str = ""


class UnrunEngine:
    """Stands for an engine where none is asked."""

    def inner_function(self, candidate: object) -> Any:
        """Return the function that an engine function decorates; None for other values."""
        return candidate if isinstance(candidate, Unrun) else None

    def is_bound(self, function: object) -> bool:
        """Return True if a call passes the function its object as the first argument."""
        return isinstance(function, Unrun) and function.is_method

    def owns(self, value: object) -> bool:
        """Return True if a value belongs to the engine."""
        return isinstance(value, EngineName)


@dataclass(frozen=True, eq=False)
class UnrunSource(Source):
    """A kernel that stands in a file: its names mean what the file says they do."""

    names: Mapping[str, Any] = field(default_factory=dict)

    def lookup(self, name: str) -> Any:
        value = self.names[name]
        return value.cell_contents if isinstance(value, CellType) else value  # of a function that calls itself

    def value(self, node: ast.AST) -> Any:
        return self._find_value(node)  # nothing here is a `qd.Tensor`, whose memory is inside it

    def is_template(self, parameter: str) -> bool:
        return parameter in self._templates

    @lazy
    def _templates(self) -> frozenset[str]:
        """Return the parameters that are annotated as templates."""
        notes = ((one.arg, one.annotation) for one in self.tree.args.args if one.annotation is not None)
        return frozenset(name for name, note in notes if self._is_template_note(note))

    def _is_template_note(self, note: ast.expr) -> bool:
        meant = find_called_function(self, getattr(note, "func", note))
        return (isinstance(meant, EngineName) and meant.last == "template") or "template" in ast.unparse(note)
