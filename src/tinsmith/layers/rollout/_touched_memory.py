"""Touched memory: which memory torch reads and writes while the function of a rollout runs.

A simulator may hold a tensor that shares the memory of a field or an ndarray. While kernels are being recorded none of
them has run, so what such a tensor shows is older than what the function means, and what it is filled with comes
before the kernels instead of between them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..._errors import KernelError, refusal
from ...tracing import are_final, get_version, unwrap_levels
from ..fields import Launch, LayerField, by_key, uses_of_each
from ._field_names import name_fields_for_user
from ._kernels import locate_user
from ._recording import Recording

_MOST_WORK: Any = 10**5
"""Steps in which two strided arrays are compared exactly; where these do not suffice, arrays that meet share memory."""
_DESCRIBING = {
    *("__get__", "__set__", "__len__", "__hash__", "size", "dim", "ndimension", "numel", "nelement", "stride"),
    *("storage_offset", "element_size", "get_device", "data_ptr", "untyped_storage", "storage", "is_contiguous"),
    *("is_floating_point", "is_complex", "is_neg", "is_conj", "is_inference", "requires_grad_", "register_hook"),
    *("has_names", "__dlpack_device__"),
}
"""Functions of a tensor that use no number of it. `__get__` is that of attributes, as `shape` and `T`."""


class Block(NamedTuple):
    """Numbers in memory: the address of the first, sizes, and distances in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    on_cpu: bool

    @property
    def end(self) -> int:
        """The address behind the last number."""
        spans = (max(size - 1, 0) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.address + sum(spans) + self.itemsize

    def meets(self, other: Block) -> bool:
        """Return whether two blocks share memory."""
        if self.address >= other.end or other.address >= self.end:
            return False
        if not (self.on_cpu and other.on_cpu):
            return True
        try:
            return np.shares_memory(self._as_array(), other._as_array(), max_work=_MOST_WORK)
        except np.exceptions.TooHardError:
            return True

    def _as_array(self) -> np.ndarray:
        memory: Any = (ctypes.c_byte * (self.end - self.address)).from_address(self.address)
        return np.ndarray(self.shape, np.dtype(f"V{self.itemsize}"), memory, 0, self.strides)


class Touch(NamedTuple):
    """A read or a write of memory by torch: how many calls were recorded before, and the user's line."""

    call_count: int
    place: str


class MemoryWatch(TorchFunctionMode):
    """Notes what torch reads and writes while a function is recorded.

    Attributes:
        reads, writes: the last time that torch read, or wrote, a block.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self._recording = recording
        self.reads: dict[Block, Touch] = {}
        self.writes: dict[Block, Touch] = {}

    def watching(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that does the same, and is watched."""

        def run() -> Any:
            with self:
                return function()

        return run

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, arguments: Sequence[Any] = (), named: Any = None
    ) -> Any:
        """Run a function of torch, and note what it used."""
        named = named or {}
        if self._recording.is_paused or getattr(function, "__name__", "") in _DESCRIBING:
            return function(*arguments, **named)
        tensors = [(one, block) for one in _tensors_in((arguments, named)) if (block := _block_of(one)) is not None]
        before = [_version(one) for one, _ in tensors]
        result = function(*arguments, **named)
        shared = {one.untyped_storage().data_ptr() for one in _tensors_in(result) if _block_of(one) is not None}
        for (one, block), version in zip(tensors, before, strict=True):
            is_written = _version(one) != version
            # A view, or the tensor itself, uses no number.
            if is_written or one.untyped_storage().data_ptr() not in shared:
                noted = self.writes if is_written else self.reads
                noted[block] = Touch(len(self._recording.calls), locate_user())
        return result


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield unwrap_levels(value)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors_in(one)
    elif isinstance(value, dict):
        yield from _tensors_in([*value.values()])


def _block_of(tensor: torch.Tensor) -> Block | None:
    """Return where a tensor's numbers are; None if nowhere."""
    if not are_final([tensor]) or tensor.layout is not torch.strided or not tensor.numel():
        return None
    size = tensor.element_size()
    strides = tuple([size * stride for stride in tensor.stride()])
    return Block(tensor.data_ptr(), tuple(tensor.shape), strides, size, tensor.device.type == "cpu")


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else get_version(tensor)


def refuse_shared_memory(
    rollout: str,
    forward: Callable[..., Any],
    watch: MemoryWatch,
    launches: Sequence[Launch],
    begun: int,
    filled: Sequence[LayerField],
    outputs: Sequence[LayerField],
) -> None:
    """Raise KernelError where torch read a field that kernels had changed by then, or changed one that they had used.

    Args:
        rollout: its name, for messages.
        forward: its function.
        watch: what torch did while that ran.
        launches: what the rollout runs.
        begun: how many of these come before the function's own.
        filled: fields that a call fills.
        outputs: fields that a call returns, which it may clear.
    """
    fields = by_key((*filled, *outputs))
    changed, used = dict.fromkeys(by_key(filled), -1), dict.fromkeys(fields, -1)
    for place, uses in enumerate(uses_of_each(launches)):
        for use in uses.values():
            # A kernel names a field of structs for the sake of one member.
            if not (use.is_read or use.is_written):
                continue
            key = use.one.facts.key
            fields.setdefault(key, use.one)
            used.setdefault(key, place)
            if use.is_written:
                changed.setdefault(key, place)
    for since, touches, verb in ((changed, watch.reads, "reads"), (used, watch.writes, "writes")):
        for key, place in since.items():
            block = _memory_of(fields[key])
            for touched, touch in touches.items():
                if block is not None and place < touch.call_count + begun and block.meets(touched):
                    raise _refuse(rollout, forward, launches, fields[key], verb, touch)


def _memory_of(one: LayerField) -> Block | None:
    """Return where a field's numbers are; None where nobody is told."""
    facts = one.facts
    if facts.address:
        return Block(facts.address, (facts.count,), (facts.dtype.itemsize,), facts.dtype.itemsize, one.runs_on == "cpu")
    shared = one.engine.share_memory(one.field)
    return None if shared is None else _block_of(shared)


def _refuse(
    rollout: str,
    forward: Callable[..., Any],
    launches: Sequence[Launch],
    one: LayerField,
    verb: str,
    touch: Touch,
) -> KernelError:
    ((name, _),) = name_fields_for_user(forward, launches, [one])
    words = f"{rollout} {verb} the memory of `{name}` through a tensor before its recorded kernels have run"
    if verb == "reads":
        remedy = "Read it before or after the rollout, or let a kernel compute what depends on it."
    else:
        remedy = "Write it by a kernel, or by the field's own `fill`, `from_torch` or `field[i] = ...`, which are "
        remedy += "recorded; or before the rollout. The tensor has changed the field already."
    return KernelError(refusal(words, [("field", str(one)), ("at", touch.place)], remedy))
