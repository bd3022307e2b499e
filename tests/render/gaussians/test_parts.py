"""The parts of rasterization: each against its twin or torch, by hand where that is possible, and what they refuse."""

from __future__ import annotations

import math

import pytest
import torch

import tinsmith as ts
from support.gaussians import HEIGHT, WIDTH, make_scene
from tinsmith import reference
from tinsmith.engines import get
from tinsmith.render.gaussians import (
    accumulate,
    fully_fused_projection,
    isect_offset_encode,
    isect_tiles,
    quat_scale_to_covar_preci,
    rasterization,
    rasterize_to_pixels,
    spherical_harmonics,
)

pytestmark = pytest.mark.thinned(4)

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
UPPER = ([0, 0, 0, 1, 1, 2], [0, 1, 2, 1, 2, 2])
DOUBLE = torch.float64


def one_gaussian(opacity=0.8, sigma=0.1, depth=2.0):
    """Make a round Gaussian in the middle of pixel (32, 24) of a camera with focal length 50."""
    values = [[[0.0, 0.0, depth]], [[1.0, 0.0, 0.0, 0.0]], [[sigma] * 3], [opacity], [[1.0]]]
    intrinsics = [[[50.0, 0, 32.5], [0, 50, 24.5], [0, 0, 1]]]
    return tuple(torch.tensor(value, dtype=DOUBLE) for value in [*values, torch.eye(4)[None].tolist(), intrinsics])


def test_one_gaussian_by_hand(engine):
    """The published formulas: sigma is 50 * 0.1 / 2 = 2.5 pixels, its square 6.25, and 0.3 are added."""
    images, alphas, meta = rasterization(*one_gaussian(), 64, 48, engine=engine)
    variance = 2.5**2 + 0.3
    for dx, dy in [(0, 0), (1, 0), (0, 3), (-4, 2)]:
        expected = 0.8 * math.exp(-(dx * dx + dy * dy) / (2 * variance))
        assert images[0, 24 + dy, 32 + dx, 0].item() == pytest.approx(expected, rel=1e-12)
    # Its edge is where alpha is 1 / 255.
    reach = math.sqrt(2 * math.log(255 * 0.8) * variance)
    assert meta["radii"].tolist() == [[math.ceil(reach)] * 2]
    assert images[0, 24, 32 + math.floor(reach), 0] > 0 == images[0, 24, 32 + math.ceil(reach), 0]
    torch.testing.assert_close(meta["conics"], torch.tensor([[1 / variance, 0, 1 / variance]], dtype=DOUBLE), **CLOSE)
    assert meta["means2d"].tolist() == [[32.5, 24.5]] and meta["depths"].tolist() == [2.0]


def test_two_gaussians_by_hand(engine):
    """The nearer one first, whatever their order: 0.8, then 0.2 of 0.5; the depth likewise."""
    near, far = one_gaussian(), one_gaussian(0.5, depth=4.0)
    both = [torch.cat([b, a]) for a, b in zip(near[:5], far[:5], strict=True)]
    both[4] = torch.eye(2, dtype=DOUBLE)
    images, alphas, _ = rasterization(*both, *near[5:], 64, 48, render_mode="RGB+ED", engine=engine)
    expected = torch.tensor([0.1, 0.8, (0.8 * 2 + 0.1 * 4) / 0.9], dtype=DOUBLE)
    torch.testing.assert_close(images[0, 24, 32], expected, **CLOSE)
    torch.testing.assert_close(alphas[0, 24, 32], torch.tensor([0.9], dtype=DOUBLE), **CLOSE)


def test_antialiased_by_hand(engine):
    given = one_gaussian()
    *_, meta = rasterization(*given, 64, 48, rasterize_mode="antialiased", engine=engine)
    assert meta["opacities"].item() == pytest.approx(0.8 * 6.25 / 6.55, rel=1e-12)


def test_covariances_and_precisions(engine):
    quats, scales = torch.randn(4, 5, 4, dtype=DOUBLE), 0.3 + torch.rand(4, 5, 3, dtype=DOUBLE)
    covar, preci = quat_scale_to_covar_preci(quats, scales, engine=engine)
    twin = reference.gaussian_covariance(quats.view(-1, 4), scales.view(-1, 3)).view(4, 5, 3, 3)
    torch.testing.assert_close(covar, twin, **CLOSE)
    torch.testing.assert_close(preci, torch.linalg.inv(twin), **CLOSE)
    upper, none = quat_scale_to_covar_preci(quats, scales, compute_preci=False, triu=True, engine=engine)
    assert torch.equal(upper, covar[..., UPPER[0], UPPER[1]]) and none is None


