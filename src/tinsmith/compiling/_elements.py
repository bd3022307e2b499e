"""Elements: the last dims of arrays of vectors and matrices, which engines do not check.

An engine gets a pointer and a count of elements of the kernel's type. If the vectors in memory have another length, it
would read and write out of bounds. So the lengths are checked together with the sizes of a call, once for a set of
shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import frontend
from .._errors import ShapeError, refusal
from ..engines import Parameter
from ._stage import Stage


def element_of(stage: Stage, name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the element dims of an array in one stage: those of its annotation, or the trailing dims that its
    subscripts leave out.
    """
    parameter = stage.parameters[name]
    if parameter.open_dims:
        return tuple(shape[max(len(shape) - parameter.open_dims, 0) :])
    if parameter.kind != "template" or name in stage.links.elements:
        return parameter.element
    arity = frontend.subscript_arity(stage.source, name)
    left_out = len(shape) - arity if arity is not None else 0
    return tuple(shape[len(shape) - left_out :]) if 0 < left_out <= 2 else ()


def check_element(op: str, parameter: Parameter, dims: str, shape: Sequence[int]) -> None:
    """Raise ShapeError if an array's shape does not end in the dims of the parameter's vectors or matrices.

    Args:
        op: its name, for messages.
        parameter: as the kernel declares it.
        dims: what the spec calls the dims, "" where there is none.
        shape: of the memory, without batch.
    """
    name, element, count = parameter.name, parameter.element, parameter.element_rank
    last = tuple(shape[max(len(shape) - count, 0) :])
    if last == element or (parameter.open_dims and len(last) == count):
        return
    # In a form that torch.compile can trace.
    wanted = (
        f"{count} dim{'s' * (count > 1)} of any size"
        if not element
        else f"{element[0]}"
        if count == 1
        else f"{element}"
    )
    actual = f"{dims} = {tuple(shape)}" if dims else f"{tuple(shape)}"
    rows = [(name, actual, f"must end in {wanted}, as the kernel declares"), ("annotation", parameter.annotation)]
    remedy = f"Give `{name}` {wanted} as its last {'dim' if count == 1 else 'dims'}, or change its annotation."
    raise ShapeError(
        refusal(
            f"array `{name}` of op `{op}` has a shape that does not fit the annotation of its vectors or matrices",
            rows,
            remedy,
        )
    )
