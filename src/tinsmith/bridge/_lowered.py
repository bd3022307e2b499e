"""Lowered: a stage's kernel as IR, for the dtypes and ranks of one call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .._errors import KernelError, refusal
from ..engines import NAMES, Language, Parameter
from ..source.ir import Lowered, NotCovered, lower, nodes, types
from ._signature import element_of
from ._stage import Stage

_TYPES = NAMES | {torch.bool: "u1"}


def lowered(
    op: str, stage: Stage, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, torch.dtype], templates: Any
) -> Lowered:
    """A stage's kernel as IR.

    Args:
        op: the op's name, for messages.
        stage: whose kernel it is.
        shapes: of all arrays, by name, without batch dims; only ranks and element dims matter.
        dtypes: of all arrays, by name.
        templates: values of the op's template arguments, by name.

    Raises:
        KernelError: the kernel uses what the front end does not know.
    """
    defaults = types.Defaults(*Language(stage.engine).default_types)  # type: ignore[arg-type]
    arrays, arguments, others = {}, {}, {}
    for name, parameter in stage.parameters.items():
        if name in shapes:
            element = element_of(stage, name, shapes[name])
            arrays[name] = nodes.Array(name, _TYPES[dtypes[name]], len(shapes[name]) - len(element), element)
        elif parameter.kind in ("scalar", "matrix"):
            arguments[name] = (_type_of(parameter, defaults), parameter.element)
        else:
            others[name] = templates[name]
    try:
        return lower(
            stage.source,
            stage.home,
            arrays,
            arguments=arguments,
            templates=others,
            owner=stage.owner,
            defaults=defaults,
        )
    except NotCovered as reason:
        raise _not_covered(op, stage, reason) from None


def _type_of(parameter: Parameter, defaults: types.Defaults) -> str:
    """The type of a scalar, or of a vector's numbers, by its annotation: `float` is the engine's default."""
    kind = parameter.text.rpartition("_lang.")[2].rpartition(", ")[2].rstrip(")")
    return {"float": defaults.fp, "int": defaults.ip, "bool": "u1"}.get(kind, kind)


def _not_covered(op: str, stage: Stage, reason: NotCovered) -> KernelError:
    return KernelError(
        refusal(
            f"kernel `{stage.name}` of op `{op}` uses what tinsmith cannot follow",
            [("construct", reason.construct), ("at", reason.place)],
            "Write that line in other words. The op itself runs, with the engine's own gradient or a `backward=`.",
        )
    )
