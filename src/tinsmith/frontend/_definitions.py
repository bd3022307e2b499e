"""Find definitions and uses of locals: which statements define them, from what, and which a loop carries.

A definition of a local is an assignment to it, the header of a loop over it, or a call that may change what it is
given. A local with a single definition, which is an assignment, stands for the assigned expression.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from .._cache import cache_results
from ..engines import walk
from ._nodes import count_stores, names_in, root

Loop = ast.For | ast.While


def assignments(statement: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (target, value) of assignments.

    Of `a += b` the value is `a + b`; of `a, b = v` the values are `v[0]` and `v[1]`.
    """
    match statement:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _unpack(target, value)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign(target=target, op=op, value=value):
            yield target, ast.copy_location(ast.BinOp(make_load(target), op, value), statement)


def _unpack(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, value
        return
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
    for place, one in enumerate(target.elts):
        part = ast.Subscript(value, ast.Constant(place), ast.Load())
        yield from _unpack(one, parts[place] if len(parts) == len(target.elts) else ast.copy_location(part, value))


def make_load(target: ast.expr) -> ast.expr:
    """Convert the target of an assignment to the expression that reads it."""
    match target:
        case ast.Name(id=name):
            read = ast.Name(name, ast.Load())
        case ast.Subscript(value=value, slice=index):
            read = ast.Subscript(value, index, ast.Load())
        case ast.Attribute(value=value, attr=attr):
            read = ast.Attribute(value, attr, ast.Load())
        case _:
            return target
    return ast.copy_location(read, target)


def find_assigned_names(statement: ast.stmt) -> set[str]:
    """Return the locals that a statement may change, except by statements inside it."""
    if isinstance(statement, ast.For | ast.While | ast.If):
        return set()
    stored = (one for one in walk(statement) if isinstance(one, ast.Name | ast.Subscript | ast.Attribute))
    return {root(one) for one in stored if isinstance(one.ctx, ast.Store)} | _find_passed_names(statement)


def _find_passed_names(node: ast.AST) -> set[str]:
    """Return the names that are passed to a call whose result is not used."""
    # A call that stands alone, `inc(total, v)`, is there for what it changes: a template parameter is the caller's
    # variable.
    arguments = node.value.args if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else ()
    return {one.id for one in arguments if isinstance(one, ast.Name)}


class Definitions(NamedTuple):
    """The locals of a function: the value of each that has a `single` definition, and the names of all `locals`."""

    single: Mapping[str, ast.expr]
    locals: frozenset[str]


# A function that is called in a hundred places is analyzed once.
@cache_results("definitions of locals", 64)
def definitions(tree: ast.FunctionDef) -> Definitions:
    """Find the definitions of a function's locals. The argument counts as the first definition of a parameter."""
    counts, nodes = count_stores(tree), walk(tree)
    changed = [name for node in nodes for name in _find_passed_names(node)] + [
        argument.arg for argument in tree.args.args
    ]
    unknown = {name for name in changed if name in counts} | {name for name, count in counts.items() if count > 1}
    # Not `a += b`, whose value `a + b` reads `a` itself.
    plain = (node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign))
    pairs = (pair for node in plain for pair in assignments(node))
    single = {target.id: value for target, value in pairs if isinstance(target, ast.Name) and target.id not in unknown}
    return Definitions(single, frozenset(counts))


def sources(tree: ast.FunctionDef, node: ast.AST) -> frozenset[str]:
    """Return the names that a value is computed from, through locals and loop variables: its backward slice."""
    uses, slice_names, waiting = _uses(tree), set[str](), set(names_in(node))
    while waiting:
        name = waiting.pop()
        slice_names.add(name)
        waiting |= uses.get(name, set()) - slice_names
    return frozenset(slice_names)


@cache_results("uses of locals", 64)
def _uses(tree: ast.FunctionDef) -> Mapping[str, set[str]]:
    """Return, for each name, the names in its assigned values and in the headers of its loops."""
    uses: dict[str, set[str]] = {}
    for node in walk(tree):
        if isinstance(node, ast.For):
            for name in names_in(node.target):
                uses.setdefault(name, set()).update(names_in(node.iter))
        elif isinstance(node, ast.stmt):
            for target, value in assignments(node):
                uses.setdefault(root(target), set()).update(names_in(value))
    return uses


# Loops --------------------------------------------------------------------------------------------


@cache_results("locals that loops carry", 64)
def find_carried(loop: Loop) -> dict[str, ast.stmt]:
    """Return the locals that an iteration passes to the next, each with the first statement that changes it.

    The body changes them, and has an upward exposed use of them: it may read them before it has assigned them.
    """
    exposed = _flow(loop.body).exposed
    changed: dict[str, ast.stmt] = {}
    for one in _statements(loop.body):
        for target, _ in assignments(one):
            if root(target) in exposed:
                changed.setdefault(root(target), one)
    return changed


class _Flow(NamedTuple):
    """What a block may read before it assigns it (`exposed`), and what it assigns on every path (`definite`)."""

    exposed: frozenset[str]
    definite: frozenset[str]


def _flow(body: Sequence[ast.stmt]) -> _Flow:
    exposed: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()
    for one in body:
        flow = _of_statement(one)
        exposed |= flow.exposed - made
        made |= flow.definite
    return _Flow(exposed, made)


def _of_statement(one: ast.stmt) -> _Flow:
    match one:
        case ast.If(test=test):
            # Also where the condition is static: whether it holds is not known here.
            then, other = _flow(one.body), _flow(one.orelse)
            return _Flow(names_in(test) | then.exposed | other.exposed, then.definite & other.definite)
        case ast.For(target=target, iter=iterator):
            # A loop may run no iteration, so it assigns nothing on every path.
            return _Flow(names_in(iterator) | (_flow(one.body).exposed - names_in(target)), frozenset())
        case ast.While(test=test):
            return _Flow(names_in(test) | _flow(one.body).exposed, frozenset())
    given = list(assignments(one))
    if not given:
        return _Flow(names_in(one), frozenset())
    made = frozenset(target.id for target, _ in given if isinstance(target, ast.Name))
    # `v[0] = e` keeps the rest of `v`, so it reads `v`.
    parts = [value for _, value in given] + [target for target, _ in given if not isinstance(target, ast.Name)]
    return _Flow(frozenset().union(*map(names_in, parts)), made)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for one in body:
        yield one
        for part in ("body", "orelse"):
            yield from _statements(getattr(one, part, []))
