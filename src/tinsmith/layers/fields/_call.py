"""Call: a program as a differentiable function of tensors, for autograd and `torch.func`.

Two Functions: the second is the gradient of the first, so that transforms see it too. Mapped
over a batch, each runs once a sample: fields hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from ..._errors import GradientError, refusal
from ...bridge import is_plain, is_transformed
from ._placed import Placed
from ._program import Program
from ._roles import Launch


@dataclass(frozen=True, eq=False)
class Call:
    """One call: the program, and its kernels' arguments at that time.

    `saves` is whether a backward pass may follow; `stacks` are the depths of its gradient stacks; `versions` say
    how often the arrays among the arguments were changed before.
    """

    program: Program
    launches: tuple[Launch, ...]
    saves: bool
    stacks: tuple[int, ...]
    versions: tuple[tuple[int, ...], ...]


Method = TypeVar("Method", bound=Callable[..., Any])


def apart(method: Method) -> Method:
    """A method at which a graph of `torch.compile` breaks: fields are state that a graph could not see."""
    outside: Any = torch.compiler.disable
    return outside(method)


def run(program: Program, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The results of a program, with their gradient."""
    wanted = torch.is_grad_enabled() and (any(tensor.requires_grad for tensor in memory) or is_transformed())
    if not wanted:
        return tuple(program.forward(_plain(memory), launches, saves=False)[0])
    versions = tuple([launch.versions for launch in launches])
    call = Call(program, tuple(launches), program.habits.saves, program.foresee(launches), versions)
    return _applied(_Forward, call, *memory)[: len(program.roles.outputs)]


@dataclass(frozen=True)
class OnFields:
    """A layer that runs on fields."""

    program: Program

    def __call__(self, launches: Sequence[Launch], memory: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The results of one call."""
        return run(self.program, launches, memory)

    def explain(self) -> str:
        """What a call does, for people."""
        return f"on fields\n\n{self.program.explain()}"


def _applied(function: Any, *arguments: Any) -> tuple[torch.Tensor, ...]:
    """`function.apply`. In plain eager mode without its look at signatures, for transforms, which costs 30 us."""
    plain: Any = super(torch.autograd.Function, function)
    return plain.apply(*arguments) if is_plain() else function.apply(*arguments)


class _Forward(torch.autograd.Function):
    """Results, then what is kept for the backward pass."""

    @staticmethod
    def forward(call: Call, *memory: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, kept = call.program.forward(_plain(memory), call.launches, saves=call.saves)
        return (*outputs, *kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: tuple[torch.Tensor, ...]) -> None:
        call, *memory = inputs
        outputs = call.program.roles.outputs
        kept = output[len(outputs) :]
        ctx.call, ctx.number = call, call.program.calls
        silent = [
            tensor for tensor, one in zip(output, outputs, strict=False) if one not in call.program.differentiated
        ]
        ctx.mark_non_differentiable(*silent, *kept)
        if call.saves:
            ctx.save_for_backward(*memory, *kept)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        call: Call = ctx.call
        program = call.program
        if not call.saves and ctx.number != program.calls:
            raise _called_since(program.layer)
        for one, is_needed in zip(program.roles.filled, ctx.needs_input_grad[1:], strict=True):
            if is_needed and not (one.needs_grad or one.is_silent):
                raise no_gradient(one, program.layer)
        pairs = zip(cotangents, program.roles.outputs, strict=False)
        given = [cotangent for cotangent, one in pairs if one in program.differentiated]
        found = _applied(_Backward, call, len(given), *given, *ctx.saved_tensors)
        gradients = dict(zip(program.active, found, strict=True))
        return (None, *[gradients.get(one) for one in program.roles.filled])

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        call, *memory = given
        made = (*call.program.roles.outputs, *(call.program.kept if call.saves else ()))
        return _mapped(_Forward, info.batch_size, in_dims[1:], (call,), memory, made)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise _no_tangent(ctx.call.program.layer)


class _Backward(torch.autograd.Function):
    """Gradients of the fields that want one. It has none of its own."""

    @staticmethod
    def forward(call: Call, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        program = call.program
        for launch, versions in zip(call.launches, call.versions, strict=True):
            launch.launcher.check_unchanged(launch.bound, versions)
        ready = _plain(tensors)
        memory = ready[count : count + len(program.roles.filled)]
        kept = ready[count + len(program.roles.filled) :]
        return tuple(program.backward(memory, kept, ready[:count], call.launches, call.stacks))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.layer = inputs[0].program.layer

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        words = f"{ctx.layer} has no second derivative: its kernels work on fields"
        raise GradientError(refusal(words, remedy="Leave out `create_graph=True`, or make the kernel an op: `ts.op`."))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *given: Any) -> Any:
        call, count, *tensors = given
        return _mapped(_Backward, info.batch_size, in_dims[2:], (call, count), tensors, call.program.active)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise _no_tangent(ctx.layer)


def _mapped(
    function: Any,
    size: int,
    dims: Sequence[int | None],
    fixed: tuple[Any, ...],
    tensors: Sequence[torch.Tensor],
    made: Sequence[Placed],
) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """A Function applied to each sample of a batch; `made` are the fields that its results come from."""
    if size == 0:
        return tuple(tensors[0].new_empty((0, *one.memory_shape), dtype=one.memory_dtype) for one in made), (0,) * len(
            made
        )
    rows = []
    for place in range(size):
        sample = [t if dim is None else t.select(dim, place) for t, dim in zip(tensors, dims, strict=True)]
        rows.append(function.apply(*fixed, *sample))
    columns = tuple(torch.stack(column) for column in zip(*rows, strict=True))
    return columns, (0,) * len(columns)


def _plain(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors whose memory is in order and holds the numbers themselves, not their negatives or conjugates.

    Detached: a field manager hands them to the engine, which would look for their gradients.
    """
    return [tensor.detach().contiguous().resolve_conj().resolve_neg() for tensor in tensors]


def no_gradient(one: Placed, layer: str) -> GradientError:
    """What a backward pass gets that asks for the gradient of a field that has none."""
    words = f"`{one.name}` of {layer} requires a gradient, and its field has none"
    remedy = "Declare the field with needs_grad=True; or register it with needs_grad=False, or detach the tensor."
    return GradientError(refusal(words, [("field", str(one))], remedy))


def _called_since(layer: str) -> GradientError:
    words = f"{layer} was called again since, and was told not to save: its fields hold another call's values"
    return GradientError(refusal(words, remedy="Leave out save=False, or run the backward pass before the next call."))


def _no_tangent(layer: str) -> GradientError:
    words = f"{layer} has no forward mode: its kernels work on fields, and only a reverse is generated for those"
    return GradientError(refusal(words, remedy="Use reverse mode (`torch.func.grad`, `vjp`, `jacrev`)."))
