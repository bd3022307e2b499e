"""Flow: which names a value reaches on its way to memory, and what the uses of a name tell about its numbers.

Where nothing declares the numbers of an array (it is a member of a struct, or of an object of another file), its uses
may: an element in brackets is an integer, and an array that is given floats holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from ..frontend import EngineFacts, Source, Spot, callee_of, changes_of, resolve_callee, root, spots
from ._source_form import (
    Call,
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
    get_start,
    is_call,
)
from ._subject import Subject, keep_with_subject
from ._types import types_of
from ._unrun import INTEGER_TYPES

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
            given = callee.arguments.items()
            parts += [one for name, one in given if name in inside or _is_integer(callee.source.annotation(name))]
    used = {name for one in parts for name in find_flowing_names(one, _may_round)}
    known[source.identity] = _close(tuple(spots(source.tree.body)), used, _may_round)
    return known[source.identity]


def _is_integer(annotation: Expression | None) -> bool:
    """Return True for the annotation of an integer, `int` or `ti.i32`."""
    _, name = (get_attribute(annotation) if annotation is not None else None) or (None, get_name(annotation))
    return name in INTEGER_TYPES


def _may_round(node: Node) -> bool:
    return is_call(node) and resolve_callee(node) not in _KEEPS_INTEGERS


@keep_with_subject
def find_valued_names(subject: Subject) -> frozenset[str]:
    """Return the names whose values flow into memory, a result or a call.

    Names that are used only in conditions or indices are left out.
    """
    return _find_valued_names(subject.source)


def _find_valued_names(source: Source) -> frozenset[str]:
    statements, own = tuple(spots(source.tree.body)), source.assigned_names.difference(source.parameters)
    used = {
        name
        for spot in statements
        if not _gives_locals(own, spot.assignments)
        for part in get_passed_on(spot.statement)
        for name in find_flowing_names(part, lambda _: False)
    }
    return _close(statements, used, lambda _: False)


def find_names_passed_on(subject: Subject, part: Expression, is_end: Callable[[Node], bool]) -> Iterator[str]:
    """Yield the names whose values flow into the value of an expression, followed through calls of known functions.

    The arguments of a function whose source cannot be read, as one in another file, are left out.

    Args:
        subject: the kernel or function that contains the expression.
        part: the expression.
        is_end: returns True for a call whose arguments are not followed.
    """

    def is_call_of_function(node: Node) -> bool:
        return is_end(node) or (is_call(node) and _is_function(subject, node))

    yield from find_flowing_names(part, is_call_of_function)
    for call in find_value_nodes(part):
        callee = callee_of(subject.source, call, subject.engine) if is_call(call) else None
        if callee is not None:
            valued = _find_valued_names(callee.source)
            given = [argument for name, argument in callee.arguments.items() if name in valued]
            yield from (name for one in given for name in find_names_passed_on(subject, one, is_end))


def _is_function(subject: Subject, call: Call) -> bool:
    """Return True for a call of a user's function; False for an engine's function and for a method of a vector."""
    if subject.resolve_builtin(call):
        return False
    start = get_start(call.func)
    return (
        bool(start)
        and (start in subject.objects or subject.source.is_constant(start))
        and (start not in subject.declared or start in subject.objects)
    )


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
    own = subject.source.assigned_names.difference(subject.source.parameters)
    return not _gives_locals(own, spot.assignments) or bool(targets & find_valued_names(subject))


def find_doubtful_arrays(subject: Subject) -> frozenset[str]:
    """Return the arrays that hold integers by their uses, or that nothing shows to hold floats."""
    return frozenset(name for name in subject.arrays - subject.integers if _is_doubtful(subject, name))


def _is_doubtful(subject: Subject, array: str) -> bool:
    element = subject.find_declared_element(array)
    if subject.label(array).endswith(".grad"):
        return True  # engines have no gradient of a gradient
    if element == "float":
        return False
    is_open = subject.is_of_others(array) if element is None else element == "" and array not in subject.declared
    return array in find_index_names(subject) or (is_open and array not in find_arrays_of_floats(subject))


@keep_with_subject
def find_arrays_of_floats(subject: Subject) -> frozenset[str]:
    """Return the arrays that are given floats, or whose elements functions of floats take."""
    types, arrays = types_of(subject), set[str]()
    for spot in subject.spots:
        scope = types.at(spot.statement)
        changes = [*spot.assignments, *_find_atomics(spot.calls)]
        arrays |= {root(target) for target, value in changes if scope.of(value).element == "float"}
        for call in spot.calls:
            owner, method = get_attribute(call.func) or (None, "")
            given = call.args if subject.resolve_builtin(call) in _OF_FLOATS else []
            given = [owner] if owner is not None and method in _METHODS_OF_FLOATS else given
            arrays |= {root(one) for one in given if not get_name(one)}
    return frozenset(arrays & subject.arrays)


def _find_atomics(calls: Iterable[Expression]) -> Iterator[tuple[Expression, Expression]]:
    for call in calls:
        yield from ((one.target, one.value) for one in changes_of(call) if one.value is not None)


def _close(statements: Iterable[Spot], names: set[str], is_end: Callable[[Node], bool]) -> frozenset[str]:
    """Return the names, and all names that locals among them are computed from, directly or through other locals."""
    values: dict[str, list[Expression]] = {}
    for spot in statements:
        for target, value in spot.assignments:
            values.setdefault(root(target), []).append(value)
    reached, open_names = set(names), list(names)
    while open_names:
        for value in values.pop(open_names.pop(), ()):
            new = set(find_flowing_names(value, is_end)) - reached
            reached |= new
            open_names += new
    return frozenset(reached)


def _gives_locals(own: Collection[str], assignments: Iterable[tuple[Expression, Expression]]) -> bool:
    """Return True if a statement assigns, and only to a function's own locals or entries of them."""
    targets = [root(target) for target, _ in assignments]
    return bool(targets) and all(one in own for one in targets)
