"""Descriptions of an op for Python's tools: the signature of its calls, and HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter
from inspect import Signature as PythonSignature
from typing import Any

import torch

from ..calls import Signature
from ..compiling import Structs


def python_signature(signature: Signature, structs: Structs, result: Any) -> PythonSignature:
    """Return the `inspect.Signature` of an op's calls: its arguments, and dims passed by keyword.

    `result` is the type of the return value.
    """
    kinds: dict[str, Any] = dict.fromkeys(signature.arrays, torch.Tensor)
    kinds |= dict.fromkeys(signature.templates, Parameter.empty)
    for name in signature.scalars:
        own = signature.parameters(name)[0]
        kinds[name] = Sequence[float] if own.kind == "matrix" else float if own.setter == "float" else int
    order = [(name, kinds.get(name, Parameter.empty)) for name in structs.order]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=kind) for name, kind in order]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, annotation=int) for name in signature.size_names]
    return PythonSignature(parameters, return_annotation=result)


def describe_in_html(name: str, rows: Mapping[str, str]) -> str:
    """Return a table of an op's properties, for notebooks."""
    # Here, so that a program that shows nothing does not load it.
    from .._html import write_table

    return write_table(f"op {name}", rows.items())
