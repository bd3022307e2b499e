"""Traversals of the IR: parts of expressions, statements inside statements, and the names that these mention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import is_
from typing import Any, TypeGuard

from . import _nodes as nodes
from ._traversals import (
    GET_BODIES,
    GET_CHANGED,
    GET_INNER,
    GET_LOADED,
    GET_OPERANDS,
    GET_OUTER,
    GET_RESULTS,
    SET_BODIES,
    SET_OPERANDS,
    SET_RESULTS,
)


def operands(expr: nodes.Expr) -> tuple[nodes.Expr, ...]:
    """Return the expressions that one is made of; of a load, its index."""
    get = GET_OPERANDS.get(type(expr))
    return () if get is None else get(expr)


def rebuild(expr: nodes.Expr, change: Callable[[nodes.Expr], nodes.Expr]) -> nodes.Expr:
    """Return an expression with each of its operands changed; itself if none changes."""
    get = GET_OPERANDS.get(type(expr))
    if get is None:
        return expr
    old = get(expr)
    new = tuple([change(one) for one in old])
    # Most operands do not change, and making nodes takes most of the time of a pass.
    return expr if all(map(is_, old, new)) else SET_OPERANDS[type(expr)](expr, new)


def parts(*exprs: nodes.Expr) -> Iterator[nodes.Expr]:
    """Yield expressions and everything inside them, from left to right."""
    waiting = [*reversed(exprs)]
    while waiting:
        one = waiting.pop()
        yield one
        of_type = GET_OPERANDS.get(type(one))
        if of_type is not None:
            waiting.extend(reversed(of_type(one)))


def locals_in(exprs: Sequence[nodes.Expr]) -> set[str]:
    """Return the names of locals that expressions read."""
    # Not by `parts`: passes ask this a million times for a kernel of some size, and a generator takes most of that.
    names, waiting = set[str](), list(exprs)
    while waiting:
        one = waiting.pop()
        if type(one) is nodes.Local:
            names.add(one.name)
        elif (of_type := GET_OPERANDS.get(type(one))) is not None:
            waiting.extend(of_type(one))
    return names


def arrays_in(exprs: Sequence[nodes.Expr]) -> set[str]:
    """Return the names of arrays that expressions load elements of."""
    names, waiting = set[str](), list(exprs)
    while waiting:
        one = waiting.pop()
        if type(one) in GET_LOADED:
            names.update(GET_LOADED[type(one)](one))
        if (of_type := GET_OPERANDS.get(type(one))) is not None:
            waiting.extend(of_type(one))
    return names


def reads_memory(expr: nodes.Expr) -> bool:
    """Return True if an expression reads an element of an array."""
    return any(type(one) is nodes.Load for one in parts(expr))


def is_invariant(expr: nodes.Expr) -> bool:
    """Return True if an expression has one value all through a launch: it reads no local and no memory."""
    return not any(isinstance(one, nodes.Local | nodes.Load) for one in parts(expr))


def substitute(expr: nodes.Expr, values: Mapping[str, nodes.Expr]) -> nodes.Expr:
    """Return an expression with locals replaced by values."""
    if isinstance(expr, nodes.Local):
        return values.get(expr.name, expr)
    return rebuild(expr, lambda one: substitute(one, values))


def may_fail(statement: nodes.Stmt) -> bool:
    """Return True if a statement, or one inside it, may end the run."""
    try:
        return statement.failing
    except AttributeError:
        is_failing = statement.may_fail or any(may_fail(one) for body in bodies(statement) for one in body)
        # Statements are frozen; this slot is a cache, see `nodes._Statement`.
        object.__setattr__(statement, "failing", is_failing)
        return is_failing


def expressions(statement: nodes.Stmt) -> tuple[nodes.Expr, ...]:
    """Return the expressions that a statement computes itself, without those of the statements inside it."""
    get = GET_OPERANDS.get(type(statement))
    return () if get is None else get(statement)


def inner_expressions(statement: nodes.Stmt) -> tuple[nodes.Expr, ...]:
    """Return the expressions that a loop in SSA form computes at the end of an iteration, with what its body gives."""
    get = GET_INNER.get(type(statement))
    return () if get is None else get(statement)


def outer_expressions(statement: nodes.Stmt) -> tuple[nodes.Expr, ...]:
    """Return the expressions that a statement computes before the statements inside it run."""
    get = GET_OUTER.get(type(statement))
    return () if get is None else get(statement)


def locals_read(statement: nodes.Stmt) -> frozenset[str]:
    """Return the locals that a statement reads itself, without the statements inside it."""
    # Kept in the statement: passes over one kernel ask the same statements, most of which they leave as they are.
    try:
        return statement.names_read
    except AttributeError:
        return _keep(statement, "names_read", frozenset(locals_in(expressions(statement))))


def _keep(statement: nodes.Stmt, slot: str, names: frozenset[str]) -> frozenset[str]:
    object.__setattr__(statement, slot, names)
    return names


def with_expressions(statement: nodes.Stmt, change: Callable[[nodes.Expr], nodes.Expr]) -> nodes.Stmt:
    """Return a statement with each expression that it computes itself changed; itself if none changes."""
    old = expressions(statement)
    new = tuple([change(one) for one in old])
    return statement if all(map(is_, old, new)) else SET_OPERANDS[type(statement)](statement, new)


def bodies(statement: nodes.Stmt) -> tuple[nodes.Block, ...]:
    """Return the blocks inside a statement."""
    get = GET_BODIES.get(type(statement))
    return () if get is None else get(statement)


def keep_block(old: Sequence[nodes.Stmt], new: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return the new block, or the old one if it has the very same statements: what is around need not be rebuilt."""
    is_same = type(old) is tuple and len(old) == len(new) and all(map(is_, old, new))
    return old if is_same else tuple(new)  # type: ignore[return-value]


