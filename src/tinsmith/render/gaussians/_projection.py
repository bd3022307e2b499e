"""Differentiable projection of Gaussians to images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ... import kernels
from ..._errors import ArgumentError, refusal
from .._ops import cast_to_single, get_op, register_maker
from .._packed import check_floats
from .._rule import steady
from ._checks import CameraModel, is_ordered, number_rows, require_choice, require_last, require_positive, require_shape
from ._covariance import quat_scale_to_covar_preci

_NUMBERS = ("width", "height", "eps2d", "near_plane", "far_plane", "radius_clip")


@dataclass(frozen=True)
class Projection:
    """The options of a projection of Gaussians to images, with the names of `rasterization`."""

    width: int
    height: int
    eps2d: float = 0.3
    near_plane: float = 0.01
    far_plane: float = 1e10
    radius_clip: float = 0.0
    packed: bool = False
    sparse_grad: bool = False
    compensate: bool = False
    camera_model: CameraModel = "pinhole"

    def check(self, function: str) -> None:
        """Raise ArgumentError if an option is invalid. The message names the function."""
        require_positive(function, width=self.width, height=self.height)
        require_choice(function, "camera_model", self.camera_model, CameraModel)
        if self.sparse_grad and not self.packed:
            rows = [("packed", "False"), ("sparse_grad", "True")]
            headline = f"`sparse_grad` of `{function}` needs packed results"
            raise ArgumentError(refusal(headline, rows, "Pass packed=True, or leave `sparse_grad` out."))

    def numbers(self, count: int = 6) -> dict[str, float]:
        """Return the first `count` numeric options that kernels take, by name."""
        return {name: float(getattr(self, name)) for name in _NUMBERS[:count]}


class Shapes(NamedTuple):
    """The sizes of a scene: `batch` dims, and in each batch `n` Gaussians and `c` cameras."""

    batch: tuple[int, ...]
    n: int
    c: int

    @property
    def n_batches(self) -> int:
        return torch.Size(self.batch).numel()


class Scene(NamedTuple):
    """The Gaussians and cameras of all batches, with the batch dims flattened: g = batch * n rows, v = batch * c."""

    means: Tensor
    covars: Tensor | None
    quats: Tensor | None
    scales: Tensor | None
    opacities: Tensor | None
    viewmats: Tensor
    intrinsics: Tensor
    shapes: Shapes


@dataclass(frozen=True)
class Pairs:
    """Pairs of an image and a Gaussian, and the Gaussian's position in the image.

    Attributes:
        images, rows: (p), int32, indices of images and Gaussians among those of all batches.
        radii: (p, 2), int32, pixels.
        means2d, depths: (p, 2) in pixels, and (p).
        centers: (p, 3), centers in the world; None without sparse gradients.
    """

    images: Tensor
    rows: Tensor
    radii: Tensor
    means2d: Tensor
    depths: Tensor
    centers: Tensor | None


@dataclass(frozen=True)
class Projected(Pairs):
    """Pairs of an image and a projected Gaussian.

    Attributes:
        conics: (p, 3), inverse covariances in the image: xx, xy, yy.
        compensations: (p), factors of the opacities for antialiasing.
    """

    conics: Tensor
    compensations: Tensor


def fully_fused_projection(
    means: Tensor,
    covars: Tensor | None,
    quats: Tensor | None,
    scales: Tensor | None,
    viewmats: Tensor,
    Ks: Tensor,
    width: int,
    height: int,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    radius_clip: float = 0.0,
    packed: bool = False,
    sparse_grad: bool = False,
    calc_compensations: bool = False,
    camera_model: CameraModel = "pinhole",
    opacities: Tensor | None = None,
    *,
    engine: str | None = None,
) -> tuple[Tensor | None, ...]:
    """Project Gaussians to images.

    With t = R mean + translation the Gaussian's center in camera space, and J the derivative of the camera's
    projection there:

        mean2d = projection of t,   depth = t_z
        cov = J R covar R^T J^T,    conic = inverse of (cov + eps2d I)
        compensation = sqrt(max(0, det cov / det (cov + eps2d I)))
        radius = ceil(min(3.33, sqrt(2 log(255 opacity))) sqrt of the diagonal of (cov + eps2d I))

    A Gaussian is not visible, with radius 0, if its depth is outside near_plane to far_plane, if no pixel of the image
    is within its radius, if no radius is above radius_clip, or if its opacity is below 1 / 255. Discrete results are
    not differentiated.

    Args:
        means: (..., N, 3), in the world. Differentiable.
        covars: (..., N, 6), upper triangles; None if `quats` and `scales` are passed. Differentiable.
        quats: (..., N, 4), w x y z. Differentiable.
        scales: (..., N, 3). Differentiable.
        viewmats: (..., C, 4, 4), world to camera. Differentiable.
        Ks: (..., C, 3, 3), pixels; the skew is not read. Differentiable, unlike gsplat's.
        width: width of the images in pixels.
        height: height of the images in pixels.
        eps2d: added to the variances in the image, pixels squared.
        near_plane: the smallest visible depth.
        far_plane: the largest visible depth.
        radius_clip: Gaussians without a radius above this, in pixels, are not visible.
        packed: return a row for each visible pair of a camera and a Gaussian, instead of one for each pair.
        sparse_grad: gradients of means and of covars, or quats and scales, are sparse tensors. Needs `packed`, and no
            batch dims.
        calc_compensations: return compensations, and use them for the radii.
        camera_model: "pinhole", "ortho" or "fisheye" (equidistant).
        opacities: (..., N), for the radii only; not differentiable. None for radii of 3.33 standard deviations.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Returns:
        radii (..., C, N, 2) int32, means2d (..., C, N, 2), depths (..., C, N), conics (..., C, N, 3), compensations
        (..., C, N) or None; all are 0 if the radius is 0. With `packed`, batch_ids, camera_ids and gaussian_ids (nnz)
        int64 come first, and (nnz) replaces (..., C, N).

    Raises:
        ArgumentError: an option does not fit.
        ShapeError: tensors do not fit each other.
        DtypeError: they are not all float32 or all float64.

    Example:
        >>> means, covars = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[0.01, 0, 0, 0.01, 0, 0.01]])
        >>> Ks = torch.tensor([[[50.0, 0, 32], [0, 50, 24], [0, 0, 1]]])
        >>> project = ts.render.gaussians.fully_fused_projection
        >>> radii, means2d, depths, conics, _ = project(means, covars, None, None, torch.eye(4)[None], Ks, 64, 48)
        >>> radii, means2d, depths
        (tensor([[[9, 9]]], dtype=torch.int32), tensor([[[32., 24.]]]), tensor([[2.]]))
    """
    function = "fully_fused_projection"
    how = Projection(
        width,
        height,
        eps2d,
        near_plane,
        far_plane,
        radius_clip,
        packed,
        sparse_grad,
        calc_compensations,
        camera_model,
    )
    scene = check_scene(function, how, means, covars, quats, scales, opacities, viewmats, Ks)
    projected = project(scene, how, engine)
    values = (projected.radii, projected.means2d, projected.depths, projected.conics)
    compensations = projected.compensations if calc_compensations else None
    if packed:
        return (*find_indices(projected, scene.shapes), *values, compensations)
    front = (*scene.shapes.batch, scene.shapes.c, scene.shapes.n)
    dense = [value.view(*front, *value.shape[1:]) for value in values]
    return (*dense, None if compensations is None else compensations.view(front))


def check_scene(
    function: str,
    how: Projection,
    means: Tensor,
    covars: Tensor | None,
    quats: Tensor | None,
    scales: Tensor | None,
    opacities: Tensor | None,
    viewmats: Tensor,
    intrinsics: Tensor,
) -> Scene:
    """Check the arguments of a projection, and return them as a Scene, with the batch dims flattened.

    Raises:
        ArgumentError, ShapeError, DtypeError: they do not fit. The message names the function.
    """
    how.check(function)
    if covars is None and (quats is None or scales is None):
        rows = [("covars", "None"), ("quats", str(type(quats).__name__)), ("scales", str(type(scales).__name__))]
        remedy = "Pass quats and scales, or covars."
        raise ArgumentError(refusal(f"`{function}` got neither `covars` nor `quats` and `scales`", rows, remedy))
    given = {"means": means, "covars": covars, "opacities": opacities, "viewmats": viewmats, "Ks": intrinsics}
    if covars is None:
        given |= {"quats": quats, "scales": scales}
    tensors = {name: cast_to_single(tensor) for name, tensor in given.items() if tensor is not None}
    check_floats(function, tensors)
    require_last(function, "means", means, "[..., N, 3]", (means.shape[-2] if means.ndim > 1 else 0, 3))
    require_last(function, "viewmats", viewmats, "[..., C, 4, 4]", (4, 4))
    batch, n, c = tuple(means.shape[:-2]), means.shape[-2], viewmats.shape[-3] if viewmats.ndim > 2 else 0
    axes = {
        "covars": ("[..., N, 6]", (n, 6)),
        "quats": ("[..., N, 4]", (n, 4)),
        "scales": ("[..., N, 3]", (n, 3)),
        "opacities": ("[..., N]", (n,)),
        "viewmats": ("[..., C, 4, 4]", (c, 4, 4)),
        "Ks": ("[..., C, 3, 3]", (c, 3, 3)),
    }
    for name, (words, sizes) in axes.items():
        if name in tensors:
            require_shape(function, name, tensors[name], words, (*batch, *sizes))
    if how.sparse_grad and batch:
        rows = [("means", f"[..., N, 3] = {tuple(means.shape)}")]
        headline = f"`sparse_grad` of `{function}` does not support batch dims"
        raise ArgumentError(refusal(headline, rows, "Call it once per batch, or leave `sparse_grad` out."))

    def flat(name: str, last: int) -> Tensor | None:
        # Unchanged without batches: the backward pass of a reshape does not support sparse gradients.
        return tensors[name].flatten(0, -last) if name in tensors and batch else tensors.get(name)

    return Scene(
        tensors["means"].reshape(-1, 3) if batch else tensors["means"],
        flat("covars", 2),
        flat("quats", 2),
        flat("scales", 2),
        flat("opacities", 1),
        tensors["viewmats"].reshape(-1, 4, 4),
        tensors["Ks"].reshape(-1, 3, 3),
        Shapes(batch, n, c),
    )


def project(scene: Scene, how: Projection, engine: str | None) -> Projected:
    """Project Gaussians to images. Return the visible pairs if `how.packed`, else all pairs."""
    images, rows = list_all_pairs(scene.shapes, scene.means.device)
    covars = _get_covariances(scene, engine)
    with torch.no_grad():
        radii = _compute_radii(scene, covars.detach(), how, images, rows, engine)
    if how.packed:
        seen = radii[:, 0].nonzero()[:, 0]
        images, rows, radii = images[seen], rows[seen], radii[seen]
    means, centers, chosen = scene.means, None, rows
    if how.sparse_grad:
        scene = gather_rows(scene, rows)
        means, covars, centers, chosen = scene.means, _get_covariances(scene, engine), scene.means, number_rows(rows)
    op = get_op("gaussian_projection", engine, means, how.camera_model, is_ordered())
    outputs = op(means, covars, scene.viewmats, scene.intrinsics, images, chosen, radii, **how.numbers(3))
    means2d, depths, conics, compensations = outputs
    return Projected(images, rows, radii, means2d, depths, centers, conics, compensations)


def find_indices(pairs: Pairs, shapes: Shapes) -> tuple[Tensor, Tensor, Tensor]:
    """Return the indices of each pair's batch, camera and Gaussian within its batch: three tensors (p), int64."""
    images, rows = pairs.images.long(), pairs.rows.long()
    batches = images.div(max(shapes.c, 1), rounding_mode="floor")
    return batches, images - batches * shapes.c, rows - batches * shapes.n


