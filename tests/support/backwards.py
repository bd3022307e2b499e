"""A backward pass of generated kernels, run by the interpreter in float64."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from support.interpreted import interpret
from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes, types
from tinsmith.passes import evaluate, generate_adjoint
from tinsmith.passes.adjoint import AdjointOptions, AdjointProgram, Copy, Fresh, Reserve, Run

KINDS = {"f16": torch.float64, "f32": torch.float64, "f64": torch.float64, "i32": torch.int32, "i64": torch.int64}


def build_backward(
    kernels: Sequence[nodes.Kernel],
    active: Collection[str],
    outputs: Collection[str],
    made: Collection[str],
    **options: Any,
) -> AdjointProgram:
    """Build the backward pass of kernels with the options of `AdjointOptions`."""
    return generate_adjoint(kernels, AdjointOptions(active=active, outputs=outputs, allocations=made, **options))


def run_backward(
    program: AdjointProgram,
    values: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Any],
    cotangents: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Run a backward pass; return adjoints by array. `values` are those of all arrays after the forward pass."""
    memory: dict[str, torch.Tensor] = {name: values[name] for name in program.reads}
    shapes = {name: tensor.shape for name, tensor in values.items()} | {
        name: torch.Size(()) for name in program.arrays if name not in values
    }
    for name, gradient in program.gradients.items():
        like = cotangents.get(name)
        memory[gradient] = torch.zeros(shapes[name], dtype=torch.float64) if like is None else like.double().clone()
    arguments = dict(arguments)
    for action in program.actions:
        match action:
            case Fresh(name, like, said):
                kind = said or program.arrays[like].type
                memory[name] = torch.zeros(shapes[like], dtype=KINDS.get(kind, torch.int64))
            case Copy(name, of):
                memory[name] = memory[of].clone()
            case Run():
                _run(action, memory, arguments, values)
            case Reserve():
                _reserve(action, memory, arguments, values)
    return {name: memory[gradient] for name, gradient in program.gradients.items()}


def _run(
    run: Run, memory: dict[str, torch.Tensor], arguments: Mapping[str, Any], values: Mapping[str, torch.Tensor]
) -> None:
    given = {
        name: _memory(run.memory.get(name, name), one.label, memory, values) for name, one in run.kernel.arrays.items()
    }
    wanted = {name: arguments[name] for name in run.kernel.arguments}
    with torch.no_grad():
        after = interpret(run.kernel, given, wanted)
    for name, tensor in after.items():
        memory[run.memory.get(name, name)] = tensor


def _memory(
    name: str, label: str, memory: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Return memory by name. Arrays whose values a program must not read are spoiled; it may ask for their sizes."""
    if name in memory:
        return memory[name]
    if label:
        return values[name]
    return torch.full_like(values[name], float("nan") if values[name].is_floating_point() else 99)


def _reserve(
    reserve: Reserve, memory: dict[str, torch.Tensor], arguments: dict[str, Any], values: Mapping[str, torch.Tensor]
) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in values.items()}
    if isinstance(reserve.iterations, Run):
        memory[reserve.total] = torch.zeros((), dtype=torch.int32)
        _run(reserve.iterations, memory, arguments, values)
        iterations = int(memory[reserve.total])
    else:
        iterations = evaluate(reserve.iterations, shapes, arguments)
    for size in reserve.tapes:
        if size.starts:
            memory[size.starts[1]] = torch.zeros(iterations, dtype=torch.int32)
    if reserve.count is not None:
        _run(reserve.count, memory, arguments, values)
    for size in reserve.tapes:
        if size.depth is not None:
            arguments[size.depth[0]] = evaluate(size.depth[1], shapes, arguments)
            entries = iterations * arguments[size.depth[0]]
        else:
            assert size.starts is not None
            counts = memory[size.starts[1]]
            memory[size.starts[0]] = (counts.cumsum(0) - counts).int()
            entries = int(counts.sum())
        for name, kind, width in size.arrays:
            memory[name] = torch.zeros(entries * width, dtype=KINDS[kind])
            if KINDS[kind].is_floating_point:
                memory[name].fill_(float("nan"))


def print_kernels(program: AdjointProgram) -> str:
    """Print every kernel of a program as text."""
    texts = []
    for action in program.actions:
        runs = [action] if isinstance(action, Run) else []
        if isinstance(action, Reserve):
            runs = [one for one in (action.iterations, action.count) if isinstance(one, Run)]
        texts += [str(action)[:300]] if not isinstance(action, Run) else []
        for run in runs:
            names = dict.fromkeys((*run.kernel.arrays, *run.kernel.arguments), "a")
            texts.append(ast.unparse(print_kernel(run.kernel, names, types.Defaults())))
    return "\n\n".join(texts)
