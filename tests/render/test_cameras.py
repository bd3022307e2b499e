"""Rays of pinhole cameras against their twin: values, gradients in poses, intrinsics and pixels."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.gradcheck import gradcheck

import cases
import tinsmith as ts
from tinsmith import kernels, reference
from tinsmith.render import image_rays, pinhole_rays


def cameras(count, *, rows=4, dtype=torch.float64):
    """Make rotated and moved cameras of different focal lengths, with skew."""
    turns, _ = torch.linalg.qr(torch.randn(count, 3, 3, dtype=dtype))
    poses = torch.zeros(count, rows, 4, dtype=dtype)
    poses[:, :3, :3], poses[:, :3, 3] = turns, torch.randn(count, 3, dtype=dtype)
    poses[:, 3:, 3] = 1.0
    intrinsics = torch.zeros(count, 3, 3, dtype=dtype)
    intrinsics[:, 0, 0], intrinsics[:, 1, 1], intrinsics[:, 2, 2] = 40 + 20 * torch.rand(count), 55.0, 1.0
    intrinsics[:, 0, 1], intrinsics[:, 0, 2], intrinsics[:, 1, 2] = 1.5 * torch.rand(count), 30.0, 25.0
    return poses, intrinsics


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rows", [3, 4])
@pytest.mark.parametrize(
    ("convention", "normalize"), [("opencv", True), ("opengl", False)], ids=["opencv, unit", "opengl, to depth 1"]
)
def test_rays_and_their_gradients_agree_with_the_twin(engine, convention, normalize, rows):
    options = {"convention": convention, "normalize": normalize}
    chosen = torch.randint(3, (50,))
    inputs = (*cameras(3, rows=rows), 64 * torch.rand(50, 2, dtype=torch.float64))
    cases.assert_same_values_and_gradients(
        lambda *given: tuple(pinhole_rays(*given, chosen, engine=engine, **options)),
        lambda *given: reference.pinhole_rays(*given, chosen, **options),
        inputs,
    )


def test_one_camera_needs_no_index_and_one_lens_does_for_all(engine):
    poses, intrinsics = cameras(2)
    pixels = 64 * torch.rand(7, 2, dtype=torch.float64)
    alone = pinhole_rays(poses[0], intrinsics[0], pixels, engine=engine)
    cases.assert_close(alone, reference.pinhole_rays(poses[:1], intrinsics[:1], pixels, torch.zeros(7).long()))
    chosen = torch.tensor([0, 1, 1, 0, 0, 1, 0])
    both = pinhole_rays(poses, intrinsics[0], pixels, chosen.int(), engine=engine)
    cases.assert_close(both, reference.pinhole_rays(poses, intrinsics[:1].expand(2, 3, 3), pixels, chosen))


def test_gradcheck_of_poses_and_intrinsics(engine):
    poses, intrinsics = cameras(2, rows=3)
    pixels = 64 * torch.rand(5, 2, dtype=torch.float64)
    chosen = torch.tensor([0, 1, 1, 0, 1])
    inputs = [poses.requires_grad_(), intrinsics.requires_grad_()]
    assert gradcheck(lambda *given: tuple(pinhole_rays(*given, pixels, chosen, engine=engine)), inputs)


def test_all_rays_of_one_camera_add_up_in_the_gradient_of_its_pose(engine):
    poses, intrinsics = cameras(1, dtype=torch.float32)
    pixels = 64 * torch.rand(20_000, 2)
    weight = torch.randn(20_000, 3)

    def gradient():
        pose = poses[0].clone().requires_grad_()
        rays = pinhole_rays(pose, intrinsics[0], pixels, engine=engine)
        return torch.autograd.grad(((rays.origins + rays.directions) * weight).sum(), pose)[0]

    leaf = poses.double().requires_grad_()
    twin = reference.pinhole_rays(leaf, intrinsics.double(), pixels.double(), torch.zeros(20_000).long())
    (expected,) = torch.autograd.grad(((twin[0] + twin[1]) * weight).sum(), leaf)
    cases.assert_close(gradient(), expected[0].float(), rtol=1e-3, atol=1e-2)


def test_an_image_has_a_ray_through_the_middle_of_each_pixel(engine):
    (pose,), (intrinsics,) = cameras(1)
    rays = image_rays(pose, intrinsics, 5, 4, engine=engine)
    assert rays.origins.shape == rays.directions.shape == (4, 5, 3)
    one = pinhole_rays(pose, intrinsics, torch.tensor([[3.5, 1.5]], dtype=torch.float64), engine=engine)
    cases.assert_close((rays.origins[1, 3], rays.directions[1, 3]), (one.origins[0], one.directions[0]))


def test_a_blender_camera_looks_down_its_z_axis_with_y_up():
    intrinsics = torch.tensor([[10.0, 0, 8], [0, 10, 8], [0, 0, 1]])
    high = torch.tensor([[8.0, 0.0]])
    opengl = pinhole_rays(torch.eye(4), intrinsics, high, convention="opengl", normalize=False).directions
    opencv = pinhole_rays(torch.eye(4), intrinsics, high, convention="opencv", normalize=False).directions
    torch.testing.assert_close(opengl, torch.tensor([[0.0, 0.8, -1.0]]))
    torch.testing.assert_close(opencv, torch.tensor([[0.0, -0.8, 1.0]]))


def test_no_pixels_give_no_rays(engine):
    poses, intrinsics = cameras(1, dtype=torch.float32)
    pose = poses[0].requires_grad_()
    rays = pinhole_rays(pose, intrinsics[0], torch.empty(0, 2), engine=engine)
    assert rays.origins.shape == (0, 3)
    rays.directions.sum().backward()
    assert not pose.grad.any()


def test_unchecked_camera_indices_out_of_range_give_nan(lang):
    """As on CUDA, where looking would take a round trip."""
    spec = "poses[k, _, 4], intrinsics[k, 3, 3], pixels[n, 2], cameras[n]: i32 -> origins[n, 3], directions[n, 3]"
    op = ts.op(spec)(kernels.pinhole_rays(lang, fp="f32", forward=1, normalize=True))
    poses, intrinsics = cameras(2, dtype=torch.float32)
    chosen = torch.tensor([0, 2, -1], dtype=torch.int32)
    origins, directions = op(poses, intrinsics, torch.rand(3, 2), chosen)
    assert origins.isnan().all(-1).tolist() == directions.isnan().all(-1).tolist() == [False, True, True]
    assert not origins[0].isnan().any()


REFUSED = [
    (
        ts.ArgumentError,
        {"convention": "openGL"},
        "pinhole_rays got an unknown `convention`\n  expected  'opencv', 'opengl'\n  got       'openGL'\n"
        "Did you mean 'opengl'?",
    ),
    (
        ts.ArgumentError,
        {"cameras": None},
        "`cameras` is missing in pinhole_rays\n  expected  (n), the camera of each ray\n  got       None\n"
        "  poses     2 cameras\nPass cameras=, an index into poses for each ray.",
    ),
    (
        ts.ArgumentError,
        {"cameras": torch.tensor([0, 2, -1])},
        "`cameras` has an index out of range in pinhole_rays\n  expected  0 to 1\n  got       -1 to 2\n"
        "Pass indices into poses.",
    ),
    (
        ts.DtypeError,
        {"cameras": torch.tensor([0.0, 1.0, 1.0])},
        "`cameras` of pinhole_rays has the wrong dtype\n  expected  torch.int32 or torch.int64\n"
        "  got       torch.float32\nPass `cameras.long()`.",
    ),
    (
        ts.ShapeError,
        {"poses": torch.eye(3)},
        "`poses` has the wrong shape for a pinhole camera\n"
        "  expected  (k, 4, 4), (k, 3, 4), (4, 4) or (3, 4)\n  got       (3, 3)\nGive camera-to-world matrices.",
    ),
    (
        ts.ShapeError,
        {"intrinsics": torch.ones(4)},
        "`intrinsics` has the wrong shape for a pinhole camera\n"
        "  expected  (k, 3, 3) or (3, 3)\n  got       (4,)\nGive [[fx, 0, cx], [0, fy, cy], [0, 0, 1]].",
    ),
]


@pytest.mark.parametrize(
    ("error", "change", "words"), REFUSED, ids=lambda it: next(iter(it)) if isinstance(it, dict) else ""
)
def test_refusals(error, change, words):
    poses, intrinsics = cameras(2, dtype=torch.float32)
    given = {"poses": poses, "intrinsics": intrinsics, "pixels": torch.rand(3, 2), "cameras": torch.tensor([0, 1, 1])}
    with pytest.raises(error) as caught:
        pinhole_rays(**{**given, **change})
    assert str(caught.value) == words


def test_whole_numbers_of_pixels_are_refused():
    with pytest.raises(ts.DtypeError, match="`pinhole_rays` works in float32 or float64"):
        pinhole_rays(torch.eye(4), torch.eye(3), torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(ts.ShapeError, match="`pose` has the wrong shape"):
        image_rays(torch.eye(4)[None], torch.eye(3), 4, 4)
