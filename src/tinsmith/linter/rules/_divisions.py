"""Divisions of integers that engines know when they compile, by another rule than the one at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ...frontend import definitions, find_called_function, walk
from .._finding import Finding
from .._subject import BOTH, Subject

_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr, ast.BitXor)
_CASTS = frozenset({"cast", "int", "i8", "i16", "i32", "i64"})
_CHOICES = frozenset({"abs", "max", "min"})


def known_divisions(subject: Subject) -> Iterator[Finding]:
    """TS306: of locals that are given a known number once, and never of what Python itself divides."""
    known = _KnownIntegers(subject)
    for spot in subject.spots:
        updates = [value for _, value in spot.assignments] if isinstance(spot.statement, ast.AugAssign) else []
        for node in (*spot.expressions, *updates):
            if not known.misleads(node) or any(known.misleads(one) for one in walk(node) if one is not node):
                continue
            words = f"`{subject.text(node)}` divides integers that are known at compile time: there {BOTH} round "
            words += "towards zero, while Python and the engines at run time round down"
            local = known.locals_in(node)[0]
            remedy = f"{local} = {subject.module_name}.static({subject.text(known.values[local])})"
            yield subject.finding("TS306", "warning", node, words, remedy)


class _KnownIntegers:
    """Integers that an engine knows when it compiles.

    Attributes:
        values: of the engine's locals that are given a value once.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        single = definitions(subject.tree).single
        self.values: Mapping[str, ast.expr] = {
            name: value for name, value in single.items() if subject.resolve_builtin(value) != "static"
        }

    def misleads(self, node: ast.AST) -> bool:
        """Whether a node is a division that the engine computes when it compiles, and may round up."""
        match node:
            case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod(), right=right) if self.locals_in(node):
                sides = (left, right)
                return all(map(self.has, sides)) and not all(map(self.is_natural, sides))
        return False

    def locals_in(self, node: ast.expr) -> list[str]:
        """The engine's locals in an expression: without any, Python computes it."""
        return [one.id for one in walk(node) if isinstance(one, ast.Name) and one.id in self.values]

    def has(self, node: ast.expr) -> bool:
        """Whether the engine knows an integer."""
        match node:
            case ast.Constant(value=bool()):
                return False
            case ast.Constant(value=int()):
                return True
            case ast.Name(id=name) if name in self.values:
                return self.has(self.values[name])
            case ast.Name():
                return self._captured_int(node) is not None
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner):
                return self.has(inner)
            case ast.BinOp(left=left, op=op, right=right):
                return isinstance(op, _OPERATORS) and self.has(left) and self.has(right)
            case ast.Call(args=[first, *others]):
                name = self.subject.resolve_builtin(node)
                return self.has(first) and (name in _CASTS or (name in _CHOICES and all(map(self.has, others))))
        return False

    def is_natural(self, node: ast.expr) -> bool:
        """Whether a known integer is surely not negative."""
        match node:
            case ast.Constant(value=int() as value):
                return value >= 0
            case ast.Name(id=name) if name in self.values:
                return self.is_natural(self.values[name])
            case ast.Name():
                return (self._captured_int(node) or 0) >= 0
            case ast.BinOp(left=left, op=op, right=right):
                return not isinstance(op, ast.Sub) and self.is_natural(left) and self.is_natural(right)
            case ast.Call(args=[first, *others]):
                name = self.subject.resolve_builtin(node)
                is_cast = name in _CASTS
                return name == "abs" or (self.is_natural(first) and (is_cast or all(map(self.is_natural, others))))
        return False

    def _captured_int(self, node: ast.Name) -> int | None:
        """Python's integer of a name that is none of the kernel's own."""
        if node.id in self.subject.source.assigned_names or node.id in self.subject.declared:
            return None
        value = find_called_function(self.subject.source, node)
        return value if isinstance(value, int) and not isinstance(value, bool) else None
