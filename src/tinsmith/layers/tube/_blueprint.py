"""Blueprint: all parts of a Tube together, and the rules between them.

The programs that run a Tube, on tensors or on fields, get only this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from ..._errors import RegistrationError, ShapeError, nearest, refusal
from ...operation import Adjoint, Races
from ._dims import DimID, MatchDim
from ._parts import KernelPart, TensorPart, check_extra


@dataclass(frozen=True, eq=False)
class Blueprint:
    """What a finished Tube is. `device` is where its tensors must be, None for anywhere."""

    inputs: tuple[TensorPart, ...] = ()
    outputs: tuple[TensorPart, ...] = ()
    intermediates: tuple[TensorPart, ...] = ()
    kernels: tuple[KernelPart, ...] = ()
    device: torch.device | None = None
    enable_backward: bool = True
    persistent_field: bool = True
    adjoint: Adjoint = "auto"
    races: Races = "check"

    @cached_property
    def label(self) -> str:
        """The Tube's name in messages."""
        return f"Tube({', '.join(part.name for part in self.kernels)})"

    @cached_property
    def allocations(self) -> tuple[TensorPart, ...]:
        """What a call makes: outputs, then intermediate fields."""
        return self.outputs + self.intermediates

    @cached_property
    def tensors(self) -> dict[str, TensorPart]:
        """All tensors by name."""
        return {part.name: part for part in self.inputs + self.allocations}

    @cached_property
    def is_batched(self) -> bool:
        """Whether a call runs a batch."""
        return any(part.is_batched for part in self.inputs)

    @cached_property
    def used_tensors(self) -> frozenset[str]:
        """Names of the tensors that a kernel is given."""
        return frozenset(name for part in self.kernels for name in part.tensors)

    @cached_property
    def calculated_parts(self) -> tuple[TensorPart, ...]:
        """What has its dims computed again at each call."""
        return tuple(part for part in self.allocations if part.dims is None)

    # Adding parts -------------------------------------------------------------------------
    def with_tensor(self, part: TensorPart) -> Blueprint:
        """Return a blueprint with one more tensor. Raises RegistrationError if its name is taken."""
        before = self.tensors.get(part.name)
        if before is not None:
            rows = [("before", before.description), ("now", part.description)]
            words = f"the name `{part.name}` is registered twice in {self.label}"
            raise RegistrationError(refusal(words, rows, "Give each tensor and field a name of its own."))
        shelf = {"input tensor": "inputs", "output tensor": "outputs", "intermediate field": "intermediates"}[part.kind]
        shelves: dict[str, Any] = {shelf: (*getattr(self, shelf), part)}
        return replace(self, **shelves)

    def with_kernel(self, part: KernelPart) -> Blueprint:
        """Return a blueprint with one more kernel.

        Raises RegistrationError if its name is taken or its tensors are unknown.
        """
        if any(part.name == before.name for before in self.kernels):
            words = f"a kernel `{part.name}` is registered already in {self.label}"
            remedy = f'Register it under another name: `name="{part.name}_again"`.'
            raise RegistrationError(refusal(words, [("now", part.description)], remedy))
        for name in part.tensors:
            if name not in self.tensors:
                raise RegistrationError(self._unknown(part, name))
        return replace(self, kernels=(*self.kernels, part))

    def with_extra(self, kernel: Any, extra: tuple[Any, ...]) -> Blueprint:
        """Return a blueprint with other extra arguments for one kernel, given by name or as registered."""
        chosen = self._select_kernel(kernel).with_extra(extra)
        check_extra(chosen)
        return replace(self, kernels=tuple(chosen if part.name == chosen.name else part for part in self.kernels))

    def differs_in_numbers(self, before: Blueprint) -> bool:
        """Return True if all extra arguments that differ are numbers, vectors or matrices.

        The compiled program is the same then.
        """
        pairs = zip(self.kernels, before.kernels, strict=True)
        changed = [parameter for now, old in pairs if now is not old for parameter in now.others]
        return all(parameter.kind in ("scalar", "matrix") for parameter in changed)

    def _select_kernel(self, kernel: Any) -> KernelPart:
        by_name = kernel if isinstance(kernel, str) else None
        matches = [part for part in self.kernels if part.name == by_name or (by_name is None and part.is_same(kernel))]
        if len(matches) == 1:
            return matches[0]
        actual = by_name if by_name is not None else getattr(kernel, "__name__", repr(kernel))
        if matches:
            words = f"kernel `{actual}` is registered {len(matches)} times in {self.label}"
            rows = [("registered as", ", ".join(part.name for part in matches))]
            raise RegistrationError(refusal(words, rows, "Pass one of these names instead of the kernel."))
        words = f"{self.label} has no kernel `{actual}`"
        rows = [("registered", ", ".join(part.name for part in self.kernels) or "none")]
        close = nearest(actual, [part.name for part in self.kernels]) if by_name else ""
        remedy = f"Did you mean `{close}`?" if close else "Register it first: `register_kernel(kernel, [...])`."
        raise RegistrationError(refusal(words, rows, remedy))

    def _unknown(self, part: KernelPart, name: str) -> str:
        rows = [("tensors", ", ".join(part.tensors)), ("registered", ", ".join(self.tensors) or "none")]
        close = nearest(name, list(self.tensors))
        remedy = (
            f"Did you mean `{close}`?" if close else "Register tensors and fields before the kernels that use them."
        )
        return refusal(f"kernel `{part.name}` names `{name}`, which is not registered", rows, remedy)

    def settle(self) -> None:
        """Compute every cached property now: its lock is something that `torch.compile` cannot look into."""
        for part in (self, *self.kernels):
            for name, member in vars(type(part)).items():
                if isinstance(member, cached_property):
                    getattr(part, name)

    # Rules between parts ------------------------------------------------------------------
    def check(self) -> None:
        """Raise RegistrationError where parts are missing, and ShapeError where dims do not go together."""
        for parts, what in ((self.inputs, "input tensor"), (self.outputs, "output tensor"), (self.kernels, "kernel")):
            if not parts:
                remedy = f"Call `register_{what.replace(' ', '_')}(...)` before `finish()`."
                raise RegistrationError(refusal(f"{self.label} has no {what}", remedy=remedy))
        known = list_match_ids(self.inputs)
        for part in self.allocations:
            self._check_matches(part, known)
            if part.dims is not None and part.is_batched != self.is_batched:
                raise ShapeError(self.batch_words(part, str(part.dims)))

    def _check_matches(self, part: TensorPart, known: Sequence[DimID]) -> None:
        for dim in part.dims or ():
            if isinstance(dim, MatchDim) and dim.dim_id not in known:
                words = f"no input of {self.label} has the {dim} of {part.kind} `{part.name}`"
                rows = [("inputs have", ", ".join(str(MatchDim(one)) for one in known) or "no MatchDim")]
                raise ShapeError(refusal(words, rows, f"Write {dim} into the dims of an input, too."))

    def batch_words(self, part: TensorPart, dims: str) -> str:
        """Format the message for an output or field that has a BatchDim while no input has one, or the reverse."""
        rows = [(one.name, str(one.dims)) for one in self.inputs]
        rows.append((part.name, dims))
        if self.is_batched:
            words = f"inputs of {self.label} are batched, and {part.kind} `{part.name}` is not"
            return refusal(words, rows, "Begin its dims with BatchDim: each sample of a batch fills its own.")
        words = f"{part.kind} `{part.name}` of {self.label} is batched, and no input is"
        return refusal(words, rows, "Begin the dims of an input with BatchDim, or leave it out here.")


def list_match_ids(parts: Sequence[TensorPart]) -> list[DimID]:
    """Return the ids of all MatchDims of tensors, in order and without duplicates."""
    return list(dict.fromkeys(dim.dim_id for part in parts for dim in part.dims or () if isinstance(dim, MatchDim)))