def with_bodies(statement: nodes.Stmt, change: Callable[[nodes.Block], nodes.Block]) -> nodes.Stmt:
    """Return a statement with each block inside it changed, an `else` last; itself if none changes."""
    get = GET_BODIES.get(type(statement))
    if get is None:
        return statement
    old = get(statement)
    new = tuple([change(one) for one in old])
    return statement if all(map(is_, old, new)) else SET_BODIES[type(statement)](statement, new)


def rewrite(body: Sequence[nodes.Stmt], change: Callable[[nodes.Stmt], Sequence[nodes.Stmt]]) -> nodes.Block:
    """Return statements in which `change` replaces each by any number of others, after those inside it."""
    statements: list[nodes.Stmt] = []
    for one in body:
        statements += change(with_bodies(one, lambda inner: rewrite(inner, change)))
    return keep_block(body, statements)


def statements(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Stmt]:
    """Yield statements and everything inside them, in the order of the text."""
    waiting = [*reversed(body)]
    while waiting:
        one = waiting.pop()
        yield one
        of_type = GET_BODIES.get(type(one))
        if of_type is not None:
            for inner in reversed(of_type(one)):
                waiting.extend(reversed(inner))


def is_parallel(statement: nodes.Stmt) -> TypeGuard[nodes.For]:
    """Return True for a loop of the top level whose iterations run at once."""
    return isinstance(statement, nodes.For) and statement.is_parallel


def has_jumps(body: Sequence[nodes.Stmt]) -> bool:
    """Return True if a `break` or `continue` stands anywhere in statements."""
    return any(isinstance(one, nodes.Break | nodes.Continue) for one in statements(body))


def has_barriers(body: Sequence[nodes.Stmt]) -> bool:
    """Return True if iterations of a block wait for each other anywhere in statements."""
    return any(isinstance(one, nodes.Barrier | nodes.Vote) for one in statements(body))


def frame_statements(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Stmt]:
    """Yield statements and those in their branches, in the order of the text, without those inside loops."""
    for one in body:
        yield one
        if isinstance(one, nodes.If):
            yield from frame_statements(one.body)
            yield from frame_statements(one.orelse)


def jumps_in(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Break | nodes.Continue]:
    """Yield every `break` and `continue` of the loop whose body statements are."""
    return (one for one in frame_statements(body) if isinstance(one, nodes.Break | nodes.Continue))


def find_assigned(statement: nodes.Stmt) -> tuple[str, ...]:
    """Return the names of locals that a statement gives a value itself."""
    get = GET_RESULTS.get(type(statement))
    return () if get is None else get(statement)


def defined_in(statement: nodes.Stmt) -> frozenset[str]:
    """Return the locals that a statement and those inside it give a value."""
    try:
        return statement.names_defined
    except AttributeError:
        inner = [defined_in(one) for body in bodies(statement) for one in body]
        return _keep(statement, "names_defined", frozenset(find_assigned(statement)).union(*inner))


def mentioned_in(statement: nodes.Stmt) -> frozenset[str]:
    """Return the locals that a statement and those inside it give a value or read."""
    try:
        return statement.names_mentioned
    except AttributeError:
        own = locals_read(statement).union(find_assigned(statement))
        inner = [mentioned_in(one) for body in bodies(statement) for one in body]
        return _keep(statement, "names_mentioned", own.union(*inner) if inner else own)


