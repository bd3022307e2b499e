"""References of splatting 3-D Gaussians, in plain torch: one camera at a time, and one Gaussian at a time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import jacfwd, vmap

from ._encodings import spherical_harmonics

FAINTEST, MOST, OPAQUE = 1 / 255, 999 / 1000, 1 / 10000
EXTENT = 3.33
TILE = 16


class ProjectedGaussians(NamedTuple):
    """Gaussians projected to an image.

    Attributes:
        radii: (n, 2), integers, pixels; 0 if a Gaussian is not visible.
        means2d: (n, 2), the centers, pixels.
        depths: (n), along the camera's axis.
        conics: (n, 2, 2), inverse covariances in the image.
        compensations: (n), factors of the opacities for antialiasing.
    """

    radii: Tensor
    means2d: Tensor
    depths: Tensor
    conics: Tensor
    compensations: Tensor


def gaussian_covariance(quats: Tensor, scales: Tensor) -> Tensor:
    """Compute covariance matrices of Gaussians from rotations and scales: R S S R^T.

    R is the rotation of the normalized quaternion and S the diagonal of scales.

    Args:
        quats: (n, 4), w x y z, of any length but 0. Differentiable.
        scales: (n, 3), standard deviations along the Gaussian's axes. Differentiable.

    Returns:
        (n, 3, 3).

    Example:
        >>> gaussian_covariance(torch.tensor([[1.0, 0, 0, 0]]), torch.tensor([[1.0, 2, 3]])).diagonal(dim1=1, dim2=2)
        tensor([[1., 4., 9.]])
    """
    q = quats / quats.norm(dim=-1, keepdim=True)
    w, v = q[:, :1, None], q[:, 1:]
    zero = torch.zeros_like(v[:, 0])
    cross = torch.stack([zero, -v[:, 2], v[:, 1], v[:, 2], zero, -v[:, 0], -v[:, 1], v[:, 0], zero], -1).view(-1, 3, 3)
    turn = torch.eye(3, dtype=q.dtype) + 2 * w * cross + 2 * cross @ cross
    half = turn @ torch.diag_embed(scales)
    return half @ half.mT


def project_gaussians(
    means: Tensor,
    covars: Tensor,
    viewmat: Tensor,
    intrinsics: Tensor,
    width: int,
    height: int,
    *,
    opacities: Tensor | None = None,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    compensate: bool = False,
    camera_model: str = "pinhole",
) -> ProjectedGaussians:
    """Project Gaussians to the image of one camera: see `tinsmith.render.gaussians.fully_fused_projection`.

    Args:
        means: (n, 3), in the world. Differentiable.
        covars: (n, 3, 3). Differentiable.
        viewmat: (4, 4), world to camera. Differentiable.
        intrinsics: (3, 3), pixels. Differentiable.
        width: width of the image in pixels.
        height: height of the image in pixels.
        opacities: (n), for the radii; None for radii of 3.33 standard deviations.
        eps2d: added to the variances in the image, pixels squared.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: Gaussians without a radius above this, in pixels, are not visible.
        compensate: use the compensated opacities for the radii.
        camera_model: "pinhole", "ortho" or "fisheye".

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 32], [0, 50, 24], [0, 0, 1]])
        >>> means, covars = torch.tensor([[0.0, 0, 2]]), 0.01 * torch.eye(3)[None]
        >>> project_gaussians(means, covars, torch.eye(4), intrinsics, 64, 48).means2d
        tensor([[32., 24.]])
    """
    turn, shift = viewmat[:3, :3], viewmat[:3, 3]
    focal, middle = intrinsics.diagonal()[:2], intrinsics[:2, 2]
    before = means @ turn.T + shift
    depths = before[:, 2]

    def onto_image(point: Tensor) -> Tensor:
        if camera_model == "pinhole":
            flat = point[:2] / point[2]
        elif camera_model == "ortho":
            flat = point[:2]
        else:
            length = (point[:2].square().sum() + 1e-12).sqrt()
            flat = point[:2] * torch.atan2(length, point[2]) / length
        return focal * flat + middle

    where = before
    if camera_model == "pinhole":  # the derivative is evaluated at most 15% of the image outside of it
        size = torch.tensor([width, height], dtype=means.dtype)
        low, high = (-middle - 0.15 * size) / focal, (size - middle + 0.15 * size) / focal
        flat = torch.minimum(torch.maximum(before[:, :2] / depths[:, None], low), high)
        where = torch.cat([flat * depths[:, None], depths[:, None]], 1)
    linear = vmap(jacfwd(onto_image))(where) @ turn
    covar = linear @ covars @ linear.mT
    wide = covar + eps2d * torch.eye(2, dtype=means.dtype)
    ratio = torch.linalg.det(covar) / torch.linalg.det(wide)
    compensations = torch.where(ratio > 0, ratio.where(ratio > 0, 1.0).sqrt(), 0.0)
    means2d = vmap(onto_image)(before)
    with torch.no_grad():
        is_seen = (depths >= near_plane) & (depths <= far_plane) & (torch.linalg.det(wide) > 0)
        extent = torch.full_like(depths, EXTENT)
        if opacities is not None:
            times = 255 * opacities * (compensations if compensate else 1)
            is_seen = is_seen & (times >= 1)
            extent = extent.minimum((2 * times.clamp(min=1).log()).sqrt())
        radii = (extent[:, None] * wide.diagonal(dim1=1, dim2=2).sqrt()).ceil()
        size = torch.tensor([width, height], dtype=means.dtype)
        is_inside = ((means2d + radii > 0) & (means2d - radii < size)).all(1)
        is_seen = is_seen & is_inside & (radii > radius_clip).any(1)
        radii = torch.where(is_seen[:, None], radii, 0).int()
    return ProjectedGaussians(radii, means2d, depths, torch.linalg.inv(wide), compensations)


def blend_gaussians(
    projected: ProjectedGaussians,
    colors: Tensor,
    opacities: Tensor,
    width: int,
    height: int,
    tile_size: int = TILE,
) -> tuple[Tensor, Tensor]:
    """Blend projected Gaussians to an image: see `tinsmith.render.gaussians.rasterize_to_pixels`.

    Args:
        projected: the Gaussians. Differentiable in means2d and conics.
        colors: (n, d). Differentiable.
        opacities: (n). Differentiable.
        width: width of the image in pixels.
        height: height of the image in pixels.
        tile_size: side of a tile in pixels; a Gaussian is visible only in the tiles that its bounding box overlaps.

    Returns:
        Colors without a background, (height, width, d), and the remaining transmittance, (height, width).

    Example:
        >>> intrinsics = torch.tensor([[50.0, 0, 1.5], [0, 50, 0.5], [0, 0, 1]])
        >>> means, covars = torch.tensor([[0.0, 0, 2]]), 0.01 * torch.eye(3)[None]
        >>> projected = project_gaussians(means, covars, torch.eye(4), intrinsics, 3, 1)
        >>> blend_gaussians(projected, torch.ones(1, 1), torch.tensor([0.5]), 3, 1)[1]
        tensor([[0.5367, 0.5000, 0.5367]])
    """
    dtype = projected.means2d.dtype
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    tile = torch.stack([x, y], -1) // tile_size
    middle = torch.stack([x, y], -1).to(dtype) + 0.5
    image = torch.zeros(height, width, colors.shape[1], dtype=dtype)
    through, is_open = torch.ones(height, width, dtype=dtype), torch.ones(height, width, dtype=torch.bool)
    for i in projected.depths.float().argsort(stable=True).tolist():
        if not projected.radii[i].all():
            continue
        low = ((projected.means2d[i] - projected.radii[i]) / tile_size).floor()
        high = ((projected.means2d[i] + projected.radii[i]) / tile_size).ceil()
        apart = middle - projected.means2d[i]
        power = (apart * (apart @ projected.conics[i])).sum(-1) / 2
        alpha = (opacities[i] * torch.exp(-power)).clamp(max=MOST)
        is_hit = is_open & (tile >= low).all(-1) & (tile < high).all(-1) & (power >= 0) & (alpha >= FAINTEST)
        after = through * (1 - alpha)
        is_open = is_open & ~(is_hit & (after <= OPAQUE))
        is_hit = is_hit & is_open
        image = image + torch.where(is_hit, through * alpha, 0.0)[..., None] * colors[i]
        through = torch.where(is_hit, after, through)
    return image, through


def gaussian_colors(degree: int, directions: Tensor, coefficients: Tensor) -> Tensor:
    """Evaluate colors along directions: sums of coefficients times real spherical harmonics.

    Args:
        degree: the degree of the harmonics, 0 to 4.
        directions: (n, 3), of any length but 0. Differentiable.
        coefficients: (n, k, d), at least (degree + 1)^2 of them. Differentiable.

    Returns:
        (n, d).

    Example:
        >>> gaussian_colors(0, torch.tensor([[0.0, 0.0, 2.0]]), torch.ones(1, 1, 1))
        tensor([[0.2821]])
    """
    unit = directions / directions.norm(dim=-1, keepdim=True)
    basis = spherical_harmonics((unit + 1) / 2, degree + 1)
    return (basis[..., None] * coefficients[:, : (degree + 1) ** 2]).sum(-2)


def rasterize_gaussians(
    means: Tensor,
    quats: Tensor | None,
    scales: Tensor | None,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    intrinsics: Tensor,
    width: int,
    height: int,
    *,
    sh_degree: int | None = None,
    tile_size: int = TILE,
    backgrounds: Tensor | None = None,
    render_mode: str = "RGB",
    rasterize_mode: str = "classic",
    covars: Tensor | None = None,
    **projection: object,
) -> tuple[Tensor, Tensor]:
    """Render images of 3-D Gaussians: see `tinsmith.render.gaussians.rasterization`, without batch dims.

    Args:
        means: (n, 3), in the world. Differentiable, as all tensors.
        quats: (n, 4), w x y z; None if `covars` is passed.
        scales: (n, 3); None if `covars` is passed.
        opacities: (n), 0 to 1.
        colors: (n, d) or (c, n, d); with `sh_degree` coefficients (n, k, d) or (c, n, k, d).
        viewmats: (c, 4, 4), world to camera.
        intrinsics: (c, 3, 3), pixels.
        width: width of the images in pixels.
        height: height of the images in pixels.
        sh_degree: the degree of the harmonics; None for colors.
        tile_size: side of a tile in pixels.
        backgrounds: (c, d); None for 0.
        render_mode: "RGB", "D", "ED", "RGB+D" or "RGB+ED".
        rasterize_mode: "classic" or "antialiased".
        covars: (n, 3, 3), instead of `quats` and `scales`.
        projection: further options of `project_gaussians`.

    Returns:
        Images (c, height, width, X), with X channels by `render_mode`, and alphas (c, height, width, 1).

    Example:
        >>> means, covars = torch.tensor([[0.0, 0, 2]]), 0.01 * torch.eye(3)[None]
        >>> intrinsics = torch.tensor([[[50.0, 0, 2], [0, 50, 1.5], [0, 0, 1]]])
        >>> images, alphas = rasterize_gaussians(
        ...     means, None, None, torch.ones(1), torch.ones(1, 3), torch.eye(4)[None], intrinsics, 4, 3, covars=covars
        ... )
        >>> images.shape, alphas.shape
        (torch.Size([1, 3, 4, 3]), torch.Size([1, 3, 4, 1]))
    """
    if covars is None:
        assert quats is not None and scales is not None, "Gaussians have covars, or quats and scales"
        covars = gaussian_covariance(quats, scales)
    is_each_camera_s = colors.ndim == (3 if sh_degree is None else 4)
    images, alphas = [], []
    for c, (viewmat, camera) in enumerate(zip(viewmats, intrinsics, strict=True)):
        is_compensated = rasterize_mode == "antialiased"
        projected = project_gaussians(
            means,
            covars,
            viewmat,
            camera,
            width,
            height,
            opacities=opacities,
            compensate=is_compensated,
            **projection,  # type: ignore[arg-type]
        )
        shown = colors[c] if is_each_camera_s else colors
        if sh_degree is not None:
            directions = means - torch.linalg.inv(viewmat)[:3, 3]
            shown = (gaussian_colors(sh_degree, directions, shown) + 0.5).clamp(min=0)
        background = torch.zeros_like(shown[0]) if backgrounds is None else backgrounds[c]
        if render_mode != "RGB":
            has_color = render_mode.startswith("RGB")
            shown = torch.cat([shown[:, : shown.shape[1] if has_color else 0], projected.depths[:, None]], 1)
            background = torch.cat(
                [background[: len(background) if has_color else 0], torch.zeros_like(background[:1])]
            )
        peaks = opacities * projected.compensations if is_compensated else opacities
        image, through = blend_gaussians(projected, shown, peaks, width, height, tile_size)
        image, alpha = image + through[..., None] * background, (1 - through)[..., None]
        if render_mode.endswith("ED"):
            image = torch.cat([image[..., :-1], image[..., -1:] / alpha.clamp(min=1e-10)], -1)
        images.append(image)
        alphas.append(alpha)
    return torch.stack(images), torch.stack(alphas)
