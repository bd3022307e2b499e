"""Captured values: what a call depends on besides its arguments, compared between its forward and its backward pass.

Kernels bake in Python values (a global, `self.scale`) and read fields. They belong to the user, who may change them
between the two passes, or before a second derivative. So a call that may have a gradient captures them, and whatever
later runs a kernel for its derivatives compares them, in every mode. Eager calls keep the values themselves. A traced
graph can only pass tensors from one pass to the other, so there a tensor of numbers stands for the values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from .. import frontend
from .._cache import BoundedDict, Cache, digest_of
from ..compiling import Stage, build_changed_error, build_changed_value_error
from ..tracing import is_in_backward
from ._signature import Signature
from .fields import Contents, FieldContents, Fingerprints

LENGTH = 16
"""The length of a state: one number for the Python values, the others for fields. A graph is traced before the number
of fields is known, so if there are more fields than numbers, some share one."""
MOST_NOTED = 65536
"""The number of sets of Python values that an op remembers from its calls, at 100 bytes each."""


class CapturedValues(NamedTuple):
    """The Python values and the contents of fields that one call depends on."""

    captures: Captures
    templates: Mapping[str, Any]
    fingerprints: Fingerprints
    contents: tuple[Contents, ...]

    def check(self) -> None:
        """Raise GradientError if a Python value or a field has changed since it was captured."""
        self.captures.check_python_values(self.templates, self.fingerprints)
        self.check_fields()

    def check_fields(self) -> None:
        """Raise GradientError if the contents of a field have changed since they were captured."""
        for one in self.contents:
            one.check()

    def as_state(self) -> torch.Tensor:
        """Return the tensor of numbers that stands for these values in a graph."""
        numbers = [0] * LENGTH
        numbers[0] = self.captures.number(self.fingerprints)
        for count, (_, number) in enumerate([one for contents in self.contents for one in contents.digests()]):
            numbers[_find_place(count)] ^= number
        return torch.tensor(numbers, dtype=torch.int64, device="cpu")

    def explain_mark(self, mark: torch.Tensor) -> Exception:
        """Build the error for a forward pass that was run again with other Python values, whose number is `mark`."""
        return self.captures.explain_rerun(self.fingerprints, int(mark))

    def check_state(self, before: torch.Tensor) -> None:
        """Raise GradientError if these values, the current ones, are not those that the state `before` stands for.

        `before` may also be only the first number of a state: the mark that an eager call saved (`Program.mark`).
        """
        now, then = self.as_state().tolist(), before.reshape(-1).tolist()
        now = now[: len(then)]
        if now == then:
            return
        if now[0] != then[0]:
            raise self.captures.explain_number(then[0], self.fingerprints)
        names = [(contents, name) for contents in self.contents for name, _ in contents.digests()]
        for count, (contents, name) in enumerate(names):
            if now[_find_place(count)] != then[_find_place(count)]:
                raise contents.explain_number(name, then[_find_place(count)])


def _find_place(count: int) -> int:
    """Return the index of a field's number in a state."""
    return 1 + count % (LENGTH - 1)


