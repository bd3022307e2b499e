"""Lint of kernels that exist: what their sources and their engine tell without running them."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .._errors import EngineError
from ..engines import NAMES, Engine, Language, Parameter, of_kernel, one_at_a_time
from ..frontend import Source, find_reachable, read
from ..spec import Spec
from ._fields import with_fields_handed, with_one_name_a_field
from ._finding import Finding, drop_suppressed
from ._flow import find_doubtful_arrays
from ._lint import find_all
from ._subject import ParameterFacts, Subject
from .rules import Rule


@one_at_a_time
def lint_kernels(kernels: Sequence[Any], spec: Spec | None = None, engine_name: str = "") -> list[Finding]:
    """Return the findings about kernels and the engine functions that they call.

    Args:
        kernels: the kernels.
        spec: the spec of their op.
        engine_name: the engine that runs them, if it is not the one that they were written for.
    """
    subjects = _subjects_of(kernels, spec)
    return find_all(replace(one, engine_name=engine_name) for one in subjects) if engine_name else find_all(subjects)


@one_at_a_time
def find_certain_mistakes(kernels: Sequence[Any], spec: Spec | None, rule: Rule) -> list[Finding]:
    """Return errors of kernels that every call meets, as one rule finds them."""
    subjects = (with_fields_handed(with_one_name_a_field(one)) for one in _subjects_of(kernels, spec))
    return drop_suppressed([finding for one in subjects for finding in rule(one) if finding.severity == "error"])


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
    """Return the type of a float literal in the engine as it runs; "f32" if it is not running."""
    try:
        return Language(engine).default_types[0]
    except EngineError:
        return "f32"


def _read_declaration(parameter: Parameter) -> ParameterFacts:
    dtypes = parameter.dtypes or ()
    dtype = NAMES[dtypes[0]] if len(dtypes) == 1 else ""
    kind = "scalar" if parameter.kind == "matrix" else parameter.kind
    return ParameterFacts(kind, dtype, parameter.ndim, parameter.element, parameter.boundary == "clamp")
