"""A sketch: the loops and accesses of a kernel's tree as IR, without an engine, for the analysis of races.

The file is not run, so types are guesses and unknown values are opaque: what a sketch cannot express makes an index or
a condition unknown, and nothing certain follows from it. Where a kernel can be lowered, `ts.op` asks the same analysis
about the kernel itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from .._lazy import lazy
from ..analyses import Origin, definitions, is_private, opaque, single_definitions
from ..codegen import python_operators
from ..engines import Engine, parse_expression
from ..frontend import (
    Callee,
    assignments,
    callee_of,
    find_called_function,
    get_iterable,
    index_parts,
    is_serialized,
    is_static,
    range_bounds,
    resolve_callee,
    root,
    shaping_name,
    walk,
)
from ..frontend import definitions as definitions_of_tree
from ..ir import AtomicOperator, Operator, Type, nodes, operators
from ..ir import walk as ir_walk
from ..spec import DimSizes
from ._subject import Subject

_ATOMICS = {f"atomic_{name}": name for name in operators.ATOMIC}
_TRANSPARENT = frozenset({"static", "int", "cast", Type.I32, Type.I64, Type.U32})
_OF_FLOATS = frozenset({"sqrt", "floor", "ceil"})
_ARITHMETIC = frozenset({("min", 2), ("max", 2), ("abs", 1), *((word, 1) for word in _OF_FLOATS)})
"""Functions whose values the race analysis can compute, each with its number of arguments."""
_ZERO, _ONE = nodes.Const(0, Type.I32), nodes.Const(1, Type.I32)
MOST_DEPTH = 8
"""Calls inside calls that are followed."""


Element = nodes.Load | nodes.Store | nodes.Atomic


class Noted(NamedTuple):
    """An expression, and what stands in the text for it."""

    expr: nodes.Expr
    node: ast.expr


@dataclass(frozen=True)
class Sketch:
    """A kernel as far as its tree tells.

    Attributes:
        kernel: its loops and accesses.
        places: the nodes of its stores and atomics, by number.
        elements: the subscripts of the kernel's own text, by the line of the statement, array and index.
        noted: expressions of the kernel's own text, in its order; those inside another one come first.
        escaped: arrays that something uses in a way that is not followed.
        returns_early: whether a `return` may skip what stands behind it.
    """

    kernel: nodes.Kernel
    places: Mapping[int, ast.expr]
    elements: Mapping[tuple[int, str, tuple[nodes.Expr, ...]], ast.Subscript]
    noted: Sequence[Noted]
    escaped: frozenset[str]
    returns_early: bool

    def find_element(self, access: Element, line: int) -> ast.Subscript | None:
        """Return the subscript that an access of a statement comes from.

        None if it stands in a function that the kernel calls.
        """
        return self.elements.get((line, access.array, access.index))

    @lazy
    def expressions(self) -> Mapping[ast.expr, nodes.Expr]:
        """The expressions of the kernel's own text, by what stands there."""
        return {one.node: one.expr for one in self.noted}

    @lazy
    def definitions(self) -> Mapping[str, nodes.Expr]:
        """What locals are computed from that have one definition."""
        return single_definitions(definitions(self.kernel.body))

    def resolve(self, expr: nodes.Expr | None) -> nodes.Expr | None:
        """Return what a local stands for that has one definition; other expressions as they are."""
        while isinstance(expr, nodes.Local) and expr.name in self.definitions:
            expr = self.definitions[expr.name]
        return expr


@lru_cache(maxsize=4)
def sketch_of(subject: Subject) -> Sketch:
    """Return the sketch of a kernel; several rules ask for it."""
    writer = _Writer(subject)
    body = tuple(writer.top(subject.tree.body)) if subject.is_kernel else writer.block(subject.tree.body)
    arrays = {name: _declare(subject, name) for name in sorted(subject.arrays)}
    cells = {name: nodes.Array(name, Type.F32, 0) for name in writer.cells}
    kernel = nodes.Kernel(
        subject.tree.name,
        subject.source.path,
        {**arrays, **cells},
        {},
        {},
        body,
        cells=tuple(writer.cells),
        source_names=writer.source_names,
    )
    returns = (node for node in subject.source.nodes if isinstance(node, ast.Return))
    returns_early = any(node is not subject.tree.body[-1] for node in returns)
    return Sketch(kernel, writer.places, writer.elements, writer.noted, frozenset(writer.escaped), returns_early)


