"""Launcher: a kernel that works on memory of its own, its fields, launched forward and in reverse.

An op gives its kernel arrays and owns them. Here the kernel keeps the fields that it names:
who fills them, and whose gradients they hold, is the caller's business (`layers/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import KernelError, refusal
from ..engines import Compiled, Engine
from ..spec import Spec
from ._binding import Bound, bind
from ._signature import Signature
from ._stage import FieldUse, Stage, Variant


class Launcher:
    """One kernel and the layer that launches it, for messages."""

    def __init__(self, kernel: Any, layer: str) -> None:
        self.stage = Stage(kernel, (), may_write_fields=True)
        self.signature = _signature(layer, self.stage)
        self._found: dict[Any, tuple[Compiled, tuple[tuple[str, Any, str], ...]]] = {}

    @property
    def engine(self) -> Engine:
        return self.stage.engine

    def bound(self, arguments: Sequence[Any]) -> Bound:
        """A launch's arguments, checked. Raises ArgumentError."""
        return bind(self.signature, arguments, {})

    def fields(self, bound: Bound) -> list[FieldUse]:
        """Every field that a launch with these arguments uses."""
        self.stage.survey(self.stage.templates(bound.templates))
        return self.stage.field_uses()

    def launch(self, bound: Bound, *, adjoint: bool, is_serial: bool, stack: int = 0) -> None:
        """Run the kernel, or its reverse, which reads and adds to the gradient fields.

        `stack` is the depth that the reverse's gradient stack needs; 0 leaves it to the engine.
        """
        key = (adjoint, is_serial, stack, self.stage.fingerprint(bound.templates))
        found = self._found.get(key)
        if found is None or found[0].runtime is not self.engine.runtime():
            found = self._found[key] = self._compiled(bound, Variant((), adjoint, is_serial, key[3], stack))
        compiled, scalars = found
        compiled.launch((), (0,), [(setter, slot, bound.scalars[name]) for setter, slot, name in scalars])

    def _compiled(self, bound: Bound, variant: Variant) -> tuple[Compiled, tuple[tuple[str, Any, str], ...]]:
        compiled = self.stage.compiled(variant, bound.templates, self.signature.op)
        parameters: Mapping[str, Any] = self.stage.parameters
        return compiled, tuple((parameters[n].setter, compiled.slots[n], n) for n in self.signature.scalars)


def _signature(layer: str, stage: Stage) -> Signature:
    """A signature of scalars and templates alone."""
    kinds = {name: parameter.kind for name, parameter in stage.parameters.items()}
    for name, kind in kinds.items():
        if kind == "array":
            words = f"kernel `{stage.name}` of {layer} takes the array `{name}`, and works on fields besides"
            rows = [("annotation", stage.parameters[name].shown), ("at", stage.source.place(stage.source.tree))]
            raise KernelError(refusal(words, rows, "Copy the array into a field, or make the kernel an op: `ts.op`."))
    scalars = tuple(name for name, kind in kinds.items() if kind in ("scalar", "matrix"))
    templates = tuple(name for name, kind in kinds.items() if kind == "template")
    return Signature(layer, Spec("", "", (), (), ()), (stage,), tuple(kinds), (), scalars, templates, {})
