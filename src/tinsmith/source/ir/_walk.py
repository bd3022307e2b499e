"""Going through the IR: parts of expressions, statements inside statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import is_
from typing import Any

from . import _nodes as nodes

# By type, for speed: most expressions are leaves, and most statements assignments, which would fail every case of a
# `match`.
_OPERANDS: dict[type[nodes.Expr], Callable[[Any], tuple[nodes.Expr, ...]]] = {
    nodes.Load: lambda expr: expr.index,
    nodes.Unary: lambda expr: (expr.value,),
    nodes.Cast: lambda expr: (expr.value,),
    nodes.Binary: lambda expr: (expr.left, expr.right),
    nodes.Select: lambda expr: (expr.condition, expr.then, expr.otherwise),
}

_EXPRESSIONS: dict[type[nodes.Stmt], Callable[[Any], tuple[nodes.Expr, ...]]] = {
    nodes.Assign: lambda one: (one.value,),
    nodes.Store: lambda one: (*one.index, one.value),
    nodes.Atomic: lambda one: (*one.index, one.value),
    nodes.Decompose: lambda one: one.matrix,
    nodes.If: lambda one: (one.condition,),
    nodes.For: lambda one: tuple([bound for pair in one.bounds for bound in pair]),
    nodes.Loop: lambda one: (
        *[expr for carried in one.carried for expr in (carried.first, carried.next)],
        *[bound for pair in one.bounds for bound in pair],
    ),
}
_BODIES: dict[type[nodes.Stmt], Callable[[Any], tuple[nodes.Block, ...]]] = {
    nodes.If: lambda one: (one.body, one.orelse),
    nodes.For: lambda one: (one.body,),
    nodes.While: lambda one: (one.body,),
    nodes.Loop: lambda one: (one.body,),
}
_RESULTS: dict[type[nodes.Stmt], Callable[[Any], tuple[str, ...]]] = {
    nodes.Assign: lambda one: (one.name,),
    nodes.Draw: lambda one: (one.name,),
    nodes.Atomic: lambda one: () if one.result is None else (one.result,),
    nodes.Decompose: lambda one: one.results,
    nodes.For: lambda one: one.names,
    nodes.Loop: lambda one: (
        *one.names,
        *[name for carried in one.carried for name in (carried.head, carried.last, carried.cell)],
    ),
    nodes.Barrier: lambda one: (one.result,) if one.vote else (),
}


def operands(expr: nodes.Expr) -> tuple[nodes.Expr, ...]:
    """The expressions that one is made of; of a load, its index."""
    of_type = _OPERANDS.get(type(expr))
    return () if of_type is None else of_type(expr)


def rebuild(expr: nodes.Expr, change: Callable[[nodes.Expr], nodes.Expr]) -> nodes.Expr:
    """An expression with each of its operands changed; itself where none is."""
    old = operands(expr)
    new = tuple([change(one) for one in old])
    # Most operands do not change, and making nodes takes most of the time of a pass.
    if all(map(is_, old, new)):
        return expr
    match expr:
        case nodes.Binary():
            return nodes.Binary(expr.operator, new[0], new[1], expr.type)
        case nodes.Load():
            return nodes.Load(expr.array, new, expr.entry, expr.type)
        case nodes.Unary():
            return nodes.Unary(expr.operator, new[0], expr.type)
        case nodes.Select():
            return nodes.Select(new[0], new[1], new[2], expr.type)
        case nodes.Cast():
            return nodes.Cast(new[0], expr.type, expr.keeps_bits)
        case _:
            raise AssertionError(f"{expr} has no operands")


def parts(*exprs: nodes.Expr) -> Iterator[nodes.Expr]:
    """Expressions and everything inside them, from left to right."""
    waiting = [*reversed(exprs)]
    while waiting:
        one = waiting.pop()
        yield one
        of_type = _OPERANDS.get(type(one))
        if of_type is not None:
            waiting.extend(reversed(of_type(one)))


def locals_in(exprs: Sequence[nodes.Expr]) -> set[str]:
    """Names of locals that expressions read."""
    # Not by `parts`: passes ask this a million times for a kernel of some size, and a generator takes most of that.
    names, waiting = set[str](), list(exprs)
    while waiting:
        one = waiting.pop()
        if type(one) is nodes.Local:
            names.add(one.name)
        elif (of_type := _OPERANDS.get(type(one))) is not None:
            waiting.extend(of_type(one))
    return names


def arrays_in(exprs: Sequence[nodes.Expr]) -> set[str]:
    """Names of arrays that expressions load elements of."""
    names, waiting = set[str](), list(exprs)
    while waiting:
        one = waiting.pop()
        if type(one) is nodes.Load:
            names.add(one.array)
        if (of_type := _OPERANDS.get(type(one))) is not None:
            waiting.extend(of_type(one))
    return names


def reads_memory(expr: nodes.Expr) -> bool:
    """Whether an expression reads an element of an array."""
    return any(type(one) is nodes.Load for one in parts(expr))


def is_invariant(expr: nodes.Expr) -> bool:
    """Whether an expression has one value all through a launch: it is made of numbers, sizes and arguments."""
    return not any(isinstance(one, nodes.Local | nodes.Load) for one in parts(expr))


def substitute(expr: nodes.Expr, values: Mapping[str, nodes.Expr]) -> nodes.Expr:
    """An expression with locals replaced."""
    if isinstance(expr, nodes.Local):
        return values.get(expr.name, expr)
    return rebuild(expr, lambda one: substitute(one, values))


def expressions(statement: nodes.Stmt) -> tuple[nodes.Expr, ...]:
    """What a statement computes itself, without the statements inside it."""
    of_type = _EXPRESSIONS.get(type(statement))
    return () if of_type is None else of_type(statement)


def locals_read(statement: nodes.Stmt) -> frozenset[str]:
    """Locals that a statement reads itself, without the statements inside it."""
    # Kept in the statement: passes over one kernel ask the same statements, most of which they leave as they are.
    try:
        return statement.names_read
    except AttributeError:
        return _keep(statement, "names_read", frozenset(locals_in(expressions(statement))))


def _keep(statement: nodes.Stmt, slot: str, names: frozenset[str]) -> frozenset[str]:
    object.__setattr__(statement, slot, names)
    return names


def with_expressions(statement: nodes.Stmt, change: Callable[[nodes.Expr], nodes.Expr]) -> nodes.Stmt:
    """A statement with each expression that it computes itself changed; itself where none is."""
    match statement:
        case nodes.Assign():
            value = change(statement.value)
            if value is statement.value:
                return statement
            return nodes.Assign(statement.name, value, statement.line, statement.number)
        case nodes.If():
            condition = change(statement.condition)
            if condition is statement.condition:
                return statement
            return nodes.If(condition, statement.body, statement.orelse, statement.line, statement.number)
    old = expressions(statement)
    new = tuple([change(one) for one in old])
    if all(map(is_, old, new)):
        return statement
    match statement:
        case nodes.Store() | nodes.Atomic():
            return replace(statement, index=new[:-1], value=new[-1])
        case nodes.Decompose():
            return replace(statement, matrix=new)
        case nodes.For():
            return replace(statement, bounds=tuple(zip(new[::2], new[1::2], strict=True)))
        case _:
            raise AssertionError(f"{statement} computes nothing")


def bodies(statement: nodes.Stmt) -> tuple[nodes.Block, ...]:
    """The blocks inside a statement."""
    of_type = _BODIES.get(type(statement))
    return () if of_type is None else of_type(statement)


def keep_block(old: Sequence[nodes.Stmt], new: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return the new block, or the old one if it has the very same statements: what is around need not be rebuilt."""
    is_same = type(old) is tuple and len(old) == len(new) and all(map(is_, old, new))
    return old if is_same else tuple(new)  # type: ignore[return-value]


