"""Source form: what stands in a kernel's text, for rules about what the IR takes apart or does not know.

The IR has no calls, no names of what is called, no literals as they are written, and no statements that a person would
point at. Rules that ask about these ask here, and none of them matches Python's tree itself.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeGuard

from .._cache import cache_results
from ..codegen import BINARY
from ..engines import column_of, parse_lines, walk
from ..frontend import (
    Loop,
    assignments,
    changes_of,
    index_parts,
    is_size,
    names_in,
    resolve_callee,
    root,
    sub_expressions,
)
from ..ir import Operator
from ._members import chain_text, is_member_element

Node: TypeAlias = ast.AST
Expression: TypeAlias = ast.expr
Statement: TypeAlias = ast.stmt
Call: TypeAlias = ast.Call
Subscript: TypeAlias = ast.Subscript
Function: TypeAlias = ast.FunctionDef
Parameter: TypeAlias = ast.arg

# Expressions --------------------------------------------------------------------------------------


class Operation(NamedTuple):
    """An operation on two values, by what the IR calls it."""

    operator: Operator
    left: Expression
    right: Expression


def is_call(node: Node) -> TypeGuard[Call]:
    """Return True for a call."""
    return isinstance(node, ast.Call)


def get_name(node: Node | None) -> str:
    """Return the name that an expression is; "" for other expressions."""
    return node.id if isinstance(node, ast.Name) else ""


def get_attribute(node: Node | None) -> tuple[Expression, str] | None:
    """Return `x` and "y" of `x.y`; None for other expressions."""
    return (node.value, node.attr) if isinstance(node, ast.Attribute) else None


def get_literal(node: Node | None) -> object:
    """Return the value of a number or a text; None for other expressions."""
    return node.value if isinstance(node, ast.Constant) else None


def get_integer(node: Node | None) -> int | None:
    """Return the number of an integer literal, also a negative one; None for other nodes."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as number)):
            return -number
    return None


def get_operation(node: Node) -> Operation | None:
    """Return `a` and `b` of `a + b` with the operator; None for other expressions."""
    operator = BINARY.get(type(node.op)) if isinstance(node, ast.BinOp) else None
    return Operation(operator, node.left, node.right) if isinstance(node, ast.BinOp) and operator is not None else None


def get_arguments(node: Node) -> list[Expression]:
    """Return the positional arguments of a call; none of other expressions."""
    return node.args if isinstance(node, ast.Call) else []


def get_all_arguments(call: Call) -> list[Expression]:
    """Return the arguments of a call, also those by name."""
    return [*call.args, *(word.value for word in call.keywords)]


def get_array(node: Node) -> str:
    """Return the array of an element `x[i]` or of a part of one, `x[i][0]`; "" for other expressions and for sizes."""
    return root(node) if isinstance(node, ast.Subscript) and not is_size(node) else ""


def get_index(node: Node) -> Expression | None:
    """Return what stands in brackets; None for other expressions."""
    return node.slice if isinstance(node, ast.Subscript) else None


def get_start(node: Expression) -> str:
    """Return the name that a chain of attributes begins with, `self` of `self.x.y`; "" for other expressions."""
    return chain_text(node).partition(".")[0]


def unparse(node: Node) -> str:
    """Return the text of a node, on one line for each statement."""
    return ast.unparse(node)


def is_same_expression(text: str, unparsed: str) -> bool:
    """Return True if a text is the source of a statement or expression whose tree unparses to `unparsed`."""
    return ast.unparse(parse_lines([text.strip()])) == unparsed


def find_names(nodes: Iterable[Node]) -> dict[str, Expression]:
    """Return the names that are used, each with a node that has it."""
    return {node.id: node for node in nodes if isinstance(node, ast.Name)}


def find_subscripted_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names that stand before brackets."""
    return frozenset(get_name(node.value) for node in nodes if isinstance(node, ast.Subscript)) - {""}


def find_arrays(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names that stand before brackets with an index in them that the run computes: of no vectors."""
    elements = (node for node in nodes if isinstance(node, ast.Subscript))
    return frozenset(get_name(node.value) for node in elements if names_in(node.slice)) - {""}


