"""Live: subjects from kernels that exist."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from .._errors import EngineError
from ..engines import NAMES, Engine, Language, Parameter, of_kernel
from ..frontend import Source, find_reachable, read
from ..spec import Spec
from ._subject import ParameterFacts, Subject


def subjects_of(kernels: Sequence[Any], spec: Spec | None) -> Iterator[Subject]:
    """Kernels, and the engine functions that they call."""
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
    return Subject(source, engine, kind, engine.name, declared, spec, lines, _default_fp(engine))


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
