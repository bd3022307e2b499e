"""Arrays of exact runs: a list of scalars, one for each entry of each element, in the order of memory.

A tensor is split into scalars once and joined once; in between, torch's autograd sees only scalars. The resulting
tensor is a differentiable function of the original one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from ..._errors import KernelError, refusal
from ._exact_numbers import ExactArithmetic, Tracked
from ._numbers import FLOATS, Rule
from ._observers import How, Number, Recorder, Watch


class ExactArray(Protocol):
    """The properties of an array of a kernel."""

    @property
    def name(self) -> str:
        """Return the array's name in the kernel."""
        ...

    @property
    def type(self) -> str:
        """Return the scalar type of the array's numbers, such as "f32"."""
        ...

    @property
    def rank(self) -> int:
        """Return the number of indices that select an element."""
        ...

    @property
    def element(self) -> tuple[int, ...]:
        """Return the dims of an element; () if elements are numbers."""
        ...

    @property
    def label(self) -> str:
        """Return the array's name in messages; "" if it is the same as in the kernel."""
        ...

    @property
    def offset(self) -> tuple[int, ...]:
        """Return the smallest valid index along each axis, a field's offset; () if all are 0."""
        ...


class ExactRun(Protocol):
    """The members of `ExactInterpreter` that arrays use."""

    casts: Mapping[str, Rule]
    exact: ExactArithmetic
    record: Recorder | None
    watch: Watch | None

    def combine(self, operator: str, old: Any, value: Any) -> Any:
        """Return the result of an atomic operation on an old number and a value."""
        ...


@dataclass
class _Ties:
    """Equal candidates for the maximum or minimum of one element, and the number that represents them."""

    operator: str
    candidates: list[torch.Tensor]
    stands: torch.Tensor