def test_gradients_of_covariances_and_precisions(engine):
    quats, scales = torch.randn(3, 4, dtype=DOUBLE), 0.3 + torch.rand(3, 3, dtype=DOUBLE)

    def both(quats, scales):
        return quat_scale_to_covar_preci(quats, scales, engine=engine)

    assert torch.autograd.gradcheck(both, (quats.requires_grad_(), scales.requires_grad_()))


def test_masked_harmonics(engine):
    dirs, coeffs = torch.randn(2, 3, 3, dtype=DOUBLE), torch.randn(2, 3, 9, 2, dtype=DOUBLE)
    masks = torch.tensor([[True, False, True], [False, True, True]])
    dirs.requires_grad_(), coeffs.requires_grad_()
    colors = spherical_harmonics(2, dirs, coeffs, masks, engine=engine)
    twin = reference.gaussian_colors(2, dirs.view(-1, 3), coeffs.view(6, 9, 2)).view(2, 3, 2) * masks[..., None]
    torch.testing.assert_close(colors, twin, **CLOSE)
    cotangent = torch.randn_like(colors)
    ours = torch.autograd.grad(colors, [dirs, coeffs], cotangent)
    for slope, expected in zip(ours, torch.autograd.grad(twin, [dirs, coeffs], cotangent), strict=True):
        torch.testing.assert_close(slope, expected, **CLOSE)


