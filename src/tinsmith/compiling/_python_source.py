"""Compilation for the Python engine, which runs the user's own source with the annotations of a variant."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from ..engines import Compiled, CompileOptions, Python
from ..frontend.tree import restore_fields
from ._stage import Stage
from ._variant import Variant


def compile_for_python(stage: Stage, variant: Variant, values: Mapping[str, Any]) -> Compiled:
    """Compile a variant for the Python engine, which runs the kernel's own source, once for each sample of a batch.

    Raises:
        GradientError: the variant is an engine's own reverse.
    """
    lang = stage.home.lang
    written = stage.source.written
    source = stage.source if written is None else restore_fields(stage.source, written, stage.find_name)
    old: Any = source.function
    function = FunctionType(old.__code__, old.__globals__, old.__name__, old.__defaults__, old.__closure__)
    annotations = stage.annotations(dict(variant.single.arrays))
    function.__annotations__ = {name: eval(text, {"_lang": lang}) for name, text in annotations.items()}
    vars(function)["tinsmith_source"] = source
    names = {name: value for name, value in source.given.items() if name not in source.parameters}
    if variant.adjoint:
        return stage.engine.compile(function, stage.templates(values), CompileOptions(adjoint=True))
    assert isinstance(stage.engine, Python)
    labels = {name: _label(stage, name) for name in stage.arrays}
    fields: dict[str, Any] = {}
    if written is not None:
        fields = {stage.find_name(name): field for name, field in written.fields.items()}
        labels |= {stage.find_name(name): label for name, label in written.labels.items()}
    return stage.engine.run_source(
        function,
        dict(stage.templates(values) if written is None else written.objects),
        fields=fields,
        copies={} if written is None else stage.begins,
        batched=variant.batched_arrays,
        labels=labels,
        names={**names, "_lang": lang},
    )


def _label(stage: Stage, name: str) -> str:
    """Return an array's name with the names of its dims, "x[n, m]"."""
    dims = stage.dims_of(name)
    return f"{name}[{', '.join(dims)}]" if dims else name