def _declare(subject: Subject, name: str) -> nodes.Array:
    items = subject.spec.items if subject.spec else ()
    dims = next((item.sizes for item in items if item.name == name), _shape_of_field(subject, name))
    declared = subject.declared.get(name)
    return nodes.Array(
        name,
        _type_of_array(subject, name),
        len(dims),
        label=subject.label(name) if name in subject.labels else "",
        dims=dims,
        is_clamped=declared is not None and declared.is_clamped,
    )


def _type_of_array(subject: Subject, name: str) -> Type:
    """Return a guess of an array's type."""
    return Type.I32 if name in subject.integers else Type.F32


def _shape_of_field(subject: Subject, name: str) -> DimSizes:
    """Return the sizes of a live field that has all its elements and counts them from 0; () for all else."""
    engine = subject.engine
    if not isinstance(engine, Engine) or (name in subject.declared and name not in subject.labels):
        return ()
    value = subject.source.value(parse_expression(subject.label(name)))
    if not engine.is_field(value) or not any(leaf is value for _, leaf in engine.leaf_fields(value, name)):
        return ()
    facts = engine.field_facts(value, name)
    return () if not facts.is_dense or any(facts.offset) else tuple(facts.shape)


class _Scope(dict[str, "nodes.Expr | str"]):
    """What names of a function mean: an array, by its name, or a value.

    Attributes:
        elements: names that stand for elements themselves, which the function was given by reference.
    """

    def __init__(self, *given: dict[str, nodes.Expr | str]) -> None:
        super().__init__(*given)
        self.elements: dict[str, nodes.Load] = {}