@pytest.mark.parametrize("camera_model", ["pinhole", "ortho", "fisheye"])
def test_projection(engine, camera_model):
    """Dense results are 0 where packed ones have no row, and both are the twin's."""
    given = make_scene(cameras=2)
    covars = reference.gaussian_covariance(given["quats"], given["scales"])
    cameras = (given["viewmats"], given["Ks"], WIDTH, HEIGHT)
    options = {"camera_model": camera_model, "calc_compensations": True, "engine": engine}
    opacities = given["opacities"]
    upper = covars[:, UPPER[0], UPPER[1]]
    dense = fully_fused_projection(given["means"], upper, None, None, *cameras, opacities=opacities, **options)
    by_scale = fully_fused_projection(
        given["means"], None, given["quats"], given["scales"], *cameras, opacities=opacities, **options
    )
    for one, other in zip(dense, by_scale, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    batch_ids, camera_ids, gaussian_ids, *packed = fully_fused_projection(
        given["means"], upper, None, None, *cameras, opacities=opacities, packed=True, **options
    )
    assert batch_ids.unique().tolist() == [0]
    for c in range(2):
        twin = reference.project_gaussians(
            given["means"],
            covars,
            given["viewmats"][c],
            given["Ks"][c],
            WIDTH,
            HEIGHT,
            opacities=opacities,
            compensate=True,
            camera_model=camera_model,
        )
        seen = twin.radii[:, 0] > 0
        assert 0 < seen.sum() < len(seen)
        conics = torch.stack([twin.conics[:, 0, 0], twin.conics[:, 0, 1], twin.conics[:, 1, 1]], -1)
        twins = (twin.radii, twin.means2d, twin.depths, conics, twin.compensations)
        assert torch.equal(gaussian_ids[camera_ids == c], seen.nonzero()[:, 0])
        for value, row, expected in zip(dense, packed, twins, strict=True):
            expected = expected * seen.view(-1, *[1] * (expected.ndim - 1))
            torch.testing.assert_close(value[c], expected, **CLOSE)
            torch.testing.assert_close(row[camera_ids == c], expected[seen], **CLOSE)


@pytest.mark.costly
def test_a_fisheye_camera_sees_what_is_on_its_axis(engine):
    given = [tensor.requires_grad_() for tensor in one_gaussian()]
    images, *_ = rasterization(*given, 64, 48, camera_model="fisheye", engine=engine)
    pinhole, *_ = rasterization(*given, 64, 48, engine=engine)
    torch.testing.assert_close(images[0, 24, 32], pinhole[0, 24, 32], **CLOSE)
    assert all(slope.isfinite().all() for slope in torch.autograd.grad(images.sum(), given))


def lists_by_hand(means2d, radii, depths, size, width, height):
    """List the Gaussians whose box overlaps each tile of each image, nearest first."""
    lists = []
    for image in range(len(means2d)):
        order = depths[image].float().argsort(stable=True).tolist()
        for y in range(height):
            for x in range(width):
                low = torch.tensor([x, y]) * size
                box = zip(order, means2d[image][order], radii[image][order], strict=True)
                inside = [i for i, mean, r in box if (r > 0).all() and _meets(mean, r, low, low + size)]
                lists.append([image * len(order) + i for i in inside])
    return lists


def _meets(mean, radius, low, high):
    return bool(((mean + radius > low) & (mean - radius < high)).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tile_lists(engine, dtype):
    means2d = torch.rand(2, 30, 2, dtype=dtype) * 80 - 10
    radii = torch.randint(0, 12, (2, 30, 2))
    depths = torch.rand(2, 30, dtype=dtype)
    depths[:, ::3] = 0.5  # which come in their order
    per_gaussian, keys, ids = isect_tiles(means2d, radii, depths, 16, 4, 3, engine=engine)
    offsets = isect_offset_encode(keys, 2, 4, 3)
    ends = [*offsets.flatten().tolist(), len(ids)]
    expected = lists_by_hand(means2d, radii, depths, 16, 4, 3)
    assert [ids[a:b].tolist() for a, b in zip(ends, ends[1:], strict=False)] == expected
    assert per_gaussian.flatten().tolist() == [sum(i in tile for tile in expected) for i in range(60)]
    assert (keys.diff() >= 0).all() and keys.dtype == torch.int64
    # A key is image, tile, depth: 12 tiles take 4 bits.
    image, tile = ids.long() // 30, torch.arange(24).repeat_interleave(torch.tensor([len(t) for t in expected])) % 12
    bits = depths.view(-1)[ids.long()].float().view(torch.int32).long()
    assert torch.equal(keys, image << 36 | tile << 32 | bits)
    unsorted = isect_tiles(means2d, radii, depths, 16, 4, 3, sort=False, engine=engine)
    assert torch.equal(unsorted[2], torch.arange(60).repeat_interleave(per_gaussian.flatten()).int())
    assert torch.equal(unsorted[1].sort(stable=True)[0], keys)


def test_packed_tile_lists(engine):
    means2d, radii, depths = torch.rand(2, 9, 2) * 60, torch.randint(1, 9, (2, 9, 2)), torch.rand(2, 9)
    dense = isect_tiles(means2d, radii, depths, 16, 4, 4, engine=engine)
    flat = (means2d.view(-1, 2), radii.view(-1, 2), depths.view(-1))
    images = torch.arange(2).repeat_interleave(9)
    packed = isect_tiles(*flat, 16, 4, 4, packed=True, n_images=2, image_ids=images, engine=engine)
    for one, other in zip(dense, packed, strict=True):
        assert torch.equal(one.flatten(), other)


def blended(given, meta, engine, **options):
    opacities, colors = meta["opacities"], given["colors"].expand(*meta["opacities"].shape, -1)
    lists = (meta["isect_offsets"], meta["flatten_ids"])
    tensors = (meta["means2d"], meta["conics"], colors, opacities)
    return rasterize_to_pixels(*tensors, WIDTH, HEIGHT, 16, *lists, engine=engine, **options)


def test_masked_tiles_show_the_background(engine):
    given = make_scene(cameras=1)
    backgrounds = given.pop("backgrounds")
    image, alpha, meta = rasterization(*given.values(), WIDTH, HEIGHT, packed=False, engine=engine)
    masks = torch.tensor([[[True, False, True], [False, True, True]]])
    shown, left = blended(given, meta, engine, masks=masks, backgrounds=backgrounds)
    wide = masks.repeat_interleave(16, 1).repeat_interleave(16, 2)[:, :HEIGHT, :WIDTH, None]
    torch.testing.assert_close(shown, torch.where(wide, image, 0) + (1 - left) * backgrounds[:, None, None], **CLOSE)
    torch.testing.assert_close(left, torch.where(wide, alpha, 0), **CLOSE)


def test_new_sizes_compile_nothing(engine, monkeypatch, configure):
    """The number of Gaussians, of visible ones and of pairs changes with each step.

    On several threads throughout: a kernel has a twin for one thread, compiled when a call is small enough for it.
    """
    configure(serial_below="0")
    compiled, real = [], get(engine).compile

    def compile_noted(function, *given, **options):
        compiled.append(function.__name__)
        return real(function, *given, **options)

    monkeypatch.setattr(get(engine), "compile", compile_noted)

    def step(n, cameras):
        given = make_scene(n, cameras, channels=5, sh_degree=2)  # as no other test has
        given.pop("backgrounds")
        leaves = [tensor.float().requires_grad_() for tensor in given.values()]
        image, alpha, _ = rasterization(*leaves, WIDTH, HEIGHT, sh_degree=2, engine=engine)
        torch.autograd.grad(image.square().sum() + alpha.sum(), leaves)

    step(40, 1)
    step(17, 2)
    before = len(compiled)
    assert before > 0
    for n, cameras in [(23, 1), (31, 2), (55, 3), (8, 1)]:
        step(n, cameras)
    assert compiled[before:] == []


REFUSED = [
    ({"render_mode": "RGBD"}, ts.ArgumentError, "`render_mode` of `rasterization` has an unknown value"),
    ({"rasterize_mode": "smooth"}, ts.ArgumentError, "expected  'classic', 'antialiased'"),
    ({"camera_model": "ftheta"}, ts.ArgumentError, "expected  'pinhole', 'ortho', 'fisheye'"),
    ({"sparse_grad": True, "packed": False}, ts.ArgumentError, "`sparse_grad` of `rasterization` needs packed results"),
    ({"sparse_grad": True, "covars": torch.zeros(24, 3, 3)}, ts.ArgumentError, "have no sparse gradient"),
    ({"sh_degree": 5}, ts.ArgumentError, "0 to 4"),
    ({"sh_degree": 1, "colors": torch.zeros(24, 3, 3, dtype=DOUBLE)}, ts.ShapeError, "too few coefficients"),
    ({"tile_size": 0}, ts.ArgumentError, "`tile_size` of `rasterization` must be a positive integer"),
    ({"means": torch.zeros(24, 2, dtype=DOUBLE)}, ts.ShapeError, "`means` of `rasterization` has the wrong shape"),
    ({"quats": torch.zeros(23, 4, dtype=DOUBLE)}, ts.ShapeError, r"[..., N, 4] = (24, 4)"),
    ({"quats": None}, ts.ArgumentError, "Pass quats and scales"),
    ({"opacities": torch.zeros(24)}, ts.DtypeError, "are not all float32"),
    ({"colors": torch.zeros(23, 3, dtype=DOUBLE)}, ts.ShapeError, "`colors` of `rasterization` has the wrong shape"),
    ({"Ks": torch.zeros(3, 3, 3, dtype=DOUBLE)}, ts.ShapeError, "`Ks` of `rasterization` has the wrong shape"),
    ({"backgrounds": torch.zeros(2, 4, dtype=DOUBLE)}, ts.ShapeError, "`backgrounds`"),
    ({"covars": torch.zeros(24, 6, dtype=DOUBLE)}, ts.ShapeError, "`covars` of `rasterization` has the wrong shape"),
    ({"width": 0}, ts.ArgumentError, "`width` of `rasterization` must be a positive integer"),
]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(("change", "error", "words"), REFUSED, ids=[words for *_, words in REFUSED])
def test_refusals(change, error, words):
    given = make_scene() | {"width": WIDTH, "height": HEIGHT} | change
    with pytest.raises(error) as caught:
        rasterization(**given)
    assert words in str(caught.value)


def test_packed_tile_lists_need_images():
    with pytest.raises(ts.ArgumentError, match="needs the images of packed Gaussians"):
        isect_tiles(torch.zeros(2, 2), torch.ones(2, 2), torch.ones(2), 16, 4, 4, packed=True)


@pytest.mark.parametrize("channels", [3, 11])
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "dense"])
def test_absolute_gradients(engine, packed, channels):
    """The sum of what the gradients of single pixels are, each taken absolute: by as many backward passes."""
    given = make_scene(12, channels=channels)
    given["opacities"][1::4] = 1.0  # some alphas are cut off
    names = ("means", "quats", "scales", "opacities", "colors", "viewmats", "Ks")
    inputs = [given[name].requires_grad_() for name in names]
    options = {"packed": packed, "engine": engine, "backgrounds": given["backgrounds"]}
    image, alpha, meta = rasterization(*inputs, 20, 12, absgrad=True, **options)
    means2d = meta["means2d"]
    cotangents = torch.randn_like(image), torch.randn_like(alpha)
    assert not hasattr(means2d, "absgrad")
    (slope,) = torch.autograd.grad([image, alpha], means2d, cotangents, retain_graph=True)
    absolute = means2d.absgrad
    pixels = (image * cotangents[0]).sum(-1) + (alpha * cotangents[1]).sum(-1)
    each = [torch.autograd.grad(pixel, means2d, retain_graph=True)[0] for pixel in pixels.flatten()]
    torch.testing.assert_close(sum(each), slope, **CLOSE)
    torch.testing.assert_close(absolute, sum(one.abs() for one in each), **CLOSE)
    plain, *_ = rasterization(*inputs, 20, 12, **options)
    torch.testing.assert_close(image, plain, rtol=0, atol=0)


