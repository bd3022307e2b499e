"""Flow: which names a value reaches on its way to memory, and what the uses of a name tell about its numbers.

Where nothing declares the numbers of an array (it is a member of a struct, or of an object of another file), its uses
may: an element in brackets is an integer, and an array that is given floats holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ..frontend import EngineFacts, Source, Spot, callee_of, changes_of, resolve_callee, root, spots
from ._source_form import (
    Expression,
    Node,
    find_bit_operands,
    find_flowing_names,
    find_indices_and_bounds,
    find_operands,
    find_value_nodes,
    get_attribute,
    get_name,
    get_passed_on,
    is_call,
)
from ._subject import Subject, keep_with_subject
from ._types import types_of

_KEEPS_INTEGERS = frozenset({"abs", "max", "min", "static"})
_OF_FLOATS = frozenset({"acos", "asin", "atan2", "cos", "exp", "log", "rsqrt", "sin", "sqrt", "tan", "tanh"})
_METHODS_OF_FLOATS = frozenset({"norm", "normalized", "norm_inv", "inverse"})


@keep_with_subject
def find_index_names(subject: Subject) -> frozenset[str]:
    """Return the names whose values stand in brackets, bound a loop or are combined by bits: they hold integers."""
    return _find_index_names(subject.source, subject.engine, {})


def _find_index_names(source: Source, engine: EngineFacts, known: dict[object, frozenset[str]]) -> frozenset[str]:
    """Find them in one function, and what it gives functions that do so with their parameters."""
    known[source.identity] = frozenset()  # of a function that calls itself
    nodes = source.nodes
    parts = [*find_indices_and_bounds(nodes), *find_bit_operands(nodes)]
    for call in source.calls:
        callee = callee_of(source, call, engine)
        if callee is not None:
            identity = callee.source.identity
            inside = known[identity] if identity in known else _find_index_names(callee.source, engine, known)
            parts += [argument for name, argument in callee.arguments.items() if name in inside]
    used = {name for one in parts for name in find_flowing_names(one, _may_round)}
    known[source.identity] = _close(tuple(spots(source.tree.body)), used, _may_round)
    return known[source.identity]


def _may_round(node: Node) -> bool:
    return is_call(node) and resolve_callee(node) not in _KEEPS_INTEGERS


@keep_with_subject
def find_valued_names(subject: Subject) -> frozenset[str]:
    """Return the names whose values reach memory, a result or a call: not those that only decide what is run."""
    used = {
        name
        for spot in subject.spots
        if not _gives_locals(subject, spot.assignments)
        for part in get_passed_on(spot.statement)
        for name in find_flowing_names(part, _never)
    }
    return _close(subject.spots, used, _never)


@keep_with_subject
def find_calculated_names(subject: Subject) -> frozenset[str]:
    """Return the names that arithmetic is done with."""
    return frozenset(name for one in find_operands(subject.source.nodes) for name in find_flowing_names(one, is_call))


def has_gradient(subject: Subject, statement: Node, node: Expression) -> bool:
    """Return True if the value of an expression in a statement reaches memory, a result or a call."""
    parts = get_passed_on(statement)  # type: ignore[arg-type]  # a statement
    if not any(node is one for part in parts for one in find_value_nodes(part)):
        return False
    spot = next(one for one in subject.spots if one.statement is statement)
    targets = {root(target) for target, _ in spot.assignments}
    return not _gives_locals(subject, spot.assignments) or bool(targets & find_valued_names(subject))


@keep_with_subject
def find_arrays_of_floats(subject: Subject) -> frozenset[str]:
    """Return the arrays that are given floats, or whose elements functions of floats take."""
    types, found = types_of(subject), set[str]()
    for spot in subject.spots:
        scope = types.at(spot.statement)
        changes = [*spot.assignments, *_find_atomics(spot.calls)]
        found |= {root(target) for target, value in changes if scope.of(value).element == "float"}
        for call in spot.calls:
            owner, method = get_attribute(call.func) or (None, "")
            given = call.args if subject.resolve_builtin(call) in _OF_FLOATS else []
            given = [owner] if owner is not None and method in _METHODS_OF_FLOATS else given
            found |= {root(one) for one in given if not get_name(one)}
    return frozenset(found & subject.arrays)


def _find_atomics(calls: Iterable[Expression]) -> Iterator[tuple[Expression, Expression]]:
    for call in calls:
        yield from ((one.target, one.value) for one in changes_of(call) if one.value is not None)


def _close(statements: Iterable[Spot], names: set[str], is_end: Callable[[Node], bool]) -> frozenset[str]:
    """Return some names with those that the values of locals among them are computed from."""
    values: dict[str, list[Expression]] = {}
    for spot in statements:
        for target, value in spot.assignments:
            values.setdefault(root(target), []).append(value)
    found, open_names = set(names), list(names)
    while open_names:
        for value in values.pop(open_names.pop(), ()):
            new = set(find_flowing_names(value, is_end)) - found
            found |= new
            open_names += new
    return frozenset(found)


def _gives_locals(subject: Subject, assignments: Iterable[tuple[Expression, Expression]]) -> bool:
    """Return True if a statement assigns, and only to locals or entries of them."""
    targets = [root(target) for target, _ in assignments]
    return bool(targets) and all(one and one not in subject.arrays and one in _locals(subject) for one in targets)


@keep_with_subject
def _locals(subject: Subject) -> frozenset[str]:
    """Return the names that a function has for itself; its parameters may stand for a caller's memory."""
    return types_of(subject).names - subject.declared.keys()


def _never(node: Node) -> bool:
    return False
