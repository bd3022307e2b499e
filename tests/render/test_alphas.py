"""Weights from alphas: against a loop in torch, values and gradients."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from tinsmith.render import weights_from_alphas

RAYS = torch.tensor([[0, 4], [4, 0], [6, 5], [4, 1]])  # sample 5 belongs to no ray


def by_a_loop(alphas, rays):
    weights, through = [torch.zeros_like(alphas[0])] * len(alphas), [torch.zeros_like(alphas[0])] * len(alphas)
    for start, count in rays.tolist():
        left = torch.ones_like(alphas[0])
        for i in range(start, start + count):
            weights[i], through[i], left = left * alphas[i], left, left * (1 - alphas[i])
    return torch.stack(weights), torch.stack(through)


@pytest.mark.parametrize("is_dense", [False, True], ids=["packed", "dense"])
def test_values_and_gradients_are_those_of_a_loop(engine, is_dense):
    alphas = torch.rand(12 if is_dense else 11, dtype=torch.float64)
    alphas[1], alphas[7] = 1.0, 0.0  # opaque, and clear
    alphas.requires_grad_()
    rays = torch.tensor([[0, 4], [4, 4], [8, 4]]) if is_dense else RAYS
    given = (alphas.view(3, 4),) if is_dense else (alphas, rays)
    ours = [part.reshape(-1) for part in weights_from_alphas(*given, engine=engine)]
    twin = by_a_loop(alphas, rays)
    factors = torch.randn(2, len(alphas), dtype=torch.float64)
    slopes = []
    for weights in (ours, twin):
        total = (factors * torch.stack(tuple(weights))).sum()
        slopes.append(torch.autograd.grad(total, alphas)[0])
    torch.testing.assert_close(tuple(ours), twin)
    torch.testing.assert_close(*slopes)


def test_alphas_that_do_not_fit_are_refused():
    with pytest.raises(ts.ShapeError, match=r"should be \[n, k\]"):
        weights_from_alphas(torch.rand(3))
    with pytest.raises(ts.ShapeError, match=r"should be \[s\]"):
        weights_from_alphas(torch.rand(3, 4), RAYS)
    with pytest.raises(ts.DtypeError, match="weights_from_alphas"):
        weights_from_alphas(torch.ones(3, 4, dtype=torch.int32))
