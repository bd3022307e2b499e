"""Held arrays of a layer's kernel: torch tensors and NumPy arrays in dataclasses become arguments of a launch.

An engine's own tensors in a dataclass are fields, whose memory lasts. An array is bound again by each launch, as one
that the kernel takes as an argument.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import numpy as np
import torch

from ..._errors import KernelError, refusal
from ...engines import Engine
from ...frontend import Source, read
from ...frontend.tree import HeldArray, NotRewritable, is_struct, pass_held_arrays


def lift_held_arrays(kernel: Any, engine: Engine, templates: Mapping[str, Any]) -> tuple[Any, Mapping[str, HeldArray]]:
    """Return a kernel that takes arrays in dataclasses as its last arguments, and these by name.

    Return the kernel itself if it reads none.

    Args:
        kernel: what the user decorated.
        engine: its engine.
        templates: arguments by name, in which dataclasses may be. Others are attributes of the kernel's object, or
            names that it captures.

    Raises:
        KernelError: the kernel assigns to such a member.
    """
    owner = engine.owner_of(kernel)
    if engine.is_method(kernel) and owner is None:  # refused elsewhere
        return kernel, {}
    source = read(engine.function_of(kernel))
    attributes = list(getattr(owner, "__dict__", {}).values())
    if not any(map(_holds_array, [owner, *attributes, *templates.values(), *_list_captured(source)])):
        return kernel, {}
    try:
        rewritten, held = pass_held_arrays(source, engine, templates, owner)
    except NotRewritable as reason:
        words = f"kernel `{source.name}` cannot take the arrays in its structs as arguments: {reason}"
        remedy = "Change a copy, or make the member a field or an ndarray of the engine."
        raise KernelError(refusal(words, [("at", source.place(reason.node))], remedy)) from None
    if not held:
        return kernel, {}
    function: Any = rewritten.function
    function.__annotations__.update({one.name: _find_annotation(one, engine) for one in held})
    return engine.lang.kernel(function), {one.name: one for one in held}


def _holds_array(value: Any) -> bool:
    """Return True for a dataclass in which an array is, at any depth."""
    if not is_struct(value):
        return False
    members = [getattr(value, one.name, None) for one in dataclasses.fields(value)]
    return any(isinstance(one, torch.Tensor | np.ndarray) or _holds_array(one) for one in members)


def _list_captured(source: Source) -> list[Any]:
    """Return the values of the free names of a kernel."""
    names = source.used_names - source.assigned_names - {*source.parameters}
    namespace = source.namespace()
    return [namespace[name] for name in names if name in namespace]


def _find_annotation(one: HeldArray, engine: Engine) -> Any:
    """Return the type of an array as its dataclass declares it, or an array of numbers of any dtype."""
    lang: Any = engine.lang
    try:
        declared = get_type_hints(type(one.owner)).get(one.attribute)
    except (NameError, TypeError):  # a text that means nothing here
        declared = None
    return declared if isinstance(declared, lang.types.ndarray) else lang.types.ndarray()