def with_bodies(statement: nodes.Stmt, change: Callable[[nodes.Block], nodes.Block]) -> nodes.Stmt:
    """A statement with each block inside it changed, a branch's `else` last."""
    match statement:
        case nodes.If():
            body, orelse = change(statement.body), change(statement.orelse)
            is_same = body is statement.body and orelse is statement.orelse
            return (
                statement if is_same else nodes.If(statement.condition, body, orelse, statement.line, statement.number)
            )
        case nodes.For() | nodes.While() | nodes.Loop():
            body = change(statement.body)
            return statement if body is statement.body else replace(statement, body=body)
        case _:
            return statement


def rewrite(body: Sequence[nodes.Stmt], change: Callable[[nodes.Stmt], Sequence[nodes.Stmt]]) -> nodes.Block:
    """Statements in which several, or none, stand for each: what is inside one changes before it does."""
    statements: list[nodes.Stmt] = []
    for one in body:
        statements += change(with_bodies(one, lambda inner: rewrite(inner, change)))
    return keep_block(body, statements)


def statements(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Stmt]:
    """Statements and everything inside them, in the order of the text."""
    waiting = [*reversed(body)]
    while waiting:
        one = waiting.pop()
        yield one
        of_type = _BODIES.get(type(one))
        if of_type is not None:
            for inner in reversed(of_type(one)):
                waiting.extend(reversed(inner))


