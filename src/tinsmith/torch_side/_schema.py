"""Schemas: declarations of an op's arguments and results for torch, and conversion of calls to and from them.

The forward operator takes the arguments of a call of the op, in that order: tensors for arrays, numbers for the rest,
and by keyword the dims that nothing else determines. `_batch` says that a call is already converted (`Conversion`): it
has one merged batch, or half precision cast to float32. The backward operator takes the saved values that it reads
(None for others), the cotangents of the outputs, and everything else that determines its results.

Compiled graphs pass all arguments. Torch parses one by position in 0.2 us, one by keyword in 0.5 us, and a list in
0.8 us. So the library's own arguments are few, and are passed by position.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from .._errors import ArgumentError, refusal
from ..calls import BackwardCall, BoundArguments, Call, Core, Signature, is_symbolic, takes_half_alone
from ..engines import SPEC_DTYPES

_RESERVED = {*keyword.kwlist, "Tensor", "Scalar", "int", "float", "bool", "str", "Device", "Generator", "out", "self"}
_HIDDEN = ("_state", "_arrays", "_numbers", "_shapes", "_inputs", "_sizes", "_batch", "_values")
_BATCH = "SymInt[]? _batch=None"
_SIZES = "SymInt[]? _sizes=None"
_BACKWARD = ("SymInt[] _shapes", "str _inputs")
_NO_BATCH = [-1]
"""The `_batch` of a converted call without a batch."""

SHARED_FORWARD = f"(str _recipe, Tensor[] _arrays, {_SIZES}, {_BATCH}) -> Tensor[]"
"""The declaration of the forward operator that the library's own ops share."""

SHARED_BACKWARD = f"(str _recipe, Tensor?[] _arrays, {', '.join(_BACKWARD)}, {_SIZES}, {_BATCH}) -> Tensor[]"
"""The declaration of the backward operator that the library's own ops share."""

MOST_ARGUMENTS = 64
"""The maximum number of arguments that torch allows in a schema."""


def make_identifier(name: str, taken: Iterable[str] = ()) -> str:
    """Turn a name into an identifier that torch's schema parser accepts: ASCII, not reserved, and not in `taken`."""
    word = re.sub(r"\W", "_", name.encode("ascii", "backslashreplace").decode().replace("\\", "_"), flags=re.ASCII)
    while word in _RESERVED or word in taken or not word or word[0].isdigit():
        word = f"_{word}" if not word or word[0].isdigit() else f"{word}_"
    return word


class Inputs(NamedTuple):
    """The facts that a backward operator gets about the op's inputs, besides their sizes.

    In a graph they are a string, since torch's schemas have no type for dtypes.

    Attributes:
        dtypes, ranks: of each input.
        wanted_places: the places of the inputs that want a gradient.
    """

    dtypes: tuple[torch.dtype, ...]
    ranks: tuple[int, ...]
    wanted_places: tuple[int, ...]

    def write(self) -> str:
        """Return the facts as text: `f32[1] wanted, i32[0]`."""
        pairs = enumerate(zip(self.dtypes, self.ranks, strict=True))
        return ", ".join(
            f"{_DTYPE_NAMES[dtype]}[{rank}]{' wanted' if place in self.wanted_places else ''}"
            for place, (dtype, rank) in pairs
        )

    @classmethod
    @lru_cache(maxsize=1024)
    def read(cls, text: str) -> Inputs:
        """Parse the text that `write` returned."""
        entries = re.findall(r"(\w+)\[(\d+)\]( wanted)?", text)
        return cls(
            tuple(SPEC_DTYPES[name] for name, _, _ in entries),
            tuple(int(rank) for _, rank, _ in entries),
            tuple(place for place, (_, _, wanted) in enumerate(entries) if wanted),
        )


_DTYPE_NAMES = {dtype: name for name, dtype in SPEC_DTYPES.items()}


class OperatorArguments(NamedTuple):
    """The arguments that the forward operator got, by kind.

    Attributes:
        own: arrays and numbers, in the op's order.
        sizes: the dims that are passed by keyword, or the list of them.
        batch: None for a call as a caller writes it. Otherwise the size of the batch, whether its samples run one by
            one, and the places of the arrays that have it; or `[-1]` without a batch.
        state: the state of Python values and fields that an earlier pass noted, or None.
    """

    own: Sequence[Any]
    sizes: Any
    batch: Sequence[Any] | None
    state: Any


