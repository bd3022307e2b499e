"""Specialization: the properties of a call that select its kernels: dtypes, ranks, batches, Python values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .._lazy import lazy
from ..compiling import ArrayType, Stage, Variant, element_of
from ._signature import Signature


@dataclass(frozen=True, eq=False)
class Specialization:
    """A kind of call.

    Attributes:
        shapes, dtypes: of all arrays by name, without batch; of the shapes only ranks and element dims count.
        batched: arrays that have a batch dimension.
        fingerprints: those of the Python values that the kernels bake in, one for each stage, then one for a gradient
            kernel that the user wrote.
        templates: values of template arguments.
        is_apart: whether samples of a batch are run one by one in any case.
        numbers: values of integer arguments that tell launches of one kernel apart.
    """

    signature: Signature
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    batched: frozenset[str]
    fingerprints: tuple[tuple[Any, ...], ...]
    templates: Mapping[str, Any]
    is_apart: bool = False
    numbers: Mapping[str, int] = field(default_factory=dict)

    @lazy
    def variants(self) -> tuple[Variant, ...]:
        """What each kernel is lowered for; a batch that a kernel cannot be written for is run sample by sample."""
        if not self.batched:
            return self._variants(frozenset())
        variants = self._variants(self.batched)
        pairs = zip(self.signature.stages, variants, strict=True)
        is_looped = self.is_apart or any(stage.batch_refusal(variant, self.templates) for stage, variant in pairs)
        return self._variants(frozenset()) if is_looped else variants

    @property
    def is_looped(self) -> bool:
        """Whether samples of a batch are run one by one."""
        return bool(self.batched) and not any(array.is_batched for one in self.variants for _, array in one.arrays)

    def _variants(self, batched: frozenset[str]) -> tuple[Variant, ...]:
        arrays = {
            stage: tuple((name, self._type(stage, name, batched)) for name in stage.arrays)
            for stage in self.signature.firsts
        }
        pairs = zip(self.signature.stages, self.fingerprints, strict=False)
        return tuple([Variant(arrays[stage.first], fingerprint=fingerprint) for stage, fingerprint in pairs])

    def _type(self, stage: Stage, name: str, batched: frozenset[str]) -> ArrayType:
        element = element_of(stage, name, self.shapes[name])
        rank = len(self.shapes[name]) - len(element)
        return ArrayType(self.dtypes[name], rank, element, is_batched=name in batched)
