"""Read indices of Python's tree as affine sums (`AffineIndex`), and tell which of their atoms are invariant.

An atom of the tree is a text: a name; `t@12:4`, the variable of the loop on line 12; `<idx[i]|i@3:4>`, an expression
that is not a sum, with the atoms of all names in it. A `~` marks an atom that may have another value at each use.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from ..engines import walk
from ..ir import AffineIndex, IsInvariant, combine
from ._definitions import definitions
from ._loops import get_iterable
from ._nodes import index_parts, names_in, resolve_callee

MOVING = "~"
"""Marks an atom that may have another value at each use."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:@[\w:.]+)?")
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_INTEGERS = frozenset({"int", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"})
_CASTS = frozenset({"int", "i32", "i64", "u32", "u64", "static"})
_STEADY_CALLS = frozenset({"min", "max", "abs", "floor", "ceil", "Vector", "ivec2", "ivec3", "vec2", "vec3", "static"})
T = TypeVar("T")


def affine_of(node: ast.expr, leaf: Callable[[ast.expr], AffineIndex | T]) -> AffineIndex | T:
    """Read an expression as a sum. `leaf` is asked for names, and for other expressions that are not a sum."""
    match node:
        # `bool` is a subclass of `int` in Python.
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return AffineIndex(constant=value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = affine_of(operand, leaf)
            return inner.times(-1) if isinstance(inner, AffineIndex) else inner
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            first, second = affine_of(left, leaf), affine_of(right, leaf)
            if isinstance(first, AffineIndex) and isinstance(second, AffineIndex):
                combined = combine(_OPERATORS[type(op)], first, second)
                return leaf(node) if combined is None else combined
        case ast.Call(args=[inner]) if _is_cast(node):
            return affine_of(inner, leaf)
    return leaf(node)


def bind_index(index: AffineIndex, values: Mapping[str, int | str]) -> AffineIndex:
    """Substitute the arguments of one launch in an index: by their values, or by names that only this launch has."""
    if not values or not index.terms:
        return index
    bound = AffineIndex(constant=index.constant, wide=frozenset(_bind_atom(str(atom), values) for atom in index.wide))
    for atom, factor in index.terms.items():
        value = values.get(atom)
        is_number = isinstance(value, int)
        one = AffineIndex(constant=value) if is_number else AffineIndex({_bind_atom(atom, values): 1})
        bound = bound.plus(one, factor)
    return bound


def _bind_atom(atom: str, values: Mapping[str, int | str]) -> str:
    """Replace names in an atom by the text of their values, so that equal values make equal atoms."""
    return _NAME.sub(lambda match: str(values.get(match[0], match[0])), atom)


def invariant_without(changing: frozenset[str]) -> IsInvariant:
    """Return a test for atoms that have one value wherever given loop variables have.

    Elements of the arrays in `changing` may change at any time.
    """
    return partial(_is_invariant, changing)


def _is_invariant(changing: frozenset[str], atom: str, still: Collection[str]) -> bool:
    if MOVING in atom:
        return False
    names = _NAME.findall(atom)
    # An `@` marks a loop variable (`IndexReader.enter`).
    return not any(("@" in name and name not in still) or name in changing for name in names)


class IndexReader:
    """Reads the indices of one function, by what its names stand for.

    Args:
        tree: the function.
        given: the arguments of its parameters, as far as the caller knows them.
        prefix: distinguishes the names of this call from those of other calls of the function.
    """

    def __init__(self, tree: ast.FunctionDef, given: Mapping[str, AffineIndex], prefix: str = "") -> None:
        self._given = given
        self.prefix = prefix
        self._parameters = {argument.arg for argument in tree.args.args}
        self._scalars = {one.arg for one in tree.args.args if _is_integer(one.annotation)}
        self._single, self._locals = definitions(tree)
        self._loops: list[tuple[str, str]] = []
        self._wide_loops: set[str] = set()
        self._busy: set[str] = set()

    def enter(self, loop: ast.For | ast.While) -> tuple[str, ...]:
        """Return the atoms of a loop's variables. Names mean them until `leave`."""
        names = sorted(names_in(loop.target)) if isinstance(loop, ast.For) else []
        atoms = tuple(f"{name}@{self.key(loop)}" for name in names)
        self._loops.extend(zip(names, atoms, strict=True))
        if isinstance(loop, ast.For) and not _gives_numbers(loop):
            # A vector: one atom for several axes of an array.
            self._wide_loops |= set(atoms)
        return atoms

    def leave(self, loop: ast.For | ast.While) -> None:
        count = len(names_in(loop.target)) if isinstance(loop, ast.For) else 0
        del self._loops[len(self._loops) - count :]

    def key(self, loop: ast.For | ast.While) -> str:
        return f"{self.prefix}{loop.lineno}:{loop.col_offset}"

    def index(self, node: ast.expr) -> tuple[AffineIndex, ...]:
        """Read what stands in brackets: one sum for each part."""
        return tuple(self.read(part) for part in index_parts(node))

    def read(self, node: ast.expr) -> AffineIndex:
        """Return an index expression as a sum of names with factors, plus a constant."""
        return affine_of(node, self._leaf)

    def _leaf(self, node: ast.expr) -> AffineIndex:
        return self._name(node.id) if isinstance(node, ast.Name) else self._whole(node)

    def _name(self, name: str) -> AffineIndex:
        # The variable of an inner loop hides that of an outer one.
        for known, atom in reversed(self._loops):
            if known == name:
                return AffineIndex({atom: 1}, wide=frozenset({atom} & self._wide_loops))
        if name in self._given:
            return self._given[name]
        # Definitions in the text may form a circle: `a = b` and `b = a`.
        if name in self._single and name not in self._busy:
            self._busy.add(name)
            index = self.read(self._single[name])
            self._busy.discard(name)
            return index
        # A kernel's own parameters keep their values. Those of a called function that are not in `given` may have any.
        is_steady = name not in self._locals and not (self.prefix and name in self._parameters)
        atom = name if is_steady else f"{MOVING}{self.prefix}{name}"
        return AffineIndex({atom: 1}, wide=frozenset() if name in self._scalars else frozenset({atom}))

    def _whole(self, node: ast.expr) -> AffineIndex:
        """Return an expression that is not a sum as an atom, which has the atoms of all names in it."""
        inside = sorted({atom for name in names_in(node) for atom in self._name(name).terms})
        calls = [child for child in walk(node) if isinstance(child, ast.Call)]
        # Another function may return another value each time, such as `ti.random()`.
        mark = MOVING if any(not _is_cast(call) and resolve_callee(call) not in _STEADY_CALLS for call in calls) else ""
        atom = f"{mark}<{ast.unparse(node)}|{' '.join(inside)}>"
        return AffineIndex({atom: 1}, wide=frozenset() if self._is_number(node) else frozenset({atom}))

    def _is_number(self, node: ast.expr) -> bool:
        """Return True if an expression is certainly not a vector: an operation on numbers, or a size."""
        match node:
            case ast.Constant():
                return True
            case ast.Name():
                return not self.read(node).wide
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand)
            case ast.BinOp(left=left, right=right):
                return self._is_number(left) and self._is_number(right)
            case ast.Call(args=arguments) if _is_cast(node) or resolve_callee(node) in ("min", "max", "abs"):
                return all(self._is_number(one) for one in arguments)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
        return False


def _gives_numbers(loop: ast.For) -> bool:
    """Return True if each variable of a loop is a number: not for `ti.grouped(...)`, or one name for a whole index."""
    counted = get_iterable(loop)
    name = resolve_callee(counted) if isinstance(counted, ast.Call) else ""
    return name == "range" or (name != "grouped" and isinstance(loop.target, ast.Tuple))


def _is_integer(annotation: ast.expr | None) -> bool:
    """Return True if a parameter is annotated as an integer: `ti.i32`, `int`."""
    return (annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", "")) in _INTEGERS


def _is_cast(call: ast.Call) -> bool:
    return resolve_callee(call) in _CASTS and len(call.args) == 1
