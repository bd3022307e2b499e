"""Field contents: a backward pass reads an op's fields again and needs their contents of the forward pass.

Fields belong to the user, and no engine counts their changes. So their contents are copied when a call that may have a
gradient starts, and compared when its backward pass starts. The copies are bytes: an active transform of torch
does not see them, and bytes are compared fastest.

The fields and their layouts are determined once for each set of Python values that the kernels bake in: asking an
engine takes longer than copying.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .._config import config
from .._errors import GradientError, refusal
from ..engines import COMPILING, Engine, FieldFacts
from ._baked_values import field_is_gone
from ._signature import Signature
from ._transfer import Copy, Transfer

Fingerprints = tuple[tuple[Any, ...], ...]
"""For each stage of an op a fingerprint of the Python values that it bakes in."""
_WORD = 8
"""Bytes. Each field's copy begins at a multiple of it, where numbers of every type may lie."""


class _Field(NamedTuple):
    """A field of numbers that a kernel reads."""

    name: str
    field: Any
    facts: FieldFacts


class Contents(NamedTuple):
    """What the fields of a look held. Those that are equal share their `values`."""

    look: Look
    values: tuple[bytes, ...]

    def check(self) -> None:
        """Raise GradientError where a field holds something else by now."""
        name = self.look.find_changed_since(self.values)
        if name:
            raise field_changed_between(self.look.op, name)


def field_changed_between(op: str, name: str) -> GradientError:
    """The error for a backward pass whose forward pass read other values in a field."""
    words = f"the field `{name}` that op `{op}` reads changed between its forward and its backward pass"
    remedy = f"Change it after the backward pass, or make `{name}` an array parameter of the kernel."
    return GradientError(refusal(words, remedy=remedy))


class Look:
    """Copies the fields of one engine: dense ones on the CPU by one launch, others by the engine's own means.

    An engine's `to_numpy` takes milliseconds where its threads are asleep.
    """

    def __init__(self, op: str, engine: Engine, fields: Sequence[_Field]) -> None:
        self.op = op
        self._engine, self._runtime = engine, engine.runtime()
        is_near = engine.device_type() == "cpu"
        self._ours = [one for one in fields if is_near and one.facts.is_dense]
        self._others = [one for one in fields if not (is_near and one.facts.is_dense)]
        sizes = [_WORD * -(-facts.count * facts.dtype.itemsize // _WORD) for _, _, facts in self._ours]
        self._ends = tuple(itertools.accumulate(sizes, initial=0))
        self._memory = ctypes.c_char * self._ends[-1]
        self._count = sum(facts.count for _, _, facts in self._ours)
        self._transfer = Transfer(engine, [Copy("store", field, facts) for _, field, facts in self._ours])
        self._last: tuple[bytes, ...] = ()

    def contents(self) -> Contents:
        """What they hold."""
        values, last = self._values(), self._last
        if values == last:
            return Contents(self, last)
        self._last = values
        return Contents(self, values)

    def _values(self) -> tuple[bytes, ...]:
        """The bytes of all fields that our launch copies, and those of each other."""
        if self._engine.runtime() is not self._runtime:
            raise field_is_gone(self.op, (self._ours + self._others)[0].name, self._engine)
        # Zeros, since gaps between fields are compared too and nothing is ever written there.
        memory = self._memory()
        if self._ours:
            first = ctypes.addressof(memory)
            starts = [first + start for start in self._ends[:-1]]
            self._transfer.run_at(starts, is_serial=config().is_serial(self._count))
        return memory.raw, *[np.ascontiguousarray(one.field.to_numpy()).tobytes() for one in self._others]

    def digests(self) -> list[tuple[str, int]]:
        """A number for what each field holds: of two different contents two different ones, but for one in 2^64."""
        ours, *others = self.contents().values
        parts = [ours[start:end] for start, end in itertools.pairwise(self._ends)]
        return [(one.name, hash(held)) for one, held in zip(self._ours + self._others, [*parts, *others], strict=True)]

    def find_changed_since(self, before: tuple[bytes, ...]) -> str:
        """The name of the first field that holds something else than it did; "" if none does."""
        now = self.contents().values
        if now is before:
            return ""
        for one, (start, end) in zip(self._ours, itertools.pairwise(self._ends), strict=True):
            if now[0][start:end] != before[0][start:end]:
                return one.name
        pairs = zip(self._others, now[1:], before[1:], strict=True)
        return next((one.name for one, after, then in pairs if after != then), "")


class FieldContents:
    """Knows the fields that an op's kernels read."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._looks: dict[tuple[Any, ...], tuple[Look, ...]] = {}

    def looks(self, fingerprints: Fingerprints) -> tuple[Look, ...]:
        """How to look at the fields that kernels with these Python values read: one for each engine that has some."""
        if not any([stage.baked_values.uses_fields for stage in self._signature.firsts]):  # noqa: C419  # faster
            return ()
        key = (fingerprints, *[stage.home.runtime() for stage in self._signature.firsts])
        looks = self._looks.get(key)
        if looks is None:
            with COMPILING:
                looks = self._looks[key] = self._make_looks(fingerprints)
        return looks

    def _make_looks(self, fingerprints: Fingerprints) -> tuple[Look, ...]:
        fields: dict[Engine, dict[int, _Field]] = {}
        for stage, fingerprint in {
            s.first: p for s, p in zip(self._signature.stages, fingerprints, strict=True)
        }.items():
            stage.baked_values.check_fields(self._signature.op)
            mine = fields.setdefault(stage.home, {})
            for use in (use for use in stage.baked_values.field_uses(fingerprint) if use.is_read):
                for name, field in stage.home.leaf_fields(use.field, use.name):
                    facts = stage.home.field_facts(field, name)
                    mine.setdefault(facts.key, _Field(name, field, facts))
        return tuple(Look(self._signature.op, home, tuple(mine.values())) for home, mine in fields.items() if mine)