def find_list_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return names of Python's lists of fields: `z[level][i, j]`, where `v[i][0]` is a vector's number."""
    outer = (node for node in nodes if isinstance(node, ast.Subscript) and not is_member_element(node.value))
    pairs = ((node.value, node.slice) for node in outer if isinstance(node.value, ast.Subscript))
    return frozenset(root(inner) for inner, index in pairs if names_in(index))


def find_index_parts(nodes: Iterable[Node]) -> set[Node]:
    """Return all nodes inside the brackets of subscripts: the indices among `nodes`, and their parts."""
    return {part for node in nodes if isinstance(node, ast.Subscript) for part in walk(node.slice)}


def find_attributes(nodes: Sequence[Node]) -> Iterator[Expression]:
    """Yield attributes as they are read, `self.x.y`: no parts of a longer chain, and nothing that is called."""
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    inner = {node.value for node in nodes if isinstance(node, ast.Attribute | ast.Subscript)}
    yield from (node for node in nodes if isinstance(node, ast.Attribute) and node not in called | inner)


def find_value_parts(node: Expression, is_through: Callable[[Call], bool]) -> Iterator[Expression]:
    """Yield parts of an expression that reach its value as they are: none in brackets.

    Arguments are yielded of those calls alone that let them through.
    """
    yield node
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and not is_through(node)):
        return
    for child in sub_expressions(node):
        yield from find_value_parts(child, is_through)


def find_flowing_names(node: Expression, is_end: Callable[[Node], bool]) -> Iterator[str]:
    """Yield the names whose values flow into the value of an expression.

    Names in indices and conditions, and in calls for which `is_end` is True, are left out.
    """
    match node:
        case ast.Name(id=name):
            yield name
            return
        case ast.Subscript() | ast.Attribute() if is_size(node) or root(node):
            yield from [] if is_size(node) else [root(node)]
            return
        case ast.Compare() | ast.BoolOp():
            return
        case ast.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case ast.Call(func=function, args=arguments):
            owner = [function.value] if isinstance(function, ast.Attribute) else []
            parts = [] if is_end(node) else [*owner, *arguments]
        case _:
            parts = sub_expressions(node)
    for part in parts:
        yield from find_flowing_names(part, is_end)


def find_value_nodes(node: Expression) -> Iterator[Expression]:
    """Yield the parts of an expression that its value is computed from: none in an index or a condition."""
    yield node
    match node:
        case ast.Compare() | ast.BoolOp():
            return
        case ast.Subscript() if is_size(node):
            return
        case ast.Subscript(value=whole):
            parts = [whole]
        case ast.IfExp(body=body, orelse=orelse):
            parts = [body, orelse]
        case _:
            parts = sub_expressions(node)
    for part in parts:
        yield from find_value_nodes(part)


def find_indices_and_bounds(nodes: Iterable[Node]) -> Iterator[Expression]:
    """Yield the indices in subscripts, and the arguments of the ranges that loops run over."""
    for node in nodes:
        match node:
            case ast.Subscript(slice=index):
                yield from index_parts(index)
            case ast.Call(args=arguments) if resolve_callee(node) in ("range", "ndrange"):
                for one in arguments:
                    yield from index_parts(one)


def find_bit_operands(nodes: Iterable[Node]) -> Iterator[Expression]:
    """Yield the operands of `&`, `|`, `^`, `<<`, `>>` and `~`."""
    for node in nodes:
        match node:
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor() | ast.LShift() | ast.RShift()):
                yield from (left, node.right)
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                yield operand


def find_divisions(nodes: Iterable[Node]) -> list[Node]:
    """Return the operations `//` and `%`."""
    operations = (node for node in nodes if isinstance(node, ast.BinOp | ast.AugAssign))
    return [node for node in operations if isinstance(node.op, ast.FloorDiv | ast.Mod)]


def find_operands(nodes: Iterable[Node]) -> Iterator[Expression]:
    """Yield the operands of sums, products and quotients."""
    for node in nodes:
        match node:
            case ast.BinOp(left=left, right=right):
                yield from (left, right)
            case ast.AugAssign(value=value):
                yield value


# Statements ---------------------------------------------------------------------------------------

_JUMPS: dict[type[ast.AST], str] = {ast.Break: "break", ast.Continue: "continue"}


def is_loop(node: Node) -> TypeGuard[Loop]:
    """Return True for a `for` or a `while`."""
    return isinstance(node, ast.For | ast.While)


def is_for(node: Node) -> TypeGuard[ast.For]:
    """Return True for a `for`."""
    return isinstance(node, ast.For)


def find_range_ends(nodes: Iterable[Node], name: str) -> list[Expression | None]:
    """Return the end of the `range` of each loop whose variable is this name; None for a loop over something else."""
    loops = (node for node in nodes if isinstance(node, ast.For) and name in names_in(node.target))
    return [_get_range_end(loop) if get_name(loop.target) == name else None for loop in loops]


def _get_range_end(loop: ast.For) -> Expression | None:
    match loop.iter:
        case ast.Call(args=[end] | [_, end]) if resolve_callee(loop.iter) == "range":
            return end
    return None


def find_names_stored_once(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names that a body assigns in one place: a statement, or a loop."""
    counts = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return frozenset(name for name, count in counts.items() if count == 1)


