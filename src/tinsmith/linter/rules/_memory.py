"""Rules about memory: what a kernel overwrites, and what its parallel iterations do to each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...frontend import Access, find_reachable, find_saved_values, index_parts, names_in, roles_of, root
from ...ir import AtomicOperator, Operator, each_moves_an_axis, nodes, walk
from .._finding import Finding
from .._sketch import sketch_of
from .._source_form import (
    Expression,
    find_loaded_elements,
    find_names_stored_once,
    find_range_ends,
    find_steering_parts,
    find_subscripted_names,
    get_all_arguments,
    get_index,
    get_name,
    is_negative,
)
from .._subject import BOTH, ENGINES, Subject, keep_with_subject

_WAYS_OUT = "{0}[t + 1, ...] = ...  # from {0}[t, ...]: each value at a place of its own"
_OF_EXTREMES = (
    '@ts.op("... -> {0}[...]")  # without adjoint="engine": tinsmith gives the gradient to the value that won'
)
"""A running maximum in a local is no way out: Taichi 1.7.4 gets that wrong too (TS405)."""


def find_overwritten_reads(subject: Subject) -> Iterator[Finding]:
    """Report values that the reverse pass needs and the kernel overwrites (TS101), or changes in place (TS102)."""
    if not subject.is_kernel:
        return
    changed = {name for name, roles in subject.roles.items() if roles.of("read") and roles.of("write", "add")}
    for name in sorted((changed & subject.floats) - subject.inputs):
        overwritten = subject.roles[name].find_overwritten(subject.needs.reads[name])
        if overwritten is not None:  # asked again, since what follows takes longer
            places, are_apart = subject.needs.reads[name] - _find_unneeded(subject), partial(_is_appended, subject)
            overwritten = subject.roles[name].find_overwritten(places, are_apart)
        if overwritten is not None:
            yield _report_overwritten_read(subject, name, *overwritten)


@keep_with_subject
def _find_unneeded(subject: Subject) -> frozenset[str]:
    """Return the places at which a kernel, or a function that it calls, only copies what it reads of an array.

    An array that is passed on as a whole counts as needed at every place: each function is asked about its own.
    """
    unneeded, needed = set[str](), set[str]()
    for source in find_reachable(subject.source, subject.engine):
        is_kernel = source is subject.source
        if not is_kernel and source.assigned_names.intersection(source.parameters):
            continue  # it may change a variable of its caller, which nobody here knows
        arrays = find_subscripted_names(source.nodes).intersection(source.parameters)
        roles = {} if is_kernel else roles_of(source, sorted(arrays), subject.engine)
        active = [*source.parameters]
        saved = subject.needs if is_kernel else find_saved_values(source, roles, active, subject.engine)
        needed.update(*saved.own_reads.values())
        places = {access.place for one in (subject.roles if is_kernel else roles).values() for access in one.of("read")}
        inside = {source.place(node) for node in source.nodes if get_index(node) is not None}
        unneeded |= places & inside
    return frozenset(unneeded - needed)


def _is_appended(subject: Subject, read: Access, change: Access) -> bool:
    """Return True if a change is of the element after all that may have been read: `x[n]`, after `range(n)`."""
    if not all(loop.is_parallel for loop in change.loops):
        return False
    axes = [index_parts(index) for node in (read.node, change.node) if (index := get_index(node)) is not None]
    if len(axes) != 2 or len(axes[0]) != len(axes[1]):
        return False
    return any(
        _is_below(subject, get_name(part), subject.text(bound)) and _is_unchanged(subject, bound, change)
        for part, bound in zip(*axes, strict=True)
    )


def _is_below(subject: Subject, name: str, bound: str, seen: tuple[str, ...] = ()) -> bool:
    """Return True if a local only gets numbers of `range(bound)`, and negative ones, which stand for no element."""
    ends = find_range_ends(subject.source.nodes, name)
    values = [value for spot in subject.spots for target, value in spot.assignments if get_name(target) == name]
    if not (ends or values) or name in (*seen, *subject.source.parameters):
        return False
    others = [get_name(one) for one in values if not is_negative(one)]
    are_numbers = all(end is not None and subject.text(end) == bound for end in ends)
    return are_numbers and all(_is_below(subject, one, bound, (*seen, name)) for one in others)


def _is_unchanged(subject: Subject, bound: Expression, change: Access) -> bool:
    """Return True if nothing that a bound is computed from changes before an access; its locals have one value each."""
    names = names_in(bound)
    arrays = [subject.roles[name] for name in names & subject.roles.keys()]
    changes = (one for roles in arrays for one in roles.of("write", "add") if one.order <= change.order)
    is_known = not any(roles.escapes for roles in arrays) and next(changes, None) is None
    # A function may change a local that it is given as a template.
    line = change.node.lineno
    calls = (call for spot in subject.spots if spot.statement.lineno <= line for call in spot.calls)
    passed = {get_name(one) for call in calls if not subject.resolve_builtin(call) for one in get_all_arguments(call)}
    locals_ = names & subject.source.assigned_names
    return is_known and passed.isdisjoint(locals_) and locals_ <= find_names_stored_once(subject.source.nodes)


def _report_overwritten_read(subject: Subject, name: str, read: Access, change: Access) -> Finding:
    label, line = subject.label(name), read.node.lineno
    if read.node.lineno == change.node.lineno and read.index == change.index:
        words = f"`{label}` is changed in place, from a value that its gradient needs"
        remedy = _OF_EXTREMES.format(label) if _is_extreme(subject, change) else "a local, stored once"
        return _at(subject, "TS102", change, f"{words}: {BOTH} differentiate with the new value", remedy, ENGINES)
    words = f"overwrites what line {line} read of `{label}`, and the gradient needs it"
    remedy = _WAYS_OUT.format(label)
    return _at(subject, "TS101", change, f"{words}: {BOTH} differentiate with the final value", remedy, ENGINES)


def _is_extreme(subject: Subject, change: Access) -> bool:
    """Return True if a change is by `atomic_max` or `atomic_min`."""
    sketch = sketch_of(subject)
    atomics = (one for one in walk.stores(sketch.kernel.body) if isinstance(one, nodes.Atomic))
    extremes = (one for one in atomics if one.operator in (AtomicOperator.MAX, AtomicOperator.MIN))
    return any(sketch.find_element(one, one.line) is change.node for one in extremes)


def _at(
    subject: Subject, rule: str, access: Access, message: str, remedy: str, engines: tuple[str, ...] = ()
) -> Finding:
    severity = "error" if rule == "TS103" else "warning"
    return subject.finding(rule, severity, access.node, message, remedy, engines)


def inputs_written(subject: Subject) -> Iterator[Finding]:
    """Report inputs of the op that the kernel writes (TS103)."""
    for name in sorted(subject.inputs & subject.roles.keys()) if subject.inputs else ():
        changes = subject.roles[name].of("write", "add")
        if changes:
            words = f"`{name}` is an input of the op, and is written: an op never changes its caller's tensors"
            yield _at(subject, "TS103", changes[0], words, f'list it on the right: "... -> {name}[...]"')


def read_too_early(subject: Subject) -> Iterator[Finding]:
    """Report outputs that are read before they are written, in the order of the text (TS104)."""
    outputs = subject.outputs - subject.written_before
    for name in sorted(outputs & subject.roles.keys()) if outputs else ():
        roles = subject.roles[name]
        reads, changes = roles.of("read"), roles.of("write", "add")
        for read in reads:
            earlier = [change for change in changes if change.order <= read.order or _shares_loop(change, read)]
            if not earlier or _scales_nothing(subject, name, read, earlier):
                words = f"`{name}` is an output, and is read before it is written: the read returns zeros"
                yield _at(subject, "TS104", read, words, f"{name}[...] = ...  # first, or make it an input")
                break


def _scales_nothing(subject: Subject, name: str, read: Access, earlier: list[Access]) -> bool:
    """Return True if a read is a factor in what its iteration stores to the same element, which was never written.

    Nobody multiplies by a zero that is known. Differences, maxima and bits may be meant to begin at it.
    """
    (change, *others) = earlier
    if others or subject.roles[name].escapes or change.kind != "write":
        return False
    if change.order != read.order or change.index != read.index or not _is_own(change):
        return False
    stores = (one for one in walk.stores(sketch_of(subject).kernel.body) if isinstance(one, nodes.Store))
    return any(_scales_itself(one) for one in stores if one.array == name and one.line == change.node.lineno)


def _is_own(change: Access) -> bool:
    """Return True if each iteration stores to an element of its own: every loop variable is an index by itself."""
    if not all(loop.is_parallel for loop in change.loops):
        return False
    variables = [variable for loop in change.loops for variable in loop.variables]
    return each_moves_an_axis(variables, [change.index], lambda _: False)


def _scales_itself(store: nodes.Store) -> bool:
    """Return True if a store's value contains a product or quotient with the element's old value."""
    scaled = []
    for part in walk.parts(store.value):
        match part:
            case nodes.Binary(Operator.MUL, left, right):
                scaled += [left, right]
            case nodes.Binary(Operator.DIV, left):
                scaled.append(left)
    loads = (one for one in scaled if isinstance(one, nodes.Load))
    return any((one.array, one.index) == (store.array, store.index) for one in loads)


def _shares_loop(change: Access, read: Access) -> bool:
    """Return True if an earlier iteration of a serial loop around both may have made the change."""
    both = zip(change.loops, read.loops, strict=False)
    return any(mine == theirs and not mine.is_parallel for mine, theirs in both)


# Order --------------------------------------------------------------------------------------------


def state_of_the_outermost_loop(subject: Subject) -> Iterator[Finding]:
    """Report arrays that carry values between iterations of a serial outermost loop (TS108)."""
    if not subject.is_kernel:
        return
    for name, roles in subject.roles.items():
        carried = roles.find_carried(("read", "add")) if name in subject.floats else None
        if carried is not None:
            use, change = carried
            words = f"`{subject.label(name)}` carries values from one iteration of the outermost loop to the next"
            more = f" (used in line {use.node.lineno}): {BOTH} do not reverse that loop"
            yield _at(subject, "TS108", change, words + more, "for _ in range(1):  # around the loop", ENGINES)


def find_overwritten_conditions(subject: Subject) -> Iterator[Finding]:
    """Report values that decide a branch, a loop or an index and that the kernel changes later (TS107)."""
    changed = {name for name, roles in subject.roles.items() if roles.of("write", "add")}
    seen: set[str] = set()
    for part, what in find_steering_parts(subject.source.nodes) if subject.is_kernel else ():
        for one in find_loaded_elements(part):
            name = root(one)
            if name in changed - seen and subject.roles[name].find_overwritten(frozenset({subject.source.place(one)})):
                seen.add(name)
                words = f"`{subject.text(one)}` decides {what}, and the kernel changes `{subject.label(name)}`"
                message = f"{words}: {BOTH} evaluate it again in reverse, after the change"
                remedy = "keep it in an array that does not change"
                yield subject.finding("TS107", "warning", one, message, remedy, ENGINES)
