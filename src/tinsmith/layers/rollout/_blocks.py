"""Blocks: a rollout that calls functions of `no_grad` or `grad_replaced`, in parts that are differentiated in turn.

Kernels that an engine's tape would record become an op, whose gradient is generated. The others run without one: what
they change passes gradients on as if they had not run, and a custom gradient then works on the gradients of the fields
themselves, which hold the values that the block left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..._errors import GradientError, refusal
from ...calls.fields import Copy, Transfer
from ...engines import FieldKey, gradient_field
from ...tracing import is_plain, keep_order
from .._pool import FIELDS_LOCK
from ..fields import (
    ArrayProgram,
    FieldFunction,
    Habits,
    Launch,
    LayerField,
    OneSample,
    Reading,
    Roles,
    by_key,
    read,
    refuse_second,
    uses_of_each,
)
from ._replaced_gradients import CustomGradient

MakeProgram = Callable[[Roles, tuple[Launch, ...], Habits, Sequence[LayerField]], ArrayProgram]
"""Makes the program of a block. The last argument is the fields whose gradient may be asked for."""
State = dict[FieldKey, torch.Tensor]


@dataclass(frozen=True)
class BlockLaunches:
    """The launches of a block, and what an engine's tape would call instead of their reverse; None for nothing else."""

    launches: tuple[Launch, ...]
    customs: tuple[CustomGradient, ...] | None


def run_blocks(
    rollout: str,
    roles: Roles,
    blocks: Sequence[BlockLaunches],
    memory: Sequence[torch.Tensor],
    cleared: Sequence[LayerField],
    make: MakeProgram,
) -> list[torch.Tensor]:
    """Run a rollout block by block. Returns the values of its output fields.

    Args:
        rollout: its name, for messages.
        roles: what its fields are for.
        blocks: what it runs.
        memory: what the filled fields are filled with.
        cleared: fields that start at zero.
        make: makes a block's program.
    """
    uses = [uses_of_each(block.launches) for block in blocks]
    fields = by_key([use.one for block in uses for launch in block for use in launch.values()])
    # Gradients of single blocks are parts of a field's: none is put into the field.
    fields = {key: replace(one, needs_grad=False) for key, one in (fields | by_key(roles.outputs)).items()}
    state = _begin(rollout, fields, dict(zip(by_key(roles.filled), memory, strict=True)), by_key(cleared))
    for block, of_launches in zip(blocks, uses, strict=True):
        used = by_key([use.one for launch in of_launches for use in launch.values()])
        written = {use.one.facts.key for launch in of_launches for use in launch.values() if use.is_written}
        before = dict(state)
        if block.launches:
            filled = tuple([fields[key] for key in used])
            made = Roles(filled, tuple([one for one in filled if one.facts.key in written]), ())
            with torch.set_grad_enabled(torch.is_grad_enabled() and block.customs is None):
                given = [state[key] if block.customs is None else state[key].detach() for key in used]
                active = [one for one, t in zip(filled, given, strict=True) if t.requires_grad or not is_plain()]
                program = make(made, block.launches, Habits(), () if block.customs is not None else active)
                results = program(block.launches, given)
            state.update(zip((one.facts.key for one in made.outputs), results, strict=True))
        if block.customs is not None:
            _pass_gradients(rollout, block.customs, fields, before, state)
    return [_connect(state[one.facts.key], memory) for one in roles.outputs]


def _connect(result: torch.Tensor, memory: Sequence[torch.Tensor]) -> torch.Tensor:
    """Connect a result that does not depend on the inputs to them, with a gradient of 0, as an engine's tape does."""
    wanted = [one for one in memory if one.requires_grad]
    if result.requires_grad or not wanted or not result.dtype.is_floating_point or not is_plain():
        return result
    return _Constant.apply(result, *wanted)


class _Constant(torch.autograd.Function):
    """A tensor on which others have no influence: their gradients are 0."""

    @staticmethod
    def forward(ctx: Any, result: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*tensors)
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> Any:
        return None, *[torch.zeros_like(one) for one in ctx.saved_tensors]


def _begin(
    rollout: str, fields: dict[FieldKey, LayerField], filled: State, cleared: dict[FieldKey, LayerField]
) -> State:
    """Return the content of fields when the first kernel runs, by key."""
    others = [one for key, one in fields.items() if key not in filled]

    def contents() -> list[torch.Tensor]:
        return [
            torch.zeros(one.memory_shape, dtype=one.facts.dtype, device=one.runs_on)
            if one.facts.key in cleared
            else read(one, rollout)
            for one in others
        ]

    held = contents() if is_plain() else list(Reading.apply(contents))
    return {**filled, **{one.facts.key: tensor for one, tensor in zip(others, held, strict=True)}}