class ArgumentNames:
    """Chooses names for a schema's arguments that are all different."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {*_HIDDEN, *taken}

    def name(self, wanted: str) -> str:
        free_name = make_identifier(wanted, self._taken)
        self._taken.add(free_name)
        return free_name


class Schema:
    """The declarations of an op's two operators.

    If an op has more arguments than torch's schemas allow, its numbers are passed in one list; if that is not enough,
    its arrays and results are lists too.

    Args:
        signature: the op's signature.
        has_state: whether the kernels use Python values or fields that may change between the two passes. If so, the
            forward operator also returns its state, a tensor of numbers that stand for them. The backward operator, and
            those of the derivatives, take it.
        lists_all: whether arrays and sizes are always lists, as in the operators that the library's own ops share.
    """

    def __init__(self, signature: Signature, has_state: bool, lists_all: bool = False) -> None:
        self.signature = signature
        self.has_state = has_state
        self._lists_sizes = lists_all
        self.allocations = signature.allocations
        self.arrays = signature.all_arrays
        self.owners = (*self.arrays, *signature.outputs)
        """The arrays that the backward operator's tensors belong to: a value of each array, then a cotangent of each
        output."""
        self.numbers = (*signature.scalars, *signature.templates)
        others = len(signature.size_names) + len(_HIDDEN)
        self.lists_arrays = lists_all or len(self.owners) + others > MOST_ARGUMENTS
        self.lists_numbers = self.lists_arrays or len(self.owners) + len(self.numbers) + others > MOST_ARGUMENTS
        self._types = dict.fromkeys(signature.arrays, "Tensor")
        self._types |= {name: _find_type(signature, name) for name in signature.scalars}
        self._types |= dict.fromkeys(signature.templates, "Scalar")
        names = ArgumentNames()
        self._spelled = {name: names.name(name) for name in (*signature.order, *signature.size_names)}
        named = [f"Tensor {names.name(name)}" for name in self.allocations] + ["Tensor _state"] * has_state
        results = "Tensor[]" if self.lists_arrays else named[0] if len(named) == 1 else f"({', '.join(named)})"
        own = self._forward_arguments()
        self._count = len(own)
        state = ["Tensor? _state=None", 'str _values=""'] if has_state else []
        sizes = [_SIZES] if lists_all else []
        self.forward_arguments = (*own, *sizes, _BATCH, *state)
        self.backward_arguments = (*self._backward_arguments(), *sizes, _BATCH, *state[1:])
        self.forward = self._declare(self.forward_arguments, results)
        self.backward = self._declare(self.backward_arguments, "Tensor[]")

    def _declare(self, arguments: Sequence[str], results: str) -> str:
        names = () if self._lists_sizes else self.signature.size_names
        sizes = ["*", *(f"SymInt {self._spelled[name]}" for name in names)] if names else []
        return f"({', '.join([*arguments, *sizes])}) -> {results}"

    def _forward_arguments(self) -> list[str]:
        signature = self.signature
        if self.lists_arrays:
            return ["Tensor[] _arrays", "Scalar[] _numbers"]
        if self.lists_numbers:
            return [*self._arguments(signature.arrays), "Scalar[] _numbers"]
        return self._arguments(signature.order)

    def _arguments(self, order: Iterable[str]) -> list[str]:
        return [f"{self._types[name]} {self._spelled[name]}" for name in order]

    def _backward_arguments(self) -> list[str]:
        names = ArgumentNames(self._spelled[name] for name in (*self.numbers, *self.signature.size_names))
        arguments = [f"Tensor? {names.name(name)}" for name in self.arrays]
        arguments += [f"Tensor? {names.name(f'grad_{name}')}" for name in self.signature.outputs]
        arguments = ["Tensor?[] _arrays"] if self.lists_arrays else arguments
        arguments += ["Tensor? _state"] * self.has_state
        arguments += ["Scalar[] _numbers"] if self.lists_numbers else self._arguments(self.numbers)
        return [*arguments, *_BACKWARD]

    # Writing a call ---------------------------------------------------------------------------
    def pack(
        self, bound: BoundArguments, batch: Sequence[Any] | None = None, state: Any = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return a call as positional and keyword arguments of the forward operator.

        Without `batch` it is a call as a caller writes it.
        """
        signature = self.signature
        listed, keywords = self._pack_sizes(bound.sizes)
        rest = [*listed, batch, state]
        while rest and rest[-1] is None:
            rest.pop()
        if self.lists_numbers:
            numbers = self._pack_numbers(bound.scalars, bound.templates)
            return [*([list(bound.tensors)] if self.lists_arrays else bound.tensors), *numbers, *rest], keywords
        tensors = dict(zip(signature.arrays, bound.tensors, strict=True))
        # No `|` of dicts, which torch 2.6's compiler cannot read.
        numbers = dict(zip(self.numbers, self._pack_numbers(bound.scalars, bound.templates), strict=True))
        values: dict[str, Any] = {**tensors, **numbers}
        return [*[values[name] for name in signature.order], *rest], keywords

    def _pack_sizes(self, sizes: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the dims as arguments by position, and by keyword."""
        names = self.signature.size_names
        if self._lists_sizes:
            # No empty list: ahead-of-time Inductor passes None in its place.
            return [[sizes[name] for name in names] or None], {}
        return [], {self._spelled[name]: sizes[name] for name in names}

    def _unpack_sizes(self, given: Any) -> dict[str, Any]:
        names = self.signature.size_names
        if self._lists_sizes:
            return dict(zip(names, given or (), strict=True))
        return {name: given[self._spelled[name]] for name in names}

    def _pack_numbers(self, scalars: Mapping[str, Any], templates: Mapping[str, Any]) -> list[Any]:
        """Return scalars and templates as arguments: each by itself, or all in one list."""
        signature = self.signature
        numbers = [scalars[name] for name in signature.scalars]
        numbers += [_check_number(signature.op, name, templates[name]) for name in signature.templates]
        if not self.lists_numbers:
            return numbers
        return [[entry for one in numbers for entry in (one if isinstance(one, tuple) else [one])]]

    def _unpack_numbers(self, given: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return scalars and templates by name, from the operator's arguments for them."""
        signature = self.signature
        if self.lists_numbers:
            entries = iter(given[0])
            given = []
            for name in self.numbers:
                own = signature.parameters(name)[0]
                given.append([next(entries) for _ in range(own.entries)] if own.kind == "matrix" else next(entries))
        values = dict(zip(self.numbers, given, strict=True))
        pairs = ((name, values[name]) for name in signature.scalars)
        scalars = {name: tuple(value) if isinstance(value, list) else value for name, value in pairs}
        return scalars, {name: values[name] for name in signature.templates}

    def pack_flat(
        self, call: Call, tensors: Sequence[torch.Tensor], state: Any = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return a converted call as positional and keyword arguments of the forward operator."""
        bound = BoundArguments(tuple(tensors), call.scalars, call.templates, call.sizes)
        return self.pack(bound, self._pack_batch(call), state)

    def _pack_batch(self, call: Call) -> list[Any] | None:
        if call.batch is None:
            # Only the spec of an output names half precision here: the inputs are float32 already.
            has_halves = any(takes_half_alone(self.signature, name) for name in self.signature.outputs)
            return _NO_BATCH if has_halves else None
        places = [place for place, name in enumerate(self.signature.arrays) if name in call.batched]
        return [call.batch, int(call.is_apart), *places]

    def pack_backward(
        self,
        call: Call,
        active: frozenset[str],
        saved: Mapping[str, torch.Tensor],
        cotangents: Mapping[str, torch.Tensor],
        state: torch.Tensor | None,
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return a backward call as positional and keyword arguments of the backward operator."""
        signature = self.signature
        names = signature.arrays
        shapes = call.whole_shapes
        tensors = [saved.get(name) for name in self.arrays] + [cotangents.get(name) for name in signature.outputs]
        arguments: list[Any] = [tensors] if self.lists_arrays else tensors
        wanted = tuple([place for place, name in enumerate(names) if name in active])
        inputs = Inputs(call.dtypes, tuple([len(shape) for shape in shapes]), wanted)
        listed, keywords = self._pack_sizes(call.sizes)
        return [
            *arguments,
            *([state] if self.has_state else []),
            *self._pack_numbers(call.scalars, call.templates),
            [size for shape in shapes for size in shape],
            inputs.write(),
            *listed,
            self._pack_batch(call),
        ], keywords

    # Reading one ------------------------------------------------------------------------------
    def split(self, given: Sequence[Any], keywords: Mapping[str, Any]) -> OperatorArguments:
        """Split the arguments of the forward operator by kind. Torch leaves out trailing defaults."""
        rest = iter(given[self._count :])
        sizes = next(rest, None) if self._lists_sizes else keywords
        return OperatorArguments(given[: self._count], sizes, next(rest, None), next(rest, None))

    def get_arrays(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the arrays, or their batch dims, from the forward operator's arguments."""
        if self.lists_arrays:
            return list(arguments[0])
        if self.lists_numbers:
            return list(arguments[: len(self.signature.arrays)])
        order = self.signature.order
        return [arguments[order.index(name)] for name in self.signature.arrays]

    def with_tensors(self, arguments: Sequence[Any], tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return the forward operator's arguments with these tensors as arrays."""
        if self.lists_arrays:
            return [list(tensors), *arguments[1:]]
        if self.lists_numbers:
            return [*tensors, *arguments[len(tensors) :]]
        changed = list(arguments)
        for name, tensor in zip(self.signature.arrays, tensors, strict=True):
            changed[self.signature.order.index(name)] = tensor
        return changed

    def with_state(self, arguments: Sequence[Any], state: Any) -> list[Any]:
        """Return the forward operator's arguments with this state."""
        own, rest = arguments[: self._count], [*arguments[self._count :], None, None]
        return [*own, rest[0], state, *arguments[self._count + 2 :]]

    def get_owned(self, arguments: Sequence[Any]) -> list[Any]:
        """Return the tensors of `owners`, or their batch dims, from the backward operator's arguments."""
        return list(arguments[0] if self.lists_arrays else arguments[: len(self.owners)])

    def bind_arguments(self, given: OperatorArguments) -> BoundArguments:
        """Convert the forward operator's arguments to a call's arguments by kind."""
        signature, arguments = self.signature, given.own
        if self.lists_numbers:
            numbers = arguments[-1:]
        else:
            numbers = [arguments[signature.order.index(name)] for name in self.numbers]
        scalars, templates = self._unpack_numbers(numbers)
        return BoundArguments(tuple(self.get_arrays(arguments)), scalars, templates, self._unpack_sizes(given.sizes))

    def make_call(
        self,
        core: Core,
        bound: BoundArguments,
        shapes: Sequence[Any],
        dtypes: Sequence[torch.dtype],
        batch: Sequence[Any] | None,
    ) -> Call:
        """Make a converted call from the forward operator's arguments. `shapes` include the batch dimension."""
        names = self.signature.arrays
        size, is_apart, batched = None, False, frozenset[str]()
        # Not by the size: a tracer's may be a symbol, which a comparison would fix.
        if batch is not None and len(batch) > 1:
            size, is_apart = batch[0], bool(batch[1])
            batched = frozenset([names[place] for place in batch[2:]])
        alone = tuple(tuple(s[1:] if n in batched else s) for n, s in zip(names, shapes, strict=True))
        return Call(core, alone, tuple(dtypes), bound.scalars, bound.templates, bound.sizes, size, batched, is_apart)

    def read_backward_call(self, core: Core, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> BackwardCall:
        """Convert the backward operator's arguments to a backward call."""
        signature = self.signature
        owned = self.get_owned(arguments)
        saved = dict(zip(self.arrays, owned, strict=False))
        cotangents = dict(zip(signature.outputs, owned[len(self.arrays) :], strict=True))
        rest = iter(arguments[1 if self.lists_arrays else len(self.owners) :])
        state = next(rest) if self.has_state else None
        numbers = [next(rest) for _ in range(1 if self.lists_numbers else len(self.numbers))]
        whole, inputs = next(rest), Inputs.read(next(rest))
        sizes = self._unpack_sizes(next(rest, None) if self._lists_sizes else keywords)
        scalars, templates = self._unpack_numbers(numbers)
        shapes, start = [], 0
        for rank in inputs.ranks:
            shapes.append(tuple(whole[start : start + rank]))
            start += rank
        bound = BoundArguments((), scalars, templates, sizes)
        call = self.make_call(core, bound, shapes, inputs.dtypes, next(rest, None))
        active = frozenset(signature.arrays[place] for place in inputs.wanted_places)
        return BackwardCall(
            call,
            active,
            {name: one for name, one in saved.items() if one is not None},
            {name: one for name, one in cotangents.items() if one is not None},
            state,
        )


def _find_type(signature: Signature, name: str) -> str:
    """Return the type of a scalar argument in torch's schema."""
    parameter = signature.parameters(name)[0]
    if parameter.kind == "matrix":
        return "Scalar[]"
    return "float" if parameter.setter == "float" else "SymInt"


def _check_number(op: str, name: str, value: Any) -> Any:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) or is_symbolic(value):
        return value
    words = f"template argument `{name}` of op `{op}` cannot be traced"
    remedy = "Pass a number, or call the op outside torch.compile."
    raise ArgumentError(refusal(words, [("got", type(value).__name__)], remedy))
