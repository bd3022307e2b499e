"""Field contents: a backward pass reads an op's fields again, and needs what they held in the forward pass.

Fields belong to the user, and no engine counts their changes. So their contents are copied when a call that may have a
gradient starts, and compared when its backward pass starts. The copies are bytes: an active transform of torch does not
see them, and bytes are compared fastest.

The fields and their layouts are determined once for each set of Python values that the kernels bake in, since asking an
engine takes longer than copying.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ... import frontend
from ..._cache import Cache
from ..._config import config
from ..._errors import GradientError
from ...compiling import Stage, build_changed_error, build_lost_field_error
from ...engines import COMPILING, Engine, FieldFacts, FieldKey
from .. import fields

Fingerprints = tuple[tuple[Any, ...], ...]
"""Fingerprints of the Python values that an op bakes in, one for each stage."""
_WORD = 8
"""Bytes. Each field's copy is aligned to a multiple of it, as numbers of every type may be."""
_SMALL = 256
"""Bytes. Contents of fields up to this size are remembered by their numbers, so that messages can show them."""


class _Field(NamedTuple):
    """A field of numbers that a kernel reads."""

    name: str
    field: Any
    facts: FieldFacts

    def find_change(self, before: bytes | None, now: bytes) -> frontend.Change:
        """Return the first element that differs, as it was and as it is. If `before` is None, show all elements."""
        facts = self.facts
        after = self._view_elements(now)
        if before is None:
            return frontend.Change(
                self.name, "", f"{' '.join(str(after.reshape(facts.shape + facts.element)).split()):.60}"
            )
        then = self._view_elements(before)
        size = facts.dtype.itemsize
        # Bytes: nan is equal to itself, and -0.0 differs from 0.0.
        place = next(place for place in range(len(then)) if before[place * size :][:size] != now[place * size :][:size])
        outer, inner = np.unravel_index(place, facts.shape + facts.element), len(facts.element)
        steps = [str(int(step)) for step in outer]
        index, entry = steps[: len(steps) - inner], steps[len(steps) - inner :]
        shown = f"at [{', '.join(index) or 'None'}]" + (f"[{', '.join(entry)}]" if entry else "")
        return frontend.Change(self.name, f"{then[place].item()} {shown}", f"{after[place].item()} {shown}")

    def _view_elements(self, content: bytes) -> torch.Tensor:
        return torch.frombuffer(bytearray(content), dtype=self.facts.dtype)[: self.facts.count]


class Contents(NamedTuple):
    """The contents of the fields of one `Look` at one time. Equal contents share their `values`."""

    look: Look
    values: tuple[bytes, ...]

    def check(self) -> None:
        """Raise GradientError if the contents of a field have changed."""
        now = self.look.contents().values
        if now is not self.values:
            for one, before, after in self.look.pairs(self.values, now):
                if before != after:
                    raise self.look.build_changed_error(one, before, after)

    def digests(self) -> list[tuple[str, int]]:
        """Return the name of each field with a 64-bit hash of what it held."""
        return [(one.name, self.look.number(held)) for one, held, _ in self.look.pairs(self.values, self.values)]

    def explain_number(self, name: str, before: int) -> GradientError:
        """Build the error for a field that has changed since its contents had the number `before`."""
        pairs = self.look.pairs(self.values, self.values)
        one, _, now = next(pair for pair in pairs if pair[0].name == name)
        return self.look.build_changed_error(one, self.look.find_content(before), now)