class ExactView:
    """One array while a kernel runs.

    Args:
        array: its properties.
        tensor: its content; the last dims are those of the elements.
        run: the interpreter.
    """

    def __init__(self, array: ExactArray, tensor: torch.Tensor, run: ExactRun) -> None:
        self.array, self._tensor, self._run = array, tensor, run
        self._sizes = tuple(tensor.shape[: array.rank])
        self._first = array.offset or (0,) * array.rank
        self._count = math.prod(array.element)
        self._cast = run.casts[array.type]
        self.shape = tuple(np.int32(size) for size in self._sizes)
        self._tied: dict[int, _Ties] = {}
        flat = tensor.reshape(-1)
        if array.type in FLOATS:
            track = run.exact.track
            self._cells: list[Any] = [track(array.type, one) for one in flat.to(run.exact.dtype(array.type)).unbind()]
        else:
            self._cells = [self._cast(one) for one in flat.detach().tolist()]

    def read_back(self) -> torch.Tensor:
        """Return the array as a tensor of its original shape."""
        if not self._cells:
            return self._tensor
        if self.array.type in FLOATS:
            return torch.stack([one.tensor for one in self._cells]).reshape(self._tensor.shape)
        numbers = [one.item() for one in self._cells]
        return torch.tensor(numbers, dtype=self._tensor.dtype).reshape(self._tensor.shape)

    def forget_ties(self) -> None:
        """Forget which values are tied for the maximum or minimum of an element: ties end with a parallel loop."""
        self._tied.clear()

    # Access --------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        at = self._locate(index, is_read=True)
        return self.load(at) if not self.array.element else ExactElement(self, at)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.store(self._locate(index, is_read=False), value)

    def element_at(self, index: Any) -> ExactElement:
        """Return the element at an index as an object whose entries can be stored to."""
        return ExactElement(self, self._locate(index, is_read=False))

    def change(self, operator: str, index: Any, value: Any) -> Any:
        """Apply an atomic operation to an element, and return its old value."""
        return self.change_at(operator, self._locate(index, is_read=False), value)

    def load(self, at: int | None) -> Any:
        """Return the number at a flat position; 0 if the position is None, for an index out of range."""
        if at is None:
            return self._cast(0)
        self._note("read", at)
        return self._cells[at]

    def store(self, at: int | None, value: Any) -> None:
        """Replace the number at a flat position; do nothing if it is None, for an index out of range."""
        value = self._cast(value)
        if at is not None:
            self._note("write", at, value=value)
            self._cells[at] = value

    def change_at(self, operator: str, at: int | None, value: Any) -> Any:
        """Apply an atomic operation at a flat position and return the old number; 0 if it is None (out of range)."""
        value = self._cast(value)
        if at is None:
            return self._cast(0)
        self._note("atomic", at, operator, value)
        old = self._cells[at]
        is_extreme = operator in ("min", "max") and isinstance(old, Tracked)
        rule = self._choose if is_extreme else self._combine
        self._cells[at] = rule(operator, at, value)
        return old

    def _combine(self, operator: str, at: int, value: Any) -> Any:
        return self._cast(self._run.combine(operator, self._cells[at], value))

    def _choose(self, operator: str, at: int, value: Tracked) -> Tracked:
        """Return the larger ("max") or smaller ("min") of an element and a value.

        The derivative is divided equally among all equal candidates, as by `torch.amax` over all of them; comparing
        pairs would give half of it to the last one, regardless of how many came before.
        """
        old = self._cells[at]
        before, now = float(old), float(value)
        if math.isnan(before) or math.isnan(now):
            return type(old)(torch.maximum(old.tensor, value.tensor))
        if before != now:
            return value if (now > before) == (operator == "max") else old
        tied = self._tied.get(at)
        if tied is None or tied.stands is not old.tensor or tied.operator != operator:
            tied = self._tied[at] = _Ties(operator, [old.tensor], old.tensor)
        tied.candidates.append(value.tensor)
        tied.stands = torch.stack(tied.candidates).amax(0)
        return type(old)(tied.stands)

    def _note(self, how: How, at: int, operator: str = "", value: Any = None) -> None:
        record = self._run.record
        if record is not None:
            record.add(how, self.array.name, at, self._run.exact.line, operator, to_observer(value))

    def _locate(self, index: Any, *, is_read: bool) -> int | None:
        """Return the flat position of an element's first entry.

        If the index is out of range, notify the watch and return None, or raise KernelError if there is no watch.
        """
        parts = index if isinstance(index, tuple) else () if index is None else (index,)
        flat = 0
        for part, size, start in zip(parts, self._sizes, self._first, strict=True):
            place = int(part) - start
            if not 0 <= place < size:
                self._refuse(tuple([int(one) for one in parts]), is_read=is_read)
                return None
            flat = flat * size + place
        return flat * self._count

    def _refuse(self, index: tuple[int, ...], *, is_read: bool) -> None:
        watch, line = self._run.watch, self._run.exact.line
        if watch is not None:
            watch.on_index_out_of_range(self.array.name, index, line, is_read=is_read)
            return
        words = f"Line {line} uses an index of `{self.array.label or self.array.name}` that is out of range"
        remedy = "Guard the index: an engine would read or overwrite other memory."
        raise KernelError(refusal(words, [("index", str(index)), ("shape", str(self._sizes))], remedy))


class ExactElement:
    """A vector or matrix in an array, whose entries are read and stored individually."""

    def __init__(self, view: ExactView, at: int | None) -> None:
        self._view, self._at = view, at

    def __getitem__(self, entry: Any) -> Any:
        return self._view.load(self._place(entry))

    def __setitem__(self, entry: Any, value: Any) -> None:
        self._view.store(self._place(entry), value)

    def change(self, operator: str, entry: Any, value: Any) -> Any:
        """Apply an atomic operation to an entry, and return its old value."""
        return self._view.change_at(operator, self._place(entry), value)

    def _place(self, entry: Any) -> int | None:
        if self._at is None:
            return None
        flat = 0
        for index, size in zip(entry if isinstance(entry, tuple) else (entry,), self._view.array.element, strict=True):
            flat = flat * size + int(index)
        return self._at + flat


def to_observer(value: Any) -> Number | None:
    """Convert a number to the form that observers get: a tensor for a float, else a Python integer."""
    if isinstance(value, Tracked):
        return value.tensor
    return None if value is None else int(value)
