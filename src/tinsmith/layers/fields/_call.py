"""Call: a program as a differentiable function of tensors, for autograd and `torch.func`.

Two Functions: the second is the gradient of the first, so that transforms see it too. Mapped
over a batch, each runs once a sample (`_function`): fields hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ..._errors import GradientError, refusal
from ...tracing import get_unchecked_apply, has_saved_tensor_hooks, is_plain, is_transformed
from ._call_notes import NotedFields, fingerprints_of
from ._function import FieldFunction, OneSample, refuse_second
from ._layer_field import LayerField
from ._program import FieldProgram
from ._roles import Launch


@dataclass(frozen=True, eq=False)
class Call:
    """One call: the program, and its kernels' arguments at that time.

    `fingerprints` are of the Python values that each kernel baked in; `saves` is whether a backward pass may
    follow; `stacks` are the depths of its gradient stacks; `versions` tell changes of the arrays
    among the arguments; `has_hooks` is whether hooks get what is saved; `reason` are rows that say why no gradient is
    generated, () if the engine's is wished.
    """

    program: FieldProgram
    launches: tuple[Launch, ...]
    fingerprints: tuple[tuple[Any, ...], ...]
    saves: bool
    stacks: tuple[int, ...]
    versions: tuple[tuple[Any, ...], ...]
    has_hooks: bool
    reason: Sequence[tuple[str, ...]] = ()


Method = TypeVar("Method", bound=Callable[..., Any])


def break_graph(method: Method) -> Method:
    """Return the method with a graph break for `torch.compile`: fields are state that a graph does not see.

    Not a decorator: `torch.compiler.disable` loads the compiler, which takes a second.
    """
    outside: Any = torch.compiler.disable
    return outside(method)


def run(program: FieldProgram, launches: tuple[Launch, ...], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Run a program. Return its results, differentiable if a gradient may be asked for."""
    call = plan_call(program, launches, memory)
    return run_plain(program, launches, memory) if call is None else run_call(call, memory)


