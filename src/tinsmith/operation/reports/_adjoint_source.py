"""The source of a generated gradient, without a call: ranks and dtypes come from declarations, and sizes
are unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..._errors import ArgumentError, SpecError, refusal
from ...calls import CallKey, Signature, fitting_dtypes
from ...calls.backward import SourceReverse
from ...calls.derived import find_recorded_at
from ...compiling import Stage
from ...engines import Parameter, of_kernel, one_at_a_time
from ...spec import Fixed, Item
from .._make_op import op as make_op
from .._op import Op
from ._describe_backward import describe_backward
from ._printed_passes import print_passes, record_passes


@one_at_a_time
def adjoint_source(
    op: Op | Callable[..., Any],
    wrt: str | Collection[str] = (),
    *,
    spec: str | None = None,
    engine: str | None = None,
    print_after: Collection[str] = (),
) -> str:
    """Return the commented source of the gradient that tinsmith generates: the kernels of the backward pass, in order.

    The op is not called: dims have the ranks of the spec, without `*b`, and arrays without a dtype are float32. What
    `tinsmith adjoint FILE:KERNEL` prints.

    Args:
        op: an op of `tinsmith.op` or `tinsmith.chain`, or a kernel.
        wrt: inputs to differentiate by; by default all floating inputs.
        spec: the spec of a kernel; by default the one that its annotations give.
        engine: a running engine to print for; by default the op's own.
        print_after: names of the compiler's passes: return the IR after them instead.

    Raises:
        ArgumentError: `op` is neither an op nor a kernel, an input is unknown or not floating, a spec is given for an
            op, or the kernels take template arguments.
        SpecError: the spec leaves a rank open.
        GradientError: a kernel is not covered; the message names the construct and the line.

    Example:
        >>> @ts.op("x[n] -> y[n]")
        ... @ti.kernel
        ... def square(x: ti.types.ndarray(), y: ti.types.ndarray()):
        ...     for i in x:
        ...         y[i] = x[i] * x[i]
        >>> print(ts.adjoint_source(square).splitlines()[0])
        # The gradient of `square`: x[n] -> y[n]
    """
    op = _make_op(op, spec)
    op = op if engine in (None, op.engine) else Op(op._kernels, op._text, replace(op._options, engine=engine))
    signature = op._core.signature
    key = _make_key(signature, op)
    active = _select_active(signature, key, [wrt] if isinstance(wrt, str) else wrt)
    recorded = find_recorded_at(op._core, key)
    at = SourceReverse(signature).specialize(key) if recorded is None else recorded.specialize_replay(key)
    if print_after:
        refused = at.refusal(active)
        passes = record_passes(op._make_fresh_core, [(key, [] if refused else [active])])
        note = f"# no gradient is generated because of {refused.construct}, at {refused.place}\n" if refused else ""
        return print_passes(passes, print_after) + note
    at.check(active)
    lines = [
        f"# The gradient of `{op.name}`: {signature.spec}",
        f"# of {', '.join(sorted(active))}, on {signature.stages[0].engine.name}",
    ]
    return "\n".join(_collapse_blank_lines([*lines, *describe_backward(at, active)])) + "\n"


def _make_op(op: Any, spec: str | None) -> Op:
    """Return the op itself, or one of a kernel, by the given spec or the one that its annotations give."""
    if not isinstance(op, Op):
        return make_op(spec or derive_spec(op))(op)
    if spec is not None:
        words = f"op `{op.name}` has a spec already"
        raise ArgumentError(refusal(words, [("its own", str(op.spec)), ("given", spec)], "Leave the spec out."))
    return op


def _collapse_blank_lines(lines: Sequence[str]) -> list[str]:
    """Drop repeated empty lines, and those at the end."""
    pairs = zip(lines, ["", *lines[:-1]], strict=True)
    kept = [line for line, before in pairs if line or before]
    return kept if kept[-1] else kept[:-1]


def _make_key(signature: Signature, op: Op) -> CallKey:
    """Return the key of calls with the ranks and dtypes that the declarations give."""
    if signature.templates:
        words = f"the gradient of op `{op.name}` depends on the values of its template arguments"
        remedy = "Call the op, ask for a gradient, and print `op.explain()`."
        raise ArgumentError(refusal(words, [("templates", ", ".join(signature.templates))], remedy))
    shapes = {item.name: _shape(signature, item) for item in signature.kernel_spec.items}
    dtypes = {name: _dtype(signature, name) for name in shapes}
    return CallKey(signature, shapes, dtypes, frozenset(), op._core.captures.fingerprints({}), {})


def _shape(signature: Signature, item: Item) -> tuple[int, ...]:
    """Return a shape of the declared rank. Sizes are arbitrary, except those of elements."""
    name = item.name
    if item.has_rest:
        words = f"the spec of op `{signature.op}` leaves the rank of `{name}` open"
        raise SpecError(refusal(words, [("spec", str(item))], "Write its dims one by one."))
    sizes = tuple(dim.size if isinstance(dim, Fixed) else 1 for dim in item.dims)
    parameter = signature.parameters(name)[0]
    if parameter.open_dims:
        words = f"the sizes of the elements of `{name}` are neither in its annotation nor in the spec"
        raise SpecError(
            refusal(
                words, [("annotation", parameter.annotation), ("spec", str(item))], "Write the sizes in one of the two."
            )
        )
    return sizes[: len(sizes) - len(parameter.element)] + parameter.element


def _dtype(signature: Signature, name: str) -> torch.dtype:
    fitting = fitting_dtypes(signature, name)
    if fitting is None or torch.float32 in fitting or torch.float16 in fitting:
        return torch.float32
    return fitting[0]


def _select_active(signature: Signature, key: CallKey, wanted: Collection[str]) -> frozenset[str]:
    floats = [name for name in signature.arrays if key.dtypes[name].is_floating_point]
    unknown = [name for name in wanted if name not in floats]
    if unknown:
        words = f"op `{signature.op}` has no input `{unknown[0]}` that can have a gradient"
        raise ArgumentError(refusal(words, [("inputs of floats", ", ".join(floats) or "none")], "Name one of these."))
    return frozenset(wanted or floats)


@one_at_a_time
def derive_spec(kernel: Any) -> str:
    """Derive a spec from a kernel's annotations: arrays that it writes are outputs, and each dim has its own name.

    Raises:
        SpecError: an annotation leaves the rank open.
    """
    engine = of_kernel(kernel)
    arrays = [parameter for parameter in engine.parameters(kernel) if parameter.kind == "array"]
    roles = Stage(kernel, [parameter.name for parameter in arrays]).roles
    if not any(role.is_written for role in roles.values()):
        words = f"kernel `{kernel.__name__}` writes to none of its array parameters, so it has no gradient to print"
        rows = [
            ("parameters", ", ".join(f"{one.name}: {one.annotation}" for one in engine.parameters(kernel)) or "none")
        ]
        remedy = (
            "Give a spec (`spec=`, `--spec`) if templates are arrays: 'x[n] -> y[n]'. "
            'For a kernel on fields, print `explain("all")` of its layer.'
        )
        raise SpecError(refusal(words, rows, remedy))
    inputs = [_write_item(parameter, kernel) for parameter in arrays if not roles[parameter.name].is_written]
    outputs = [_write_item(parameter, kernel) for parameter in arrays if roles[parameter.name].is_written]
    return f"{', '.join(inputs)} -> {', '.join(outputs)}"


def _write_item(parameter: Parameter, kernel: Any) -> str:
    name = parameter.name
    if parameter.ndim is None or parameter.open_dims:
        words = f"the annotation of `{name}` in kernel `{kernel.__name__}` does not say how many dims it has"
        if parameter.ndim is not None:
            words = f"the annotation of `{name}` in kernel `{kernel.__name__}` does not say what size its elements have"
        rows = [("annotation", parameter.annotation)]
        raise SpecError(
            refusal(words, rows, f"Write `ndim=...` there, or give a spec (`spec=`, `--spec`): '{name}[n] -> ...'.")
        )
    dims = [f"{name}{axis}" for axis in range(parameter.ndim)] + [str(size) for size in parameter.element]
    return f"{name}[{', '.join(dims)}]"
