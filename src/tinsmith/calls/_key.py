"""CallKey: what selects the program of a call.

Calls with equal keys differ only in their sizes and in the values of tensors and scalars. A key is made from an op's
signature and a call (`_core.Core.key`), and completed for one device by `_program.find_program`, which keeps one
program for each key. Without a device it selects the kernels and the source of their gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from .._errors import ShapeError, refusal
from .._lazy import lazy
from ..compiling import ArrayType, Stage, Variant
from ..engines import MOST_DIMS
from ..spec import Sizing
from ._conversion import AS_IT_IS, Conversion
from ._signature import Signature, element_of

_NO_DEVICE = torch.device("meta")


@dataclass(frozen=True, eq=False)
class CallKey:
    """What calls with one program have in common. Keys of one op are compared and hashed by `identity`.

    Attributes:
        signature: of the op, or of a core derived from it.
        shapes, dtypes: of all arrays by name, without batch; of the shapes only ranks and element dims count.
        batched: the arrays that have a batch dimension.
        fingerprints: of the Python values that the kernels bake in, one for each stage, then one for a gradient kernel
            that the user wrote.
        templates: the values of template arguments; `fingerprints` stand for them.
        is_apart: whether samples of a batch are run one by one even if the kernels could run them together.
        launch_numbers: the values of integer arguments that distinguish launches of one kernel.
        device: where the calls run; `engines` are the states of the engines that run them. Only a program's key has
            them.
        sizes: the sizing of all arrays, including memory of generated kernels. Only a program's key has it.
        active: the inputs that require a gradient.
        conversion: how a caller's tensors are converted before the kernels run, and their results afterwards.
        is_ordered: whether all tensors are contiguous and none is negated lazily.
    """

    signature: Signature
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, torch.dtype]
    batched: frozenset[str]
    fingerprints: tuple[tuple[Any, ...], ...]
    templates: Mapping[str, Any]
    is_apart: bool = False
    launch_numbers: Mapping[str, int] = field(default_factory=dict)
    device: torch.device = _NO_DEVICE
    engines: tuple[Any, ...] = ()
    sizes: Sizing | None = None
    active: frozenset[str] = frozenset()
    conversion: Conversion = AS_IT_IS
    is_ordered: bool = False

    @lazy
    def identity(self) -> tuple[Any, ...]:
        """Return everything that calls with this key have in common, as a hashable value."""
        return (
            # Symbols stand for sizes that may differ; numbers become constants in the program's code.
            tuple(self.sizing.shapes.values()),
            tuple(self.dtypes.values()),
            self.device,
            tuple(self.launch_numbers.values()),
            self.sizing.batch is None,
            self.batched,
            self.is_apart,
            self.fingerprints,
            self.engines,
            self.active,
            self.conversion,
            self.is_ordered,
        )

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallKey) and self.signature is other.signature and self.identity == other.identity

    def __str__(self) -> str:
        """Return the key as `explain` shows it."""
        shapes = self.sizing.shapes
        arrays = ", ".join(
            f"{name}[{', '.join(map(str, shapes[name]))}]: {str(self.dtypes[name]).removeprefix('torch.')}"
            for name in self.signature.arrays
        )
        words = [f"for {arrays or 'no arrays'} on {self.device}"]
        words += [f"gradients of {', '.join(sorted(self.active))}"] if self.active else []
        words += ["samples of a batch one by one"] if self.is_looped else []
        words += [f"{name} = {value}" for name, value in self.launch_numbers.items()]
        words += [] if self.conversion.is_identity else ["half precision or several batch dims converted"]
        words += [] if self.is_ordered else ["memory put in order"]
        return "; ".join(words)

    # The kernels ----------------------------------------------------------------------------------
    @lazy
    def variants(self) -> tuple[Variant, ...]:
        """Return the variant of each kernel; those for one sample if a kernel cannot be written for a batch."""
        if not self.batched:
            return self._variants(frozenset())
        variants = self._variants(self.batched)
        pairs = zip(self.signature.stages, variants, strict=True)
        is_looped = self.is_apart or any(
            stage.explain_batch_refusal(variant, self.templates) for stage, variant in pairs
        )
        return self._variants(frozenset()) if is_looped else variants

    @property
    def is_looped(self) -> bool:
        """Whether the samples of a batch run one by one."""
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
        dims, words = rank + (name in batched), f"array `{name}` of op `{self.signature.op}` has"
        if dims > MOST_DIMS:
            rows = [("dims", str(dims)), ("at most", f"{MOST_DIMS}, without those of vectors and matrices")]
            raise ShapeError(refusal(f"{words} too many dims", rows, "Merge some of them: `.flatten(0, 1)`."))
        if 0 in element:
            rows = [(name, str(tuple(self.shapes[name])), f"must end in sizes of 1 or more: the last {len(element)}")]
            raise ShapeError(refusal(f"{words} vectors or matrices without elements", rows))
        return ArrayType(self.dtypes[name], rank, element, is_batched=name in batched)

    # The arrays -----------------------------------------------------------------------------------
    @property
    def sizing(self) -> Sizing:
        """The sizing of all arrays. Only a program's key has one."""
        assert self.sizes is not None, "only the key of a program has sizes"
        return self.sizes

    @lazy
    def batched_arrays(self) -> frozenset[str]:
        """Return the arrays that have a batch dimension, which comes first."""
        if self.sizing.batch is None:
            return frozenset()
        return self.batched | (self.sizing.shapes.keys() - {*self.signature.arrays})

    @lazy
    def floats(self) -> frozenset[str]:
        """Return the arrays that can have a gradient: those of floats that are not detached."""
        floats = frozenset(name for name, dtype in self.dtypes.items() if dtype.is_floating_point)
        return floats - self.signature.detached

    def sample_shape(self, name: str) -> tuple[Any, ...]:
        """Return an array's shape without the batch dimension."""
        shape = self.sizing.shapes[name]
        return shape[1:] if name in self.batched_arrays else shape