def loaded_in(statement: nodes.Stmt) -> frozenset[str]:
    """Return the arrays from which a statement and those inside it load elements."""
    try:
        return statement.arrays_loaded
    except AttributeError:
        inner = [loaded_in(one) for body in bodies(statement) for one in body]
        return _keep(statement, "arrays_loaded", frozenset(arrays_in(expressions(statement))).union(*inner))


def changed_in(statement: nodes.Stmt) -> frozenset[str]:
    """Return the arrays that a statement and those inside it change."""
    try:
        return statement.arrays_changed
    except AttributeError:
        inner = [changed_in(one) for body in bodies(statement) for one in body]
        get = GET_CHANGED.get(type(statement))
        return _keep(statement, "arrays_changed", frozenset(get(statement) if get else ()).union(*inner))


def has_exits(branch: nodes.If) -> bool:
    """Return True if a branch has a `break` or `continue` that is not in a loop inside it."""
    try:
        return branch.has_exits
    except AttributeError:
        is_exit = any(jumps_in([branch]))
        object.__setattr__(branch, "has_exits", is_exit)
        return is_exit


def find_defined(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the locals that statements give a value."""
    return set[str]().union(*map(defined_in, body))


def find_mentioned(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the locals that statements give a value or read."""
    return set[str]().union(*map(mentioned_in, body))


def names_of(kernel: nodes.Kernel) -> set[str]:
    """Return every name in a kernel, its own included."""
    return {*kernel.arrays, *kernel.arguments, *kernel.locals, *find_defined(kernel.body), kernel.name}


def rename_results(statement: nodes.Stmt, name: Callable[[str], str]) -> nodes.Stmt:
    """Return a statement that gives its values to locals of other names; what it reads stays."""
    old = find_assigned(statement)
    new = tuple([name(one) for one in old])
    return statement if old == new else SET_RESULTS[type(statement)](statement, new)


def number_statements(body: Sequence[nodes.Stmt]) -> nodes.Block:
    """Return statements with unique numbers: of several with one number, the first keeps it."""
    taken = {one.number for one in statements(body)}
    if 0 not in taken and len(taken) == sum(1 for _ in statements(body)):
        return tuple(body)
    # 0 is the number of statements that have none yet. A pass that copies a body leaves two of each number.
    free, used = count(max(taken, default=0) + 1), {0}

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        one = replace(one, number=next(free)) if one.number in used else one
        used.add(one.number)
        return (one,)

    return rewrite(body, change)


def parts_in(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Expr]:
    """Yield everything that statements compute, in the order of the text."""
    for statement in statements(body):
        yield from parts(*expressions(statement))


def find_read(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the locals that statements read."""
    return set[str]().union(*map(locals_read, statements(body)))


def loads(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Load]:
    """Yield every load in statements."""
    # Few statements load, and each knows whether it does, so most expressions are not searched.
    loading = (one for one in statements(body) if loaded_in(one))
    return (one for statement in loading for one in parts(*expressions(statement)) if type(one) is nodes.Load)


def reads(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the arrays whose values statements use: those they load, and those whose old value an atomic returns."""
    results = (one for one in stores(body) if isinstance(one, nodes.Atomic) and one.result is not None)
    return find_loaded(body) | {one.array for one in results}


def find_loaded(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the arrays from which statements load elements."""
    return set[str]().union(*map(loaded_in, body))


def find_changed(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the arrays that statements change."""
    return set[str]().union(*map(changed_in, body))


def find_touched(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the arrays that statements load or change."""
    return find_loaded(body) | find_changed(body)


def find_sized(body: Sequence[nodes.Stmt]) -> set[str]:
    """Return the arrays whose sizes statements read."""
    return {one.array for one in parts_in(body) if isinstance(one, nodes.Size)}


def stores(body: Sequence[nodes.Stmt]) -> Iterator[nodes.Store | nodes.Atomic]:
    """Yield every statement that changes memory."""
    return (one for one in statements(body) if isinstance(one, nodes.Store | nodes.Atomic))


def transform(
    statement: nodes.Stmt,
    expression: Callable[[nodes.Expr], nodes.Expr],
    after: Callable[[nodes.Stmt], nodes.Stmt] = lambda one: one,
) -> nodes.Stmt:
    """Return a statement with every expression in it changed, and then every statement."""
    rewritten = with_expressions(statement, expression)
    return after(
        with_bodies(rewritten, lambda body: keep_block(body, [transform(one, expression, after) for one in body]))
    )


def change_parts(body: Sequence[nodes.Stmt], change: Callable[[Any], Any]) -> nodes.Block:
    """Return statements with every expression and every statement changed, each after what is inside it."""

    def expression(expr: nodes.Expr) -> nodes.Expr:
        return change(rebuild(expr, expression))

    return keep_block(body, [transform(one, expression, change) for one in body])