@pytest.mark.parametrize("sh_degree", [None, 2])
def test_sparse_gradients(engine, sh_degree):
    given = make_scene(sh_degree=sh_degree)
    del given["backgrounds"]
    inputs = {name: x.requires_grad_() for name, x in given.items()}
    options = {"width": WIDTH, "height": HEIGHT, "sh_degree": sh_degree, "engine": engine}
    slopes, seen = [], torch.empty(0)
    for sparse_grad in (False, True):
        image, _, meta = rasterization(**inputs, sparse_grad=sparse_grad, **options)
        seen = meta["gaussian_ids"].unique()
        wanted = [inputs[name] for name in ("means", "quats", "scales")]
        slopes.append(torch.autograd.grad(image.square().sum(), wanted))
    assert_sparse(*slopes, seen)


def test_sparse_gradients_of_covariances(engine):
    given = make_scene()
    covars = reference.gaussian_covariance(given["quats"], given["scales"])[:, UPPER[0], UPPER[1]].requires_grad_()
    means, cameras = given["means"].requires_grad_(), (given["viewmats"], given["Ks"])
    slopes, seen = [], torch.empty(0)
    for sparse_grad in (False, True):
        options = {"packed": True, "sparse_grad": sparse_grad, "engine": engine}
        _, _, ids, _, *projected, _ = fully_fused_projection(
            means, covars, None, None, *cameras, WIDTH, HEIGHT, **options
        )
        seen = ids.unique()
        slopes.append(torch.autograd.grad(sum(y.square().sum() for y in projected), [means, covars]))
    assert_sparse(*slopes, seen)


