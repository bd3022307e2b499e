"""Packing: a call as a handle and numbers, which is all that an operator's schema can carry."""

from __future__ import annotations

import itertools
import secrets
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from .._errors import ArgumentError, refusal
from ..engines import DTYPES
from ._core import Call, Core

_DTYPES = tuple(DTYPES.values())  # an operator's schema knows no list of dtypes: they travel as places in this one
_CORES: weakref.WeakValueDictionary[int, Core] = weakref.WeakValueDictionary()  # an op may go, its handle stays taken
# torch keeps compiled graphs on disk and finds them by their text, of which the handle is the only part that stands for
# the kernel. Handles that counted from 0 made an edited kernel meet the graph of the one before it, with its dtypes,
# sizes and saved arrays (tests/bridge/test_compile_cache.py). Below 2**53 a handle stays exact if it becomes a float.
_HANDLES = itertools.count(secrets.randbits(52))


def register(core: Core) -> None:
    """Give an op the handle by which traced graphs call it."""
    core.handle = next(_HANDLES)
    _CORES[core.handle] = core


def _packed(call: Call) -> tuple[Any, ...]:
    """What both operators' schemas end in: scalars and templates, keyword dims, batch."""
    signature = call.core.signature
    numbers: list[Any] = []
    for name in signature.scalars:
        value = call.scalars[name]
        numbers.extend(value if isinstance(value, tuple) else [value])
    numbers += [_number(signature.op, name, call.templates[name]) for name in signature.templates]
    sizes = [call.sizes[name] for name in signature.size_names]
    places = [place for place, name in enumerate(signature.arrays) if name in call.batched]
    return numbers, sizes, -1 if call.batch is None else call.batch, places, call.is_apart


def _number(op: str, name: str, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)):
        return value
    words = f"template argument `{name}` of op `{op}` cannot be traced"
    raise ArgumentError(
        refusal(words, [("came", type(value).__name__)], "Pass a number, or call the op outside torch.compile.")
    )


def unpacked(handle: int, shapes: Sequence[Any], dtypes: Sequence[Any], rest: Sequence[Any]) -> Call:
    """A call from what an operator was given. `shapes` include the batch dimension."""
    core = _CORES.get(handle)
    if core is None:
        words = f"a traced graph calls an op that is gone (handle {handle})"
        raise ArgumentError(refusal(words, remedy="Keep the op alive as long as what was compiled with it."))
    signature = core.signature
    numbers, sizes, batch, batched, is_apart = rest
    flags = frozenset(signature.arrays[place] for place in batched)
    cores = tuple(tuple(s[1:] if name in flags else s) for name, s in zip(signature.arrays, shapes, strict=True))
    given = iter(numbers)
    scalars = {}
    for name in signature.scalars:
        parameter = signature.parameters(name)[0]
        entries = tuple(next(given) for _ in range(parameter.entries))
        scalars[name] = entries if parameter.kind == "matrix" else entries[0]
    templates = dict(zip(signature.templates, given, strict=True))
    named = dict(zip(signature.size_names, sizes, strict=True))
    count = None if batch < 0 else batch
    return Call(core, cores, tuple(dtypes), scalars, templates, named, count, flags, is_apart)


def forward_call(handle: int, inputs: Sequence[torch.Tensor], rest: Sequence[Any]) -> Call:
    return unpacked(handle, [t.shape for t in inputs], [t.dtype for t in inputs], rest)


class BackwardCall(NamedTuple):
    """A call whose gradient is asked for: of its `active` inputs, from cotangents of some of its outputs, in order."""

    call: Call
    active: frozenset[str]
    given: tuple[str, ...]


def backward_call(handle: int, arguments: Sequence[Any]) -> BackwardCall:
    active, given, shapes, ranks, dtypes, *rest = arguments
    split, start = [], 0
    for rank in ranks:
        split.append(tuple(shapes[start : start + rank]))
        start += rank
    call = unpacked(handle, split, [_DTYPES[code] for code in dtypes], rest)
    signature = call.core.signature
    inputs = frozenset(signature.arrays[place] for place in active)
    return BackwardCall(call, inputs, tuple(signature.outputs[place] for place in given))


def packed_forward(call: Call, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """A call as the arguments of `tinsmith::launch`."""
    return call.core.handle, list(inputs), *_packed(call)


def packed_backward(
    call: Call, active: frozenset[str], saved: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor | None]
) -> tuple[Any, ...]:
    """A call as the arguments of `tinsmith::launch_backward`. `cotangents` are those of all outputs, or None."""
    names = call.core.signature.arrays
    lead = (call.batch,) if call.batch is not None else ()
    shapes = [(lead if name in call.batched else ()) + shape for name, shape in zip(names, call.shapes, strict=True)]
    return (
        call.core.handle,
        list(saved),
        [one for one in cotangents if one is not None],
        [place for place, name in enumerate(names) if name in active],
        [place for place, one in enumerate(cotangents) if one is not None],
        [size for shape in shapes for size in shape],
        [len(shape) for shape in shapes],
        [_DTYPES.index(dtype) for dtype in call.dtypes],
        *_packed(call),
    )
