"""Rules about what a kernel leaves lying about."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .._finding import Finding
from .._subject import Subject
from ._slips import hidden_line


def unused_parameters(subject: Subject) -> Iterator[Finding]:
    """TS501."""
    for argument in subject.tree.args.args:
        is_unused = argument.arg not in subject.source.used_names
        if is_unused and not argument.arg.startswith("_") and _is_wanted(subject, argument.arg):
            line = hidden_line(subject, argument.arg)
            words = f"`{argument.arg}` is not used" + (f", and hides that of line {line}" if line else "")
            yield subject.finding("TS501", "info", argument, words, "leave it out")


def _is_wanted(subject: Subject, name: str) -> bool:
    kind = subject.declared[name].kind if name in subject.declared else "any"
    return kind != "object" and any(not isinstance(one, ast.Pass) for one in subject.tree.body)


def not_followed(subject: Subject) -> Iterator[Finding]:
    """TS502: arrays that go where no analysis follows, and functions whose text is not there to be read."""
    for node in subject.source.nodes:
        if isinstance(node, ast.Call) and subject.is_unread(node.func):
            words = f"`{subject.text(node.func)}` is not in this file: if it uses fields, its uses are not checked"
            yield subject.finding("TS502", "info", node, words)
    for name, roles in subject.roles.items() if subject.is_kernel else ():
        if roles.escapes:
            path, _, line = roles.escapes.rpartition(":")
            words = f"`{subject.label(name)}` is passed as a whole to a call that cannot be analysed"
            yield Finding("TS502", "info", path, int(line), 0, words)
