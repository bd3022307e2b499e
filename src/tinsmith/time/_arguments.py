"""Options and arguments of a scan: their checks, and the schedule that they select."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from .._errors import ArgumentError, ShapeError, refusal
from .._integers import read_integer, read_positive
from ._job import Like
from ._schedule import Schedule
from ._steps import Given

DEFAULT_MEMORY = "1GB"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


@dataclass(frozen=True)
class Options:
    """The options of a scan, with the meaning and defaults of `scan`. Raises ArgumentError for invalid values."""

    keep: str | int = "last"
    checkpoint: str | int = "auto"
    memory: str | int | None = None
    unroll: int = 1
    offload: bool = False
    check_finite: bool = False

    def __post_init__(self) -> None:
        read_positive("unroll", "a scan", self.unroll)
        if self.checkpoint != "auto" and self.memory is not None:
            words = '`memory` of a scan works only with checkpoint="auto"'
            raise ArgumentError(refusal(words, [("checkpoint", repr(self.checkpoint))], "Leave out one of them."))
        if self.memory is not None:
            read_memory(self.memory)
        if not isinstance(self.checkpoint, str):
            read_positive("checkpoint", "a scan", self.checkpoint)
        elif self.checkpoint not in ("auto", "all"):
            words = f"`checkpoint` of a scan cannot be {self.checkpoint!r}"
            raise ArgumentError(refusal(words, [("expected", '"auto", "all", or a number of steps')], "Leave it out."))

    @property
    def budget(self) -> int:
        """The number of bytes available for kept states."""
        return read_memory(DEFAULT_MEMORY if self.memory is None else self.memory)

    def schedule(self, length: int, size: int) -> Schedule:
        """Return the schedule of a scan with `length` steps, for states of `size` bytes.

        Raises:
            ArgumentError: the memory does not suffice for one state.
        """
        stretches = -(-length // self.unroll)
        if self.checkpoint == "all":
            return Schedule(stretches, every=1)
        if not isinstance(self.checkpoint, str):
            return Schedule(stretches, every=-(-self.checkpoint // self.unroll))
        slots = self.budget // max(size, 1)
        if slots >= stretches - 1:
            return Schedule(stretches, every=1)
        if not slots:
            words = "`memory` of a scan is less than one state needs"
            rows = [("memory", format_bytes(self.budget)), ("state", format_bytes(size))]
            remedy = "Pass more: with memory for ten states, each of 1000 steps is run 3.7 times at most."
            raise ArgumentError(refusal(words, rows, remedy))
        return Schedule(stretches, slots=slots)


def check_tensors(state: Given, inputs: Given) -> None:
    """Raise ArgumentError unless the state and the inputs of a scan are tensors, and there is a state."""
    for what, given in (("state", state), ("inputs", inputs)):
        for name, leaf in zip(given.tree.names(what), given.leaves, strict=True):
            if not isinstance(leaf, Tensor):
                words = f"`{name}` of a scan must be a tensor"
                remedy = "Pass `torch.as_tensor(...)`; pass numbers that do not change in `parameters`."
                if what == "inputs" and isinstance(leaf, int):
                    remedy = f"Pass `length={leaf}` if that is the number of steps."
                elif callable(leaf):
                    remedy = "Pass the step first: `ts.scan(step, state, ...)`."
                raise ArgumentError(refusal(words, [("got", f"{type(leaf).__name__} {leaf!r:.60}")], remedy))
    if not state.leaves:
        raise ArgumentError(
            refusal("the state of a scan is empty", remedy="Pass a tensor, or a tuple or dict of them.")
        )


def find_length(length: int | None, inputs: Given) -> int:
    """Return the number of steps of a scan, from `length` or from the first dim of the inputs.

    Raises:
        ArgumentError, ShapeError: there is neither, `length` is invalid, or the lengths differ.
    """
    names = inputs.tree.names("inputs")
    for name, leaf in zip(names, inputs.leaves, strict=True):
        if leaf.dim() == 0:
            words = f"`{name}` of a scan has no time dim"
            remedy = "Pass inputs with one row for each step, and what does not change in `parameters`."
            raise ShapeError(refusal(words, [(name, "()")], remedy))
    lengths = [leaf.shape[0] for leaf in inputs.leaves]
    if length is None and not lengths:
        raise ArgumentError(
            refusal("a scan without inputs needs `length`", remedy="Pass `length=`, the number of steps.")
        )
    wanted = lengths[0] if length is None else read_integer(length)
    if wanted is None or wanted < 0:
        words = "`length` of a scan must be a number of steps"
        raise ArgumentError(refusal(words, [("got", f"{type(length).__name__} {length!r}")], "Pass an integer."))
    if any(one != wanted for one in lengths):
        rows = [] if length is None else [("length", str(length))]
        rows += [
            (name, f"{tuple(leaf.shape)}: {leaf.shape[0]} steps")
            for name, leaf in zip(names, inputs.leaves, strict=True)
        ]
        remedy = "Make time the first dim of inputs, `.transpose(0, 1)`, or cut them with `[:length]`."
        raise ShapeError(refusal("`length` and the inputs of a scan do not agree", rows, remedy))
    return wanted


def read_keep(keep: str | int, length: int) -> int | None:
    """Convert the option `keep`: return n if the state after every n-th step is returned, None for the last one only.

    Raises:
        ArgumentError: it is invalid, or larger than the number of steps.
    """
    if keep == "last":
        return None
    if keep == "all":
        return 1
    if isinstance(keep, str):
        words = f"`keep` of a scan cannot be {keep!r}"
        raise ArgumentError(refusal(words, [("expected", '"last", "all", or a number of steps')], 'Pass keep="last".'))
    every = read_positive("keep", "a scan", keep)
    if every > length:
        words = "`keep` of a scan is larger than its number of steps, so no state would be returned"
        raise ArgumentError(refusal(words, [("keep", str(keep)), ("length", str(length))], 'Pass keep="last".'))
    return every


def read_memory(memory: str | int) -> int:
    """Convert an amount of memory, such as "2GB", "100MiB" or bytes, to bytes. Raise ArgumentError if it is invalid."""
    number = read_integer(memory)
    if number is not None and number > 0:
        return number
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-zA-Z]*)\s*", memory) if isinstance(memory, str) else None
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None:
        words = "`memory` of a scan is not an amount of memory"
        raise ArgumentError(refusal(words, [("got", repr(memory))], 'Pass "500MB", "2GB", "100MiB", or bytes.'))
    return int(float(match[1]) * unit)


def count_bytes(state: Sequence[Like]) -> int:
    """Return the number of bytes of a state."""
    return sum(one.shape.numel() * one.dtype.itemsize for one in state)


def format_bytes(size: int) -> str:
    """Format a number of bytes: as it is below 10,000, in megabytes otherwise."""
    return f"{size / 1e6:.2f} MB" if size >= 10_000 else f"{size:,} bytes"