def assert_sparse(plain_ones, sparse_ones, seen):
    for plain, sparse in zip(plain_ones, sparse_ones, strict=True):
        assert sparse.is_sparse and not plain.is_sparse
        torch.testing.assert_close(sparse.to_dense(), plain, **CLOSE)
        rows = sparse.coalesce().indices()[0].unique()
        assert torch.equal(rows, seen) and len(rows) < len(plain)


def test_pairs_that_are_given(engine):
    """All pairs of a pixel and a Gaussian, by depth: what rasterization leaves out is little, with faint Gaussians."""
    given = make_scene(9)
    given["opacities"] = given["opacities"] * 0.2
    del given["backgrounds"]
    options = {"packed": False, "engine": engine}
    image, alpha, meta = rasterization(**given, width=WIDTH, height=HEIGHT, **options)
    pairs = []
    for c in range(2):
        order = meta["depths"][c].argsort()
        order = order[meta["radii"][c, order, 0] > 0]
        n_pixels = WIDTH * HEIGHT
        ids = order.repeat(n_pixels)
        pixels = torch.arange(n_pixels).repeat_interleave(len(order))
        pairs.append(torch.stack([ids, pixels, torch.full_like(ids, c)]))
    ids, pixels, images = torch.cat(pairs, 1)
    colors = given["colors"].expand(2, -1, -1)
    leaves = [x.detach().requires_grad_() for x in (meta["means2d"], meta["conics"], meta["opacities"], colors)]
    seen, left = accumulate(*leaves, ids, pixels, images, WIDTH, HEIGHT, engine=engine)
    assert (seen - image).abs().max() < 9 / 255 * colors.abs().max()
    # The same in torch, for all Gaussians of an image at once.
    y, x = torch.meshgrid(torch.arange(HEIGHT) + 0.5, torch.arange(WIDTH) + 0.5, indexing="ij")
    apart = torch.stack([x, y], -1)[None, :, :, None] - leaves[0][:, None, None]
    matrix = leaves[1][..., [0, 1, 1, 2]].unflatten(-1, (2, 2))[:, None, None]
    power = (apart[..., None, :] @ matrix @ apart[..., None])[..., 0, 0] / 2
    peak = torch.where(meta["radii"][..., 0] > 0, leaves[2], 0.0)
    twins = []
    for c in range(2):
        order = meta["depths"][c].argsort()
        a = (peak[c] * torch.exp(-power[c]))[..., order].clamp(max=0.999)
        weight = a * torch.cat([torch.ones_like(a[..., :1]), (1 - a).cumprod(-1)[..., :-1]], -1)
        twins.append(weight @ torch.cat([leaves[3][c, order], torch.ones(9, 1, dtype=DOUBLE)], -1))
    twin = torch.stack(twins)
    ours = torch.cat([seen, left], -1)
    torch.testing.assert_close(ours, twin, **CLOSE)
    cotangent = torch.randn_like(ours)
    slopes = torch.autograd.grad(ours, leaves, cotangent), torch.autograd.grad(twin, leaves, cotangent)
    for slope, expected in zip(*slopes, strict=True):
        torch.testing.assert_close(slope, expected, **CLOSE)