def has_jumps(body: Sequence[nodes.Stmt]) -> bool:
    """Whether `break` or `continue` stands anywhere in statements."""
    return any(isinstance(one, nodes.Break | nodes.Continue) for one in statements(body))


def jumps_in(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Break | nodes.Continue]:
    """Every `break` and `continue` of the loop that statements stand in."""
    for one in body:
        if isinstance(one, nodes.Break | nodes.Continue):
            yield one
        elif isinstance(one, nodes.If):
            yield from jumps_in((*one.body, *one.orelse))


def find_assigned(statement: nodes.Stmt) -> tuple[str, ...]:
    """Names of locals that a statement gives a value itself."""
    of_type = _RESULTS.get(type(statement))
    return () if of_type is None else of_type(statement)


def defined_in(statement: nodes.Stmt) -> frozenset[str]:
    """Locals that a statement and those inside it give a value."""
    try:
        return statement.names_defined
    except AttributeError:
        inner = [defined_in(one) for body in bodies(statement) for one in body]
        return _keep(statement, "names_defined", frozenset(find_assigned(statement)).union(*inner))


def mentioned_in(statement: nodes.Stmt) -> frozenset[str]:
    """Locals that a statement and those inside it give a value or read."""
    try:
        return statement.names_mentioned
    except AttributeError:
        inner = [mentioned_in(one) for body in bodies(statement) for one in body]
        own = locals_read(statement).union(find_assigned(statement))
        return _keep(statement, "names_mentioned", own.union(*inner))


def loaded_in(statement: nodes.Stmt) -> frozenset[str]:
    """Arrays of which a statement and those inside it load elements."""
    try:
        return statement.arrays_loaded
    except AttributeError:
        inner = [loaded_in(one) for body in bodies(statement) for one in body]
        return _keep(statement, "arrays_loaded", frozenset(arrays_in(expressions(statement))).union(*inner))


def changed_in(statement: nodes.Stmt) -> frozenset[str]:
    """Arrays that a statement and those inside it change."""
    try:
        return statement.arrays_changed
    except AttributeError:
        inner = [changed_in(one) for body in bodies(statement) for one in body]
        own = {statement.array} if isinstance(statement, nodes.Store | nodes.Atomic) else ()
        return _keep(statement, "arrays_changed", frozenset(own).union(*inner))


def find_defined(body: Sequence[nodes.Stmt]) -> set[str]:
    """Locals that statements give a value."""
    return set[str]().union(*map(defined_in, body))


def find_mentioned(body: Sequence[nodes.Stmt]) -> set[str]:
    """Locals that statements give a value or read."""
    return set[str]().union(*map(mentioned_in, body))


