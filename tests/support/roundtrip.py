"""Lower a kernel, print it, run both on the same inputs."""

from __future__ import annotations

import ast
from typing import Any

import torch

from tinsmith.codegen import build, print_kernel
from tinsmith.engines import NAMES, Language, Parameter, array_text, of_kernel
from tinsmith.frontend import read
from tinsmith.frontend.lowering import LoweredKernel, lower
from tinsmith.ir import nodes, types


def lower_kernel(kernel: Any, *arguments: Any) -> LoweredKernel:
    """Lower a kernel to IR for these arguments."""
    engine = of_kernel(kernel)
    arrays, scalars, templates = {}, {}, {}
    for parameter, value in zip(engine.parameters(kernel), arguments, strict=True):
        if isinstance(value, torch.Tensor):
            arrays[parameter.name] = _array(parameter, value)
        elif parameter.kind in ("scalar", "matrix"):
            scalars[parameter.name] = (_scalar_type(kernel, parameter), parameter.element)
        else:
            templates[parameter.name] = value
    source = read(engine.function_of(kernel)).with_owner(engine.owner_of(kernel))
    return lower(source, engine, arrays, arguments=scalars, templates=templates)


def _array(parameter: Parameter, value: torch.Tensor) -> nodes.Array:
    rank = value.ndim - len(parameter.element)
    return nodes.Array(parameter.name, NAMES[value.dtype], rank, parameter.element)


def _scalar_type(kernel: Any, parameter: Parameter) -> str:
    defaults = _defaults(kernel)
    scalar = parameter.text.rpartition("_lang.")[2].rstrip(")")
    return {"float": defaults.fp, "int": defaults.ip}.get(scalar, scalar)


def _defaults(kernel: Any) -> types.Defaults:
    return types.Defaults(*Language(of_kernel(kernel)).default_types)


def print_lowered(kernel: Any, *arguments: Any) -> str:
    """Print a kernel, lowered for these arguments."""
    return ast.unparse(_tree(kernel, lower_kernel(kernel, *arguments), arguments))


def _tree(kernel: Any, lowering: LoweredKernel, arguments: tuple[Any, ...]) -> ast.FunctionDef:
    annotations = {}
    for parameter, value in zip(of_kernel(kernel).parameters(kernel), arguments, strict=True):
        array = lowering.kernel.arrays.get(parameter.name)
        if array is not None:
            annotations[parameter.name] = array_text(value.dtype, array.rank, array.element, "unsafe", False)
        elif parameter.kind != "template":
            annotations[parameter.name] = parameter.text
    annotations |= dict.fromkeys(lowering.fields, "_lang.template()")
    return print_kernel(lowering.kernel, annotations, _defaults(kernel))


def load_printed_kernel(kernel: Any, *arguments: Any) -> Any:
    """Return the printed kernel as a function of the same arguments."""
    engine = of_kernel(kernel)
    lowering = lower_kernel(kernel, *arguments)
    function, _ = build(_tree(kernel, lowering, arguments), {"_lang": engine.lang}, "printed")
    compiled = engine.lang.kernel(function)
    kinds = [parameter.kind for parameter in engine.parameters(kernel)]

    def call(*values: Any) -> None:
        kept = [v for v, kind in zip(values, kinds, strict=True) if kind != "template" or isinstance(v, torch.Tensor)]
        compiled(*kept, *lowering.fields.values())

    return call


def assert_same(kernel: Any, *arguments: Any, exact: bool = True) -> str:
    """Run a kernel and its printed twin on clones of the arguments; gives the printed text."""
    mine, theirs = (
        [value.clone() if isinstance(value, torch.Tensor) else value for value in arguments] for _ in range(2)
    )
    shown = print_lowered(kernel, *arguments)
    kernel(*theirs)
    load_printed_kernel(kernel, *arguments)(*mine)
    for one, other in zip(mine, theirs, strict=True):
        if isinstance(one, torch.Tensor):
            rtol, atol = (0.0, 0.0) if exact else (1e-5, 1e-6)
            torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: m + "\n" + shown)
    return shown
