"""Types: which locals of a kernel hold integers and which hold floats, as far as the text tells.

The engines' rule: a local has the type of its first value, for good. "int", "float", "vector", "" where
nothing is known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache

from .._lazy import lazy
from ..source import find_called_function, is_size, root, walk
from ._subject import ParameterFacts, Subject

FLOATS = frozenset(
    {"acos", "asin", "atan2", "ceil", "cos", "exp", "floor", "log", "normalize", "random", "randn", "round"}
    | {
        "rsqrt",
        "sin",
        "sqrt",
        "tan",
        "tanh",
        "length",
        "distance",
        "dot",
        "fract",
        "mix",
        "smoothstep",
        "degrees",
        "radians",
    }
)
_SAME = frozenset({"abs", "max", "min", "pow", "static"})
_VECTORS = frozenset({"Vector", "Matrix", "vec2", "vec3", "vec4", "mat2", "mat3", "mat4"})
_OPEN = ParameterFacts("any")
_INTEGER_TYPES = frozenset({"int", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64", "bool"})
_FLOAT_TYPES = frozenset({"float", "f16", "f32", "f64"})


@lru_cache(maxsize=4)
def types_of(subject: Subject) -> Types:
    """Types of a kernel's locals; several rules ask for them."""
    return Types(subject)


class Types:
    """Types of a kernel's locals."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.by_name: dict[str, str] = {}
        self.first: dict[str, ast.expr] = {}
        for spot in subject.spots:
            if isinstance(spot.statement, ast.For):
                self._loop(spot.statement)
            for target, value in spot.assignments:
                if isinstance(target, ast.Name) and target.id not in self.by_name:
                    self.first[target.id] = value
                    self.by_name[target.id] = self._declared_type(spot.statement) or self.of(value)

    def _loop(self, loop: ast.For) -> None:
        for node in walk(loop.target):
            if isinstance(node, ast.Name):
                self.by_name.setdefault(node.id, "int" if self._counts(loop.iter) else "")

    def _counts(self, iterator: ast.expr) -> bool:
        """Whether a loop goes over numbers or the indices of an array, not over `ti.grouped` or a Python list."""
        if isinstance(iterator, ast.Name):
            return iterator.id in self.subject.arrays
        return self.subject.resolve_builtin(iterator) in ("range", "ndrange")

    def _declared_type(self, statement: ast.stmt) -> str:
        """Of `a: ti.i32 = 0`."""
        return _resolve_dtype(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""

    # Expressions ------------------------------------------------------------------------------

    def of(self, node: ast.expr) -> str:
        """The type of an expression."""
        match node:
            case ast.Constant(value=bool() | int()):
                return "int"
            case ast.Constant(value=float()):
                return "float"
            case ast.Name(id=name):
                return self._name(name)
            case ast.Subscript() | ast.Attribute():
                return self._element(node)
            case ast.UnaryOp(op=ast.Not()) | ast.Compare() | ast.BoolOp():
                return "int"
            case ast.UnaryOp(operand=inner):
                return self.of(inner)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return "vector" if "vector" in (self.of(left), self.of(right)) else "float"
            case ast.BinOp(left=left, right=right):
                return _together([self.of(left), self.of(right)])
            case ast.IfExp(body=body, orelse=orelse):
                return _together([self.of(body), self.of(orelse)])
            case ast.Call():
                return self._call(node)
        return ""

    def _name(self, name: str) -> str:
        if name in self.by_name:
            return self.by_name[name]
        one = self.subject.declared.get(name)
        if one is not None and one.kind == "scalar":
            return "vector" if one.element else _of_dtype(one.dtype)
        value = None if one is not None else find_called_function(self.subject.source, ast.Name(name, ast.Load()))
        return "int" if isinstance(value, int) else "float" if isinstance(value, float) else ""

    def dtype_of(self, array: str) -> str:
        """What an array is declared to hold, "int" or "float"; "" where that is open."""
        one = self.subject.declared.get(array)
        return "int" if array in self.subject.integers else _of_dtype(one.dtype) if one is not None else ""

    def _element(self, node: ast.Subscript | ast.Attribute) -> str:
        if is_size(node):
            return "int"
        name = root(node)
        if name in self.subject.integers or self.subject.declared.get(name, _OPEN).kind == "array":
            return self.dtype_of(name)
        return "float" if self.by_name.get(name) == "vector" else ""

    def _call(self, node: ast.Call) -> str:
        name = self.subject.resolve_builtin(node)
        given = [*node.args, *(word.value for word in node.keywords)]
        if name in ("cast", "round", "floor", "ceil") and len(given) == 2:
            return _resolve_dtype(given[1])
        if name in _INTEGER_TYPES:
            return "int"
        if name in _FLOAT_TYPES or name in FLOATS:
            return "float" if all(self.of(one) != "vector" for one in given) else "vector"
        if name in _VECTORS:
            return "vector"
        if name.startswith("atomic_") and given:
            return self.of(given[0])
        if name == "select" and len(given) == 3:
            return _together(map(self.of, given[1:]))
        return _together(map(self.of, given)) if name in _SAME else ""

    @lazy
    def integers(self) -> frozenset[str]:
        """Locals that hold integers."""
        return frozenset(name for name, kind in self.by_name.items() if kind == "int")


def _resolve_dtype(node: ast.expr) -> str:
    """The type that an expression such as `ti.i32` names."""
    return _of_dtype(node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", ""))


def _of_dtype(name: str) -> str:
    return "int" if name in _INTEGER_TYPES else "float" if name in _FLOAT_TYPES else ""


def _together(kinds: Iterable[str]) -> str:
    """The type of an operation on several: unknown with what is unknown, unless a float is there."""
    present = set(kinds)
    for kind in ("vector", "float", "", "int"):
        if kind in present:
            return kind
    return ""
