"""Lowering: from a kernel's Python tree to the IR.

A partial evaluation: everything that Python knows while a kernel is compiled is computed here, as the engines do
it, and what only the run knows becomes IR. Prints are left out: they change no value. So are assertions, unless the
engine checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engines import Engine
from ...ir import Defaults, Type, finish_pass, nodes
from .._read import Source
from . import _early_returns, _expressions, _statements
from ._lowering import Handlers, LoweredKernel, Lowering

_HANDLERS = Handlers(_expressions.value_of, _statements.run, _early_returns.nests, _early_returns.guard_rest)


def lower(
    source: Source,
    engine: Engine,
    arrays: Mapping[str, nodes.Array],
    *,
    arguments: Mapping[str, tuple[Type, tuple[int, ...]]] | None = None,
    templates: Mapping[str, Any] | None = None,
    defaults: Defaults | None = None,
    keeps_assertions: bool = False,
) -> LoweredKernel:
    """A kernel as IR.

    Args:
        source: the kernel, as Python source; of a method, with its object.
        engine: whose language it is written in.
        arrays: its array parameters, by name.
        arguments: its scalar, vector and matrix parameters: type and element dims.
        templates: values of its other parameters.
        defaults: types of literals; the started engine's own where none are given.
        keeps_assertions: whether the engine checks assertions.

    Raises:
        NotCovered: the kernel uses what the front end does not know.
    """
    given = dict(arguments or {})
    lowering = Lowering(source, engine, arrays, given, defaults, _HANDLERS, keeps_assertions=keeps_assertions)
    objects = {name: value for name, value in source.given.items() if name in source.parameters}
    lowered = lowering.kernel(source, {**objects, **(templates or {})})
    finish_pass("lower", (lowered.kernel,))
    return lowered