def list_all_pairs(shapes: Shapes, device: torch.device) -> tuple[Tensor, Tensor]:
    batches, n, c = shapes.n_batches, shapes.n, shapes.c
    images = torch.arange(batches * c, dtype=torch.int32, device=device)
    rows = torch.arange(batches * n, dtype=torch.int32, device=device).view(batches, 1, n).expand(batches, c, n)
    return images[:, None].expand(batches * c, n).reshape(-1), rows.reshape(-1)


def _get_covariances(scene: Scene, engine: str | None) -> Tensor:
    if scene.covars is not None:
        return scene.covars
    assert scene.quats is not None and scene.scales is not None, "check_scene has checked this"
    covars, _ = quat_scale_to_covar_preci(scene.quats, scene.scales, compute_preci=False, triu=True, engine=engine)
    assert covars is not None
    return covars


def _compute_radii(
    scene: Scene, covars: Tensor, how: Projection, images: Tensor, rows: Tensor, engine: str | None
) -> Tensor:
    by_opacity = scene.opacities is not None
    opacities = covars.new_empty(0) if scene.opacities is None else scene.opacities.detach()
    op = get_op("gaussian_radii", engine, covars, how.camera_model, by_opacity, how.compensate)
    cameras = scene.viewmats.detach(), scene.intrinsics.detach()
    return op(scene.means.detach(), covars, opacities, *cameras, images, rows, **how.numbers())


