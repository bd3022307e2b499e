"""Where torch is asked for deterministic algorithms, a rendering's gradients have the same bits in each run."""

from __future__ import annotations

import pytest
import torch

from tinsmith.render.gaussians import rasterization, rasterization_2dgs


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def test_gradients_have_the_same_bits_in_each_run(engine, deterministic):
    draw = torch.Generator().manual_seed(0)
    means = torch.rand(2000, 3, generator=draw) * 2 - 1 + torch.tensor([0.0, 0, 4])
    quats, scales = torch.randn(2000, 4, generator=draw), torch.rand(2000, 3, generator=draw) * 0.1 + 0.02
    values = [means, quats, scales, torch.rand(2000, generator=draw), torch.rand(2000, 3, generator=draw)]
    values = [value.requires_grad_() for value in values]
    Ks = torch.tensor([[[80.0, 0, 32], [0, 80, 32], [0, 0, 1]]])
    weights = torch.rand(64, 64, 3, generator=draw)

    def run():
        images, _, meta = rasterization(
            *values, torch.eye(4)[None], Ks, 64, 64, packed=False, absgrad=True, engine=engine
        )
        meta["means2d"].retain_grad()
        (images * weights).sum().backward(inputs=[*values, meta["means2d"]])
        gradients = [value.grad for value in values] + [meta["means2d"].grad, meta["means2d"].absgrad]
        for value in values:
            value.grad = None
        return gradients

    first = run()
    for _ in range(8):
        assert all(torch.equal(one, other) for one, other in zip(run(), first, strict=True))


@pytest.mark.parametrize("function", [rasterization, rasterization_2dgs])
def test_sums_over_cameras_and_gaussians_have_them_too(engine, deterministic, function):
    """Coefficients and shapes add up over cameras, poses over Gaussians."""
    draw = torch.Generator().manual_seed(0)
    means = torch.rand(2000, 3, generator=draw) * 2 - 1 + torch.tensor([0.0, 0, 4])
    quats, scales = torch.randn(2000, 4, generator=draw), torch.rand(2000, 3, generator=draw) * 0.1 + 0.02
    coefficients = torch.rand(2000, 4, 3, generator=draw)
    poses = torch.eye(4).repeat(3, 1, 1)
    poses[:, 0, 3] = torch.tensor([-0.2, 0.0, 0.2])
    Ks = torch.tensor([[80.0, 0, 32], [0, 80, 32], [0, 0, 1]]).repeat(3, 1, 1)
    values = [means, quats, scales, torch.rand(2000, generator=draw), coefficients, poses, Ks]
    values = [value.requires_grad_() for value in values]
    weights = torch.rand(3, 64, 64, 3, generator=draw)

    def run():
        images = function(*values, 64, 64, sh_degree=1, packed=False, engine=engine)[0]
        return torch.autograd.grad((images * weights).sum(), values)

    first = run()
    for _ in range(5):
        assert all(torch.equal(one, other) for one, other in zip(run(), first, strict=True))