def names_of(kernel: nodes.Kernel) -> set[str]:
    """Every name that a kernel has, its own too."""
    return {*kernel.arrays, *kernel.arguments, *kernel.locals, *find_defined(kernel.body), kernel.name}


def rename_results(statement: nodes.Stmt, name: Callable[[str], str]) -> nodes.Stmt:
    """A statement that gives its values to locals of other names; what it reads stays."""
    match statement:
        case nodes.Assign() | nodes.Draw():
            new = name(statement.name)
            if new == statement.name:
                return statement
            if type(statement) is nodes.Assign:
                return nodes.Assign(new, statement.value, statement.line, statement.number)
            return replace(statement, name=new)
        case nodes.Atomic() if statement.result is not None:
            new = name(statement.result)
            return statement if new == statement.result else replace(statement, result=new)
        case nodes.Decompose():
            results = tuple([name(one) for one in statement.results])
            return statement if results == statement.results else replace(statement, results=results)
        case nodes.For():
            names = tuple([name(one) for one in statement.names])
            return statement if names == statement.names else replace(statement, names=names)
        case _:
            return statement


def number_statements(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Statements of which no two have one number: those that have one keep it, unless another one has it too."""
    taken = {one.number for one in statements(body)}
    if 0 not in taken and len(taken) == sum(1 for _ in statements(body)):
        return tuple(body)
    free, used = count(max(taken, default=0) + 1), {0}

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        one = replace(one, number=next(free)) if one.number in used else one
        used.add(one.number)
        return (one,)

    return rewrite(body, change)


def parts_in(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Expr]:
    """Everything that statements compute, in the order of the text."""
    for statement in statements(body):
        yield from parts(*expressions(statement))


def find_read(body: Sequence[nodes.Stmt]) -> set[str]:
    """Locals that statements read."""
    return set[str]().union(*map(locals_read, statements(body)))


def loads(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Load]:
    """Every load in statements."""
    return (one for one in parts_in(body) if isinstance(one, nodes.Load))


def reads(body: Sequence[nodes.Stmt]) -> set[str]:
    """Arrays whose values statements use: those that they load, and those whose old value an atomic returns."""
    results = (one for one in stores(body) if isinstance(one, nodes.Atomic) and one.result is not None)
    return find_loaded(body) | {one.array for one in results}


def find_loaded(body: Sequence[nodes.Stmt]) -> set[str]:
    """Arrays of which statements load elements."""
    return set[str]().union(*map(loaded_in, body))


def find_changed(body: Sequence[nodes.Stmt]) -> set[str]:
    """Arrays that statements change."""
    return set[str]().union(*map(changed_in, body))


def find_touched(body: Sequence[nodes.Stmt]) -> set[str]:
    """Arrays that statements load or change."""
    return find_loaded(body) | find_changed(body)


def find_sized(body: Sequence[nodes.Stmt]) -> set[str]:
    """Arrays whose sizes statements ask for."""
    return {one.array for one in parts_in(body) if isinstance(one, nodes.Size)}


def stores(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Store | nodes.Atomic]:
    """Every statement that changes memory."""
    return (one for one in statements(body) if isinstance(one, nodes.Store | nodes.Atomic))


def transform(
    statement: nodes.Stmt,
    expression: Callable[[nodes.Expr], nodes.Expr],
    after: Callable[[nodes.Stmt], nodes.Stmt] = lambda one: one,
) -> nodes.Stmt:
    """A statement with every expression in it changed, and then every statement."""
    rewritten = with_expressions(statement, expression)
    return after(
        with_bodies(rewritten, lambda body: keep_block(body, [transform(one, expression, after) for one in body]))
    )


def change_parts(body: Sequence[nodes.Stmt], change: Callable[[Any], Any]) -> nodes.Block:
    """Statements in which every expression and every statement is changed, each after what is inside it."""

    def expression(expr: nodes.Expr) -> nodes.Expr:
        return change(rebuild(expr, expression))

    return keep_block(body, [transform(one, expression, change) for one in body])