def run_plain(
    program: FieldProgram, launches: tuple[Launch, ...], memory: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Run a program. Return its results without a gradient."""
    return program.forward(plain(memory), launches, fingerprints_of(launches), saves=False)[0]


def plan_call(
    program: FieldProgram,
    launches: tuple[Launch, ...],
    memory: Sequence[torch.Tensor],
    reason: Sequence[tuple[str, ...]] = (),
) -> Call | None:
    """Build a call whose results have a gradient; None if none is asked for.

    Raises:
        GradientError: the engine's gradient is known to be wrong.
    """
    may_differentiate = torch.is_grad_enabled() and any([m.requires_grad for m in memory])  # noqa: C419  # faster
    if not (may_differentiate or is_transformed()):
        return None
    fingerprints = fingerprints_of(launches)
    versions = tuple([launch.versions for launch in launches])
    saves, stacks = program.habits.saves, program.foresee(launches)
    return Call(program, launches, fingerprints, saves, stacks, versions, has_saved_tensor_hooks(), reason)


def run_call(call: Call, memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Run a planned call. Return its differentiable results."""
    if is_plain():
        results = _call_eagerly(call, *memory)
        return results if isinstance(results, tuple) else (results,)
    return _Forward.apply(call, *memory)[: len(call.program.roles.outputs)]


class _CallFunction(FieldFunction):
    """A Function whose gradient is the engine's own. Contexts have their `call`."""

    @classmethod
    def describe_forward_mode(cls, ctx: Any) -> tuple[str, Sequence[tuple[str, ...]], str]:
        call: Call = ctx.call
        engine = call.program.engine.name
        words = f"its gradient is the reverse mode of {engine}, and a forward mode comes with a generated gradient only"
        return words, call.reason, "Rewrite this construct" if call.reason else "Leave out adjoint='engine'"


class _EagerFunction(_CallFunction):
    """A call in plain eager mode, where nothing but autograd itself is active."""

    @staticmethod
    def forward(ctx: Any, call: Call, *memory: torch.Tensor) -> Any:
        program = call.program
        outputs, kept = program.forward(plain(memory), call.launches, call.fingerprints, saves=call.saves)
        # A field that did not change since the last call is saved as the same tensor, so that a loop does not keep
        # copies.
        kept = program.reuse_unchanged(kept)
        ctx.call, ctx.layer, ctx.number, ctx.settings = call, program.layer, program.calls, program.settings
        ctx.noted = NotedFields.of(call.program.layer, call.launches, program.looked_at) if call.has_hooks else None
        if call.saves:
            ctx.save_for_backward(*memory, *kept)
        if program.silent_outputs:
            ctx.mark_non_differentiable(*[outputs[place] for place in program.silent_outputs])
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        # A hook may have run the call again in place of saving anything: with the values of now.
        if ctx.noted is not None:
            ctx.noted.check()
        return _pull_back(ctx, cotangents)


_call_eagerly = get_unchecked_apply(_EagerFunction)


def _pull_back(ctx: Any, cotangents: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """Compute the backward pass of a call.

    Return None for the call itself, then a gradient or None for each filled field.
    """
    call: Call = ctx.call
    program = call.program
    if not call.saves and ctx.number != program.calls:
        raise _called_since(program.layer)
    if ctx.settings != program.settings:
        raise _set_since(program.last_set, program.layer)
    for place in program.ungraded:
        if ctx.needs_input_grad[1 + place]:
            raise build_no_gradient_error(program.roles.filled[place], program.layer)
    given = [cotangents[place] for place in program.differentiated]
    if torch.is_grad_enabled() or is_transformed():
        gradients_of_active = _Backward.apply(call, len(given), *given, *ctx.saved_tensors)
    else:
        gradients_of_active = _gradients(call, len(given), (*given, *ctx.saved_tensors))
    gradients: list[Any] = [None] * (1 + len(program.roles.filled))
    for place, gradient in zip(program.active, gradients_of_active, strict=True):
        gradients[1 + place] = gradient
    return tuple(gradients)


def _gradients(call: Call, count: int, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Compute the gradients of a program's active fields. `tensors` are `count` cotangents, then the saved tensors."""
    program = call.program
    for launch, versions in zip(call.launches, call.versions, strict=True):
        if versions:
            launch.launcher.check_unchanged(launch.bound, versions)
    ready = plain(tensors)
    until = count + len(program.roles.filled)
    return program.backward(
        ready[count:until], ready[until:], ready[:count], call.launches, call.fingerprints, call.stacks
    )


class _Forward(_CallFunction):
    """The same under transforms: results, then what is kept for the backward pass."""

    @staticmethod
    def forward(call: Call, *memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, kept = call.program.forward(plain(memory), call.launches, call.fingerprints, saves=call.saves)
        return (*outputs, *kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        call, *memory = inputs
        program = call.program
        kept = output[len(program.roles.outputs) :]
        ctx.call, ctx.layer, ctx.number, ctx.settings = call, program.layer, program.calls, program.settings
        ctx.mark_non_differentiable(*[output[place] for place in program.silent_outputs], *kept)
        if call.saves:
            ctx.save_for_backward(*memory, *kept)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        return _pull_back(ctx, cotangents)

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        (call,) = arguments
        return OneSample((call,), (*call.program.roles.outputs, *(call.program.saved_fields if call.saves else ())))


class _Backward(_CallFunction):
    """Gradients of the fields that want one. It has none of its own."""

    @staticmethod
    def forward(call: Call, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(_gradients(call, count, tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.call = inputs[0]
        ctx.layer = ctx.call.program.layer

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise refuse_second(ctx.layer, "its kernels work on fields", "make the kernel an op: `ts.op`")

    @staticmethod
    def one_sample(arguments: tuple[Any, ...]) -> OneSample:
        call, count = arguments
        return OneSample((call, count), call.program.active_fields)


def plain(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors as contiguous ones without lazy negation or conjugation; copy those that are not."""
    return [t if t.is_contiguous() and not (t.is_neg() or t.is_conj()) else _in_order(t) for t in tensors]


def _in_order(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().resolve_conj().resolve_neg()


def build_no_gradient_error(one: LayerField, layer: str) -> GradientError:
    """Build the error for a backward pass that asks for the gradient of a field without one."""
    words = f"`{one.name}` of {layer} requires a gradient, but its field has none"
    remedy = "Declare the field with needs_grad=True; or register it with needs_grad=False, or detach the tensor."
    return GradientError(refusal(words, [("field", str(one))], remedy))


def _called_since(layer: str) -> GradientError:
    words = f"{layer} with `save=False` was called again before the backward pass: its fields hold that call's values"
    return GradientError(refusal(words, remedy="Leave out save=False, or run the backward pass before the next call."))


def _set_since(name: str, layer: str) -> GradientError:
    words = f"internal field `{name}` of {layer} was set between a call and its backward pass, which would read it"
    return GradientError(refusal(words, remedy="Leave out save=False, or set it after the backward pass."))
