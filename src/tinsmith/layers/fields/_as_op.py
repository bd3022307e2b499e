"""A Tin on tensors: calls of the op that its kernels make (`_layer_op`), whose arrays stand for its fields.

The fields themselves are left alone. So nothing is copied, a batch is one launch, and each call's values are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ..._errors import KernelError, SpecError, refusal
from ...calls import current_watch
from ...engines import FieldKey
from ...ir import NotCovered
from ...operation import Adjoint, Detail, Prepared
from ...operation.examination import EngineHazards, Examination, examine_layer
from ...tracing import is_tracing
from .._pool import RECORDED
from ._gradient_stores import GradientStores
from ._layer_field import LayerField
from ._layer_op import LayerOp
from ._roles import Launch, Roles, Use, by_key, uses_of_each


class OpProgram:
    """The op that a layer's kernels make.

    Args:
        layer: its name, for messages.
        roles: what its fields are for.
        launches: its kernels with their arguments.
        runs: whether the op is to be called; otherwise it is made for its checks alone.
        instead: what may be done where a gradient is refused.
        cleared: fields that start each call at zero.
        changeable: filled fields whose memory is given away: kernels may change it in place.
        adjoint: where the gradient comes from, as for `tinsmith.op`.
        auxiliary: outputs whose gradient the caller does not pass on.
        begins_at_zero: whether indices of the kernels begin at 0, whatever the fields' offsets are (`name_fields`).

    Raises:
        KernelError: a kernel uses a field in a way that no array allows.
        GradientError: a gradient would have to go to a field that is not a weight.
    """

    def __init__(
        self,
        layer: str,
        roles: Roles,
        launches: Sequence[Launch],
        *,
        runs: bool = True,
        instead: Callable[[], str] | None = None,
        cleared: Sequence[LayerField] = (),
        changeable: Sequence[LayerField] = (),
        adjoint: Adjoint = "auto",
        begins_at_zero: bool = False,
        auxiliary: Sequence[LayerField] = (),
    ) -> None:
        self._layer = layer
        self._roles = roles
        self._stores = GradientStores(roles, launches)
        self._changeable = by_key(changeable)
        self._last: tuple[Sequence[Launch], Prepared | None] = ((), None)
        if runs:
            self._stores.check(layer)
        given, launches = launches, self._stores.select_taking_part(launches)
        uses = uses_of_each(launches)
        options: dict[str, Any] = {
            "runs": runs,
            "cleared": by_key(cleared),
            "changeable": by_key(changeable),
            "adjoint": adjoint,
            "begins_at_zero": begins_at_zero,
            "auxiliary": by_key(auxiliary),
        }
        make = partial(LayerOp, layer, roles, launches, uses, self._stores, **options)
        self._use(make(), instead)
        unwritten = self._find_unwritten(uses) if runs else frozenset[FieldKey]()
        if unwritten:
            self._use(make(unwritten=unwritten), instead)
        if runs and (words := self.outside(given)):
            raise KernelError(words)

    def _use(self, layer_op: LayerOp, instead: Callable[[], str] | None) -> None:
        self._layer_op = layer_op
        self.op = layer_op.op
        self._hazards = EngineHazards(self.op, instead)

    def _find_unwritten(self, uses_of_launches: Sequence[dict[str, Use]]) -> frozenset[FieldKey]:
        """Return the keys of the fields between kernels that no kernel writes: they keep their content."""
        doubtful = {use.one.facts.key for uses in uses_of_launches for use in uses.values() if not use.is_followed}
        between = {one.facts.key for one in self._layer_op.between}
        return frozenset(key for key in doubtful & between if not self._hazards.is_written(self._layer_op.names[key]))

    def __call__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """Run the op. Return its results."""
        RECORDED.refuse(self._layer)
        if not is_tracing() and current_watch() is None and (prepared := self._prepare(launches)) is not None:
            named = dict(zip(self.filled_names, self._memory(memory), strict=True))
            return tuple(prepared(named))
        if not is_tracing() and current_watch() is not None:
            # Who watches may run the op again.
            pairs = zip(self._roles.filled, memory, strict=True)
            memory = [one.clone() if field.facts.key in self._changeable else one for field, one in pairs]
        result = self.op(*self._list_arguments(launches, memory))
        return (result,) if isinstance(result, torch.Tensor) else tuple(result)

    def _prepare(self, launches: Sequence[Launch]) -> Prepared | None:
        """Prepare the op for the arguments of these launches that are not fields.

        Return None if there are arrays among them.
        """
        last, prepared = self._last
        if launches is not last:
            given = None if any([one.bound.tensors for one in launches]) else self._number_values(launches)  # noqa: C419
            prepared = None if given is None else self.op.prepare(given)
            self._last = launches, prepared
        return prepared

    def _number_values(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Return the op's arguments that are not arrays, by name, for launches without array arguments."""
        values = self._values(self._stores.select_taking_part(launches))
        return {name: values[name] for name in self.op.arguments if name in values}

    def _memory(self, memory: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors of the filled fields; those of fields without a gradient are detached."""
        pairs = zip(self._roles.filled, memory, strict=True)
        return [tensor.detach() if one.is_silent else tensor for one, tensor in pairs]

    def examine(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Examination:
        """Examine the op's call, for checks."""
        return examine_layer(self.op, self._list_arguments(launches, memory), {})

    def refusal(
        self, launches: Sequence[Launch], memory: Sequence[torch.Tensor], active: Sequence[LayerField]
    ) -> NotCovered | None:
        """Return why no gradient with respect to these filled fields can be generated; None if it can."""
        names = frozenset(self._layer_op.input_name(one) for one in active if one.facts.dtype.is_floating_point)
        # Looking at a kernel must not change torch's random numbers.
        with torch.random.fork_rng(devices=[]):
            return examine_layer(self.op, self._list_arguments(launches, memory), {}).refusal(names)

    def _list_arguments(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> list[Any]:
        """Return the op's arguments in order."""
        launches = self._stores.select_taking_part(launches)
        values = self._values(launches)
        for launch, names in zip(launches, self._layer_op.arguments, strict=True):
            for place, name in enumerate(launch.launcher.signature.arrays):
                tensor = launch.bound.tensors[place]
                # A backward pass reads the array again, and torch does not see what NumPy changes.
                values[names[name]] = tensor.clone() if place in launch.bound.of_numpy else tensor
        values |= dict(zip(self.filled_names, self._memory(memory), strict=True))
        return [values[name] for name in self.op.arguments]

    @property
    def filled_fields(self) -> tuple[LayerField, ...]:
        """The fields whose memory a call is given, in order."""
        return self._roles.filled

    @property
    def filled_names(self) -> tuple[str, ...]:
        """What the op calls its inputs, in the order of the filled fields."""
        return tuple(self._layer_op.input_name(one) for one in self._roles.filled)

    @property
    def output_names(self) -> tuple[str, ...]:
        """What the op calls its outputs, in the order of the fields."""
        return tuple(self._layer_op.names[one.facts.key] for one in self._roles.outputs)

    def explain(self, detail: Detail = "summary") -> str:
        """Describe the op."""
        return f"on tensors\n\n{self.op.explain(detail)}"

    def foresee(self, launches: Sequence[Launch], active: Sequence[LayerField]) -> tuple[int, ...]:
        """Return the depths of the kernels' gradient stacks. Raises GradientError if the engine's gradient is wrong."""
        launches = self._stores.select_taking_part(launches)
        values = self._values(launches)
        self._hazards.check(frozenset(self._layer_op.input_name(one) for one in active), values)
        return self._stores.expand_to_launches(
            self._hazards.stacks(self._shapes(launches), values)[len(self._layer_op.overwritten) :]
        )

    def outside(self, launches: Sequence[Launch]) -> str:
        """Return the message about an index that is certainly out of bounds; an empty string if there is none."""
        launches = self._stores.select_taking_part(launches)
        outside = self._hazards.outside(self._shapes(launches), self._values(launches))
        if outside is None:
            return ""
        words = f"kernel `{outside.kernel}` of {self._layer} uses an index of `{outside.array}` that is out of range"
        rows = [
            ("at", outside.place),
            (f"axis {outside.axis}", f"index {outside.position}, of {outside.size} elements"),
        ]
        lang = launches[0].launcher.stage.module_name
        axes = f"dense({lang}.l, T).dense({lang}.i, n)"
        remedy = f"Write the indices in the order of the axes' letters: a field in `{axes}` is indexed `x[i, t]`."
        return refusal(words, rows, remedy)

    def _shapes(self, launches: Sequence[Launch]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all arrays, by the op's names for them."""
        shapes = {self._layer_op.names[key]: one.memory_shape for key, one in self._layer_op.registered.items()}
        shapes |= {self._layer_op.before[one.facts.key]: one.memory_shape for one in self._layer_op.overwritten}
        handed = self._layer_op.collect_handed_arrays(launches)
        return shapes | {name: tuple(one.shape) for name, (one, _) in handed.items()}

    def _values(self, launches: Sequence[Launch]) -> dict[str, Any]:
        """Return the arguments that are not arrays, by the op's names for them."""
        values: dict[str, Any] = {}
        arrays = {*self._layer_op.names.values()}
        for launch, names in zip(launches, self._layer_op.arguments, strict=True):
            given = {**launch.bound.scalars, **launch.bound.templates}
            values |= {names[name]: value for name, value in given.items() if names[name] not in arrays}
        return values


def make_op_for_checks(
    layer: str, roles: Roles, launches: Sequence[Launch], *, is_wished: bool
) -> OpProgram | KernelError | SpecError:
    """Make the op that kernels on fields would be, only to check it; return the error where no op can be made.

    `is_wished` says that the engine's gradient was asked for, where another might be used.
    """

    def instead() -> str:
        return "leave out `adjoint='engine'`" if is_wished else "make the kernels an op, `ts.op`"

    try:
        return OpProgram(layer, roles, launches, runs=False, instead=instead)
    except (KernelError, SpecError) as reason:  # the engine runs what no op can be made of: a list of fields, for one
        return reason