class Look:
    """Copies the contents of an engine's fields.

    Dense fields on the CPU are copied by one launch, others by the engine's `to_numpy`, which takes milliseconds if the
    engine's threads are asleep.
    """

    def __init__(self, op: str, engine: Engine, found: Sequence[_Field]) -> None:
        self.op = op
        self._engine, self._runtime = engine, engine.runtime()
        is_near = engine.device_type() == "cpu"
        self._ours = [one for one in found if is_near and one.facts.is_dense]
        self._others = [one for one in found if not (is_near and one.facts.is_dense)]
        sizes = [_WORD * -(-facts.count * facts.dtype.itemsize // _WORD) for _, _, facts in self._ours]
        self._ends = tuple(itertools.accumulate(sizes, initial=0))
        self._memory = ctypes.c_char * self._ends[-1]
        self._count = sum(facts.count for _, _, facts in self._ours)
        self._transfer = fields.Transfer(engine, [fields.Copy("store", field, facts) for _, field, facts in self._ours])
        self._last: tuple[bytes, ...] = ()
        self._small: Cache[int, bytes] = Cache("contents of small fields")

    def contents(self) -> Contents:
        """Copy the current contents of all fields."""
        values, last = self._read_values(), self._last
        if values == last:
            return Contents(self, last)
        self._last = values
        return Contents(self, values)

    def _read_values(self) -> tuple[bytes, ...]:
        """Return the bytes of all fields that our launch copies, in one piece, then those of each other field."""
        if self._engine.runtime() is not self._runtime:
            raise build_lost_field_error(self.op, (self._ours + self._others)[0].name, self._engine)
        # The memory starts at zero: gaps between fields are compared too, and nothing is ever written there.
        memory = self._memory()
        if self._ours:
            first = ctypes.addressof(memory)
            starts = [first + start for start in self._ends[:-1]]
            self._transfer.run_at(starts, is_serial=config().is_serial(self._count))
        return memory.raw, *[np.ascontiguousarray(one.field.to_numpy()).tobytes() for one in self._others]

    def pairs(self, before: tuple[bytes, ...], now: tuple[bytes, ...]) -> Iterator[tuple[_Field, bytes, bytes]]:
        """Yield each field with its bytes in two copies of the fields' contents, `before` and `now`."""
        for one, (start, end) in zip(self._ours, itertools.pairwise(self._ends), strict=True):
            yield one, before[0][start:end], now[0][start:end]
        yield from zip(self._others, before[1:], now[1:], strict=True)

    def number(self, content: bytes) -> int:
        """Return a number for the content of a field. A small content is remembered by it, for messages."""
        number = hash(content)
        if len(content) <= _SMALL:
            self._small.keep(number, content)
        return number

    def find_content(self, number: int) -> bytes | None:
        """Return the content with this number; None if it is not remembered."""
        return self._small.get(number)

    def build_changed_error(self, one: _Field, before: bytes | None, now: bytes) -> GradientError:
        """Build the error for a field that held `before` in the forward pass, and holds `now`."""
        remedy = f"make `{one.name}` an array parameter of the kernel"
        return build_changed_error(f"op `{self.op}`", "field", one.find_change(before, now), remedy)


class FieldContents:
    """Finds the fields that the kernels of an op read. `firsts` are its stages without those that launch one again."""

    def __init__(self, op: str, stages: Sequence[Stage], firsts: Sequence[Stage]) -> None:
        self._op, self._stages, self._firsts = op, stages, firsts
        self._looks: Cache[tuple[Any, ...], tuple[Look, ...]] = Cache("fields of Python values")

    def find_looks(self, fingerprints: Fingerprints) -> tuple[Look, ...]:
        """Return a `Look` for each engine, which copies its fields that kernels with these Python values read."""
        if not any([stage.baked_values.uses_fields for stage in self._firsts]):  # noqa: C419  # faster
            return ()
        key = (fingerprints, *[stage.home.runtime() for stage in self._firsts])
        looks = self._looks.get(key)
        if looks is None:
            with COMPILING:
                looks = self._looks.keep(key, self._make_looks(fingerprints))
        return looks

    def _make_looks(self, fingerprints: Fingerprints) -> tuple[Look, ...]:
        fields: dict[Engine, dict[FieldKey, _Field]] = {}
        for stage, fingerprint in {s.first: p for s, p in zip(self._stages, fingerprints, strict=True)}.items():
            stage.baked_values.check_fields(self._op)
            mine = fields.setdefault(stage.home, {})
            for use in (use for use in stage.baked_values.field_uses(fingerprint) if use.is_read):
                for name, field in stage.home.leaf_fields(use.field, use.name):
                    facts = stage.home.field_facts(field, name)
                    mine.setdefault(facts.key, _Field(name, field, facts))
        return tuple(Look(self._op, home, tuple(mine.values())) for home, mine in fields.items() if mine)
