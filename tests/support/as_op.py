"""A kernel and its arguments as an op: arrays that it writes are outputs of the sizes they have, the others inputs."""

from __future__ import annotations

from typing import Any

import torch

import tinsmith as ts
from support.roundtrip import lower_kernel
from tinsmith.engines import NAMES, of_kernel
from tinsmith.ir import walk


def make_op(kernel: Any, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the op, and the arguments of its call."""
    body = lower_kernel(kernel, *arguments).kernel.body
    written = {one.array for one in walk.stores(body)}
    names = [parameter.name for parameter in of_kernel(kernel).parameters(kernel)]
    given = dict(zip(names, arguments, strict=True))
    arrays = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    inputs = [_item(name, one) for name, one in arrays.items() if name not in written]
    outputs = [f"{_item(name, one)}: {NAMES[one.dtype]}" for name, one in arrays.items() if name in written]
    op = ts.op(f"{', '.join(inputs)} -> {', '.join(outputs)}", races="allow")(kernel)
    return op, tuple(value for name, value in given.items() if name not in written)


def _item(name: str, tensor: torch.Tensor) -> str:
    return f"{name}[{', '.join(map(str, tensor.shape))}]"