def gather_rows(scene: Scene, rows: Tensor) -> Scene:
    """Gather the Gaussians with these indices, so that the gradients of the scene's tensors are sparse."""
    where = rows.long()

    def gather(given: Tensor | None) -> Tensor | None:
        return None if given is None else functional.embedding(where, given, sparse=True)

    means = functional.embedding(where, scene.means, sparse=True)
    return scene._replace(
        means=means, covars=gather(scene.covars), quats=gather(scene.quats), scales=gather(scene.scales)
    )


_CAMERAS = "viewmats[v, 4, 4], intrinsics[v, 3, 3], images[p]: i32, rows[p]: i32"


@register_maker("gaussian_radii")
def _make_radii_op(lang: Any, fp: str, camera_model: str, by_opacity: bool, compensate: bool) -> Any:
    kernel = kernels.gaussian_radii(
        lang, fp=fp, camera_model=camera_model, by_opacity=by_opacity, compensate=compensate
    )
    spec = f"means[g, 3], covars[g, 6], opacities[o], {_CAMERAS} -> radii[p, 2]: i32"
    return steady(spec, kernel, name="gaussian_radii")


@register_maker("gaussian_projection")
def _make_projection_op(lang: Any, fp: str, camera_model: str, ordered: bool) -> Any:
    kernel = kernels.gaussian_projection(lang, fp=fp, camera_model=camera_model)
    values = "means2d[p, 2], depths[p], conics[p, 3], compensations[p]"
    spec = f"means[g, 3], covars[g, 6], {_CAMERAS}, radii[p, 2]: i32 -> {values}"
    return steady(spec, kernel, adjoint="source", deterministic=ordered, name="gaussian_projection")