def _pass_gradients(
    rollout: str,
    customs: tuple[CustomGradient, ...],
    fields: dict[FieldKey, LayerField],
    before: State,
    state: State,
) -> None:
    """Connect what a block left with what was there before it, as an engine's tape does."""
    floats = [key for key in fields if state[key].dtype.is_floating_point]
    if all(_is_empty(one) for one in customs):
        changed = [key for key in floats if state[key] is not before[key]]
        passed = _Skip.apply(len(changed), *[before[key] for key in changed], *[state[key].detach() for key in changed])
        state.update(zip(changed, passed, strict=True))
        return
    values = [key for key in fields if key not in floats]
    custom = _Custom(rollout, customs, [fields[key] for key in floats], [fields[key] for key in values])
    tensors = [*[before[key] for key in floats], *[state[key].detach() for key in (*floats, *values)]]
    state.update(zip(floats, _Replace.apply(custom, *tensors), strict=True))


def _is_empty(one: CustomGradient) -> bool:
    """Return True if a custom gradient does nothing, as that of `no_grad`."""
    code = getattr(one.gradient, "__code__", None)
    return code is not None and not code.co_names and not code.co_freevars


class _Skip(torch.autograd.Function):
    """What a block left, with the gradients of what was there before. The first `count` tensors were."""

    generate_vmap_rule = True

    @staticmethod
    def forward(count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([one.view_as(one) for one in tensors[count:]])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.count = inputs[0]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        return None, *cotangents, *[None] * ctx.count

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        return tuple(tangents[1 : 1 + ctx.count])


@dataclass(frozen=True, eq=False)
class _Custom:
    """A custom gradient: of fields of floats, while `others` hold integers."""

    rollout: str
    customs: tuple[CustomGradient, ...]
    floats: Sequence[LayerField]
    others: Sequence[LayerField]

    def pull_back(self, cotangents: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the gradient on the fields. Afterwards they hold what they held before."""
        places = [place for place, one in enumerate(self.floats) if one.facts.has_gradient]
        engine = self.floats[0].engine
        fields = [(one.field, one.facts) for one in (*self.floats, *self.others)]
        graded = [self.floats[place] for place in places]
        fields += [(gradient_field(one.field), one.gradient_facts) for one in graded]
        store, load = (Transfer(engine, [Copy(kind, *one) for one in fields]) for kind in ("store", "load"))
        given = [*values, *[cotangents[place] for place in places]]
        with FIELDS_LOCK, keep_order(engine, given[0].device, self.rollout):
            held = [torch.empty_like(one, memory_format=torch.contiguous_format) for one in given]
            store.run(held, is_serial=False)
            load.run([one.contiguous() for one in given], is_serial=False)
            try:
                for custom in reversed(self.customs):
                    self._run(custom)
                results = [torch.empty_like(one) for one in held]
                store.run(results, is_serial=False)
            finally:
                load.run(held, is_serial=False)
        gradients = list(cotangents)
        for place, result in zip(places, results[len(values) :], strict=True):
            gradients[place] = result
        return gradients

    def _run(self, custom: CustomGradient) -> None:
        if custom.gradient is None:
            words = f"{self.rollout} calls a function decorated with `grad_replaced`, but no replacement is defined"
            raise GradientError(
                refusal(
                    words, remedy="Decorate the function of its gradient with `grad_for`, or leave out `grad_replaced`."
                )
            )
        custom.gradient(*custom.arguments)


class _CustomFunction(FieldFunction):
    """A Function of a custom gradient. Contexts have its `layer`."""

    @classmethod
    def describe_forward_mode(cls, ctx: Any) -> tuple[str, Sequence[tuple[str, ...]], str]:  # noqa: ARG003
        return "`grad_for` replaces a gradient, and no tangent", (), "Leave out `grad_replaced`"

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        (custom,) = arguments
        return OneSample(arguments, custom.floats)


class _Replace(_CustomFunction):
    """What a block left, whose gradients are those that a custom gradient makes of its own.

    It is given what the fields of floats held before, and what all fields hold after the block.
    """

    @staticmethod
    def forward(custom: _Custom, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = len(custom.floats)
        return tuple([one.view_as(one) for one in tensors[count : 2 * count]])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.custom, *tensors = inputs
        ctx.layer = ctx.custom.rollout
        ctx.save_for_backward(*tensors)  # those before too: second derivatives go through them, and are refused

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        gradients = _PullBack.apply(ctx.custom, *cotangents, *ctx.saved_tensors)
        return None, *gradients, *[None for _ in ctx.saved_tensors]


class _PullBack(_CustomFunction):
    """Gradients by a custom gradient, of cotangents and of what `_Replace` was given. They have none of their own."""

    @staticmethod
    def forward(custom: _Custom, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count = len(custom.floats)
        return tuple(custom.pull_back(tensors[:count], tensors[2 * count :]))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layer = inputs[0].rollout

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise refuse_second(ctx.layer, "`grad_for` replaces a gradient", "leave out `grad_replaced`")
