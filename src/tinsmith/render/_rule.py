"""Rules: an op, with ops for its gradients that are faster than generated ones.

In plain calls a Function runs them, each only if its gradient is needed; they are ops, so second derivatives need no
further code. Under `torch.func`, forward mode and `torch.compile` only the op itself is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operation import Op, OpOptions
from ..tracing import has_older_batch, is_transformed


class Asked(NamedTuple):
    """The request of a backward pass.

    Attributes:
        inputs: the tensors of the op's call.
        outputs: the results of the call.
        cotangents: one per output, None for an output that nothing depends on.
        wants: which inputs need a gradient.
        options: the other arguments of the call.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    cotangents: tuple[Tensor | None, ...]
    wants: tuple[bool, ...]
    options: dict[str, Any]

    def cotangent(self, index: int) -> Tensor:
        """The cotangent of an output, zeros if nothing depends on it."""
        given = self.cotangents[index]
        return torch.zeros_like(self.outputs[index]) if given is None else given


class Rule(NamedTuple):
    """An op and its gradients.

    Attributes:
        value: the op, which is also differentiable itself, in every mode.
        pull: maps a request to the gradient of each input, None for an input without one.
        quick: an op with a hand-written gradient that plain calls and `torch.compile` use instead of `value`, if there
            is a faster one.
    """

    value: Op
    pull: Callable[[Asked], Sequence[Tensor | None]]
    quick: Op | None = None


def steady(spec: str, kernel: Any, **options: Any) -> Op:
    """Make an op of our own kernel. Values from its factory never change, so calls do not read them: saves 60 us."""
    return Op([kernel], spec, OpOptions(steady=True, **options))


def run(rule: Rule, *inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """The outputs of a rule's op, differentiable by its gradients.

    `options` are numbers that the op takes, and sizes of its outputs.
    """
    if torch.compiler.is_compiling():
        return _several((rule.quick or rule.value)(*inputs, **options))
    if is_transformed():
        return _several(rule.value(*inputs, **options))
    return _Ruled.apply(rule, options, *inputs)


def _several(outputs: Any) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


class _Ruled(torch.autograd.Function):
    """A plain call."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, options: dict[str, Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = _several((rule.quick or rule.value)(*inputs, **options))
        ctx.rule, ctx.options, ctx.n_inputs = rule, options, len(inputs)
        ctx.save_for_backward(*inputs, *outputs)
        # An output that no loss uses has the cotangent None then, and `pull` computes less.
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        saved, n = ctx.saved_tensors, ctx.n_inputs
        asked = Asked(saved[:n], saved[n:], cotangents, ctx.needs_input_grad[2:], ctx.options)
        # Those of `torch.autograd.grad(..., is_grads_batched=True)` an op does not take as inputs.
        given = _by_value(ctx.rule, asked) if has_older_batch(cotangents) else ctx.rule.pull(asked)
        return None, None, *(g if wanted else None for g, wanted in zip(given, asked.wants, strict=True))


def _by_value(rule: Rule, asked: Asked) -> Sequence[Tensor | None]:
    """The gradients by the derivative of the op of the values."""
    is_graph = torch.is_grad_enabled()
    leaves = asked.inputs
    if not is_graph:
        leaves = [one.detach().requires_grad_(wants) for one, wants in zip(leaves, asked.wants, strict=True)]
    with torch.enable_grad():
        outputs = _several(rule.value(*leaves, **asked.options))
    pairs = [(y, c) for y, c in zip(outputs, asked.cotangents, strict=True) if c is not None]
    wanted = [leaf for leaf, wants in zip(leaves, asked.wants, strict=True) if wants]
    made, given = zip(*pairs, strict=True)
    gradients = iter(torch.autograd.grad(made, wanted, given, allow_unused=True, create_graph=is_graph))
    return [next(gradients) if wants else None for wants in asked.wants]
