"""Loops over lanes as source in which a local is a vector of the engine, a number for each of 16 iterations.

    for k in 0 .. 16 [vector_width = 16]:
      t = x[i + k] * 2.0
      s = s + t
    ->
    vector_1 = _lang.Vector([x[i + entry_1] for entry_1 in _lang.static(range(16))], dt=_lang.f32)
    t_1 = vector_1 * 2.0
    s_1 = t_1
    for entry_1 in _lang.static(range(16)):
        s = s + s_1[entry_1]

If an engine's compiler does not know the machine's CPU, it makes short vectors of a loop, or none; vectors of the
engine keep their width (docs/about/decisions/vector-speed.md). What the engines do not support on vectors, such as
casts, is written number by number in a static loop: LLVM combines it again.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..ir import Operator, Type, nodes, types, walk
from ._syntax import assign, call, join_index, lang, operation, variable

_ANY_ORDER = frozenset({"+", "*", "&", "|", "^", "min", "max", "and", "or"})
"""Operators that may combine lanes before the old value: not `-`, with which a second vector would be added."""
_WHOLE = frozenset({"sqrt", "floor"})
"""Functions that both engines take on vectors (Taichi 1.7.4, Quadrants 1.3.3). `-` and `abs` end the process."""
VECTOR_FUNCTIONS = frozenset({"arithmetic_exp"})
"""Functions by arithmetic that also exist for vectors."""


_FEW_VECTORS = 2
"""Vectors of a loop that are written one after the other; with more, all of them go through each statement."""


class Scalar(Protocol):
    """The writer of numbers that all lanes share."""

    kernel: nodes.Kernel

    def expression(self, one: nodes.Expr) -> ast.expr: ...
    def place(self, parts: Sequence[nodes.Expr]) -> ast.expr: ...
    def reserve_name(self, wish: str) -> str: ...
    def function(self, one: nodes.Unary, value: ast.expr) -> ast.expr: ...


@dataclass(frozen=True)
class LaneArray:
    """A local array with one element for each lane, which loops in vectors use.

    Attributes:
        vectors: names of its vectors; none if other loops store to it.
        is_array: whether other loops use it, by an index.
    """

    vectors: tuple[str, ...]
    is_array: bool


def plan_lane_arrays(body: Sequence[nodes.Stmt], reserve_name: Callable[[str], str]) -> dict[str, LaneArray]:
    """Find the local arrays that loops in vectors use, and plan how each is written."""
    inside, outside = list[nodes.Stmt](), list[nodes.Stmt]()
    _sort_statements(body, inside, outside)
    lengths = {one.name: one.length for one in outside if isinstance(one, nodes.LocalArray)}
    width = max((one.vector_width for one in outside if isinstance(one, nodes.For)), default=0)
    stored = {one.array for one in outside if isinstance(one, nodes.Store)}
    elsewhere = stored | walk.arrays_in([expr for one in outside for expr in walk.expressions(one)])
    lanes = {
        (nodes.Local(one.names[0], Type.I32),) for one in outside if isinstance(one, nodes.For) and one.vector_width
    }
    places = [one for one in inside if isinstance(one, nodes.Store)] + [*walk.loads(inside)]
    # An access by another index than the lane itself needs the array.
    used = {one.array for one in places} - {one.array for one in places if one.index not in lanes}
    arrays: dict[str, LaneArray] = {}
    for name in sorted(used & lengths.keys()):
        count = 0 if name in stored else lengths[name] // width
        arrays[name] = LaneArray(tuple(reserve_name(name) for _ in range(count)), name in elsewhere)
    return arrays


def _sort_statements(body: Sequence[nodes.Stmt], inside: list[nodes.Stmt], outside: list[nodes.Stmt]) -> None:
    for one in body:
        outside.append(one)
        if isinstance(one, nodes.For) and one.vector_width:
            inside += one.body
            continue
        for part in walk.bodies(one):
            _sort_statements(part, inside, outside)


def zeros(kind: Type, count: int) -> ast.expr:
    """Return a vector of zeros."""
    return _vector(
        ast.BinOp(ast.List([ast.Constant(types.zero(kind))], ast.Load()), ast.Mult(), ast.Constant(count)), kind
    )


class VectorLoop:
    """Writes one loop over lanes, vector by vector."""

    def __init__(self, loop: nodes.For, scalar: Scalar, arrays: Mapping[str, LaneArray], entry: str) -> None:
        self.loop, self.scalar, self.arrays = loop, scalar, arrays
        self.width, self.lane, self.entry = loop.vector_width, loop.names[0], entry
        self.sums = find_sums(loop)
        self.varying = {self.lane, *(name for one in loop.body for name in walk.find_assigned(one))} - self.sums.keys()
        self.group = 0
        self.keeps_all = False
        self.values: dict[tuple[str, int], str] = {}
        self.totals: dict[str, str] = {}
        self.written: list[ast.stmt] = []

    def write(self) -> list[ast.stmt]:
        """Return the statements for the loop."""
        end = self.loop.bounds[0][1]
        assert isinstance(end, nodes.Const)
        groups = range(int(end.value) // self.width)
        if len(groups) > _FEW_VECTORS:
            # All loads before the first store: a load waits for an earlier store to an address that differs by a
            # multiple of 4 KiB, which took 1.3 of the time.
            steps = [(one, group) for one in self.loop.body for group in groups]
        else:
            steps = [(one, group) for group in groups for one in self.loop.body]
        self.keeps_all = len(groups) > _FEW_VECTORS
        for one, self.group in steps:
            self.statement(one)
        # The lanes' sums meet what was there once, after all vectors of the loop.
        for name, total in self.totals.items():
            number = nodes.Local(name, self.scalar.kernel.locals[name])
            value = operation(self.sums[name], self.scalar.expression(number), self.number(variable(total)))
            self.for_each([assign(name, value)])
        return self.written

    @property
    def place_of_values(self) -> int:
        """The number in the names of the current vector's values: 0 if they are used before the next vector begins."""
        return self.group if self.keeps_all else 0

    def statement(self, one: nodes.Stmt) -> None:
        match one:
            case nodes.Assign(name, nodes.Binary(operator, _, value)) if name in self.sums:
                vector = self.vector(value, self.scalar.kernel.locals[name])
                if name in self.totals:
                    vector = operation(operator, variable(self.totals[name]), vector)
                else:
                    self.totals[name] = self.scalar.reserve_name(name)
                self.written.append(assign(self.totals[name], vector))
            case nodes.Assign(name):
                vector = self.vector(one.value, self.scalar.kernel.locals[name])
                if (name, self.place_of_values) not in self.values:
                    self.values[name, self.place_of_values] = self.scalar.reserve_name(name)
                self.written.append(assign(self.values[name, self.place_of_values], vector))
            case nodes.Store():
                self.store(one)
            case other:
                raise AssertionError(
                    f"unexpected {other} in a vectorized loop; an earlier check should have excluded it"
                )

    def store(self, one: nodes.Store) -> None:
        """Store to each lane's own element of a local array or of an array."""
        value = self.give_name(self.vector(one.value, one.value.type))
        if self.is_whole(one):
            self.written.append(assign(self.whole(one, ast.Store()), value))
            return
        array = self.arrays.get(one.array)
        if array is None:
            self.for_each([assign(self.element(one, ast.Store()), self.number(value))])
            return
        if array.vectors:
            self.written.append(assign(array.vectors[self.group], value))
        if array.is_array:
            self.for_each([assign(self.own_element(one.array, ast.Store()), self.number(value))])

    def own_element(self, array: str, context: ast.expr_context) -> ast.expr:
        return ast.Subscript(variable(array), self.place(), context)

    def place(self) -> ast.expr:
        """Write the lane that a static loop is at."""
        entry, first = variable(self.entry), self.group * self.width
        return ast.BinOp(ast.Constant(first), ast.Add(), entry) if first else entry

    # Expressions ------------------------------------------------------------------------------

    def is_shared(self, one: nodes.Expr) -> bool:
        """Return True if all lanes have the same value."""
        return not walk.locals_in([one]) & self.varying

    def vector(self, one: nodes.Expr, kind: Type) -> ast.expr:
        """Write an expression as a vector of a type."""
        if not self.is_shared(one):
            return self.as_type(one, kind)
        if kind == Type.U1:
            chosen = nodes.Select(one, nodes.Const(1, Type.I32), nodes.Const(0, Type.I32), Type.I32)
            value = nodes.Const(int(one.value), Type.I32) if isinstance(one, nodes.Const) else chosen
            return _is_set(self.vector(value, Type.I32))
        number = self.as_type(one, kind)
        return _vector(ast.BinOp(ast.List([number], ast.Load()), ast.Mult(), ast.Constant(self.width)), kind)

    def as_type(self, one: nodes.Expr, kind: Type) -> ast.expr:
        """Write an expression converted to a type: engines do not convert vectors implicitly."""
        return self.expression(one if one.type == kind else nodes.Cast(one, kind))

    def expression(self, one: nodes.Expr) -> ast.expr:
        if self.is_shared(one):
            return self.scalar.expression(one)
        match one:
            case nodes.Local(name):
                return self.places() if name == self.lane else variable(self.values[name, self.place_of_values])
            case nodes.Load():
                return self.load(one)
            case nodes.Cast():
                return self.cast(one)
            case nodes.Select():
                return self.select(one)
            case nodes.Unary():
                return self.unary(one)
            case nodes.Binary():
                return self.binary(one)
            case _:
                raise AssertionError(f"unexpected {one}: it has one value for all lanes and needs no vector")

    def places(self) -> ast.expr:
        first = self.group * self.width
        numbers: list[ast.expr] = [ast.Constant(first + place) for place in range(self.width)]
        return _vector(ast.List(numbers, ast.Load()), Type.I32)

    def load(self, one: nodes.Load) -> ast.expr:
        if self.is_whole(one):
            return self.give_name(self.whole(one, ast.Load()))
        array = self.arrays.get(one.array)
        if array is not None and array.vectors:
            return variable(array.vectors[self.group])
        if array is not None:
            return self.each(one.type, self.own_element(one.array, ast.Load()))
        return self.each(one.type, self.element(one, ast.Load()))

    def is_whole(self, one: nodes.Load | nodes.Store) -> bool:
        """Return True if the elements of all lanes are one machine vector of an array of such vectors."""
        array = self.scalar.kernel.arrays.get(one.array)
        return array is not None and array.vector_width > 0

    def whole(self, one: nodes.Load | nodes.Store, context: ast.expr_context) -> ast.expr:
        """Write the machine vector of an array that holds the elements of all lanes."""
        match one.index:
            case (*zeros, nodes.Binary(Operator.ADD, first, nodes.Local(self.lane))) if self.is_shared(first):
                place = vector_number(first, self.width)
            case _:
                raise AssertionError(
                    f"the index of {one.array} is not a vector's first element plus the lane; "
                    "an earlier check should have excluded it"
                )
        if self.group:
            place = nodes.Binary(Operator.ADD, place, nodes.Const(self.group, Type.I32), Type.I32)
        return ast.Subscript(variable(one.array), self.scalar.place([*zeros, place]), context)

    def element(self, one: nodes.Load | nodes.Store, context: ast.expr_context) -> ast.expr:
        """Write the element of an array for the lane that a static loop is at."""
        index: list[ast.expr] = []
        for part in one.index:
            match part:
                case nodes.Binary(Operator.ADD, first, nodes.Local(name)) if name == self.lane and self.is_shared(
                    first
                ):
                    index.append(ast.BinOp(self.scalar.expression(first), ast.Add(), self.place()))
                case _ if self.is_shared(part):
                    index.append(self.scalar.expression(part))
                case _:
                    index.append(self.number(self.give_name(self.expression(part))))
        return ast.Subscript(variable(one.array), join_index(index), context)

    def cast(self, one: nodes.Cast) -> ast.expr:
        kind, value = one.type, one.value
        if value.type == kind:
            return self.expression(value)
        if kind == Type.U1:
            return _is_set(self.as_type(value, Type.I32))
        if value.type == Type.U1:
            numbers = [nodes.Const(types.zero(kind) + chosen, kind) for chosen in (1, 0)]
            return call("select", self.expression(value), *map(self.scalar.expression, numbers))
        number = self.number(self.give_name(self.expression(value)))
        return self.each(kind, call("bit_cast" if one.keeps_bits else "cast", number, lang(kind)))

    def select(self, one: nodes.Select) -> ast.expr:
        values = [self.as_type(value, one.type) for value in (one.then, one.otherwise)]
        return call("select", self.vector(one.condition, Type.U1), *values)

    def unary(self, one: nodes.Unary) -> ast.expr:
        value = self.expression(one.value)
        # `-v` of a vector ends the process in both engines (see `_WHOLE`).
        if one.operator == Operator.NEG:
            return ast.BinOp(value, ast.Mult(), self.scalar.expression(nodes.Const(types.zero(one.type) - 1, one.type)))
        if one.operator == Operator.NOT:
            return ast.UnaryOp(ast.Not(), value)
        if one.operator in _WHOLE:
            return call(one.operator, value)
        if one.operator in VECTOR_FUNCTIONS:
            name = f"_{one.operator.removeprefix('arithmetic_')}_of_{self.width}"
            return ast.Call(variable(name), [value], [])
        return self.each(one.type, self.scalar.function(one, self.number(self.give_name(value))))

    def binary(self, one: nodes.Binary) -> ast.expr:
        if one.operator in ("and", "or"):
            return operation(one.operator, *(self.vector(part, Type.U1) for part in (one.left, one.right)))
        if one.operator == Operator.STRAIGHT_THROUGH:
            return self.as_type(one.left, one.type)
        kind = one.type
        if kind == Type.U1:
            kind = types.promote(one.left.type, one.right.type)
            kind = Type.I32 if kind == Type.U1 else kind
        return operation(one.operator, self.as_type(one.left, kind), self.as_type(one.right, kind))

    # Number by number -------------------------------------------------------------------------

    def give_name(self, value: ast.expr) -> ast.Name:
        """Assign a vector to a name, unless it is one."""
        if isinstance(value, ast.Name):
            return value
        # A static loop repeats its body for each lane: without a name, each would compute the whole vector.
        name = self.scalar.reserve_name("vector")
        self.written.append(assign(name, value))
        return variable(name)

    def number(self, vector: ast.Name) -> ast.expr:
        """Write the entry of a vector for the lane that a static loop is at."""
        return ast.Subscript(vector, variable(self.entry), ast.Load())

    def each(self, kind: Type, number: ast.expr) -> ast.expr:
        """Write a vector of numbers that a static loop computes."""
        # As a list: vectors that are filled number by number take 1.3 times as long to compile.
        numbers = ast.comprehension(ast.Name(self.entry, ast.Store()), self.entries(), [], 0)
        return self.give_name(_vector(ast.ListComp(number, [numbers]), kind))

    def for_each(self, body: list[ast.stmt]) -> None:
        self.written.append(ast.For(ast.Name(self.entry, ast.Store()), self.entries(), body, []))

    def entries(self) -> ast.expr:
        return call("static", ast.Call(variable("range"), [ast.Constant(self.width)], []))


def vector_number(element: nodes.Expr, width: int) -> nodes.Expr:
    """Return the number of the vector, of `width` numbers, that holds the element with this number."""
    return nodes.Binary(Operator.SHIFT_RIGHT, element, nodes.Const(width.bit_length() - 1, Type.I32), Type.I32)


def find_sums(loop: nodes.For) -> dict[str, Operator]:
    """Find the locals to which every iteration adds, by "+" or another operator of any order; return the operators."""
    sums: dict[str, Operator] = {}
    given = set[str]()
    for one in loop.body:
        match one:
            case nodes.Assign(name, nodes.Binary(operator, nodes.Local(same), _)) if operator in _ANY_ORDER:
                sums |= {name: operator} if name == same and name not in given else {}
            case _:
                pass
        given |= {*walk.find_assigned(one)}
    return sums


def _is_set(value: ast.expr) -> ast.expr:
    return ast.Compare(value, [ast.NotEq()], [ast.Constant(0)])


def _vector(numbers: ast.expr, kind: Type) -> ast.expr:
    return ast.Call(lang("Vector"), [numbers], [ast.keyword("dt", lang(kind))])
