"""Whether an op computes what its twin in torch computes: values, gradients, in a batch, forwards."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.func import jvp, vmap

import cases
import tinsmith as ts


def assert_right(op: Any, twin: Callable[..., Any], inputs: Sequence[Any], **sizes: int) -> None:
    """Assert that values and gradients are the twin's, and the oracle's. `sizes` are the call's own."""
    cases.assert_same_values_and_gradients(lambda *given: op(*given, **sizes), twin, inputs)
    fresh = cases.make_leaves(inputs)
    outputs = cases.list_tensors(op(*fresh, **sizes))
    seeds = cases.draw_cotangents(outputs)
    gradients = torch.autograd.grad(outputs, cases.select_differentiable(fresh), seeds)
    answer = ts.oracle(op, *inputs, cotangents=seeds, **sizes)
    names = [name for name, given in zip(op.arguments, inputs, strict=True) if cases.select_differentiable([given])]
    for name, gradient in zip(names, gradients, strict=True):
        cases.assert_close(gradient, answer.gradients[name].to(gradient.dtype))


def assert_right_in_a_batch(op: Any, twin: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Assert that `vmap` over the first dim of all inputs gives the twin of each sample."""

    def each(*batches: Any) -> Any:
        results = [cases.list_tensors(twin(*sample)) for sample in zip(*batches, strict=True)]
        return tuple(torch.stack(column) for column in zip(*results, strict=True))

    cases.assert_same_values_and_gradients(vmap(op), each, inputs)


def assert_right_forwards(op: Any, twin: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> None:
    """Assert for a random gradient g and direction v: g times `jvp` in v is the twin's gradient times v."""
    directions = tuple(
        torch.cos(3.1 * torch.arange(x.numel()).to(x) + k).reshape(x.shape) for k, x in enumerate(inputs)
    )
    with warnings.catch_warnings():  # torch's forward mode compiles its own formulas when it is first used
        warnings.filterwarnings("ignore", ".torch.jit.script. is deprecated", DeprecationWarning)
        _, tangents = jvp(op, tuple(inputs), directions)
    seeds = cases.draw_cotangents(cases.list_tensors(tangents))
    mine = sum((seed * t).sum() for seed, t in zip(seeds, cases.list_tensors(tangents), strict=True))
    theirs = sum((v * g).sum() for v, g in zip(directions, cases.compute_gradients(twin, inputs), strict=True))
    cases.assert_close(mine, theirs)
