"""Arguments that an op changes in place: `inout` in its spec.

The op itself is functional: it takes old values and returns new ones. Torch copies these into the caller's tensors,
so that versions, views, leaves, transforms and graphs behave as with torch's own in-place operations. In most calls
that are not traced, the kernels change the caller's memory instead. If such a call is recorded, the gradient is that of
the functional op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import has_torch_function

from .._cache import Cache
from .._errors import ArgumentError, GradientError, refusal
from .._lazy import lazy
from ..calls import (
    BoundArguments,
    Core,
    DirectCall,
    DirectCalls,
    Program,
    Programs,
    check_tensors,
    is_symbolic,
    solve_numbers,
)
from ..spec import Numbers
from ..torch_side import Update, UpdatingFunction, make_eager_function, plan_update
from ..tracing import find_batch_levels, is_plain, is_tracing, is_transformed, is_view
from ._make_core import make_overwriting_core
from ._options import OpOptions

Run = Callable[[BoundArguments], Sequence[torch.Tensor]]
"""Runs the functional op."""


class Updates:
    """Runs the calls of an op that updates arguments in place.

    Attributes:
        results: the outputs that a call returns: all but the new values of arguments, or these if there are no
            others.
        direct: finds the calls that are like an earlier one which changed the arguments' own memory.
    """

    def __init__(self, core: Core, programs: Programs, kernels: Sequence[Any], text: str, options: OpOptions) -> None:
        """Prepare the updates of an op.

        Args:
            core: of the functional op.
            programs: of the functional op.
            kernels: the op's kernels.
            text: its spec.
            options: its options.
        """
        signature = core.signature
        self._core = core
        self._functional = programs
        self._made_of = kernels, text, options
        self._names = tuple(signature.updates.values())
        self._places = tuple(signature.arrays.index(name) for name in self._names)
        count = len(self._names)
        self.results = signature.outputs[count:] or signature.outputs
        self.direct: DirectCalls | None = None
        self._apply = make_eager_function(signature.op, UpdatingFunction)
        self._recorded: Cache[Program, tuple[Program, Update]] = Cache("recorded updates by programs")

    def run_updating(self, bound: BoundArguments, run: Run) -> Sequence[torch.Tensor]:
        """Run a call that updates arguments. Return its other outputs, or the updated arguments if there are none."""
        if not all([isinstance(one, torch.Tensor) for one in bound.tensors]):  # noqa: C419  # torch 2.6 traces lists
            check_tensors(self._core.signature, bound.tensors)
        targets = [bound.tensors[place] for place in self._places]
        is_eager = not is_tracing() and is_plain() and not has_torch_function(bound.values)
        if is_eager:
            self._refuse_leaves(targets)
            self._refuse_overlap(targets)
        is_kept = not is_eager or (torch.is_grad_enabled() and any(one.requires_grad for one in bound.tensors))
        outputs = self._overwrite(bound, targets, is_kept=is_kept) if is_eager else None
        if outputs is None:
            outputs = self._replace(bound, targets, run, is_kept=is_kept)
        return outputs or targets

    def run_directly(self, call: DirectCall) -> Sequence[torch.Tensor] | None:
        """Run a call whose program is known on the arguments' own memory. Return None if that is impossible."""
        program, tensors, numbers, others = call
        targets = [tensors[place] for place in self._places]
        if not _may_overwrite(targets, tensors):
            return None
        if not (program.active and torch.is_grad_enabled()):
            return _run(program, tensors, numbers, others.scalars, targets) or targets
        recorded = self._recorded.get(program)
        if recorded is None or not _may_record(targets):
            return None
        outputs = self._record(recorded, tensors, numbers, others)
        return None if outputs is None else outputs or targets

    def _replace(
        self, bound: BoundArguments, targets: Sequence[torch.Tensor], run: Run, *, is_kept: bool
    ) -> Sequence[torch.Tensor]:
        """Run the functional op, and copy new values into the arguments."""
        given = list(bound.tensors)
        for place in self._places if is_kept else ():
            # A graph keeps the old value for its backward pass, and the argument's memory is overwritten below.
            given[place] = given[place].clone()
        made = run(bound.with_tensors(tuple(given)))
        if not is_tracing() and is_transformed():
            self._refuse_unbatched(targets, made)
        for target, new in zip(targets, made[: len(targets)], strict=True):
            _copy(target, new)
        return made[len(targets) :]

    @lazy
    def _programs(self) -> Programs:
        return Programs(make_overwriting_core(self._core, *self._made_of))

    def _overwrite(
        self, bound: BoundArguments, targets: Sequence[torch.Tensor], *, is_kept: bool
    ) -> Sequence[torch.Tensor] | None:
        """Run the kernels on the arguments' own memory. Return None if that is impossible."""
        if self._core.is_seeded or not _may_overwrite(targets, bound.tensors) or (is_kept and not _may_record(targets)):
            return None
        program = self._programs.find(bound)
        if program is None or not program.is_direct:
            return None
        self.direct = self._programs.direct
        numbers = solve_numbers(self._programs.core, program, bound)
        if not is_kept:
            return _run(program, bound.tensors, numbers, bound.scalars, targets)
        functional = self._functional.find(bound)
        if functional is None or not functional.is_direct:
            return None
        update = plan_update(functional, program, self._core.signature.updates)
        if update is None:
            return None
        recorded = self._recorded.keep(program, (functional, update))
        return self._record(recorded, bound.tensors, numbers, bound.with_tensors(()))

    def _record(
        self,
        recorded: tuple[Program, Update],
        tensors: Sequence[torch.Tensor],
        numbers: Numbers,
        others: BoundArguments,
    ) -> Sequence[torch.Tensor] | None:
        """Run the kernels on the arguments' own memory in a call that autograd records. Return the other outputs."""
        functional, update = recorded
        values = self._core.signature.size_values(others.scalars, others.sizes)
        own = functional.solve([one.shape for one in tensors], values)
        if own is None:
            return None
        given = [*tensors, *[tensors[place] for place in update.copied]]
        for place in update.copied:
            # The graph keeps the old value for its backward pass. Recorded, so that it can be differentiated again.
            given[place] = given[place].clone()
        made = self._apply(((self._core, functional, own, others), update, numbers), *given)
        return made[len(self._places) :]

    def _refuse_unbatched(self, targets: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> None:
        """Raise ArgumentError if vmap makes several new values for an argument that is not batched."""
        for name, target, new in zip(self._names, targets, made, strict=False):
            if find_batch_levels(new) - find_batch_levels(target):
                op = self._core.signature.op
                words = f"`{name}` of op `{op}` is updated in place under vmap, but is not batched as other inputs are"
                remedy = (
                    f"Pass one `{name}` a sample, `{name}.expand(size, ...).clone()`, with its dim in `in_dims`; "
                    "or call the op's `.functional`, which returns the new values and changes nothing."
                )
                raise ArgumentError(refusal(words, [(name, "one"), ("new values", "one a sample")], remedy))

    def _refuse_leaves(self, targets: Sequence[torch.Tensor]) -> None:
        """Raise GradientError if an updated argument is a leaf that requires a gradient, as torch does."""
        for name, one in zip(self._names, targets, strict=False):
            if torch.is_grad_enabled() and one.requires_grad and one.is_leaf:
                op = self._core.signature.op
                words = f"op `{op}` updates `{name}` in place, but it is a leaf that requires a gradient"
                remedy = (
                    f"Call the op under `torch.no_grad()`, or `{op}.functional`, which returns the new values and "
                    f"changes nothing, or pass `{name}.clone()`."
                )
                raise GradientError(refusal(words, [(name, f"{tuple(one.shape)} {one.dtype}")], remedy))

    def _refuse_overlap(self, targets: Sequence[torch.Tensor]) -> None:
        """Raise ArgumentError if two updated arguments overlap in memory: one update would be lost."""
        for place, one in enumerate(targets):
            for other, name in zip(targets[:place], self._names, strict=False):
                if _overlap(one, other):
                    words = f"`{name}` and `{self._names[place]}` of op `{self._core.signature.op}` share memory"
                    remedy = f"Both are updated in place: pass `{self._names[place]}.clone()`."
                    raise ArgumentError(refusal(words, remedy=remedy))


def _run(
    program: Program,
    tensors: Sequence[torch.Tensor],
    numbers: Numbers,
    scalars: Mapping[str, Any],
    targets: Sequence[torch.Tensor],
) -> Sequence[torch.Tensor]:
    """Run kernels that overwrite `targets`, and tell torch that they changed. Return the other outputs."""
    made = program.forward(tensors, numbers, scalars)[program.outputs]
    for one in targets:
        if not one.is_inference():
            torch.autograd.graph.increment_version(one)
    return made


def _may_overwrite(targets: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
    """Return True if kernels can overwrite `targets`, which are some of a call's tensors, without harm to others.

    Not if another argument may overlap with one of them, or if torch would refuse to change it. Torch refuses overlap
    within a tensor itself.
    """
    extents = [_extent(one) for one in tensors]
    for target in targets:
        if target.is_inference() and not torch.is_inference_mode_enabled():
            return False
        first, end = _extent(target)
        # The target itself is one of the tensors.
        if sum([begin < end and first < last for begin, last in extents]) > 1:
            return False
    return True


def _may_record(targets: Sequence[torch.Tensor]) -> bool:
    """Return True if autograd can record that a Function changed `targets`.

    Torch refuses leaves that require a gradient, and views if the Function has several outputs.
    """
    return not any([is_view(one) or (one.is_leaf and one.requires_grad) for one in targets])  # noqa: C419  # faster


def _copy(target: torch.Tensor, new: torch.Tensor) -> None:
    """Copy a new value into an argument in place, in an eager call or in a graph that torch traces."""
    if is_symbolic(target):
        # The passes of a graph see that an operator with a schema changes an argument, but not that a method does.
        torch.ops.aten.copy_.default(target, new)
    elif is_tracing() and not target.dim():
        # `torch.compile` drops every in-place method of a float64 argument without dims (seen in torch 2.13), but not a
        # change of its view.
        target.view(1).copy_(new.view(1))
    else:
        target.copy_(new)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first address of a tensor's memory and the one after its last."""
    if tensor.layout != torch.strided or not tensor.numel():
        return 0, 0
    first = tensor.data_ptr()
    if tensor.is_contiguous():
        return first, first + tensor.nbytes
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return first, first + (last + 1) * tensor.element_size()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two tensors share an element in memory.

    If their elements differ in size, it is enough that their ranges of memory overlap.
    """
    (first, end), (begin, last) = _extent(one), _extent(other)
    if not (first < last and begin < end):
        return False
    if one.element_size() != other.element_size():
        return True
    # Columns of one matrix interleave: mark the elements of one tensor, and look for marks among those of the other.
    start, size = min(first, begin), one.element_size()
    marks = torch.zeros((max(end, last) - start) // size, dtype=torch.bool)
    marks.as_strided(one.shape, one.stride(), (first - start) // size).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), (begin - start) // size).any())
