"""Lowering: from a kernel's Python tree to the IR.

    for i in x:                                           parallel for i in 0 .. x.shape[0]:
        v = ti.Vector([x[i], 1.0]) * (GAIN + 1.0)           v_0 = x[i] * 3.0
        for k in ti.static(range(2)):                ->     v_1 = 1.0 * 3.0
            if ti.static(k == 1):                           atomic add y[i], v_1
                y[i] += v[k]

Lowering is partial evaluation: what is known when a kernel is compiled (here `GAIN`, which is 2.0) is computed as the
engines compute it, and what only the run knows becomes IR. Prints are left out: they change no value. So are
assertions, unless the engine checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engines import Engine
from ...ir import Defaults, Type, finish_pass, nodes
from .. import lowering
from .._read import Source
from . import _expressions, _statements
from ._lowering import Handlers, LoweredKernel, Lowering

_HANDLERS = Handlers(
    _expressions.value_of,
    _statements.run,
    # Lambdas, since most kernels have no early returns, whose file is loaded when they are called.
    lambda statement: lowering.nests(statement),  # noqa: PLW0108
    lambda *given: lowering.guard_rest(*given),  # noqa: PLW0108
)


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
    """Lower a kernel to IR.

    Args:
        source: the kernel, as Python source; of a method, with its object.
        engine: the engine in whose language the kernel is written.
        arrays: its array parameters, by name.
        arguments: its scalar, vector and matrix parameters: type and element dims.
        templates: values of its other parameters.
        defaults: types of literals; by default those of the started engine.
        keeps_assertions: whether the engine checks assertions.

    Raises:
        NotCovered: the kernel uses a construct that lowering does not support.
    """
    given = dict(arguments or {})
    lowering = Lowering(source, engine, arrays, given, defaults, _HANDLERS, keeps_assertions=keeps_assertions)
    # `given` also holds names that rewriting brought into the tree, such as `_lang`, which are not parameters.
    objects = {name: value for name, value in source.given.items() if name in source.parameters}
    lowered = lowering.kernel(source, {**objects, **(templates or {})})
    finish_pass("lower", (lowered.kernel,))
    return lowered
