"""Rules: an op with handwritten ops for its gradients, which are faster than generated ones.

In plain calls an autograd Function runs them, each only if its gradient is needed. They are ops, so second derivatives
need no further code. Under `torch.func`, forward mode and `torch.compile` only the op itself is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operation import Op, OpOptions
from ..tracing import has_legacy_batch, is_transformed


class Asked(NamedTuple):
    """The request of a backward pass.

    Attributes:
        inputs: the tensors of the op's call.
        outputs: the results of the call.
        cotangents: one per output, None for an output that the loss does not depend on.
        wants: which inputs need a gradient.
        options: the other arguments of the call.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    cotangents: tuple[Tensor | None, ...]
    wants: tuple[bool, ...]
    options: dict[str, Any]

    def cotangent(self, index: int) -> Tensor:
        """Return the cotangent of an output, or zeros if the loss does not depend on it."""
        given = self.cotangents[index]
        return torch.zeros_like(self.outputs[index]) if given is None else given


class Rule(NamedTuple):
    """An op and its gradients.

    Attributes:
        value: the op, which is also differentiable by itself, in every mode.
        pull: a function from the request of a backward pass to the gradient of each input, None for one without.
        quick: an op with a hand-written gradient that plain calls and `torch.compile` use instead of `value`, if there
            is a faster one.
    """

    value: Op
    pull: Callable[[Asked], Sequence[Tensor | None]]
    quick: Op | None = None


def steady(spec: str, kernel: Any, **options: Any) -> Op:
    """Make an op from a kernel of this library, whose captured values never change: calls skip reading them (60 us)."""
    return Op([kernel], spec, OpOptions(steady=True, **options))


def run(rule: Rule, *inputs: Tensor, **options: Any) -> tuple[Tensor, ...]:
    """Call the op of a rule, and return its outputs, differentiable by the rule's gradients.

    `options` are numbers that the op takes, and sizes of its outputs.
    """
    if torch.compiler.is_compiling():
        return _as_tuple((rule.quick or rule.value)(*inputs, **options))
    if is_transformed():
        return _as_tuple(rule.value(*inputs, **options))
    return _RuleFunction.apply(rule, options, *inputs)


def _as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    return (outputs,) if isinstance(outputs, Tensor) else tuple(outputs)


class _RuleFunction(torch.autograd.Function):
    """The autograd Function of a rule in plain calls."""

    @staticmethod
    def forward(ctx: Any, rule: Rule, options: dict[str, Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        outputs = _as_tuple((rule.quick or rule.value)(*inputs, **options))
        ctx.rule, ctx.options, ctx.n_inputs = rule, options, len(inputs)
        ctx.save_for_backward(*inputs, *outputs)
        # Outputs that the loss does not use then have the cotangent None, and `pull` computes less.
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        saved, n = ctx.saved_tensors, ctx.n_inputs
        asked = Asked(saved[:n], saved[n:], cotangents, ctx.needs_input_grad[2:], ctx.options)
        # An op does not take the batched cotangents of `torch.autograd.grad(..., is_grads_batched=True)`.
        given = differentiate_value(ctx.rule, asked) if has_legacy_batch(cotangents) else ctx.rule.pull(asked)
        return None, None, *(g if wanted else None for g, wanted in zip(given, asked.wants, strict=True))


def differentiate_value(rule: Rule, asked: Asked) -> Sequence[Tensor | None]:
    """Compute the gradients by differentiating the rule's op `value`, instead of by its `pull`.

    They are differentiable themselves if gradients are enabled.
    """
    is_graph = torch.is_grad_enabled()
    leaves = asked.inputs
    if not is_graph:
        leaves = [one.detach().requires_grad_(wants) for one, wants in zip(leaves, asked.wants, strict=True)]
    with torch.enable_grad():
        outputs = _as_tuple(rule.value(*leaves, **asked.options))
    pairs = [(y, c) for y, c in zip(outputs, asked.cotangents, strict=True) if c is not None]
    if not pairs:
        return [None] * len(leaves)
    wanted = [leaf for leaf, wants in zip(leaves, asked.wants, strict=True) if wants]
    made, given = zip(*pairs, strict=True)
    gradients = iter(torch.autograd.grad(made, wanted, given, allow_unused=True, create_graph=is_graph))
    return [next(gradients) if wants else None for wants in asked.wants]
