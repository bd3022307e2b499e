"""Gradients of the pitfalls' kernels: by the engines' own reverse mode, and the right ones, in float64."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any

import torch

import tinsmith as ts

from .kernels import text_of
from .row import Row


def op_of(row: Row, engine: str, **options: Any) -> ts.Op:
    """Compile a pitfall's kernel as a file for this engine, and return it as an op with the pitfall's spec."""
    text, path = text_of(row.name, engine), f"<pitfall {row.name} {engine}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope: dict[str, Any] = {"__name__": "pitfall"}
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    return ts.op(row.spec, **options)(scope["k"])


def names_of(row: Row) -> list[str]:
    """Return the names of a pitfall's inputs."""
    return re.findall(r"(\w+)\[", row.spec.partition("->")[0])


def inputs_of(row: Row) -> list[torch.Tensor]:
    """Return the inputs of a pitfall as tensors, floats in float64."""
    kinds = [torch.float64 if torch.tensor(one).is_floating_point() else torch.int32 for one in row.inputs]
    return [torch.tensor(one, dtype=kind) for one, kind in zip(row.inputs, kinds, strict=True)]


def by_engine(row: Row, engine: str) -> dict[str, Any]:
    """Compute the gradient of the sum of all outputs by the engine's own reverse mode; return it by input."""
    inputs = [one.requires_grad_(one.is_floating_point()) for one in inputs_of(row)]
    outputs: Any = op_of(row, engine, adjoint="engine", trust_engine=True)(*inputs)
    torch.stack([one.sum() for one in (outputs if isinstance(outputs, tuple) else (outputs,))]).sum().backward()
    return {name: one.grad for name, one in zip(names_of(row), inputs, strict=True) if one.requires_grad}


def right(row: Row, engine: str) -> Mapping[str, torch.Tensor]:
    """Compute the gradient of the sum of all outputs by the oracle; return it by input."""
    op, inputs = op_of(row, engine), inputs_of(row)
    outputs = ts.oracle(op, *inputs).outputs
    return ts.oracle(op, *inputs, cotangents={name: torch.ones_like(one) for name, one in outputs.items()}).gradients
