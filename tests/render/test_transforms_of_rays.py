"""Rays and marching under torch's transforms."""

from __future__ import annotations

import pytest
import torch
from torch.func import jacfwd, jacrev, vmap

from tinsmith.render import composite, march, pinhole_rays, ray_aabb_intersect

BOX = (-1.0, -1.0, -1.0, 1.0, 1.0, 1.0)
INTRINSICS = torch.tensor([[50.0, 0, 32], [0, 50, 32], [0, 0, 1]])
PIXELS = torch.tensor([[3.5, 60.0], [40.0, 20.0]])


def seen(pose):
    return pinhole_rays(pose, INTRINSICS, PIXELS).directions


def crossed(origins, directions):
    return torch.stack(ray_aabb_intersect(origins, directions, BOX, far=9.0)[:2])


def sampled(origins, directions):
    return march(origins, directions, BOX, step=0.1, capacity=90).positions(origins, directions)


def draw_rays(*shape):
    return torch.randn(*shape, 3) - 2, torch.rand(*shape, 3) + 0.1


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_jacobians_forwards_and_backwards_agree():
    torch.testing.assert_close(jacrev(seen)(torch.eye(4)), jacfwd(seen)(torch.eye(4)))


@pytest.mark.parametrize("function", [crossed, sampled])
def test_a_batch_is_each_of_its_samples(function):
    batch = draw_rays(3, 4)
    each = torch.stack([function(*sample) for sample in zip(*batch, strict=True)])
    assert torch.equal(vmap(function)(*batch), each)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("function", "draw"), [(seen, lambda: (torch.eye(4),)), (crossed, draw_rays), (sampled, draw_rays)]
)
def test_it_compiles_in_one_graph(function, draw):
    given = draw() if function is seen else draw(5)
    assert torch.equal(torch.compile(function, fullgraph=True, backend="aot_eager")(*given), function(*given))


@pytest.mark.parametrize("prunes", [False, True])
def test_a_step_whose_number_of_samples_is_not_known_compiles_in_one_graph(engine, prunes):
    def light(scale, origins, directions):
        sigma_fn = (lambda samples: samples.t) if prunes else None
        samples = march(origins, directions, BOX, step=0.1, sigma_fn=sigma_fn, alpha_thre=0.2, engine=engine)
        places = samples.positions(origins, directions)
        densities = scale * places.square().sum(1)
        seen = composite(densities, places.sin(), samples.t, samples.steps, samples.rays, engine=engine)
        return seen.color.square().sum()

    compiled = torch.compile(light, fullgraph=True, backend="aot_eager")
    for count in (4, 7):
        given, slopes = draw_rays(count), []
        for function in (light, compiled):
            scale = torch.ones((), requires_grad=True)
            slopes += torch.autograd.grad(function(scale, *given), scale)
        assert slopes[0] != 0
        torch.testing.assert_close(*slopes)
