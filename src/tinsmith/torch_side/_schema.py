"""Schemas: declarations of an op's arguments and results for torch, and conversion of calls to and from them.

The forward operator takes what a call of the op takes, in that order: tensors for arrays, numbers for the rest, dims
without another source by keyword. A call over a batch that the op's spec does not know says so in `_batch` and
`_batched`; `_computed` tells a call that gives half precision as float32 from the caller's own. The backward operator
takes the values that it reads, None for others, and the outputs' cotangents.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from .._errors import ArgumentError, refusal
from ..calls import BackwardCall, BoundArguments, Call, Core, Signature, is_symbolic, takes_half_alone
from ..engines import SPEC_DTYPES

# Torch's schemas have no type for lists of dtypes, so a dtype is passed as its place in this tuple.
_DTYPES = tuple(SPEC_DTYPES.values())
_RESERVED = {*keyword.kwlist, "Tensor", "Scalar", "int", "float", "bool", "str", "Device", "Generator", "out", "self"}
_HIDDEN = ("_batch", "_batched", "_apart", "_values", "_computed")
_BATCH = 'SymInt? {}=None, int[]? {}=None, bool {}=False, str {}="", bool {}=False'.format(*_HIDDEN)

_BACKWARD = "int[] _wanted, SymInt[] _shapes, int[] _ranks, int[] _dtypes"

SHARED_FORWARD = f"(str _recipe, Tensor[] _arrays, *, SymInt[]? _sizes=None, {_BATCH}) -> Tensor[]"
"""The forward declaration that the library's own ops share."""

SHARED_BACKWARD = f"(str _recipe, Tensor?[] _arrays, *, {_BACKWARD}, SymInt[]? _sizes=None, {_BATCH}) -> Tensor[]"
"""Their backward declaration."""

MOST_ARGUMENTS = 64
"""The maximum number of arguments of a schema of torch."""


def identifier(name: str, taken: Iterable[str] = ()) -> str:
    """A name as torch's parser of schemas reads it: ASCII, no word of its own, none that is taken."""
    word = re.sub(r"\W", "_", name.encode("ascii", "backslashreplace").decode().replace("\\", "_"), flags=re.ASCII)
    while word in _RESERVED or word in taken or not word or word[0].isdigit():
        word = f"_{word}" if not word or word[0].isdigit() else f"{word}_"
    return word


def first_dtype(keywords: Mapping[str, Any]) -> torch.dtype:
    """Return the dtype of the first input of a call of a backward operator."""
    return _DTYPES[keywords["_dtypes"][0]]


