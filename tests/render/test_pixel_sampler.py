"""Pixels that are drawn have the values of their pictures, and the rays of their cameras."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from tinsmith import render

PICTURES = torch.arange(2 * 4 * 6 * 2).view(2, 4, 6, 2)
POSES = torch.eye(4, dtype=torch.float64).repeat(2, 1, 1)
POSES[1, :3, 3] = torch.tensor([1.0, 2.0, 3.0])
INTRINSICS = torch.tensor([[5.0, 0, 3], [0, 5, 2], [0, 0, 1]], dtype=torch.float64)


@pytest.mark.parametrize("convention", ["opencv", "opengl"])
def test_rays_and_values_are_those_of_whole_pictures(engine, convention):
    sampler = render.PixelSampler(PICTURES, POSES, INTRINSICS, convention=convention, engine=engine)
    rays, values, cameras = sampler.draw(200, torch.Generator().manual_seed(0))
    place = values[:, 0] // 2  # the number of the pixel, counted through all pictures
    assert (values[:, 1] == values[:, 0] + 1).all() and (place // 24 == cameras).all()
    whole = [render.image_rays(pose, INTRINSICS, 6, 4, convention=convention, engine=engine) for pose in POSES]
    for own, parts in zip(rays, zip(*whole, strict=True), strict=True):
        torch.testing.assert_close(own, torch.stack(parts).view(-1, 3)[place])
    assert len(place.unique()) > 40  # of 48


def test_a_seed_gives_the_same_pixels():
    sampler = render.PixelSampler(PICTURES, POSES, INTRINSICS)
    draws = [sampler.draw(9, torch.Generator().manual_seed(seed)).values for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_poses_get_gradients():
    poses = POSES.clone().requires_grad_()
    rays = render.PixelSampler(PICTURES, poses, INTRINSICS).draw(7).rays
    (slope,) = torch.autograd.grad(rays.origins.sum(), poses)
    assert slope[:, :3, 3].sum() == 21


def test_invalid_arguments_are_refused():
    with pytest.raises(ts.ShapeError, match=r"expected +\(2, height, width, c\)"):
        render.PixelSampler(PICTURES[:1], POSES, INTRINSICS)
    with pytest.raises(ts.ArgumentError, match="no pixel to draw from"):
        render.PixelSampler(PICTURES[:, :0], POSES, INTRINSICS).draw(3)
