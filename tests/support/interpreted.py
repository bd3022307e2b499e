"""An op run by the interpreter: its kernels lowered, then worked out number by number."""

from __future__ import annotations

from typing import Any

import torch

from tinsmith.engines import DTYPES
from tinsmith.source.interpreter import interpret
from tinsmith.source.ir import lower, nodes

KINDS = {dtype: name for name, dtype in DTYPES.items()} | {torch.bool: "u1"}


def interpreted(op: Any, *inputs: Any, faithful: bool = False, **sizes: int) -> tuple[torch.Tensor, ...]:
    """Outputs of a call without batch dims, connected with its inputs in torch's autograd."""
    bound = op._bound(inputs, sizes)
    core, call = op._core, op._route(bound).call
    arrays = dict(zip(core.signature.arrays, bound.tensors, strict=True))
    arrays |= {made.name: torch.zeros(made.shape, dtype=made.dtype) for made in core.made(call)}
    for stage in core.signature.stages:
        kernel = _lowered(stage, arrays, bound.templates)
        arrays = {**arrays, **interpret(kernel, arrays, bound.scalars, faithful=faithful)}
    return tuple(arrays[name] for name in core.signature.outputs)


def _lowered(stage: Any, tensors: dict[str, torch.Tensor], templates: Any) -> nodes.Kernel:
    arrays, arguments, others = {}, {}, {}
    for name, parameter in stage.parameters.items():
        if name in tensors:
            rank = tensors[name].ndim - len(parameter.element)
            arrays[name] = nodes.Array(name, KINDS[tensors[name].dtype], rank, parameter.element)
        elif parameter.kind in ("scalar", "matrix"):
            arguments[name] = (KINDS[parameter.dtypes[0]], parameter.element)
        else:
            others[name] = templates[name]
    lowered = lower(stage.source, stage.home, arrays, arguments=arguments, templates=others, owner=stage.owner)
    return lowered.kernel
