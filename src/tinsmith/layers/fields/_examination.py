"""Examination: a call of a layer on fields, for checks.

What a call computes is the layer's own: its fields, and the gradient that the layer takes. The oracle, the sanitizer
and lint look at the op that the kernels would make on tensors, which gets what the fields hold. Some kernels make no
op; their gradient is still compared with differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import torch

from ..._errors import GradientError, KernelError, TinsmithError, refusal
from ...engines import Language
from ...frontend.lowering import LoweredKernel
from ...ir import NotCovered
from ...operation.examination import Examination, Origin
from ._as_op import OpProgram
from ._call import run
from ._managed_copies import ManagedCopies
from ._on_arrays import ArrayProgram
from ._program import FieldProgram
from ._roles import Launch, Roles, uses_of_each


class FieldsExamination(Examination):
    """One call of a layer on fields.

    Args:
        program: the layer's kernels on the fields themselves.
        launches: its kernels with their arguments.
        memory: of the filled fields, in their order.
        arrays: the same kernels as an op on arrays, where the gradient is generated; None where it is the engine's.
        refused: what a call that wants a gradient raises, where iterations race; None where it has one.
    """

    kind: Literal["op", "layer"] = "layer"

    def __init__(
        self,
        program: FieldProgram,
        launches: tuple[Launch, ...],
        memory: Sequence[torch.Tensor],
        arrays: ArrayProgram | None,
        refused: GradientError | None = None,
    ) -> None:
        self._refused = refused
        self._arrays = arrays
        # Fields are put back between a forward pass and its backward pass, so what that needs must be saved.
        self._program = program.as_saving(launches)
        self._launches = launches
        self._memory = tuple(memory)
        self._op: Examination | None = None
        self._reason = ""
        roles = program.roles
        try:
            self._check_managers(memory)
            compared, cleared = _without_lost_gradients(roles, launches), program.find_cleared_fields(launches)
            op = OpProgram(program.layer, compared, launches, cleared=cleared)
            self._op = op.examine(launches, memory)
            self._filled, self._outputs = op.filled_names, op.output_names
        except TinsmithError as reason:
            self._reason = str(reason).partition("\n")[0]
            self._filled, self._outputs = (tuple(one.name for one in side) for side in (roles.filled, roles.outputs))

    def _check_managers(self, memory: Sequence[torch.Tensor]) -> None:
        """Raise KernelError if field managers change values or move them to other elements.

        The op on tensors, which the examination interprets, would not do that.
        """
        program = self._program
        copies = ManagedCopies(program.layer, program.roles, program.reset)
        if copies.is_any and not copies.keep_elements(memory):
            words = (
                f"field managers of {program.layer} change values, or copy them to other elements than a tensor's own"
            )
            raise KernelError(refusal(words, remedy="Examine a layer without these managers."))

    @property
    def name(self) -> str:
        return self._program.layer

    @property
    def module_name(self) -> str:
        return self._launches[0].launcher.stage.module_name

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        return dict(zip(self._filled, self._memory, strict=True))

    @property
    def differentiable(self) -> dict[str, torch.Tensor]:
        inputs = self.inputs
        if self._arrays is not None:
            pairs = zip(self._filled, self._program.roles.filled, strict=True)
            return {name: inputs[name] for name, one in pairs if one.may_have_gradient}
        return {self._filled[place]: inputs[self._filled[place]] for place in self._program.active}

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._outputs

    @property
    def notes(self) -> Sequence[str]:
        lost = [
            name for name, one in self.inputs.items() if one.is_floating_point() and name not in self.differentiable
        ]
        whose = ", ".join(f"`{name}`" for name in lost)
        return (f"not differentiated: {whose}, as registered, or since its field has no gradient",) if lost else ()

    @property
    def starts(self) -> list[tuple[str, int]]:
        sources = dict.fromkeys(launch.launcher.stage.source for launch in self._launches)
        return [(source.path, source.tree.lineno) for source in sources]

    # What is computed -------------------------------------------------------------------------
    @property
    def gradient(self) -> str:
        return "source" if self._arrays is not None or self._refused is not None else "engine"

    def origin(self, active: frozenset[str]) -> Origin:
        if self._refused is not None:
            return "race"
        return "engine" if self._arrays is None else "source"

    @property
    def engine_remedy(self) -> str:
        if self._op is None:
            return "rewrite the kernels, or as an op with `ts.op`"
        return 'leave out adjoint="engine", or make the kernels an op: tinsmith generates a gradient from their source'

    @property
    def forkable_engine(self) -> str | None:
        return None

    @property
    def draws(self) -> bool:
        return False

    def preserve_memory(self) -> AbstractContextManager[None]:
        return self._program.preserve_fields()

    def compute(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        memory = [values.get(name, one) for name, one in self.inputs.items()]
        if self._refused is not None and torch.is_grad_enabled() and any(one.requires_grad for one in memory):
            raise self._refused
        with self.preserve_memory():
            if self._arrays is None:
                results = run(self._program, self._launches, memory)
            else:
                results = self._arrays(self._launches, memory)
        return dict(zip(self._outputs, results, strict=True))

    def with_adjoint(self, adjoint: str | None) -> Examination:
        if adjoint == "engine" and self.gradient == "source":
            return FieldsExamination(self._program, self._launches, self._memory, None)
        return self._required_op.with_adjoint(adjoint) if adjoint == "source" and self._arrays is None else self

    def to_double(self) -> Examination | None:
        floats = [one.facts.dtype for one in (*self._program.roles.filled, *self._program.roles.outputs)]
        return self if all(one == torch.float64 for one in floats if one.is_floating_point) else None

    def with_bounds_checked(self) -> Examination:
        return self._required_op.with_bounds_checked()

    # What is read ------------------------------------------------------------------------------
    @property
    def reason_unreadable(self) -> str:
        return self._reason

    @property
    def _required_op(self) -> Examination:
        """The op that the layer's kernels would make. Raises KernelError if they cannot be made an op."""
        if self._op is None:
            words = f"the kernels of {self.name} cannot be made an op"
            raise KernelError(refusal(words, [("because", self._reason)], "Rewrite what the reason names."))
        return self._op

    @property
    def _covered_op(self) -> Examination:
        """The op that the layer's kernels would make. Raises NotCovered if they cannot be made an op."""
        if self._op is None:
            path, line = self.starts[0]
            raise NotCovered(self._reason, line, path)
        return self._op

    @property
    def kernels(self) -> list[LoweredKernel]:
        return self._covered_op.kernels

    @property
    def allocated_dtypes(self) -> dict[str, torch.dtype]:
        return self._covered_op.allocated_dtypes

    @property
    def default_float(self) -> str:
        return Language(self._launches[0].launcher.engine).default_types[0]

    @property
    def uninitialized_arrays(self) -> frozenset[str]:
        return self._covered_op.uninitialized_arrays

    def find_hand_written_store(self, name: str) -> tuple[str, int] | None:
        return None

    def leaves(self) -> dict[str, torch.Tensor]:
        return self._covered_op.leaves()

    def run(self, leaves: Mapping[str, torch.Tensor], **options: Any) -> dict[str, torch.Tensor]:
        return self._covered_op.run(leaves, **options)


def _without_lost_gradients(roles: Roles, launches: Sequence[Launch]) -> Roles:
    """Return roles in which internal fields that no kernel writes need no gradient.

    On fields that gradient stays in the field; nothing here compares it.
    """
    written = {use.one.facts.key for uses in uses_of_each(launches) for use in uses.values() if use.is_written}
    internal = tuple(one if one.facts.key in written else replace(one, needs_grad=False) for one in roles.internal)
    return replace(roles, internal=internal)
