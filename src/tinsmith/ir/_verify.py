"""Verification: whether a kernel obeys the rules of the IR.

`RULES` is the table: for each node type, the function that checks it. A pass that breaks a rule is found where it does
so, not by a wrong number afterwards: tests verify the output of every pass, and so does `TINSMITH_VERIFY=1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, NamedTuple

from . import _nodes as nodes
from . import _types as types
from . import _walk as walk
from ._decompositions import PARTS, parts_of, side_of
from ._operators import BINARY, LOGICAL, UNARY, AtomicOperator, VoteOperator
from ._types import Type

INDICES = types.ALL - {*types.FLOATS, Type.U1}
"""The types allowed for array indices and loop bounds."""

ATOMICS = frozenset(AtomicOperator)
VOTES = frozenset(VoteOperator)


class InvalidKernel(AssertionError):
    """A kernel breaks rules of the IR: the pass that made it has a bug."""


@dataclass
class Scope:
    """What is known at a place of a kernel.

    Attributes:
        defined: locals that have a value here.
        loops: the loops around, the innermost last.
        is_top: whether nothing stands around.
        breaks: for each loop around, locals that have a value at all of its `break`s so far; None before the first.
        is_reached: whether the place is reached: not behind a `break` or `continue`.
    """

    defined: frozenset[str] = frozenset()
    loops: tuple[nodes.Stmt, ...] = ()
    is_top: bool = True
    breaks: list[frozenset[str] | None] = field(default_factory=list)
    is_reached: bool = True


class _Place(NamedTuple):
    """Where an expression stands: its kernel, what is known there, and what finds the array of a load."""

    kernel: nodes.Kernel
    scope: Scope
    find_array: Callable[[nodes.Load], nodes.Array | nodes.LocalArray | None]


def verify(kernel: nodes.Kernel, *, is_ssa: bool = False) -> None:
    """Check that a kernel obeys the rules of the IR.

    Args:
        kernel: the kernel.
        is_ssa: whether it is in SSA form: `Loop`s in place of `For` and `While`, and one definition of each local.

    Raises:
        InvalidKernel: it breaks a rule; the message has all that it breaks.
    """
    checker = _Checker(kernel, is_ssa=is_ssa)
    checker.check_block(kernel.body, Scope())
    faults = [*_check_header(kernel), *checker.faults]
    if faults:
        raise InvalidKernel(f"kernel `{kernel.name}` of {kernel.path} is not valid:\n  " + "\n  ".join(faults))


def _check_header(kernel: nodes.Kernel) -> Iterator[str]:
    kinds = {f"array `{name}`": array.type for name, array in kernel.arrays.items()}
    kinds |= {f"argument `{name}`": kind for name, (kind, _) in kernel.arguments.items()}
    kinds |= {f"local `{name}`": kind for name, kind in kernel.locals.items()}
    yield from (
        f"{what} has a type that the IR does not have: {kind!r}"
        for what, kind in kinds.items()
        if kind not in types.ALL
    )
    for name in kernel.arrays.keys() & kernel.arguments.keys():
        yield f"`{name}` is the name of both an array and an argument"
    for name in kernel.locals.keys() & (kernel.arrays.keys() | kernel.arguments.keys()):
        yield f"`{name}` is the name of both a local and an array or argument"
    for name, array in kernel.arrays.items():
        if array.name != name:
            yield f"array `{name}` is listed under a name that differs from its own, `{array.name}`"
        if array.rank < 0 or any(size < 1 for size in array.element):
            yield f"array `{name}` has an invalid rank {array.rank} or element shape {array.element}"
        if array.vector_width and (array.rank < 1 or array.element or not array.is_given):
            yield f"array `{name}` is stored by machine vectors, but is not an array of numbers with an axis"
    for name in kernel.cells:
        if name not in kernel.arrays or kernel.arrays[name].rank or kernel.arrays[name].element:
            yield f"cell `{name}` is not an array of rank 0"
    for name, sizes in kernel.block_memory.items():
        if name not in kernel.arrays or not kernel.arrays[name].is_of_blocks:
            yield f"`{name}` has the sizes of block memory, but is not block memory"
        yield from (f"a size of `{name}`: {words}" for size in sizes for words in _check_size_of_memory(size, kernel))


def _check_size_of_memory(size: nodes.Expr, kernel: nodes.Kernel) -> Iterator[str]:
    """Check a formula of sizes and arguments, which is computed before the kernel runs."""
    if not walk.is_invariant(size):
        yield "it must not read locals or memory"
        return
    place = _Place(kernel, Scope(), lambda _: None)
    for part in walk.parts(size):
        yield from EXPRESSIONS[type(part)](part, place)


class _Checker:
    """Checks the statements of one kernel, and collects faults."""

    def __init__(self, kernel: nodes.Kernel, *, is_ssa: bool) -> None:
        self.kernel = kernel
        self.is_ssa = is_ssa
        self.faults: list[str] = []
        self.given: set[str] = set()
        self.local_arrays: dict[str, nodes.LocalArray] = {}

    def fault(self, one: nodes.Stmt, words: str) -> None:
        """Append a fault found in a statement to the list of faults."""
        self.faults.append(f"line {one.line}, {type(one).__name__}: {words}")

    # Statements -------------------------------------------------------------------------------

    def check_block(self, body: nodes.Block, scope: Scope) -> Scope:
        """Check statements one after the other; return what is known after them."""
        if not isinstance(body, tuple):
            self.faults.append(f"a block is a {type(body).__name__}, not a tuple")
        for one in body:
            scope = self.check_statement(one, scope)
        return scope

    def check_statement(self, one: nodes.Stmt, scope: Scope) -> Scope:
        if type(one) not in RULES:
            self.faults.append(f"expected a statement, got a {type(one).__name__}")
            return scope
        if not isinstance(one.line, int) or one.line < 0:
            self.fault(one, f"its line is {one.line!r}")
        # A loop in SSA form computes what it hands on inside its body: `_check_loop` checks each expression in its
        # scope.
        if not isinstance(one, nodes.Loop):
            for expr in walk.expressions(one):
                self.check_expression(one, expr, scope)
        for name in walk.find_assigned(one):
            self.check_given(one, name)
        around = dict(self.local_arrays)
        after = RULES[type(one)](self, one, scope)
        if walk.bodies(one):
            self.local_arrays = around
        # A loop's names are its own; what else a statement gives a value has one after it.
        own = walk.find_assigned(one) if not walk.bodies(one) else ()
        return after if not own else replace(after, defined=after.defined.union(own))

    def check_given(self, one: nodes.Stmt, name: str) -> None:
        """Check that a local to which a statement assigns is declared and, in SSA form, is assigned only once."""
        if name not in self.kernel.locals and not (isinstance(one, nodes.For | nodes.Loop) and name in one.names):
            self.fault(one, f"`{name}` is not a local of the kernel")
        if self.is_ssa and name in self.given:
            self.fault(one, f"`{name}` is assigned twice, which SSA form does not allow")
        self.given.add(name)

    def check_place(
        self, one: nodes.Stmt, place: nodes.Load | nodes.Store | nodes.Atomic
    ) -> nodes.Array | nodes.LocalArray | None:
        """Check an element that is loaded or changed; return its array."""
        array = self.kernel.arrays.get(place.array) or self.local_arrays.get(place.array)
        if array is None:
            self.fault(one, f"`{place.array}` is not an array of the kernel")
            return None
        rank, element = (1, ()) if isinstance(array, nodes.LocalArray) else (array.rank, array.element)
        if len(place.index) != rank:
            self.fault(one, f"{len(place.index)} indices into `{place.array}`, which has rank {rank}")
        if len(place.entry) != len(element) or any(
            not 0 <= at < size for at, size in zip(place.entry, element, strict=False)
        ):
            self.fault(one, f"entry {place.entry} of `{place.array}`, whose elements have shape {element}")
        for index in place.index:
            if index.type not in INDICES:
                self.fault(one, f"an index of `{place.array}` is a {index.type}")
        return array

    # Expressions ------------------------------------------------------------------------------

    def check_expression(self, one: nodes.Stmt, expr: nodes.Expr, scope: Scope) -> None:
        """Check an expression and its operands."""
        place = _Place(self.kernel, scope, lambda load: self.check_place(one, load))
        for part in walk.parts(expr):
            if type(part) not in EXPRESSIONS:
                self.fault(one, f"expected an expression, got a {type(part).__name__}")
                return
            if part.type not in types.ALL:
                self.fault(one, f"{part} has a type that the IR does not have")
            for words in EXPRESSIONS[type(part)](part, place):
                self.fault(one, words)


# Expressions ----------------------------------------------------------------------------------


def _check_constant(expr: nodes.Const, _at: _Place) -> Iterator[str]:
    wanted = bool if expr.type == Type.U1 else float if types.is_float(expr.type) else int
    if type(expr.value) is not wanted:
        yield f"the {expr.type} constant {expr.value!r} is a {type(expr.value).__name__}"
    elif wanted is int and not types.fits(int(expr.value), expr.type):
        yield f"the constant {expr.value} is out of the range of {expr.type}"


def _check_local(expr: nodes.Local, at: _Place) -> Iterator[str]:
    # What a loop counts is an i32.
    kind = at.kernel.locals.get(expr.name, Type.I32)
    # Nothing runs behind a `break` or `continue`, so nothing is read there.
    if at.scope.is_reached and expr.name not in at.scope.defined:
        yield f"`{expr.name}` is read before it is assigned"
    if kind != expr.type:
        yield f"`{expr.name}` is read as {expr.type}, but has type {kind}"


def _check_argument(expr: nodes.Argument, at: _Place) -> Iterator[str]:
    known = at.kernel.arguments.get(expr.name)
    if known is None:
        yield f"`{expr.name}` is not an argument of the kernel"
    elif known[0] != expr.type or len(known[1]) != len(expr.entry):
        yield f"argument `{expr.name}` is {known}, and read as {expr.type} at {expr.entry}"


def _check_size(expr: nodes.Size, at: _Place) -> Iterator[str]:
    array = at.kernel.arrays.get(expr.array)
    if array is None:
        yield f"`{expr.array}`, whose size is used, is not an array of the kernel"
    elif not 0 <= expr.axis < array.rank:
        yield f"axis {expr.axis} of `{expr.array}`, which has rank {array.rank}"


def _check_load(expr: nodes.Load, at: _Place) -> Iterator[str]:
    array = at.find_array(expr)
    if array is not None and array.type != expr.type:
        yield f"an element of `{expr.array}`, of type {array.type}, is loaded as {expr.type}"


def _check_unary(expr: nodes.Unary, _at: _Place) -> Iterator[str]:
    if expr.operator not in UNARY:
        yield f"`{expr.operator}` is not a unary operation"
    elif not types.accepts(expr.operator, expr.value.type):
        yield f"`{expr.operator}` of {expr.value.type}"
    # A kernel does not say the engine's `default_fp` and `default_ip`, on which the type may depend.
    elif expr.type not in types.of_unary_in_any(expr.operator, expr.value.type):
        yield f"`{expr.operator}` of {expr.value.type} is not {expr.type}"


def _check_binary(expr: nodes.Binary, _at: _Place) -> Iterator[str]:
    kinds = expr.left.type, expr.right.type
    if expr.operator not in BINARY:
        yield f"`{expr.operator}` is not a binary operation"
    elif not types.accepts(expr.operator, *kinds):
        yield f"`{expr.operator}` of {' and '.join(kinds)}"
    elif expr.operator in LOGICAL and {*kinds, expr.type} != {Type.U1}:
        yield f"`{expr.operator}` of {' and '.join(kinds)} has type {expr.type}; its operands and its result must be u1"
    elif expr.type not in types.of_operation_in_any(expr.operator, *kinds):
        yield f"`{expr.operator}` of {' and '.join(kinds)} is not {expr.type}"


def _check_select(expr: nodes.Select, _at: _Place) -> Iterator[str]:
    if expr.condition.type != Type.U1:
        yield f"the condition of a selection is {expr.condition.type}; it must be u1"
    if {expr.then.type, expr.otherwise.type} != {expr.type}:
        yield f"a selection between {expr.then.type} and {expr.otherwise.type} has type {expr.type}"


def _check_cast(expr: nodes.Cast, _at: _Place) -> Iterator[str]:
    if expr.keeps_bits and types.width(expr.type) != types.width(expr.value.type):
        yield f"a bit cast of {expr.value.type} to {expr.type}, which has another number of bits"


EXPRESSIONS: Mapping[type, Callable[..., Iterator[str]]] = {
    nodes.Const: _check_constant,
    nodes.Local: _check_local,
    nodes.Argument: _check_argument,
    nodes.Size: _check_size,
    nodes.Load: _check_load,
    nodes.Unary: _check_unary,
    nodes.Binary: _check_binary,
    nodes.Select: _check_select,
    nodes.Cast: _check_cast,
}
"""The rule of each type of expression."""


# Statements -----------------------------------------------------------------------------------


def _check_plain(_checker: _Checker, _one: nodes.Stmt, scope: Scope) -> Scope:
    return scope


def _check_draw(checker: _Checker, one: nodes.Draw, scope: Scope) -> Scope:
    if checker.kernel.locals.get(one.name, one.type) != one.type:
        checker.fault(
            one, f"a random {one.type} is assigned to `{one.name}`, which has type {checker.kernel.locals[one.name]}"
        )
    return scope


def _check_decompose(checker: _Checker, one: nodes.Decompose, scope: Scope) -> Scope:
    side = side_of(one)
    if one.function not in PARTS:
        checker.fault(one, f"`{one.function}` is not a decomposition")
    elif len(one.results) != sum(len(part.entries) for part in parts_of(one)):
        checker.fault(one, f"`{one.function}` has {len(one.results)} results, the wrong number")
    # Both engines decompose matrices of 2 and 3 rows; Quadrants has the eigenvalues of symmetric ones of up to 6.
    if side * side != len(one.matrix) or not 2 <= side <= 6:
        checker.fault(
            one, f"a decomposition of a matrix of {len(one.matrix)} numbers: it must be square, with 2 to 6 rows"
        )
    if any(entry.type != one.type for entry in one.matrix) or not types.is_float(one.type):
        checker.fault(one, f"entries of {', '.join(sorted({entry.type for entry in one.matrix}))}, not of {one.type}")
    return scope


def _check_local_array(checker: _Checker, one: nodes.LocalArray, scope: Scope) -> Scope:
    if not scope.loops:
        checker.fault(one, f"the local array `{one.name}` is declared outside all loops")
    if one.name in checker.kernel.arrays or one.length < 1 or one.type not in types.ALL:
        checker.fault(
            one,
            (
                f"the local array `{one.name}` has a name that is taken, or an invalid "
                f"length {one.length} or type {one.type}"
            ),
        )
    checker.local_arrays[one.name] = one
    return scope


def _check_store(checker: _Checker, one: nodes.Store, scope: Scope) -> Scope:
    checker.check_place(one, one)
    return scope


def _check_atomic(checker: _Checker, one: nodes.Atomic, scope: Scope) -> Scope:
    array = checker.check_place(one, one)
    if one.operator not in ATOMICS:
        checker.fault(one, f"`{one.operator}` is not an atomic operation")
    if array is not None and one.value.type != array.type:
        checker.fault(one, f"an atomic applies a {one.value.type} to an element of `{one.array}`, of type {array.type}")
    if array is not None and one.result is not None:
        kind = checker.kernel.locals.get(one.result, array.type)
        if kind != array.type:
            checker.fault(
                one, f"the old {array.type} of `{one.array}` is assigned to `{one.result}`, which has type {kind}"
            )
    return scope


def _inside(scope: Scope, **known: Any) -> Scope:
    return replace(scope, is_top=False, **known)


def _check_if(checker: _Checker, one: nodes.If, scope: Scope) -> Scope:
    if one.condition.type != Type.U1:
        checker.fault(one, f"its condition is a {one.condition.type}; it must be u1")
    ends, before, given = [], checker.given, set[str]()
    for body in (one.body, one.orelse):
        # In SSA form both arms may end with a value for one local.
        checker.given = set(before)
        ends.append(checker.check_block(body, _inside(scope)))
        given |= checker.given
    checker.given = given
    reached = [end for end in ends if end.is_reached]
    if not reached:
        return replace(scope, is_reached=False)
    return replace(scope, defined=frozenset.intersection(*(end.defined for end in reached)), is_reached=True)


def _check_for(checker: _Checker, one: nodes.For, scope: Scope) -> Scope:
    if checker.is_ssa:
        checker.fault(one, "SSA form must not contain a `For`")
    _check_ranges(checker, one, scope)
    if one.is_parallel and not scope.is_top:
        checker.fault(one, "a parallel loop is inside another statement")
    # Its iterations run at once, so there are no later ones to leave out.
    if one.is_parallel and any(isinstance(jump, nodes.Break) for jump in walk.jumps_in(one.body)):
        checker.fault(one, "a parallel loop contains a `break`")
    if one.vector_width and not _is_divided(one):
        checker.fault(one, f"its number of iterations is not a multiple of the vector width {one.vector_width}")
    # What the body defines has no value after the loop, which may have no iteration: `scope` is returned as it was.
    inner = _inside(scope, defined=scope.defined.union(one.names), loops=(*scope.loops, one))
    checker.check_block(one.body, inner)
    return scope


def _is_divided(one: nodes.For) -> bool:
    first, end = one.bounds[0]
    is_known = len(one.names) == 1 and isinstance(end, nodes.Const) and first == nodes.Const(0, end.type)
    return is_known and isinstance(end, nodes.Const) and end.value % one.vector_width == 0


def _check_ranges(checker: _Checker, one: nodes.For | nodes.Loop, scope: Scope) -> None:
    for name in one.names:
        if one.names.count(name) > 1 or any(name in walk.find_assigned(loop) for loop in scope.loops):
            checker.fault(one, f"`{name}` is already the variable of an enclosing loop, or is listed twice")
    if len(one.names) != len(one.bounds) or (isinstance(one, nodes.For) and not one.names):
        checker.fault(one, f"{len(one.names)} names for {len(one.bounds)} ranges")
    for bound in chain(*one.bounds):
        if bound.type not in INDICES:
            checker.fault(one, f"a bound is a {bound.type}")


def _check_while(checker: _Checker, one: nodes.While, scope: Scope) -> Scope:
    if checker.is_ssa:
        checker.fault(one, "SSA form must not contain a `While`")
    # All scopes inside share this list: `replace` copies the reference.
    scope.breaks.append(None)
    checker.check_block(one.body, _inside(scope, loops=(*scope.loops, one)))
    left = scope.breaks.pop()
    # It ends by `break` alone: what has a value at each of them has one after the loop.
    return scope if left is None else replace(scope, defined=left)


def _check_loop(checker: _Checker, one: nodes.Loop, scope: Scope) -> Scope:
    if not checker.is_ssa:
        checker.fault(one, "a `Loop` is only valid in SSA form")
    _check_ranges(checker, one, scope)
    if one.is_parallel and (not scope.is_top or one.carried or one.exit is not None):
        checker.fault(one, "a parallel loop is inside another statement, carries locals or has an exit condition")
    if not one.names and one.exit is None:
        checker.fault(one, "it never ends")
    # What a loop hands on starts from values before the loop, and goes on from values at the end of its body.
    heads = {carried.head for carried in one.carried}
    for bound in chain(*one.bounds):
        checker.check_expression(one, bound, scope)
    for carried in one.carried:
        checker.check_expression(one, carried.first, scope)
        names = carried.head, carried.last, carried.cell
        kinds = {checker.kernel.locals.get(name, carried.next.type) for name in names} | {carried.first.type}
        if kinds != {carried.next.type}:
            checker.fault(
                one, f"the loop-carried local `{carried.head}` has more than one type, {carried.next.type} among them"
            )
    inner = _inside(scope, defined=scope.defined.union(one.names, heads), loops=(*scope.loops, one))
    end = checker.check_block(one.body, inner)
    for expr in (*(carried.next for carried in one.carried), *([] if one.exit is None else [one.exit])):
        checker.check_expression(one, expr, end)
    return replace(scope, defined=scope.defined.union(carried.last for carried in one.carried))


def _check_break(checker: _Checker, one: nodes.Break, scope: Scope) -> Scope:
    if not scope.loops:
        checker.fault(one, "it is outside all loops")
    elif isinstance(scope.loops[-1], nodes.While) and scope.is_reached:
        known = scope.breaks[-1]
        scope.breaks[-1] = scope.defined if known is None else known & scope.defined
    return replace(scope, is_reached=False)


def _check_continue(checker: _Checker, one: nodes.Continue, scope: Scope) -> Scope:
    if not scope.loops:
        checker.fault(one, "it is outside all loops")
    return replace(scope, is_reached=False)


def _check_barrier(checker: _Checker, one: nodes.Barrier, scope: Scope) -> Scope:
    if not any(map(walk.is_parallel, scope.loops)):
        checker.fault(one, "it is outside all parallel loops")
    return scope


def _check_vote(checker: _Checker, one: nodes.Vote, scope: Scope) -> Scope:
    if one.operator not in VOTES:
        checker.fault(one, f"`{one.operator}` is not a vote operator")
    if (one.value.type, checker.kernel.locals.get(one.result, Type.I32)) != (Type.I32, Type.I32):
        checker.fault(one, "the operand and the result of a vote must be i32")
    return _check_barrier(checker, one, scope)  # type: ignore[arg-type]


def _check_assert(checker: _Checker, one: nodes.Assert, scope: Scope) -> Scope:
    if one.condition.type != Type.U1:
        checker.fault(one, f"its condition is a {one.condition.type}; it must be u1")
    return scope


RULES: Mapping[type, Callable[[_Checker, Any, Scope], Scope]] = {
    nodes.Assign: _check_plain,
    nodes.Draw: _check_draw,
    nodes.Decompose: _check_decompose,
    nodes.LocalArray: _check_local_array,
    nodes.Store: _check_store,
    nodes.Atomic: _check_atomic,
    nodes.If: _check_if,
    nodes.For: _check_for,
    nodes.While: _check_while,
    nodes.Loop: _check_loop,
    nodes.Break: _check_break,
    nodes.Continue: _check_continue,
    nodes.Barrier: _check_barrier,
    nodes.Vote: _check_vote,
    nodes.Assert: _check_assert,
}
"""The rule of each type of statement: it notes faults, and returns what is known after the statement."""
