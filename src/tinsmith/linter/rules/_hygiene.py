"""Rules about slips that run: what is not used, not read, or in a place where it does not count."""

from __future__ import annotations

from collections.abc import Iterator

from .._finding import Finding
from .._source_form import find_given_literals, find_global_line, find_misplaced_operations, is_empty
from .._subject import Subject


def unused_parameters(subject: Subject) -> Iterator[Finding]:
    """Report parameters that the body does not use (TS501)."""
    for argument in subject.tree.args.args:
        is_unused = argument.arg not in subject.used_names
        if is_unused and not argument.arg.startswith("_") and _is_wanted(subject, argument.arg):
            line = find_global_line(subject.lines, argument.arg)
            words = f"`{argument.arg}` is not used" + (f", and hides that of line {line}" if line else "")
            yield subject.finding("TS501", "info", argument, words, "leave it out")


def _is_wanted(subject: Subject, name: str) -> bool:
    kind = subject.declared[name].kind if name in subject.declared else "any"
    return kind != "object" and not is_empty(subject.tree.body)


def not_followed(subject: Subject) -> Iterator[Finding]:
    """Report arrays that are passed where no analysis follows, and functions whose source is not available (TS502)."""
    for call in subject.source.calls:
        if subject.is_unread(call.func):
            words = f"`{subject.text(call.func)}` is not in this file: if it uses fields, its uses are not checked"
            yield subject.finding("TS502", "info", call, words)
    for name, roles in subject.roles.items() if subject.is_kernel else ():
        if roles.escapes:
            path, _, line = roles.escapes.rpartition(":")
            words = f"`{subject.label(name)}` is passed as a whole to a call that cannot be analyzed"
            # A function that stands in the kernel's own file names none.
            yield Finding("TS502", "info", path or subject.source.path, int(line), 0, words)


def hidden_globals(subject: Subject) -> Iterator[Finding]:
    """Report parameters that shadow a global and get the literal 0 in every call (TS503). Skip ops."""
    if not subject.is_kernel or subject.spec is not None:
        return
    arguments = subject.tree.args.args[len(subject.objects) :]
    for place, argument in enumerate(arguments):
        name = argument.arg
        if name not in subject.used_names or name in subject.source.assigned_names or name in subject.arrays:
            continue
        line = find_global_line(subject.lines, name)
        given = find_given_literals(subject.lines, subject.tree.name, name, place) if line else []
        if given and all(one == 0 for one in given):
            words = f"`{name}` is the kernel's parameter, and every call in this file gives it 0: "
            words += f"the `{name}` of line {line}, which it hides, is not read"
            remedy = f"{subject.tree.name}(..., {name}={name}); or leave out the parameter"
            yield subject.finding("TS503", "info", argument, words, remedy)


def dropped_arithmetic(subject: Subject) -> Iterator[Finding]:
    """Report `atomic_add(y, a) ** 2` where `atomic_add(y, a ** 2)` was meant (TS504)."""
    for spot in subject.spots:
        for call, meant in find_misplaced_operations(spot.statement, subject.is_atomic):
            words = f"what `{subject.resolve_builtin(call)}` returned is used in `{subject.text(spot.statement)}`, "
            words += "whose result is not used: the parenthesis closes too early"
            yield subject.finding("TS504", "error", call, words, meant)
