"""Decides whether a Tube runs on the caller's tensors or on fields, with the reason for fields.

Most kernels work the same with tensors as `ti.template()` arrays. Constructs that need fields
are found in their source, before anything runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..._errors import KernelError, RegistrationError, refusal
from ...frontend import Roles, constants_of, find_lent_names, read, roles_of
from ...frontend.tree import simplify_tree
from ._blueprint import Blueprint
from ._parts import KernelPart


def explain_need_of_fields(blueprint: Blueprint) -> str:
    """Return why a Tube must run on fields; an empty string if it can run on tensors.

    Raises:
        RegistrationError: no kernel writes an output.
    """
    for part in blueprint.tensors.values():
        if part.manager is not None:
            return f"`{part.name}` has a field manager"
    roles = []
    for kernel in blueprint.kernels:
        reason = _own_reason(kernel)
        if reason:
            return reason
        roles.append(_roles(kernel))
    _check_written(blueprint, roles)
    for kernel, kernel_roles in zip(blueprint.kernels, roles, strict=True):
        reason = _array_reason(blueprint, kernel, kernel_roles)
        if reason:
            return reason
    used = [part for part in blueprint.inputs if part.name in blueprint.used_tensors]
    if blueprint.is_batched and not any(part.is_batched for part in used):
        return "no kernel uses a batched input"
    return ""


def _own_reason(kernel: KernelPart) -> str:
    """Return what a kernel does, apart from its tensors, that only works with fields; an empty string if nothing."""
    for parameter, value in zip(kernel.others, kernel.extra, strict=False):
        if kernel.engine.is_field(value):
            return f"kernel `{kernel.name}` is given the field `{parameter.name}`"
        is_array = parameter.kind == "template" and isinstance(value, (torch.Tensor, np.ndarray))
        if parameter.kind == "array" or is_array:
            return f"kernel `{kernel.name}` is given the array `{parameter.name}`, which is not a registered tensor"
    try:
        source = read(kernel.function)
    except KernelError as refused:
        return str(refused).partition("\n")[0]
    uses = constants_of(source, kernel.engine, _templates(kernel), frozenset(kernel.tensor_names)).uses
    written = next((use for use in uses if use.written_at), None)
    return f"kernel `{kernel.name}` writes the field `{written.name}` at {written.written_at}" if written else ""


def _templates(kernel: KernelPart) -> dict[str, Any]:
    """Return the template arguments by name, `self` included."""
    pairs = zip(kernel.others, kernel.extra, strict=False)
    templates = {parameter.name: value for parameter, value in pairs if parameter.kind == "template"}
    if kernel.engine.is_method(kernel.kernel):
        templates[read(kernel.function).parameters[0]] = kernel.owner
    return templates


def _roles(kernel: KernelPart) -> dict[str, Roles]:
    """Return what a kernel does with each of its arrays, by parameter name. Tensors given for numbers are left out."""
    kinds = {parameter.name: parameter.kind for parameter in kernel.parameters}
    arrays = [name for name in kernel.tensor_names if kinds[name] not in ("scalar", "matrix")]
    source = read(kernel.function).with_owner(kernel.owner)
    lent = find_lent_names(source, kernel.engine)
    plain = replace(source, tree=simplify_tree(source.tree, arrays, lent))
    return roles_of(plain, arrays, kernel.engine)


def _array_reason(blueprint: Blueprint, kernel: KernelPart, roles: dict[str, Roles]) -> str:
    """Return what a kernel does with an array that only works with fields; an empty string if nothing."""
    where = next((role.static_size for role in roles.values() if role.static_size), "")
    if where:
        return f"kernel `{kernel.name}` needs a tensor's size when it is compiled, at {where}"
    for parameter, role in roles.items():
        name = kernel.tensor_names[parameter]
        if role.escapes:  # x.parent(), x.snode, ti.append(x, ...), ti.is_active(x, ...)
            return f"kernel `{kernel.name}` uses `{parameter}` as only a field can be used, at {role.escapes}"
        changes = role.of("write", "add")
        if changes and blueprint.tensors[name].kind == "input tensor":
            return f"kernel `{kernel.name}` writes the input `{name}` at {changes[0].place}"
    return ""


def _check_written(blueprint: Blueprint, roles: list[dict[str, Roles]]) -> None:
    """Raise RegistrationError if no kernel writes an output."""
    pairs = zip(blueprint.kernels, roles, strict=True)
    written = {
        kernel.tensor_names[parameter]
        for kernel, kernel_roles in pairs
        for parameter, role in kernel_roles.items()
        if role.is_written
    }
    for part in blueprint.outputs:
        if part.name not in written:
            rows = [("called", kernel.call) for kernel in blueprint.kernels]
            words = f"no kernel of {blueprint.label} writes its output `{part.name}`"
            raise RegistrationError(
                refusal(
                    words,
                    rows,
                    "List it for the kernel that fills it, at that parameter's position; tensors come before numbers.",
                )
            )