class Captures:
    """Captures and compares what the calls of an op depend on besides their arguments.

    Args:
        signature: the op's signature.
        gradient: a gradient kernel that the user wrote, or None.
    """

    def __init__(self, signature: Signature, gradient: Stage | None) -> None:
        self._signature = signature
        gradients = () if gradient is None else (gradient,)
        self.stages = (*signature.stages, *gradients)
        self.firsts = (*signature.firsts, *gradients)
        self._fields = FieldContents(signature.op, self.stages, self.firsts)
        self.find_looks = self._fields.find_looks
        # The Python values of earlier calls, by their numbers. Not a cache: values that are missing here are refused.
        self._noted: BoundedDict[int, None] = BoundedDict(MOST_NOTED)
        self._last_noted: Fingerprints | None = None
        self._numbers: Cache[Fingerprints, int] = Cache("numbers of Python values")
        self._known: Cache[int, Fingerprints] = Cache("Python values by number")

    @property
    def has_state(self) -> bool:
        """Whether kernels use fields or Python values besides a call's arguments, which may change between calls."""
        return any(stage.baked_values.has_state for stage in self.firsts)

    @property
    def varies(self) -> bool:
        """Whether a call depends on Python values outside its arguments."""
        return any(stage.baked_values.varies for stage in self.firsts)

    @property
    def environment(self) -> tuple[Any, ...]:
        """The objects that hold the Python values that these kernels use, such as instances; () if they use none."""
        return tuple(itertools.chain.from_iterable(stage.baked_values.environment for stage in self.firsts))

    def describe(self) -> str:
        """Return a digest of the current Python values, which another process can compare with its own."""
        return digest_of(*(stage.baked_values.describe_values() for stage in self.firsts))

    def fingerprints(self, templates: Mapping[str, Any]) -> Fingerprints:
        """Return fingerprints of every Python value that the kernels bake in now, one for each stage."""
        by_stage = {stage: stage.baked_values.fingerprint(templates) for stage in self.firsts}
        return tuple([by_stage[stage.first] for stage in self.stages])

    def is_needed(self, templates: Mapping[str, Any]) -> bool:
        """Return True if calls with these templates depend on Python values or fields that may change."""
        return any(stage.baked_values.has_state_with(templates) for stage in self.firsts)

    def take(self, templates: Mapping[str, Any]) -> CapturedValues:
        """Capture the current Python values and contents of fields."""
        fingerprints = self.fingerprints(templates)
        contents = tuple([look.contents() for look in self.find_looks(fingerprints)])
        return CapturedValues(self, templates, fingerprints, contents)

    def check_python_values(self, templates: Mapping[str, Any], before: Fingerprints) -> None:
        """Raise GradientError if a Python value differs from the fingerprints `before`."""
        now = self.fingerprints(templates)
        if now != before:
            raise self._explain(before, now)

    def note_program(self, fingerprints: Fingerprints) -> None:
        """Note that a call with these Python values has got a program."""
        self._noted.keep(self.number(fingerprints), None)
        self._last_noted = fingerprints

    def refuse_rerun(self, fingerprints: Fingerprints) -> None:
        """Raise GradientError for a forward pass inside a backward pass, with Python values that no call had so far.

        `torch.utils.checkpoint` runs forward passes again there. If it does not keep the tensors of the first run
        (`use_reentrant=True`, or inside a compiled function), nothing else shows that the values have changed.
        """
        is_first = self._last_noted is None
        if not is_first and is_in_backward() and self.number(fingerprints) not in self._noted:
            raise self._explain(self._last_noted, fingerprints)

    def number(self, fingerprints: Fingerprints) -> int:
        """Return the number that stands for fingerprints."""
        number = self._numbers.get(fingerprints)
        if number is None:
            number = self._numbers.keep(fingerprints, frontend.number_of(fingerprints))
            self._known.keep(number, fingerprints)
        return number

    def explain_number(self, before: int, now: Fingerprints) -> Exception:
        """Build the error that names a Python value that has changed since the forward pass.

        Args:
            before: the number that `number` gave to the fingerprints of the earlier values.
            now: the fingerprints of the present values.
        """
        return self._explain(self._known.get(before), now)

    def explain_rerun(self, before: Fingerprints, again: int) -> Exception:
        """Build the error for a forward pass that was run again with other Python values, whose number is `again`."""
        now = self._known.get(again)
        if now is not None:
            return self._explain(before, now)
        known = frontend.find_changed_value(None, next(one for one in before if one))
        lost = frontend.Change(known.name, known.now, "no longer known")
        return build_changed_error(
            f"op `{self._signature.op}`", "Python value", lost, "make it an argument of the kernel"
        )

    def _explain(self, before: Fingerprints | None, now: Fingerprints) -> Exception:
        olds: Sequence[tuple[Any, ...] | None] = before or [None] * len(now)
        pairs = zip(olds, now, strict=True)
        old, new = next((old, new) for old, new in pairs if old != new)
        return build_changed_value_error(f"op `{self._signature.op}`", old, new)