def is_negative(node: Expression) -> bool:
    """Return True for a literal number below zero."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant)


def is_while(node: Node) -> bool:
    """Return True for a `while`."""
    return isinstance(node, ast.While)


def is_branch(node: Node) -> bool:
    """Return True for an `if`."""
    return isinstance(node, ast.If)


def is_in_else(statement: Statement, condition: Expression, nodes: Iterable[Node]) -> bool:
    """Return True if a statement is in the `else` of the `if` that has this condition."""
    branch = next((one for one in nodes if isinstance(one, ast.If) and one.test is condition), None)
    return branch is not None and any(part is statement for one in branch.orelse for part in walk(one))


def excludes_zero(condition: Expression, is_length: Callable[[Expression], bool], *, is_met: bool) -> bool:
    """Return True if a condition implies that a length is not zero, such as `length > 1e-6`: where the condition is
    true if it `is_met`, where it is false otherwise.

    What a length is compared to is taken to be positive, or zero where the comparison excludes it.
    """
    match condition:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            return excludes_zero(inner, is_length, is_met=not is_met)
        case ast.BoolOp(op=op, values=parts):
            pass
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr() as op, left=left, right=right):
            parts = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=others) if is_met or len(ops) == 1:
            sides = zip([left, *others[:-1]], ops, others, strict=True)
            return any(_exceeds_zero(*one, is_length, is_met=is_met) for one in sides)
        case _:
            return is_met and is_length(condition)
    one_is_enough = isinstance(op, ast.And | ast.BitAnd) == is_met
    each = [excludes_zero(one, is_length, is_met=is_met) for one in parts]
    return any(each) if one_is_enough else all(each)


def _exceeds_zero(
    left: Expression, operator: ast.cmpop, right: Expression, is_length: Callable[[Expression], bool], *, is_met: bool
) -> bool:
    above, below = (ast.Gt, ast.GtE), (ast.Lt, ast.LtE)
    unequal = ast.NotEq if is_met else ast.Eq
    return (is_length(left) and isinstance(operator, (*(above if is_met else below), unequal))) or (
        is_length(right) and isinstance(operator, (*(below if is_met else above), unequal))
    )


def is_expression(statement: Statement) -> bool:
    """Return True for an expression, most often a call, whose value nobody takes."""
    return isinstance(statement, ast.Expr)


def get_call(statement: Statement) -> Call | None:
    """Return the call that a statement is; None for other statements."""
    return statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None


def is_empty(body: Sequence[Statement]) -> bool:
    """Return True if all that stands in a block is `pass`."""
    return all(isinstance(one, ast.Pass) for one in body)


class SelfAddition(NamedTuple):
    """An assignment of a target plus or minus a value to the target itself."""

    target: Expression
    sign: Literal["+", "-"]
    value: Expression


def get_self_addition(statement: Node) -> SelfAddition | None:
    """Return the parts of `x[i] = x[i] + a`, `x[i] = a + x[i]` and `x[i] = x[i] - a`; None for other statements."""
    match statement:
        case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right)):
            is_sum = isinstance(sign, ast.Add)
            if unparse(left) == unparse(target):
                return SelfAddition(target, "+" if is_sum else "-", right)
            if is_sum and unparse(right) == unparse(target):
                return SelfAddition(target, "+", left)
    return None


def get_jump(statement: Node) -> str:
    """Return "break" or "continue"; "" for other statements."""
    return _JUMPS.get(type(statement), "")


def get_body(statement: Statement) -> list[Statement]:
    """Return the statements inside a statement."""
    return [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]


def get_steering(statement: Statement) -> Expression | None:
    """Return what decides whether, or how often, the body of a `for` or an `if` runs that is not unrolled."""
    match statement:
        case ast.For(iter=steer) | ast.If(test=steer) if resolve_callee(steer) != "static":
            return steer
    return None


def get_static_branches(statement: Statement) -> tuple[list[Statement], list[Statement]] | None:
    """Return the two sides of `if ti.static(...)`, one of which is compiled; None for other statements."""
    match statement:
        case ast.If(test=test, body=body, orelse=orelse) if resolve_callee(test) == "static":
            return body, orelse
    return None


def get_returned(node: Node) -> Expression | None:
    """Return what a `return` returns; None for other statements."""
    return node.value if isinstance(node, ast.Return) else None


def get_given(statement: Statement, value: Expression) -> Expression:
    """Return what an assignment says on its right side: of `a += b`, whose value is `a + b`, it is `b`."""
    return statement.value if isinstance(statement, ast.AugAssign) else value


def get_passed_on(statement: Statement) -> list[Expression]:
    """Return the expressions whose values a statement hands on: stored, returned, or given to a call."""
    match statement:
        case ast.Expr(value=ast.Call(args=arguments)):
            return list(arguments)
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign() | ast.Return() if statement.value is not None:
            return [statement.value]
    return []


def find_stored_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names that are given values."""
    return frozenset(one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def find_steering_parts(nodes: Iterable[Node]) -> Iterator[tuple[Expression, str]]:
    """Yield expressions that decide a branch, a loop or an index, and which of these each decides."""
    for node in nodes:
        match node:
            case ast.If(test=test):
                yield test, "a branch"
            case ast.While(test=test):
                yield test, "a loop"
            case ast.For(iter=ast.Call(args=arguments)):
                yield from ((one, "a loop") for one in arguments)
            case ast.Subscript(slice=index):
                yield index, "an index"


def find_loaded_elements(node: Node) -> Iterator[Expression]:
    """Yield elements of arrays that are read."""
    loads = (one for one in walk(node) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
    yield from (one for one in loads if not is_size(one))


def find_misplaced_operations(statement: Statement, is_atomic: Callable[[Call], bool]) -> Iterator[tuple[Call, str]]:
    """Yield atomics of two arguments with whose result an unused expression calculates, each with what was meant."""
    if isinstance(statement, ast.Expr):
        yield from _find_misplaced(statement.value, is_atomic)


def _find_misplaced(node: Expression, is_atomic: Callable[[Call], bool]) -> Iterator[tuple[Call, str]]:
    if isinstance(node, ast.UnaryOp):
        yield from _find_misplaced(node.operand, is_atomic)
    if not isinstance(node, ast.BinOp):
        return
    for side in (node.left, node.right):
        yield from _find_misplaced(side, is_atomic)
        if isinstance(side, ast.Call) and is_atomic(side) and len(side.args) == 2:
            target, value = side.args
            parts = (value, node.right) if side is node.left else (node.left, value)
            meant = ast.Call(side.func, [target, ast.BinOp(parts[0], node.op, parts[1])], [])
            yield side, ast.unparse(meant)


_WORD = re.compile(r"\w+")

# Files --------------------------------------------------------------------------------------------


@cache_results("trees of files", 4)
def _parse(lines: tuple[str, ...]) -> ast.Module:
    return parse_lines(line.rstrip("\n") + "\n" for line in lines)


@cache_results("first words of lines", 4)
def _find_first_words(lines: tuple[str, ...]) -> frozenset[str]:
    """Return the names that lines begin with, those at the left margin."""
    return frozenset(word[0] for line in lines if (word := _WORD.match(line)))


def find_global_line(lines: tuple[str, ...], name: str) -> int:
    """Return the line at which a file gives a global a number, or what a call makes; 0 if it does not."""
    if name not in _find_first_words(lines):  # most files: they are not parsed
        return 0
    for one in _parse(lines).body:
        match one:
            case ast.Assign(targets=[ast.Name(id=known)], value=value) if known == name:
                number = get_literal(value)
                if isinstance(value, ast.Call | ast.BinOp) or (isinstance(number, int | float) and number):
                    return one.lineno
    return 0


def find_given_literals(lines: tuple[str, ...], function: str, name: str, place: int) -> list[object]:
    """Return the literals that the calls of a function in a file give a parameter; None where it is no literal."""
    return [get_literal(one) for one in _find_given(_parse(lines), function, name, place)]


def _find_given(body: Node, function: str, name: str, place: int) -> Iterator[Expression | None]:
    """Yield what the calls of a function give a parameter; None where they leave it out."""
    for call in walk(body):
        if isinstance(call, ast.Call) and function in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
            by_name = next((word.value for word in call.keywords if word.arg == name), None)
            yield call.args[place] if place < len(call.args) else by_name


def is_given_computed(lines: tuple[str, ...], function: str, name: str, place: int) -> bool:
    """Return True if a call of a function in a file gives a parameter what is computed, and not only loaded."""
    for caller in walk(_parse(lines)):
        if isinstance(caller, ast.FunctionDef):
            given = _find_given(caller, function, name, place)
            if any(one is not None and _is_computed(one, caller, ()) for one in given):
                return True
    return False


def _is_computed(node: Expression, caller: Function, before: tuple[str, ...]) -> bool:
    if isinstance(node, ast.IfExp):
        return any(_is_computed(one, caller, before) for one in (node.body, node.orelse))
    if not isinstance(node, ast.Name):
        return not isinstance(node, ast.Constant | ast.Subscript | ast.Attribute)
    values = [value for one in walk(caller) for target, value in assignments(one) if get_name(target) == node.id]
    return node.id not in before and any(_is_computed(one, caller, (*before, node.id)) for one in values)


# Cuts: statements that assign a float to an integer variable without a cast. The IR has one cast for what a person
# wrote, `int(x)`, and for what an engine does by itself, so the file's own text is asked. A statement that calls what
# is not known to keep floats may have meant it: of that nothing is said.

_KEEP = frozenset(
    {"abs", "acos", "asin", "atan2", "cos", "dot", "exp", "length", "log", "max", "min", "norm", "pow", "sin", "sqrt"}
    | {"atomic_add", "atomic_max", "atomic_min", "atomic_mul", "atomic_sub", "random", "rsqrt", "select", "tan", "tanh"}
)
"""Functions that make no integer of a float, and those that add to a variable."""


class Cut(NamedTuple):
    """The variable that a statement changes, as the text has it, and where it stands."""

    target: str
    line: int
    column: int


class Cuts:
    """Statements by file and line, each file parsed once."""

    def __init__(self) -> None:
        self._by_path: dict[str, dict[int, Cut]] = {}

    def at(self, path: str, line: int) -> Cut | None:
        """Return what a statement changes in which no cast is written."""
        if path not in self._by_path:
            self._by_path[path] = _find_cuts(path)
        return self._by_path[path].get(line)


def _find_cuts(path: str) -> dict[int, Cut]:
    cuts: dict[int, Cut] = {}
    for stmt in ast.walk(parse_lines(linecache.getlines(path))):
        changes = (
            [] if isinstance(stmt, ast.AnnAssign) else changes_of(stmt.value if isinstance(stmt, ast.Expr) else stmt)
        )
        target = changes[0].target if len(changes) == 1 else None
        if isinstance(stmt, ast.stmt) and target is not None and all(map(_keeps_floats, ast.walk(stmt))):
            column = column_of(path, target.lineno, target.col_offset)
            cut = Cut(ast.unparse(target), target.lineno, column)
            cuts |= dict.fromkeys(range(stmt.lineno, (stmt.end_lineno or stmt.lineno) + 1), cut)
    return cuts


def _keeps_floats(node: Node) -> bool:
    if not isinstance(node, ast.Call):
        return not isinstance(node, ast.NamedExpr)  # `:=` changes a variable of its own
    return resolve_callee(node) in _KEEP
