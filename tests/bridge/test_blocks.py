"""Blocks of threads on CPUs: memory that they share and barriers, run in order; values and gradients of each form."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import tinsmith as ts

SIZE = 8


class Row(NamedTuple):
    """An op, the same in torch, and inputs for it by a length; `keywords` of a call by the length."""

    op: Any
    twin: Callable[..., torch.Tensor]
    inputs: Callable[[int], list[torch.Tensor]]
    keywords: Callable[[int], dict[str, int]] = lambda _: {}


def _arrays(lang):
    return lang.types.ndarray(dtype=lang.f64, ndim=1), lang.types.ndarray(dtype=lang.f64, ndim=2)


def _one(n):
    return [torch.rand(n, dtype=torch.float64) + 0.5]


def _block_count(n):
    return {"m": -(-n // SIZE)}


def tree_sum(lang):
    """A sum by halves, with a barrier in a loop whose trips are the same for all."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[m]")
    @lang.kernel
    def tree_sum(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((SIZE,), lang.f64)
            lane = i % SIZE
            pad[lane] = x[i] * x[i]
            lang.simt.block.sync()
            s = SIZE // 2
            while s > 0:
                if lane < s and i + s < x.shape[0]:
                    pad[lane] += pad[lane + s]
                lang.simt.block.sync()
                s //= 2
            if lane == 0:
                y[i // SIZE] = pad[0]

    def twin(x):
        return torch.stack([(part * part).sum() for part in x.split(SIZE)])

    return Row(tree_sum, twin, _one, _block_count)


def prefix_sum(lang):
    """A scan that keeps a local across two barriers."""
    vector, _ = _arrays(lang)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def prefix_sum(x: vector, y: vector):
        lang.loop_config(block_dim=SIZE)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((SIZE,), lang.f64)
            lane = i % SIZE
            pad[lane] = lang.sin(x[i])
            lang.simt.block.sync()
            stride = 1
            while stride < SIZE:
                more = 0.0
                if lane >= stride:
                    more = pad[lane - stride]
                lang.simt.block.sync()
                pad[lane] += more
                lang.simt.block.sync()
                stride *= 2
            y[i] = pad[lane] * x[i]

    def twin(x):
        return torch.cat([part.sin().cumsum(0) * part for part in x.split(SIZE)])

    return Row(prefix_sum, twin, _one)


ROWS = {row.__name__: row for row in (tree_sum, prefix_sum)}


@pytest.mark.parametrize("n", [SIZE, 3 * SIZE, 3 * SIZE + 5, 3])
@pytest.mark.parametrize("name", ROWS)
def test_values_and_gradients(lang64, name, n):
    torch.manual_seed(0)
    row = ROWS[name](lang64)
    inputs = [one.requires_grad_(one.is_floating_point()) for one in row.inputs(n)]
    leaves = [one for one in inputs if one.requires_grad]
    found = row.op(*inputs, **row.keywords(n))
    wanted = row.twin(*inputs)
    torch.testing.assert_close(found, wanted)
    weights = torch.rand_like(wanted)
    pairs = [torch.autograd.grad(result, leaves, weights) for result in (found, wanted)]
    torch.testing.assert_close(*pairs)
