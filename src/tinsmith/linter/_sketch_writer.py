"""Writes sketches: Python's tree to IR, statement by statement, with engine functions in place of their calls.

An expression becomes a value; what it needs done first (the statements of a function that it calls, an atomic) is
written before the statement that it stands in.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

from ..analyses import Origin, is_private, opaque
from ..codegen import ATOMIC_AUGMENTED, BINARY, COMPARE, UNARY
from ..engines import list_children, walk
from ..frontend import (
    Callee,
    Source,
    assignments,
    callee_of,
    definitions,
    find_called_function,
    get_iterable,
    index_parts,
    is_serialized,
    is_static,
    range_bounds,
    resolve_callee,
    root,
    shaping_name,
)
from ..ir import AtomicOperator, Operator, Type, nodes, operators
from ..ir import walk as ir_walk
from ._members import chain_text
from ._source_form import get_all_arguments, get_integer
from ._subject import Subject

_ATOMICS = {f"atomic_{name}": name for name in operators.ATOMIC}
_TRANSPARENT = frozenset({"static", "int", "cast", Type.I32, Type.I64, Type.U32})
_OF_FLOATS = frozenset({"sqrt", "floor", "ceil"})
_ARITHMETIC = frozenset({("min", 2), ("max", 2), ("abs", 1), *((word, 1) for word in _OF_FLOATS)})
"""Functions whose values the race analysis can compute, each with its number of arguments."""
_COMPARISONS = frozenset(COMPARE)
_ZERO = nodes.Const(0, Type.I32)
_LETTERS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}
_FIRST_MEMBER = 1000
"""The number of the first member of a struct: vectors are shorter."""
MOST_DEPTH = 8
"""Calls inside calls that are followed."""

Element = nodes.Load | nodes.Store | nodes.Atomic
_Bounds = tuple[nodes.Expr, nodes.Expr]


class Place(NamedTuple):
    """An element that a statement uses, by the line of the statement."""

    line: int
    array: str
    indices: tuple[nodes.Expr, ...]


class Noted(NamedTuple):
    """An expression, and what stands in the text for it."""

    expr: nodes.Expr
    node: ast.expr


def guess_type(subject: Subject, array: str) -> Type:
    """Return the type of an array, float where it is not known."""
    return Type.I32 if array in subject.integers else Type.F32


@dataclass
class _Frame:
    """The kernel, or an engine function that it calls.

    Attributes:
        source: its source.
        names: what its names mean: an array, by its name, or a value.
        call: for a function of another file, the call in the kernel's own file that leads to it.
        lent: names that stand for elements themselves, which the function was given by reference.
    """

    source: Source
    names: dict[str, nodes.Expr | str]
    call: ast.Call | None = None
    lent: dict[str, nodes.Load] = field(default_factory=dict)


class SketchWriter:
    """Writes the sketch of a kernel.

    Attributes:
        cells: locals of the top level that a parallel loop changes.
        escaped: arrays that something uses in a way that is not followed.
        places: the nodes of stores and atomics, by number.
        elements: the subscripts of the kernel's own text.
        noted: the expressions of the kernel's own text, with what stands there.
        source_names: what the source calls locals.
        returns_early: whether a `return` of the kernel's own may skip what stands behind it.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.cells: set[str] = set()
        self.escaped: set[str] = set()
        self.places: dict[int, ast.expr] = {}
        self.elements: dict[Place, ast.Subscript] = {}
        self.noted: list[Noted] = []
        self.source_names: dict[str, str] = {}
        self.returns_early = False
        self._members: dict[str, int] = {}
        self._numbers = count(1)
        self._frame = _Frame(subject.source, {name: name for name in subject.arrays})
        self._depth = 0
        self._written: list[nodes.Stmt] = []
        self._line = 0

    def write(self) -> nodes.Block:
        """Write all statements."""
        (self._top if self.subject.is_kernel else self._statements)(self.subject.tree.body)
        return tuple(self._written)

    # Statements -------------------------------------------------------------------------------

    def _top(self, body: Sequence[ast.stmt]) -> None:
        """Write the kernel's top level, whose loops are parallel unless a setting makes them serial."""
        # What a block inside is the first to assign belongs to that block.
        outer = {root(target) for one in body for target, _ in assignments(one) if isinstance(target, ast.Name)}
        self.cells |= outer & _find_assigned(one for one in body if isinstance(one, ast.For))
        is_serial = False
        for one in body:
            if is_static(one):
                self._top(one.body)
            elif isinstance(one, ast.For):
                self._loop(one, is_parallel=not is_serial)
            else:
                self._statement(one)
            is_serial = not isinstance(one, ast.For) and (is_serial or is_serialized(one))

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for one in body:
            self._statement(one)

    def _block(self, body: Sequence[ast.stmt], *first: nodes.Stmt, test: ast.expr | None = None) -> nodes.Block:
        """Return the statements of a block, behind some others. It is left where `test` does not hold."""
        outer, self._written = self._written, [*first]
        if test is not None:
            ends = nodes.Unary(Operator.NOT, self._value(test), Type.U1)
            self._written.append(nodes.If(ends, (nodes.Break(self._line),), (), self._line))
        self._statements(body)
        inner, self._written = tuple(self._written), outer
        return inner

    def _statement(self, one: ast.stmt) -> None:
        line = self._line = self._line_of(one)
        match one:
            case ast.For():
                self._loop(one)
            case ast.While(test=test, body=body):
                self._written.append(nodes.While(self._block(body, test=test), line))
            case ast.If(test=test, body=body, orelse=orelse):
                condition = self._value(test)
                if resolve_callee(test) == "static":
                    condition = self._opaque(Origin.UNKNOWN, Type.U1)
                self._written.append(nodes.If(condition, self._block(body), self._block(orelse), line))
            case ast.Break() | ast.Continue():
                self._written.append(_JUMPS[type(one)](line))
            case ast.AugAssign():
                self._update(one)
            case ast.Assign() | ast.AnnAssign():
                self._assign_all(one)
            case ast.Expr(value=value):
                self._value(value)
            case ast.Return(value=value):
                self.returns_early |= self._depth == 0 and one is not self.subject.tree.body[-1]
                if value is not None:
                    self._value(value)

    def _assign_all(self, one: ast.Assign | ast.AnnAssign) -> None:
        for target, value in assignments(one):
            if self._is_computed_by_python(target, value):
                self._frame.names[root(target)] = self._value(value)
            else:
                self._assign(target, self._value(value))

    def _is_computed_by_python(self, target: ast.expr, value: ast.expr) -> bool:
        """Return True for `k = ti.static(...)`, after which `k` is Python's number and no local."""
        if not isinstance(target, ast.Name) or resolve_callee(value) != "static":
            return False
        return target.id in definitions(self._frame.source.tree).single and target.id not in self.cells

    def _update(self, one: ast.AugAssign) -> None:
        number = self._value(one.value)
        word = ATOMIC_AUGMENTED.get(type(one.op))
        if word is not None:
            self._atomic(word, one.target, number, None)
            return
        old = self._value(one.target)
        new = nodes.Binary(BINARY.get(type(one.op), Operator.ADD), old, number, old.type)
        if not self._depth:
            self.noted.append(Noted(new, next(value for _, value in assignments(one))))
        self._assign(one.target, new)

    def _loop(self, one: ast.For, *, is_parallel: bool = False) -> None:
        self._line = self._line_of(one)
        names = [part.id for part in walk(one.target) if isinstance(part, ast.Name)]
        bounds, first = self._ranges(get_iterable(one), names), list[nodes.Stmt]()
        variables = tuple(map(self._fresh, names))
        self._frame.names |= {name: nodes.Local(local, Type.I32) for name, local in zip(names, variables, strict=True)}
        if len(variables) == 1 and len(bounds) != 1:
            # A vector of indices, or a range with a step: as one number, which is another one in each iteration.
            bounds = [(self._opaque(Origin.UNKNOWN, Type.I32), self._opaque(Origin.UNKNOWN, Type.I32))]
        elif not bounds or len(bounds) != len(variables):
            # Of these iterations nothing is known: one variable that tells them apart.
            first = [nodes.Assign(name, self._opaque(Origin.UNKNOWN, Type.I32), self._line) for name in variables]
            variables, bounds = (self._fresh("iteration"),), [(_ZERO, self._opaque(Origin.UNKNOWN, Type.I32))]
        body = self._block(one.body, *first)
        self._written.append(nodes.For(variables, tuple(bounds), body, is_parallel, self._line_of(one)))

    def _ranges(self, iterable: ast.expr, names: Sequence[str]) -> list[_Bounds]:
        """Return the first value and the end of each variable of a loop; fewer where they are not known."""
        listed = _read_consecutive(iterable)
        if listed is not None:
            return [(nodes.Const(listed.start, Type.I32), nodes.Const(listed.stop, Type.I32))]
        bounds: list[_Bounds] = []
        for ends in range_bounds(iterable):
            values = [self._value(end) for end in ends[:2]]
            if len(ends) > 2 or not values:
                return []
            bounds.append((_ZERO, values[0]) if len(values) == 1 else (values[0], values[1]))
        if not bounds and (isinstance(iterable, ast.Name | ast.Attribute) or resolve_callee(iterable) == "grouped"):
            name = shaping_name(iterable) or ast.unparse(iterable)
            shaped = self._frame.names.get(name)
            array = shaped if isinstance(shaped, str) else name
            ranks = {item.name: len(item.sizes) for item in self.subject.spec_items if not item.has_rest}
            if len(names) > ranks.get(array, len(names)):
                return []  # a mistake, which its engine names
            bounds = [(_ZERO, nodes.Size(array, axis)) for axis in range(len(names))]
        return bounds

    def _assign(self, target: ast.expr, value: nodes.Expr) -> None:
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._assign(part, self._part_of(value))
                return
            case ast.Subscript() | ast.Attribute():
                element = self._element(target)
                if element is None:
                    return
            case ast.Name(id=name):
                element = self._find_stored_element(name)
                if element is None:
                    self._written.append(nodes.Assign(self._local(name, value.type), value, self._line_of(target)))
                    return
            case _:
                return
        where = element.array, element.index, element.entry
        self._written.append(nodes.Store(*where, value, self._line_of(target), self._place(target)))

    def _atomic(self, word: AtomicOperator, target: ast.expr, value: nodes.Expr, result: str | None) -> None:
        element = self._find_stored_element(target.id) if isinstance(target, ast.Name) else self._element(target)
        if element is not None:
            where = element.array, element.index, element.entry
            self._written.append(nodes.Atomic(word, *where, value, result, self._line_of(target), self._place(target)))
        elif isinstance(target, ast.Name):
            old = self._value(target)
            self._assign(target, nodes.Binary(operators.ATOMIC[word], old, value, old.type))

    def _find_stored_element(self, name: str) -> nodes.Load | None:
        """Return the element that a name stands for: of a cell, or one that a function was given."""
        if name in self.cells and not self._depth:
            return nodes.Load(name, (), (), Type.F32)
        return self._frame.lent.get(name)

    # Expressions ------------------------------------------------------------------------------

    def _value(self, one: ast.expr) -> nodes.Expr:
        """Return the value of an expression, and write what its calls do."""
        expr = self._translate(one)
        if not self._depth:
            self.noted.append(Noted(expr, one))
        return expr

    def _translate(self, one: ast.expr) -> nodes.Expr:
        match one:
            case ast.Constant(value=bool() | int() | float() as value):
                return nodes.Const(value, _TYPES[type(value)])
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._value(operand)
            case ast.UnaryOp(op=op, operand=operand):
                inner, word = self._value(operand), UNARY[type(op)]
                return nodes.Unary(word, inner, Type.U1 if word is Operator.NOT else inner.type)
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
                first, second = self._value(left), self._value(right)
                kind = Type.F32 if isinstance(op, ast.Div) else _common(first, second)
                return nodes.Binary(BINARY[type(op)], first, second, kind)
            case ast.BoolOp(op=op, values=values):
                word = Operator.AND if isinstance(op, ast.And) else Operator.OR
                return _join(word, [self._value(part) for part in values])
            case ast.Compare(left=left, ops=ops, comparators=others) if {*map(type, ops)} <= _COMPARISONS:
                sides, words = [self._value(part) for part in (left, *others)], COMPARE
                tests = zip(ops, sides, sides[1:], strict=False)
                compared = [nodes.Binary(words[type(op)], one, two, Type.U1) for op, one, two in tests]
                return _join(Operator.AND, compared)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(test, body, orelse)
            case ast.Call():
                return self._call(one)
            case ast.Subscript() | ast.Attribute():
                return self._element_or_size(one)
        return self._unknown(one)

    def _choice(self, *parts: ast.expr) -> nodes.Select:
        condition, then, otherwise = map(self._value, parts)
        return nodes.Select(condition, then, otherwise, then.type)

    def _element_or_size(self, one: ast.Subscript | ast.Attribute) -> nodes.Expr:
        """Return a size, an element of an array, or a number of an object; or an opaque value."""
        match one:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(int(axis))
            ):
                array = self._frame.names.get(name)
                return nodes.Size(array, axis) if isinstance(array, str) else self._opaque(Origin.UNKNOWN, Type.I32)
        element, name = self._element(one), root(one)
        if element is None and isinstance(one, ast.Attribute) and name and name not in self._frame.names:
            text = chain_text(one) or ast.unparse(one)
            return nodes.Argument(text, Type.I32)  # a number of an object: the same in all iterations
        return element or self._unknown(one)

    def _call(self, one: ast.Call) -> nodes.Expr:
        word = resolve_callee(one)
        if word in _ATOMICS and len(one.args) == 2:
            value, result = self._value(one.args[1]), self._fresh("before")
            self._atomic(_ATOMICS[word], one.args[0], value, result)
            return nodes.Local(result, value.type)
        if word in _TRANSPARENT and one.args:
            inner = self._value(one.args[0])
            is_whole = word != "static" and (word != "cast" or "f" not in ast.unparse(one.args[-1]).rpartition(".")[2])
            return nodes.Cast(inner, Type.I32) if is_whole and inner.type == Type.F32 else inner
        if (word, len(one.args)) in _ARITHMETIC and not one.keywords:
            operands = [self._value(part) for part in one.args]
            if len(operands) == 1:
                return nodes.Unary(Operator(word), operands[0], Type.F32 if word in _OF_FLOATS else operands[0].type)
            return nodes.Binary(Operator(word), operands[0], operands[1], _common(*operands))
        if word == "select" and len(one.args) == 3:
            return self._choice(*one.args)
        if word == "random":
            return self._opaque(Origin.DATA, Type.F32)
        callee = callee_of(self._frame.source, one, self.subject.engine)
        if callee is not None and self._depth < MOST_DEPTH - 1:
            return self._follow(one, callee)
        if one.args and all(map(_is_constant, get_all_arguments(one))):
            return nodes.Argument(ast.unparse(one), Type.F32)  # a vector of constants: the same in all iterations
        return self._unknown(one)

    def _follow(self, one: ast.Call, callee: Callee) -> nodes.Expr:
        """Write the statements of a function of the file, and return a stand-in for its result: an argument if it is
        the same in all iterations, else an opaque value.
        """
        is_own_file = callee.source.path == self.subject.source.path
        frame, line = _Frame(callee.source, {}, None if is_own_file else self._frame.call or one), self._line
        for name, argument in callee.arguments.items():
            array = self._frame.names.get(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(array, str):
                frame.names[name] = array
            elif isinstance(argument, ast.Subscript) and not isinstance(argument.value, ast.Attribute):
                element = self._element(argument)
                if element is not None and callee.source.is_template(name):
                    frame.lent[name] = element
                frame.names[name] = element or self._unknown(argument)
            else:
                frame.names[name] = self._value(argument)
        outer, self._frame = self._frame, frame
        self._depth += 1
        self._statements(callee.source.tree.body)
        self._depth -= 1
        self._frame, self._line = outer, line
        given = [value for value in frame.names.values() if not isinstance(value, str)]
        if len(given) == len(frame.names) and not any(map(is_private, given)):
            return nodes.Argument(ast.unparse(one), Type.F32)  # the same in all iterations
        return self._opaque(Origin.UNKNOWN, Type.F32)

    def _unknown(self, one: ast.expr) -> nodes.Expr:
        """Return an opaque value for an expression that is not followed, whose parts are read."""
        for part in list_children(one):
            array = self._frame.names.get(part.id) if isinstance(part, ast.Name) else None
            if isinstance(array, str):
                self.escaped.add(array)
            elif isinstance(part, ast.expr):
                value = self._value(part)
                if not isinstance(value, _WITHOUT_MEMORY):
                    self._written.append(nodes.Assign(self._fresh("part"), value, self._line))
        return self._opaque(Origin.UNKNOWN, Type.F32)

    def _name(self, name: str) -> nodes.Expr:
        if name in self.cells and not self._depth:
            return nodes.Load(name, (), (), Type.F32)
        meaning = self._frame.names.get(name)
        if isinstance(meaning, str):
            self.escaped.add(meaning)  # a whole array, as it is
            return self._opaque(Origin.DATA, Type.F32)
        if meaning is not None:
            return meaning
        declared = None if self._depth else self.subject.declared.get(name)
        if declared is not None and declared.kind == "scalar" and not declared.element:
            return nodes.Argument(name, Type.F32 if declared.dtype.startswith("f") else Type.I32)
        value = find_called_function(self._frame.source, ast.Name(name, ast.Load()))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return nodes.Const(value, Type.F32 if isinstance(value, float) else Type.I32)
        return nodes.Argument(name, Type.I32)  # a number of the file, or an attribute: the same in all iterations

    def _local(self, name: str, kind: Type) -> str:
        """Return the local that a name of the present function stands for."""
        meaning = self._frame.names.get(name)
        if isinstance(meaning, nodes.Local) and meaning.type == kind:
            return meaning.name
        local = self._fresh(name)
        self._frame.names[name] = nodes.Local(local, kind)
        return local

    def _element(self, one: ast.expr) -> nodes.Load | None:
        """Return the element of an array that a subscript means; None for other things."""
        entries: list[ast.expr] = []
        while isinstance(one, ast.Subscript | ast.Attribute):
            array = self._frame.names.get(one.value.id) if isinstance(one.value, ast.Name) else None
            if isinstance(one, ast.Subscript) and isinstance(array, str):
                index = tuple(self._value(part) for part in index_parts(one.slice) if not _is_none(part))
                for line in {self._line, one.lineno} if not self._depth else ():
                    self.elements.setdefault(Place(line, array, index), one)
                return self._entry(nodes.Load(array, index, (), guess_type(self.subject, array)), entries)
            entries.append(one.slice if isinstance(one, ast.Subscript) else ast.Constant(one.attr))
            one = one.value
        return None

    def _entry(self, load: nodes.Load, entries: Sequence[ast.expr]) -> nodes.Load:
        numbers = [one.value for one in reversed(entries) if isinstance(one, ast.Constant)]
        if len(numbers) != len(entries):
            self.escaped.add(load.array)  # a number of a vector that the run chooses
            return load
        return replace(load, entry=tuple(one if isinstance(one, int) else self._number(str(one)) for one in numbers))

    def _number(self, member: str) -> int:
        """Return the entry of a vector that a letter names; for a member of a struct a number of its own."""
        return _LETTERS.get(member, self._members.setdefault(member, _FIRST_MEMBER + len(self._members)))

    def _part_of(self, value: nodes.Expr) -> nodes.Expr:
        """Return an opaque value for a part of another one."""
        is_data = any(isinstance(part, nodes.Load) for part in ir_walk.parts(value))
        return self._opaque(Origin.DATA if is_data else Origin.UNKNOWN, value.type)

    def _opaque(self, origin: Origin, kind: Type) -> nodes.Local:
        return opaque(origin, kind, -next(self._numbers))

    def _fresh(self, name: str) -> str:
        local = f"{name}@{next(self._numbers)}"
        self.source_names[local] = name
        return local

    def _place(self, node: ast.expr) -> int:
        number = next(self._numbers)
        self.places[number] = self._frame.call or node
        return number

    def _line_of(self, node: ast.stmt | ast.expr) -> int:
        """Return the line of a node in the kernel's file: that of the call for a node of another file."""
        # As `lower` has it, so that lint and `ts.op` place a finding alike.
        return (self._frame.call or node).lineno


_WITHOUT_MEMORY = (nodes.Const, nodes.Argument, nodes.Local, nodes.Size)
"""Values that read no array."""
_JUMPS = {ast.Break: nodes.Break, ast.Continue: nodes.Continue}
_TYPES = {bool: Type.U1, int: Type.I32, float: Type.F32}


def _find_assigned(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names that statements, or those inside them, assign."""
    parts = (part for one in statements for part in walk(one) if isinstance(part, ast.stmt))
    return {target.id for part in parts for target, _ in assignments(part) if isinstance(target, ast.Name)}


def _common(first: nodes.Expr, second: nodes.Expr) -> Type:
    return Type.F32 if Type.F32 in (first.type, second.type) else Type.I32


def _join(word: Operator, parts: Sequence[nodes.Expr]) -> nodes.Expr:
    whole = parts[0]
    for part in parts[1:]:
        whole = nodes.Binary(word, whole, part, Type.U1)
    return whole


def _is_constant(node: ast.expr) -> bool:
    """Return True for a number, a list of numbers, and a dtype below a module: `ti.f32`."""
    match node:
        case ast.Constant() | ast.Attribute(value=ast.Name()):
            return True
        case ast.UnaryOp(operand=operand):
            return _is_constant(operand)
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return all(map(_is_constant, parts))
    return False


def _read_consecutive(node: ast.expr) -> range | None:
    """Return the numbers of a list as a range, if they follow each other: of `[0, -1]` both from -1 on."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    numbers = sorted(number for part in parts if (number := get_integer(part)) is not None)
    whole = range(numbers[0], numbers[-1] + 1) if numbers else range(0)
    return whole if numbers and len(parts) == len(numbers) and numbers == [*whole] else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