@dataclass
class _Writer:
    """Writes a sketch.

    Attributes:
        cells: locals of the top level that a parallel loop changes.
        escaped: arrays that something uses in a way that is not followed.
        line: of the present statement.
    """

    subject: Subject
    cells: set[str] = field(default_factory=set)
    escaped: set[str] = field(default_factory=set)
    places: dict[int, ast.expr] = field(default_factory=dict)
    elements: dict[tuple[int, str, tuple[nodes.Expr, ...]], ast.Subscript] = field(default_factory=dict)
    noted: list[Noted] = field(default_factory=list)
    line: int = 0
    source_names: dict[str, str] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _source: list = field(default_factory=list)
    _scopes: list[_Scope] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._source.append(self.subject.source)
        self._scopes.append(_Scope({name: name for name in self.subject.arrays}))

    # The top level ----------------------------------------------------------------------------

    def top(self, body: Sequence[ast.stmt]) -> Iterator[nodes.Stmt]:
        """Yield the statements of the kernel's top level; its loops are parallel unless a setting makes them serial."""
        outer = {
            target.id
            for one in body
            if not isinstance(one, ast.For | ast.While)
            for part in walk(one)
            if isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign)
            for target, _ in assignments(part)
            if isinstance(target, ast.Name)
        }
        for one in body:
            if isinstance(one, ast.For):
                changed = {
                    target.id
                    for part in walk(one)
                    if isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign)
                    for target, _ in assignments(part)
                    if isinstance(target, ast.Name)
                }
                self.cells |= outer & changed
        is_serial = False
        for one in body:
            if is_static(one):
                yield from self.top(one.body)
            elif isinstance(one, ast.For):
                for loop in self.statement(one):
                    is_parallel = isinstance(loop, nodes.For) and not is_serial
                    yield replace(loop, is_parallel=True) if is_parallel and isinstance(loop, nodes.For) else loop
            else:
                yield from self.statement(one)
            is_serial = not isinstance(one, ast.For) and (is_serial or is_serialized(one))

    # Statements -------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt]) -> tuple[nodes.Stmt, ...]:
        return tuple(new for one in body for new in self.statement(one))

    def statement(self, one: ast.stmt) -> Iterator[nodes.Stmt]:
        line = self.line = one.lineno
        match one:
            case ast.For():
                yield from self.loop(one)
            case ast.While() | ast.If():
                yield from self.branch(one)
            case ast.Break():
                yield nodes.Break(line)
            case ast.Continue():
                yield nodes.Continue(line)
            case ast.AugAssign():
                yield from self.update(one)
            case ast.Assign() | ast.AnnAssign():
                for target, value in assignments(one):
                    number, before = self.value(value)
                    yield from before
                    if self.is_computed_by_python(target, value):
                        self._scopes[-1][root(target)] = number
                    else:
                        yield from self.assign(target, number)
            case ast.Expr(value=value) | ast.Return(value=ast.expr() as value):
                yield from self.value(value)[1]

    def is_computed_by_python(self, target: ast.expr, value: ast.expr) -> bool:
        """Return True for `k = ti.static(...)`, after which `k` is Python's number and no local."""
        if not isinstance(target, ast.Name) or resolve_callee(value) != "static":
            return False
        return target.id in definitions_of_tree(self._source[-1].tree).single and target.id not in self.cells

    def branch(self, one: ast.While | ast.If) -> Iterator[nodes.Stmt]:
        condition, before = self.value(one.test)
        if isinstance(one, ast.While):
            leave = nodes.If(condition, (), (nodes.Break(one.lineno),), one.lineno)
            yield nodes.While((*before, leave, *self.block(one.body)), one.lineno)
            return
        if resolve_callee(one.test) == "static":
            condition = self.opaque(Origin.UNKNOWN, Type.U1)
        yield from before
        yield nodes.If(condition, self.block(one.body), self.block(one.orelse), one.lineno)

    def update(self, one: ast.AugAssign) -> Iterator[nodes.Stmt]:
        number, before = self.value(one.value)
        yield from before
        word = python_operators.ATOMIC_AUGMENTED.get(type(one.op))
        if word is not None:
            yield from self.atomic(word, one.target, number, None)
            return
        old, before = self.value(one.target)
        yield from before
        sign = python_operators.BINARY.get(type(one.op), Operator.ADD)
        new = nodes.Binary(sign, old, number, old.type)
        self.note(new, next(value for _, value in assignments(one)))
        yield from self.assign(one.target, new)

    def loop(self, one: ast.For) -> Iterator[nodes.Stmt]:
        names, bounds, before = self.ranges(one)
        yield from before
        scope = self._scopes[-1]
        variables = []
        for name in names:
            local = self.fresh(name)
            scope[name] = nodes.Local(local, Type.I32)
            variables.append(local)
        if len(variables) == 1 and len(bounds) != 1:
            # A vector of indices, or a range with a step: as one number, which is another one in each iteration.
            ends = (self.opaque(Origin.UNKNOWN, Type.I32), self.opaque(Origin.UNKNOWN, Type.I32))
            yield nodes.For((variables[0],), (ends,), self.block(one.body), line=one.lineno)
            return
        if not bounds or len(bounds) != len(variables):
            # Of these iterations nothing is known: one variable that tells them apart.
            hidden = self.fresh("iteration")
            first = tuple(nodes.Assign(name, self.opaque(Origin.UNKNOWN, Type.I32), one.lineno) for name in variables)
            yield nodes.For(
                (hidden,), ((_ZERO, self.opaque(Origin.UNKNOWN, Type.I32)),), (*first, *self.block(one.body))
            )
            return
        yield nodes.For(tuple(variables), tuple(bounds), self.block(one.body), line=one.lineno)

    def ranges(self, one: ast.For) -> tuple[list[str], list[tuple[nodes.Expr, nodes.Expr]], list[nodes.Stmt]]:
        names = [part.id for part in walk(one.target) if isinstance(part, ast.Name)]
        iterable, before = get_iterable(one), list[nodes.Stmt]()
        bounds: list[tuple[nodes.Expr, nodes.Expr]] = []
        listed = _read_consecutive(iterable)
        if listed is not None:
            return names, [(nodes.Const(listed.start, Type.I32), nodes.Const(listed.stop, Type.I32))], before
        for ends in range_bounds(iterable):
            values = []
            for end in ends[:2]:
                value, first = self.value(end)
                values.append(value)
                before += first
            if len(ends) > 2 or not values:
                return names, [], before
            bounds.append((_ZERO, values[0]) if len(values) == 1 else (values[0], values[1]))
        if not bounds and (isinstance(iterable, ast.Name | ast.Attribute) or resolve_callee(iterable) == "grouped"):
            name = shaping_name(iterable) or ast.unparse(iterable)
            shaped = self._scopes[-1].get(name)
            array = shaped if isinstance(shaped, str) else name
            items = self.subject.spec.items if self.subject.spec else ()
            ranks = {item.name: len(item.sizes) for item in items if not item.has_rest}
            if len(names) > ranks.get(array, len(names)):
                return names, [], before  # a mistake, which its engine names
            bounds = [(_ZERO, nodes.Size(array, axis)) for axis in range(len(names))]
        return names, bounds, before

    def assign(self, target: ast.expr, value: nodes.Expr) -> Iterator[nodes.Stmt]:
        line = target.lineno
        match target:
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self.assign(part, self.like(value))
            case ast.Name(id=name) if name in self.cells and len(self._scopes) == 1:
                yield nodes.Store(name, (), (), value, line, self.place(target))
            case ast.Name(id=name) if name in self._scopes[-1].elements:
                lent = self._scopes[-1].elements[name]
                yield nodes.Store(lent.array, lent.index, lent.entry, value, line, self.place(target))
            case ast.Name(id=name):
                yield nodes.Assign(self.local(name, value.type), value, line)
            case ast.Subscript() | ast.Attribute():
                element, before = self.element(target)
                yield from before
                if element is not None:
                    yield nodes.Store(element.array, element.index, element.entry, value, line, self.place(target))

    def atomic(
        self, word: AtomicOperator, target: ast.expr, value: nodes.Expr, result: str | None
    ) -> Iterator[nodes.Stmt]:
        line = target.lineno
        if isinstance(target, ast.Name):
            lent = self._scopes[-1].elements.get(target.id)
            if lent is not None:
                yield nodes.Atomic(word, lent.array, lent.index, lent.entry, value, result, line, self.place(target))
                return
            if target.id in self.cells and len(self._scopes) == 1:
                yield nodes.Atomic(word, target.id, (), (), value, result, line, self.place(target))
                return
            old, _ = self.value(target)
            yield from self.assign(target, nodes.Binary(operators.ATOMIC[word], old, value, old.type))
            return
        element, before = self.element(target)
        yield from before
        if element is not None:
            yield nodes.Atomic(
                word, element.array, element.index, element.entry, value, result, line, self.place(target)
            )

    # Expressions ------------------------------------------------------------------------------

    def value(self, one: ast.expr) -> tuple[nodes.Expr, list[nodes.Stmt]]:
        """Return an expression, and the statements that its calls make."""
        before: list[nodes.Stmt] = []
        return self._value(one, before), before

    def note(self, expr: nodes.Expr, node: ast.expr) -> None:
        """Remember what stands in the kernel's own text for an expression."""
        if len(self._scopes) == 1:
            self.noted.append(Noted(expr, node))

    def _value(self, one: ast.expr, before: list[nodes.Stmt]) -> nodes.Expr:
        expr = self._translate(one, before)
        self.note(expr, one)
        return expr

    def _translate(self, one: ast.expr, before: list[nodes.Stmt]) -> nodes.Expr:
        match one:
            case ast.Constant(value=bool() as value):
                return nodes.Const(value, Type.U1)
            case ast.Constant(value=int() | float() as value):
                return nodes.Const(value, _KINDS[type(value)])
            case ast.Name(id=name):
                return self.name(name)
            case ast.UnaryOp() | ast.BinOp() | ast.BoolOp() | ast.Compare() | ast.IfExp():
                return self.operation(one, before)
            case ast.Call():
                return self.call(one, before)
            case ast.Subscript() | ast.Attribute():
                return self.place_or_part(one, before)
        return self.unknown(one, before)

    def operation(self, one: ast.expr, before: list[nodes.Stmt]) -> nodes.Expr:
        match one:
            case ast.UnaryOp(op=op, operand=operand):
                inner, word = self._value(operand, before), python_operators.UNARY.get(type(op), Operator.NEG)
                if isinstance(op, ast.UAdd):
                    return inner
                return nodes.Unary(word, inner, Type.U1 if word == "not" else inner.type)
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
                first, second = self._value(left, before), self._value(right, before)
                kind = Type.F32 if isinstance(op, ast.Div) else _common(first, second)
                return nodes.Binary(python_operators.BINARY[type(op)], first, second, kind)
            case ast.BoolOp(op=op, values=values):
                word = Operator.AND if isinstance(op, ast.And) else Operator.OR
                return _join(word, [self._value(part, before) for part in values])
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in python_operators.COMPARE for op in ops
            ):
                sides = [self._value(part, before) for part in (left, *others)]
                tests = zip(map(type, ops), sides, sides[1:], strict=False)
                signs = python_operators.COMPARE
                compared = [nodes.Binary(signs[op], first, second, Type.U1) for op, first, second in tests]
                return _join(Operator.AND, compared)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self.choice(test, body, orelse, before)
        return self.unknown(one, before)

    def choice(self, test: ast.expr, body: ast.expr, orelse: ast.expr, before: list[nodes.Stmt]) -> nodes.Select:
        condition, then, otherwise = (self._value(part, before) for part in (test, body, orelse))
        return nodes.Select(condition, then, otherwise, then.type)

    def place_or_part(self, one: ast.Subscript | ast.Attribute, before: list[nodes.Stmt]) -> nodes.Expr:
        """Return a size, an element of an array, or a number of an object; or an opaque value."""
        match one:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(int(axis))
            ):
                array = self._scopes[-1].get(name)
                return nodes.Size(array, axis) if isinstance(array, str) else self.opaque(Origin.UNKNOWN, Type.I32)
        element, first = self.element(one)
        before += first
        name = root(one)
        if element is None and isinstance(one, ast.Attribute) and name and name not in self._scopes[-1]:
            return nodes.Argument(ast.unparse(one), Type.I32)  # a number of an object: the same in all iterations
        return element or self.unknown(one, before)

    def call(self, one: ast.Call, before: list[nodes.Stmt]) -> nodes.Expr:
        word = resolve_callee(one)
        if word in _ATOMICS and len(one.args) == 2:
            value = self._value(one.args[1], before)
            result = self.fresh("before")
            before += self.atomic(_ATOMICS[word], one.args[0], value, result)
            return nodes.Local(result, value.type)
        if word in _TRANSPARENT and one.args:
            inner = self._value(one.args[0], before)
            is_whole = word != "static" and (word != "cast" or "f" not in ast.unparse(one.args[-1]).rpartition(".")[2])
            return nodes.Cast(inner, Type.I32) if is_whole and inner.type == Type.F32 else inner
        if (word, len(one.args)) in _ARITHMETIC and not one.keywords:
            operands = [self._value(part, before) for part in one.args]
            if len(operands) == 1:
                return nodes.Unary(Operator(word), operands[0], Type.F32 if word in _OF_FLOATS else operands[0].type)
            return nodes.Binary(Operator(word), operands[0], operands[1], _common(*operands))
        if word == "select" and len(one.args) == 3:
            test, body, orelse = one.args
            return self.choice(test, body, orelse, before)
        if word == "random":
            return self.opaque(Origin.DATA, Type.F32)
        callee = callee_of(self._source[-1], one, self.subject.engine)
        if callee is not None and len(self._scopes) < MOST_DEPTH:
            return self.follow(one, callee, before)
        if one.args and all(_is_constant(part) for part in (*one.args, *(word.value for word in one.keywords))):
            return nodes.Argument(ast.unparse(one), Type.F32)  # a vector of constants: the same in all iterations
        return self.unknown(one, before)

    def follow(self, one: ast.Call, callee: Callee, before: list[nodes.Stmt]) -> nodes.Expr:
        """Return the result of a function of the file, whose statements come first."""
        scope = _Scope()
        for name, argument in callee.arguments.items():
            array = self._scopes[-1].get(argument.id) if isinstance(argument, ast.Name) else None
            if isinstance(array, str):
                scope[name] = array
            elif self._holds_element(argument):
                element, first = self.element(argument)
                before += first
                if element is not None and callee.source.is_template(name):
                    scope.elements[name] = element
                scope[name] = self.unknown(argument, before) if element is None else element
            else:
                scope[name] = self._value(argument, before)
        self._scopes.append(scope)
        self._source.append(callee.source)
        line = self.line
        before += self.block(callee.source.tree.body)
        self.line = line
        self._source.pop()
        self._scopes.pop()
        given = [value for value in scope.values() if not isinstance(value, str)]
        if len(given) == len(scope) and not any(map(is_private, given)):
            return nodes.Argument(ast.unparse(one), Type.F32)  # the same in all iterations
        return self.opaque(Origin.UNKNOWN, Type.F32)

    def _holds_element(self, one: ast.expr) -> bool:
        return isinstance(one, ast.Subscript) and not isinstance(one.value, ast.Attribute)

    def unknown(self, one: ast.expr, before: list[nodes.Stmt]) -> nodes.Expr:
        """Return an opaque value for an expression that is not followed, whose parts are read."""
        for part in ast.iter_child_nodes(one):
            if isinstance(part, ast.Name) and isinstance(self._scopes[-1].get(part.id), str):
                self.escaped.add(str(self._scopes[-1][part.id]))
            elif isinstance(part, ast.expr):
                value = self._value(part, before)
                before.append(nodes.Assign(self.fresh("part"), value, self.line))
        return self.opaque(Origin.UNKNOWN, Type.F32)

    def name(self, name: str) -> nodes.Expr:
        scope = self._scopes[-1]
        if name in self.cells and len(self._scopes) == 1:
            return nodes.Load(name, (), (), Type.F32)
        meaning = scope.get(name)
        if isinstance(meaning, str):
            self.escaped.add(meaning)  # a whole array, as it is
            return self.opaque(Origin.DATA, Type.F32)
        if meaning is not None:
            return meaning
        declared = self.subject.declared.get(name) if len(self._scopes) == 1 else None
        if declared is not None and declared.kind == "scalar" and not declared.element:
            return nodes.Argument(name, Type.F32 if declared.dtype.startswith("f") else Type.I32)
        value = find_called_function(self._source[-1], ast.Name(name, ast.Load()))
        if isinstance(value, int | float) and not isinstance(value, bool):
            return nodes.Const(value, Type.F32 if isinstance(value, float) else Type.I32)
        return nodes.Argument(name, Type.I32)  # a number of the file, or an attribute: the same in all iterations

    def local(self, name: str, kind: Type) -> str:
        """Return the local that a name of the present function stands for."""
        scope = self._scopes[-1]
        meaning = scope.get(name)
        if isinstance(meaning, nodes.Local) and meaning.type == kind:
            return meaning.name
        local = self.fresh(name)
        scope[name] = nodes.Local(local, kind)
        return local

    def element(self, one: ast.expr) -> tuple[nodes.Load | None, list[nodes.Stmt]]:
        """Return the element of an array that a subscript means; None for other things."""
        entries: list[ast.expr] = []
        before: list[nodes.Stmt] = []
        while isinstance(one, ast.Subscript | ast.Attribute):
            array = self._scopes[-1].get(one.value.id) if isinstance(one.value, ast.Name) else None
            if isinstance(one, ast.Subscript) and isinstance(array, str):
                parts = [part for part in index_parts(one.slice) if not _is_none(part)]
                index = tuple(self._value(part, before) for part in parts)
                if len(self._scopes) == 1:
                    for line in {self.line, one.lineno}:
                        self.elements.setdefault((line, array, index), one)
                return self._entry(nodes.Load(array, index, (), _type_of_array(self.subject, array)), entries), before
            entries.append(one.slice if isinstance(one, ast.Subscript) else ast.Constant(one.attr))
            one = one.value
        return None, before

    def _entry(self, load: nodes.Load, entries: Sequence[ast.expr]) -> nodes.Load:
        numbers = [one.value for one in reversed(entries) if isinstance(one, ast.Constant)]
        if len(numbers) != len(entries):
            self.escaped.add(load.array)  # a number of a vector that the run chooses
            return load
        return replace(load, entry=tuple(one if isinstance(one, int) else _LETTERS.get(str(one), 0) for one in numbers))

    def like(self, value: nodes.Expr) -> nodes.Expr:
        """Return an opaque value for a part of another one."""
        is_data = any(isinstance(part, nodes.Load) for part in ir_walk.parts(value))
        return self.opaque(Origin.DATA if is_data else Origin.UNKNOWN, value.type)

    def opaque(self, origin: Origin, kind: Type) -> nodes.Local:
        return opaque(origin, kind, -next(self._numbers))

    def fresh(self, name: str) -> str:
        local = f"{name}@{next(self._numbers)}"
        self.source_names[local] = name
        return local

    def place(self, node: ast.expr) -> int:
        number = next(self._numbers)
        self.places[number] = node
        return number


_KINDS = {int: Type.I32, float: Type.F32}
_LETTERS = {"x": 0, "y": 1, "z": 2, "w": 3, "r": 0, "g": 1, "b": 2, "a": 3}


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
    numbers = sorted(number for part in parts if (number := _read_number(part)) is not None)
    whole = range(numbers[0], numbers[-1] + 1) if numbers else range(0)
    return whole if numbers and len(parts) == len(numbers) and numbers == [*whole] else None


def _read_number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
    return None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