class Names:
    """Names of a schema's arguments, each another one."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_HIDDEN, "_state", "_arrays", "_numbers", "_wanted", "_shapes", "_ranks", "_dtypes", *taken}

    def name(self, wanted: str) -> str:
        free_name = identifier(wanted, self._taken)
        self._taken.add(free_name)
        return free_name


class Schema:
    """The declarations of an op's two operators.

    An op with more arguments than torch's schemas take has its numbers in one list, and where that is not enough its
    arrays and results in others.

    Args:
        signature: of the op.
        has_state: whether the kernels use Python values or fields that may change between the two passes. The forward
            operator then returns numbers that stand for these, its state, which its backward operator is given, and
            the operators of its derivatives.
        lists_all: whether arrays and sizes are lists whatever their number, as in the operators that the library's own
            ops share.
    """

    def __init__(self, signature: Signature, has_state: bool, lists_all: bool = False) -> None:
        self.signature = signature
        self.has_state = has_state
        self._lists_sizes = lists_all
        self.allocations = signature.outputs + signature.scratch
        self.arrays = signature.arrays + self.allocations
        self.owners = (*self.arrays, *signature.outputs)
        """Whose the backward operator's tensors are: the arrays', and then the outputs' cotangents."""
        self.numbers = (*signature.scalars, *signature.templates)
        others = len(signature.size_names) + len(_HIDDEN) + 5
        self.lists_arrays = lists_all or len(self.owners) + others > MOST_ARGUMENTS
        self.lists_numbers = self.lists_arrays or len(self.owners) + len(self.numbers) + others > MOST_ARGUMENTS
        self._types = dict.fromkeys(signature.arrays, "Tensor")
        self._types |= {name: _type_of(signature, name) for name in signature.scalars}
        self._types |= dict.fromkeys(signature.templates, "Scalar")
        names = Names()
        self._spelled = {name: names.name(name) for name in (*signature.order, *signature.size_names)}
        named = [f"Tensor {names.name(name)}" for name in self.allocations] + ["Tensor _state"] * has_state
        results = "Tensor[]" if self.lists_arrays else named[0] if len(named) == 1 else f"({', '.join(named)})"
        arguments = self._forward_arguments()
        self._count = len(arguments)
        # Not by keyword, as torch does not map those over a batch.
        arguments += ["Tensor? _state=None"] * has_state
        self.forward = f"({', '.join(arguments)}, *, {self._keywords()}) -> {results}"
        self.forward = self.forward.replace("(, *", "(*")
        self.backward = self._backward()

    def _forward_arguments(self) -> list[str]:
        signature = self.signature
        if self.lists_arrays:
            return ["Tensor[] _arrays", "Scalar[] _numbers"]
        if self.lists_numbers:
            return [*self._arguments(signature.arrays), "Scalar[] _numbers"]
        return self._arguments(signature.order)

    def _arguments(self, order: Iterable[str]) -> list[str]:
        return [f"{self._types[name]} {self._spelled[name]}" for name in order]

    def _keywords(self) -> str:
        sizes = [f"SymInt {self._spelled[name]}" for name in self.signature.size_names]
        return ", ".join([*sizes, _BATCH])

    def _backward(self) -> str:
        names = Names(self._spelled[name] for name in (*self.numbers, *self.signature.size_names))
        arguments = [f"Tensor? {names.name(name)}" for name in self.arrays]
        arguments += [f"Tensor? {names.name(f'grad_{name}')}" for name in self.signature.outputs]
        arguments = ["Tensor?[] _arrays"] if self.lists_arrays else arguments
        arguments += ["Tensor? _state"]
        arguments += ["Scalar[] _numbers"] if self.lists_numbers else self._arguments(self.numbers)
        call = f"{_BACKWARD}, {self._keywords()}"
        return f"({', '.join(arguments)}, *, {call}) -> Tensor[]"

    # Writing a call ---------------------------------------------------------------------------
    def pack(self, bound: BoundArguments) -> tuple[list[Any], dict[str, Any]]:
        """A call as a caller writes it, as arguments of the forward operator."""
        signature = self.signature
        keywords = self._pack_sizes(bound.sizes)
        if self.lists_numbers:
            numbers = self._pack_numbers(bound.scalars, bound.templates)
            return [*([list(bound.tensors)] if self.lists_arrays else bound.tensors), *numbers], keywords
        tensors = dict(zip(signature.arrays, bound.tensors, strict=True))
        # No `|` of dicts, which torch 2.6's compiler cannot read.
        numbers = dict(zip(self.numbers, self._pack_numbers(bound.scalars, bound.templates), strict=True))
        values: dict[str, Any] = {**tensors, **numbers}
        return [values[name] for name in signature.order], keywords

    def _pack_sizes(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        names = self.signature.size_names
        if self._lists_sizes:
            # No empty list: ahead-of-time Inductor passes None in its place.
            return {"_sizes": [sizes[name] for name in names]} if names else {}
        return {self._spelled[name]: sizes[name] for name in names}

    def _unpack_sizes(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        names = self.signature.size_names
        if self._lists_sizes:
            return dict(zip(names, keywords.get("_sizes") or (), strict=True))
        return {name: keywords[self._spelled[name]] for name in names}

    def _pack_numbers(self, scalars: Mapping[str, Any], templates: Mapping[str, Any]) -> list[Any]:
        """Scalars and templates: each by itself, or all in one list."""
        signature = self.signature
        numbers = [scalars[name] for name in signature.scalars]
        numbers += [_number(signature.op, name, templates[name]) for name in signature.templates]
        if not self.lists_numbers:
            return numbers
        return [[entry for one in numbers for entry in (one if isinstance(one, tuple) else [one])]]

    def _unpack_numbers(self, given: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Scalars and templates by name, from what stands in their place."""
        signature = self.signature
        if self.lists_numbers:
            entries = iter(given[0])
            given = []
            for name in self.numbers:
                own = signature.parameters(name)[0]
                given.append([next(entries) for _ in range(own.entries)] if own.kind == "matrix" else next(entries))
        values = dict(zip(self.numbers, given, strict=True))
        scalars = {name: _scalar(values[name]) for name in signature.scalars}
        return scalars, {name: values[name] for name in signature.templates}

    def pack_flat(self, call: Call, tensors: Sequence[torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """A call in the form in which it is run, as arguments of the forward operator."""
        arguments, keywords = self.pack(BoundArguments(tuple(tensors), call.scalars, call.templates, call.sizes))
        return arguments, keywords | self._batch_of(call)

    def _batch_of(self, call: Call) -> dict[str, Any]:
        if call.batch is None:
            # Only the spec of an output names half precision here: the inputs are float32 already.
            has_halves = any(takes_half_alone(self.signature, name) for name in self.signature.outputs)
            return {"_computed": True} if has_halves else {}
        places = [place for place, name in enumerate(self.signature.arrays) if name in call.batched]
        return {"_batch": call.batch, "_batched": places} | ({"_apart": True} if call.is_apart else {})

    def pack_backward(
        self,
        call: Call,
        active: frozenset[str],
        saved: Mapping[str, torch.Tensor],
        cotangents: Mapping[str, torch.Tensor],
        state: torch.Tensor | None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """A call of which gradients are asked, as arguments of the backward operator."""
        signature = self.signature
        names = signature.arrays
        shapes = call.whole_shapes
        tensors = [saved.get(name) for name in self.arrays] + [cotangents.get(name) for name in signature.outputs]
        arguments: list[Any] = [tensors] if self.lists_arrays else tensors
        arguments = [*arguments, state, *self._pack_numbers(call.scalars, call.templates)]
        keywords: dict[str, Any] = {
            "_wanted": [place for place, name in enumerate(names) if name in active],
            "_shapes": [size for shape in shapes for size in shape],
            "_ranks": [len(shape) for shape in shapes],
            "_dtypes": [_DTYPES.index(dtype) for dtype in call.dtypes],
            **self._pack_sizes(call.sizes),
        }
        return arguments, keywords | self._batch_of(call)

    def is_computed(self, keywords: Mapping[str, Any]) -> bool:
        """Return True if a call is in the form in which it is run."""
        return keywords.get("_batch") is not None or keywords.get("_computed", False)

    def take_state(self, arguments: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """Return the forward operator's arguments without the state that it was given, and that one or None."""
        return arguments[: self._count], arguments[self._count] if len(arguments) > self._count else None

    # Reading one ------------------------------------------------------------------------------
    def tensors_in(self, arguments: Sequence[Any]) -> list[Any]:
        """What stands in the places of the forward operator's arrays: tensors, or batch dims."""
        if self.lists_arrays:
            return list(arguments[0])
        if self.lists_numbers:
            return list(arguments[: len(self.signature.arrays)])
        order = self.signature.order
        return [arguments[order.index(name)] for name in self.signature.arrays]

    def with_tensors(self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        """The forward operator's arguments with other arrays."""
        if self.lists_arrays:
            return [list(tensors), *arguments[1:]]
        if self.lists_numbers:
            return [*tensors, *arguments[len(tensors) :]]
        changed = list(arguments)
        for name, tensor in zip(self.signature.arrays, tensors, strict=True):
            changed[self.signature.order.index(name)] = tensor
        return changed

    def owned_in(self, arguments: Sequence[Any]) -> list[Any]:
        """What stands in the places of the backward operator's tensors but the state."""
        return list(arguments[0] if self.lists_arrays else arguments[: len(self.owners)])

    def bind_arguments(self, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> BoundArguments:
        """What the forward operator was given, as a call's arguments by kind."""
        signature = self.signature
        if self.lists_numbers:
            numbers = arguments[-1:]
        else:
            numbers = [arguments[signature.order.index(name)] for name in self.numbers]
        scalars, templates = self._unpack_numbers(numbers)
        return BoundArguments(tuple(self.tensors_in(arguments)), scalars, templates, self._unpack_sizes(keywords))

    def call(
        self,
        core: Core,
        bound: BoundArguments,
        shapes: Sequence[Any],
        dtypes: Sequence[torch.dtype],
        keywords: Mapping[str, Any],
    ) -> Call:
        """A call in the form in which it is run. `shapes` include the batch dimension."""
        names, batch = self.signature.arrays, keywords.get("_batch")
        batched = frozenset(names[place] for place in keywords.get("_batched") or ())
        cores = tuple(tuple(s[1:] if n in batched else s) for n, s in zip(names, shapes, strict=True))
        is_apart = keywords.get("_apart", False)
        return Call(core, cores, tuple(dtypes), bound.scalars, bound.templates, bound.sizes, batch, batched, is_apart)

    def backward_call(self, core: Core, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> BackwardCall:
        """What the backward operator was given."""
        signature = self.signature
        owned = self.owned_in(arguments)
        saved = dict(zip(self.arrays, owned, strict=False))
        cotangents = dict(zip(signature.outputs, owned[len(self.arrays) :], strict=True))
        state, *numbers = arguments[1 if self.lists_arrays else len(self.owners) :]
        scalars, templates = self._unpack_numbers(numbers)
        shapes, start = [], 0
        for rank in keywords["_ranks"]:
            shapes.append(tuple(keywords["_shapes"][start : start + rank]))
            start += rank
        sizes = self._unpack_sizes(keywords)
        dtypes = [_DTYPES[code] for code in keywords["_dtypes"]]
        call = self.call(core, BoundArguments((), scalars, templates, sizes), shapes, dtypes, keywords)
        active = frozenset(signature.arrays[place] for place in keywords["_wanted"])
        return BackwardCall(
            call,
            active,
            {name: one for name, one in saved.items() if one is not None},
            {name: one for name, one in cotangents.items() if one is not None},
            state,
        )


def _type_of(signature: Signature, name: str) -> str:
    """The type of a scalar argument."""
    parameter = signature.parameters(name)[0]
    if parameter.kind == "matrix":
        return "Scalar[]"
    return "float" if parameter.setter == "float" else "SymInt"


def _scalar(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _number(op: str, name: str, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) or is_symbolic(value):
        return value
    words = f"template argument `{name}` of op `{op}` cannot be traced"
    remedy = "Pass a number, or call the op outside torch.compile."
    raise ArgumentError(refusal(words, [("got", type(value).__name__)], remedy))
