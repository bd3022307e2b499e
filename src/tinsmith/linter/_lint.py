"""Lint: what the sources of kernels tell without running them."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._errors import EngineError
from ..engines import NAMES, Engine, Language, Parameter, of_kernel, one_at_a_time
from ..frontend import Source, find_reachable, read
from ..spec import Spec
from ._fields import with_fields_handed, with_one_name_a_field
from ._finding import Finding, drop_suppressed, in_order, not_run
from ._flow import find_doubtful_arrays
from ._scan import scan_file
from ._subject import ParameterFacts, Subject
from .functions import find_hand_written
from .rules import RULES, Rule


@one_at_a_time
def lint_kernels(kernels: Sequence[Any], spec: Spec | None = None) -> list[Finding]:
    """Findings of kernels that are there, and of the engine functions that they call; `spec` is that of their op."""
    return _findings(_subjects_of(kernels, spec))


@one_at_a_time
def find_certain_mistakes(kernels: Sequence[Any], spec: Spec | None, rule: Rule) -> list[Finding]:
    """Return errors of kernels that every call meets, as one rule finds them."""
    subjects = (with_fields_handed(with_one_name_a_field(one)) for one in _subjects_of(kernels, spec))
    return drop_suppressed([finding for one in subjects for finding in rule(one) if finding.severity == "error"])


@one_at_a_time
def scan_kernels(path: str, text: str) -> list[Subject]:
    """Return the kernels and engine functions of a file. Raises SyntaxError."""
    return list(scan_file(path, text))


@one_at_a_time
def lint_file(path: str | Path, text: str | None = None, subjects: Sequence[Subject] | None = None) -> list[Finding]:
    """What is wrong with the kernels and engine functions of a file, which is neither imported nor run.

    Args:
        path: the file.
        text: what stands in it, where it was read already.
        subjects: its kernels and functions, where it was scanned already.

    Raises:
        OSError: it cannot be read.
        SyntaxError: it is no Python.
    """
    text = Path(path).read_text(encoding="utf-8") if text is None else text
    linecache.checkcache(str(path))
    subjects = list(scan_file(str(path), text)) if subjects is None else subjects
    return in_order([*_findings(subjects), *_hand_written(str(path), text, subjects)])


def _findings(subjects: Iterable[Subject]) -> list[Finding]:
    kept: list[Finding] = []
    for subject in subjects:
        kept += drop_suppressed(_apply_rules(subject), {subject.source.path: subject.lines})
    return in_order(kept)


def _hand_written(path: str, text: str, subjects: Sequence[Subject]) -> list[Finding]:
    """Findings about autograd Functions of a file. One that cannot be read is a finding; kernels are linted anyway."""
    try:
        findings = list(find_hand_written(path, text, subjects))
    except Exception as error:  # noqa: BLE001
        findings = [not_run("lint of the file's autograd Functions", error, path, 1)]
    return drop_suppressed(findings, {path: tuple(text.splitlines(keepends=True))})


def _apply_rules(plain: Subject) -> Iterator[Finding]:
    """Yield the findings of all rules. A kernel that a rule cannot read is a finding; other rules and kernels go on."""
    try:
        subject = with_fields_handed(with_one_name_a_field(plain))
    except Exception as error:  # noqa: BLE001  # one odd kernel among many: it is named
        yield _not_linted(plain, error)
        return
    for rule in RULES:
        try:
            yield from rule(subject)
        except Exception as error:  # noqa: BLE001
            yield _not_linted(plain, error)


def _not_linted(subject: Subject, error: Exception) -> Finding:
    what = "kernel" if subject.is_kernel else "engine function"
    return not_run(f"lint of {what} `{subject.tree.name}`", error, subject.source.path, subject.tree.lineno)


# Kernels that exist ---------------------------------------------------------------------------------


def _subjects_of(kernels: Sequence[Any], spec: Spec | None) -> Iterator[Subject]:
    """Return kernels, and the engine functions that they call."""
    written: frozenset[str] = frozenset()
    for kernel in kernels:
        engine = of_kernel(kernel)
        source = read(engine.function_of(kernel))
        declared = {one.name: _read_declaration(one) for one in engine.parameters(kernel)}
        if engine.is_method(kernel) and source.parameters:
            declared = {source.parameters[0]: ParameterFacts("object")} | declared
        source = source.with_owner(engine.owner_of(kernel))
        subject = replace(_subject(source, engine, "kernel", declared, spec), written_before=written)
        yield subject
        if len(kernels) > 1:  # of one kernel alone, rules ask for the roles themselves, and say if they have none
            written |= {name for name, roles in subject.roles.items() if roles.is_written}
        for function in find_reachable(source, engine):
            if function is source or engine.owns(function.function):
                continue
            facts = {name: ParameterFacts("object" if name == "self" else "any") for name in function.parameters}
            yield _subject(function, engine, "func", facts, None)


def _subject(
    source: Source, engine: Engine, kind: str, declared: dict[str, ParameterFacts], spec: Spec | None
) -> Subject:
    lines = tuple(linecache.getlines(source.path))
    return Subject(source, engine, kind, engine.name, declared, spec, lines, find_doubtful_arrays, _default_fp(engine))


def _default_fp(engine: Engine) -> str:
    """What a float literal is in the engine as it runs, or as it would by default."""
    try:
        return Language(engine).default_types[0]
    except EngineError:
        return "f32"


def _read_declaration(parameter: Parameter) -> ParameterFacts:
    dtypes = parameter.dtypes or ()
    dtype = NAMES[dtypes[0]] if len(dtypes) == 1 else ""
    kind = "scalar" if parameter.kind == "matrix" else parameter.kind
    return ParameterFacts(kind, dtype, parameter.ndim, parameter.element, parameter.boundary == "clamp")
