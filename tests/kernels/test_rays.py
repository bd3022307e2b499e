"""The kernels of rays, as the sanitizer sees them: nobody writes where another does."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.findings import sanitize_call
from tinsmith import kernels

RAYS = torch.tensor([[0, 2], [2, 0], [2, 3]], dtype=torch.int32)
CUBE = torch.tensor([0.0, 0, 0, 1, 1, 1])
LENS = torch.tensor([[[40.0, 1, 8], [0, 50, 8], [0, 0, 1]]])

# What makes the kernel, its spec, and what it is called with.
KERNELS = {
    "pinhole_rays": (
        lambda lang: kernels.pinhole_rays(lang, fp="f32", forward=-1, normalize=True),
        "poses[k, _, 4], intrinsics[k, 3, 3], pixels[n, 2], cameras[n]: i32 -> origins[n, 3], directions[n, 3]",
        lambda: (
            torch.randn(2, 4, 4),
            LENS.repeat(2, 1, 1),
            16 * torch.rand(5, 2),
            torch.tensor([0, 1, 1, 5, 0]).int(),
        ),
        {},
    ),
    "ray_aabb_intersect": (
        lambda lang: kernels.ray_aabb_intersect(lang, fp="f32"),
        "origins[n, 3], directions[n, 3], aabb[6] -> t_near[n], t_far[n], hit[n]: u1",
        lambda: (torch.rand(5, 3) - 1, torch.rand(5, 3).round(decimals=1), CUBE, 0.0, 9.0),
        {},
    ),
    "positions": (
        kernels.positions,
        "origins[n, 3], directions[n, 3], t[s], segments rays[n, 2]: i32 -> x[s, 3]",
        lambda: (torch.randn(3, 3), torch.randn(3, 3), torch.rand(6), RAYS),
        {},
    ),
    "directions": (
        kernels.directions,
        "directions[n, 3], segments rays[n, 2]: i32 -> y[s, 3]",
        lambda: (torch.randn(3, 3), RAYS),
        {"s": 6},
    ),
    "occupied_bits": (
        kernels.occupied_bits,
        "density[l, x, y, z], threshold[1] -> bits[l, bx, by, bz]: i64",
        lambda: (torch.rand(2, 5, 4, 3), torch.tensor([0.5])),
        {"bx": 2, "by": 1, "bz": 1},
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_sanitizer_finds_nothing(lang, name):
    make, spec, draw, sizes = KERNELS[name]
    assert sanitize_call(ts.op(spec)(make(lang)), *draw(), **sizes) == []
