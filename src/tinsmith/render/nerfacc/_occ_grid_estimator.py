"""OccGridEstimator: an occupancy grid, as nerfacc's estimator of this name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._errors import ArgumentError, ShapeError, refusal
from ..._integers import read_integer, read_integers
from ._grids import find_steps
from ._volrend import render_visibility_from_alpha, render_visibility_from_density

Sampled = tuple[Tensor, Tensor, Tensor]
"""ray_indices, t_starts, t_ends."""


class OccGridEstimator(nn.Module):
    """An occupancy grid that skips empty space, as nerfacc's estimator of this name. No cell is occupied at first.

    Level l covers the box scaled by 2^l about its center, with the same number of cells. It loads a `state_dict` of
    nerfacc's estimator, and nerfacc loads one of this. `tinsmith.render.OccupancyGrid` and `march` do the same with
    bits instead of bools, and are faster in large empty parts.

    Args:
        roi_aabb: (6), lower corner x, y, z and upper corner x, y, z of the finest level.
        resolution: cells along each axis, or (x, y, z).
        levels: number of nested boxes.
        engine: "taichi" or "quadrants"; None for a running engine, else Taichi.

    Attributes:
        resolution: (3), int32.
        aabbs: (levels, 6), the box of each level.
        occs: (levels * cells), the decayed maximum of each cell; -1 in cells that `mark_invisible_cells` has marked.
        binaries: (levels, x, y, z), bool, the occupied cells. A tensor may be assigned.

    Raises:
        ArgumentError, ShapeError: an argument does not fit.

    Example:
        >>> from tinsmith.render import nerfacc
        >>> estimator = nerfacc.OccGridEstimator([-1, -1, -1, 1, 1, 1], resolution=16)
        >>> estimator.update_every_n_steps(step=0, occ_eval_fn=lambda x: (x.norm(dim=-1, keepdim=True) < 0.5).float())
        >>> rays_o, rays_d = torch.tensor([[-3.0, 0.1, 0.1]]), torch.tensor([[1.0, 0.0, 0.0]])
        >>> ray_indices, t_starts, t_ends = estimator.sampling(rays_o, rays_d, render_step_size=0.1)
        >>> bool(t_starts.min() > 2.3), bool(t_ends.max() < 3.7)
        (True, True)
    """

    resolution: Tensor
    aabbs: Tensor
    occs: Tensor
    binaries: Tensor

    def __init__(
        self,
        roi_aabb: Tensor | Sequence[float],
        resolution: int | Sequence[int] | Tensor = 128,
        levels: int = 1,
        *,
        engine: str | None = None,
    ) -> None:
        super().__init__()
        box = torch.as_tensor(roi_aabb, dtype=torch.float32)
        levels, *cells = _check_sizes(box, resolution, levels)
        middle, half = (box[:3] + box[3:]) / 2, (box[3:] - box[:3]) / 2
        boxes = [torch.cat([middle - half * 2**level, middle + half * 2**level]) for level in range(levels)]
        self.levels, self.engine = levels, engine
        self.cells_per_lvl = cells[0] * cells[1] * cells[2]
        self.register_buffer("resolution", torch.tensor(cells, dtype=torch.int32))
        self.register_buffer("aabbs", torch.stack(boxes))
        self.register_buffer("occs", torch.zeros(levels * self.cells_per_lvl))
        self.register_buffer("binaries", torch.zeros([levels, *cells], dtype=torch.bool))

    @property
    def device(self) -> torch.device:
        """The device of the grid."""
        return self.occs.device

    @torch.no_grad()
    def sampling(
        self,
        rays_o: Tensor,
        rays_d: Tensor,
        sigma_fn: Callable[..., Tensor] | None = None,
        alpha_fn: Callable[..., Tensor] | None = None,
        near_plane: float = 0.0,
        far_plane: float = 1e10,
        t_min: Tensor | None = None,
        t_max: Tensor | None = None,
        render_step_size: float = 1e-3,
        early_stop_eps: float = 1e-4,
        alpha_thre: float = 0.0,
        stratified: bool = False,
        cone_angle: float = 0.0,
    ) -> Sampled:
        """Sample rays in the occupied cells: see `traverse_grids`. Not differentiable.

        Args:
            rays_o: (n_rays, 3), origins.
            rays_d: (n_rays, 3), directions.
            sigma_fn: maps t_starts, t_ends and ray_indices to densities (all_samples,); samples that are not visible
                are then dropped (`render_visibility_from_density`).
            alpha_fn: maps them to alphas, instead of `sigma_fn`.
            near_plane: the t at which rays start.
            far_plane: the t at which rays end.
            t_min: (n_rays,), the smallest start of each ray.
            t_max: (n_rays,), the largest end of each ray.
            render_step_size: the smallest length of a sample.
            early_stop_eps: the smallest transmittance of a visible sample.
            alpha_thre: the smallest alpha of a visible sample, at most the mean of `occs`.
            stratified: shift each ray's samples by a random part of the step.
            cone_angle: growth of the length with t; 0 for even lengths.

        Returns:
            ray_indices (all_samples,), int64; t_starts (all_samples,); t_ends (all_samples,).

        Raises:
            ShapeError: tensors do not fit, or a function returned another shape.
        """
        near_planes, far_planes = (torch.full_like(rays_o[..., 0], plane) for plane in (near_plane, far_plane))
        near_planes = near_planes if t_min is None else near_planes.maximum(t_min)
        far_planes = far_planes if t_max is None else far_planes.minimum(t_max)
        if stratified:
            near_planes = near_planes + torch.rand_like(near_planes) * render_step_size
        steps = find_steps(
            rays_o,
            rays_d,
            self.binaries,
            self.aabbs,
            near_planes=near_planes,
            far_planes=far_planes,
            step_size=render_step_size,
            cone_angle=cone_angle,
            engine=self.engine,
        )
        samples = steps.ray_indices, steps.starts, steps.ends
        if not (alpha_thre > 0 or early_stop_eps > 0) or (sigma_fn is None and alpha_fn is None):
            return samples
        bounds = {"early_stop_eps": early_stop_eps, "alpha_thre": min(alpha_thre, self.occs.mean().item())}
        name, function = ("alpha_fn", alpha_fn) if sigma_fn is None else ("sigma_fn", sigma_fn)
        measures = _ask_field(name, function, samples)
        packed: dict[str, Any] = {"packed_info": steps.packed_info, "engine": self.engine, **bounds}
        if sigma_fn is None:
            visible = render_visibility_from_alpha(measures, **packed)
        else:
            visible = render_visibility_from_density(steps.starts, steps.ends, measures, **packed)
        ray_indices, t_starts, t_ends = samples
        return ray_indices[visible], t_starts[visible], t_ends[visible]

    @torch.no_grad()
    def update_every_n_steps(
        self,
        step: int,
        occ_eval_fn: Callable[[Tensor], Tensor],
        occ_thre: float = 1e-2,
        ema_decay: float = 0.95,
        warmup_steps: int = 256,
        n: int = 16,
    ) -> None:
        """Update the grid if the step is a multiple of n. Call this in each training step.

        The value of each sampled cell becomes max(ema_decay * its value, the value at a random position in it), and a
        cell is occupied if its value is above min(mean of all visible cells, occ_thre).

        Args:
            step: the number of the training step.
            occ_eval_fn: maps positions (m, 3) to (m, 1) or (m,): densities times the step size.
            occ_thre: the threshold of an occupied cell.
            ema_decay: the factor of a cell's old value.
            warmup_steps: before this step, all cells are sampled; after it, in each level, a quarter of the cells and
                as many occupied ones.
            n: the number of steps between updates.

        Raises:
            ArgumentError: the estimator is not in training mode.
            ShapeError: `occ_eval_fn` returned another shape.
        """
        if not self.training:
            rows = [("expected", "training mode"), ("got", "evaluation mode")]
            remedy = "Call `.train()` before training goes on."
            raise ArgumentError(refusal("An OccGridEstimator is updated in training only", rows, remedy))
        if step % n == 0:
            self._update(step, occ_eval_fn, occ_thre, ema_decay, warmup_steps)

    @torch.no_grad()
    def mark_invisible_cells(
        self, K: Tensor, c2w: Tensor, width: int, height: int, near_plane: float = 0.0, chunk: int = 32**3
    ) -> None:
        """Mark the cells that no camera sees with -1, so that updates skip them. Call this once, before training.

        A cell is visible if its point is in an image, and is not too near to any camera that shows it. The points of
        the outermost cells are on the faces of the box, as in nerfacc.

        Args:
            K: (k, 3, 3) or (1, 3, 3), intrinsics in pixels.
            c2w: (k, 3, 4) or (k, 4, 4), camera to world, z ahead and y down.
            width: width of the images in pixels.
            height: height of the images in pixels.
            near_plane: the smallest depth that a camera sees.
            chunk: number of cells that are processed together, which limits the memory.

        Raises:
            ShapeError: a tensor has another shape.
        """
        if K.shape[1:] != (3, 3) or c2w.shape[1:] not in ((3, 4), (4, 4)) or K.shape[0] not in (1, c2w.shape[0]):
            rows = [
                ("K", str(tuple(K.shape)), "should be (k, 3, 3)"),
                ("c2w", str(tuple(c2w.shape)), "should be (k, 3, 4) or (k, 4, 4)"),
            ]
            remedy = "Add a batch dim: K[None], c2w[None]."
            raise ShapeError(refusal("The cameras of `mark_invisible_cells` have the wrong shapes", rows, remedy))
        rotations = c2w[:, :3, :3].transpose(2, 1)
        offsets = -rotations @ c2w[:, :3, 3:]
        size = torch.tensor([width, height], device=self.device)[:, None]
        for level, cells in enumerate(self._find_visible_cells()):
            for some in cells.split(chunk):
                within = self._compute_coords(some) / (self.resolution - 1).clamp(min=1)
                points = K @ (rotations @ self._compute_positions(level, within).T + offsets)
                pixels, depths = points[:, :2] / points[:, 2:], points[:, 2]
                is_in_image = (depths >= 0) & ((pixels >= 0) & (pixels < size)).all(1)
                is_near = depths < near_plane
                is_seen = (is_in_image & ~is_near).any(0) & ~(is_in_image & is_near).any(0)
                self.occs[level * self.cells_per_lvl + some] = torch.where(is_seen, 0.0, -1.0)

    @torch.no_grad()
    def _update(
        self,
        step: int,
        occ_eval_fn: Callable[[Tensor], Tensor],
        occ_thre: float = 0.01,
        ema_decay: float = 0.95,
        warmup_steps: int = 256,
    ) -> None:
        """Update the grid: sample cells, and set the occupied ones. nerfacc's users call this in evaluation mode."""
        some = self._find_visible_cells() if step < warmup_steps else self._draw_cells(self.cells_per_lvl // 4)
        for level, cells in enumerate(some):
            coords = self._compute_coords(cells)
            positions = self._compute_positions(
                level, (coords + torch.rand(coords.shape, device=self.device)) / self.resolution
            )
            values = occ_eval_fn(positions)
            if values.shape not in ((len(cells),), (len(cells), 1)):
                rows = [("expected", f"({len(cells)}, 1) or ({len(cells)},)"), ("got", str(tuple(values.shape)))]
                remedy = "Return one number per position."
                raise ShapeError(refusal("`occ_eval_fn` returned another shape", rows, remedy))
            places = level * self.cells_per_lvl + cells
            before = self.occs[places]
            self.occs[places] = ema_decay * before  # a cell that was drawn twice gets the same value twice
            self.occs.scatter_reduce_(0, places, values.reshape(-1).to(self.occs), "amax")
        threshold = self.occs[self.occs >= 0].mean().clamp(max=occ_thre)
        self.binaries = (self.occs > threshold).view(self.binaries.shape)

    def _find_visible_cells(self) -> list[Tensor]:
        """Return, for each level, the flat indices of the cells that are not marked as invisible."""
        return [(values >= 0).nonzero()[:, 0] for values in self.occs.view(self.levels, -1)]

    def _draw_cells(self, count: int) -> list[Tensor]:
        """Draw, for each level, `count` random cells and as many occupied ones. Return their flat indices."""
        chosen = []
        for level, values in enumerate(self.occs.view(self.levels, -1)):
            drawn = torch.randint(self.cells_per_lvl, (count,), device=self.device)
            occupied = self.binaries[level].flatten().nonzero()[:, 0]
            if count < len(occupied):
                occupied = occupied[torch.randint(len(occupied), (count,), device=self.device)]
            chosen.append(torch.cat([drawn[values[drawn] >= 0], occupied]))
        return chosen

    def _compute_coords(self, cells: Tensor) -> Tensor:
        """Convert flat indices of cells (m) to indices along the axes (m, 3)."""
        _, y, z = self.binaries.shape[1:]
        return torch.stack([cells // (y * z), cells // z % y, cells % z], -1)

    def _compute_positions(self, level: int, within: Tensor) -> Tensor:
        """Convert positions (m, 3) from 0 to 1 along the sides of a level's box to world units."""
        low, high = self.aabbs[level, :3], self.aabbs[level, 3:]
        return low + within * (high - low)


def _check_sizes(box: Tensor, resolution: int | Sequence[int] | Tensor, levels: int) -> tuple[int, ...]:
    """Return the number of levels, and the cells of each axis."""
    if box.shape != (6,) or not bool((box[:3] < box[3:]).all()):
        rows = [("expected", "x, y, z of the lower corner, x, y, z of the upper one"), ("got", str(box.tolist()))]
        raise ShapeError(refusal("`roi_aabb` of an OccGridEstimator is not a box", rows, "Pass (-1, -1, -1, 1, 1, 1)."))
    cells = read_integers(resolution) * (3 if read_integer(resolution) is not None else 1)
    number = read_integer(levels)
    if len(cells) != 3 or min(cells) < 1 or number is None or number < 1:
        rows = [
            ("resolution", repr(resolution), "one number or three, 1 or more"),
            ("levels", repr(levels), "1 or more"),
        ]
        remedy = "Pass 1 or more: 128 is usual."
        raise ArgumentError(refusal("`resolution` or `levels` of OccGridEstimator is out of range", rows, remedy))
    return number, *cells


def _ask_field(name: str, function: Any, samples: Sampled) -> Tensor:
    ray_indices, t_starts, t_ends = samples
    if not len(t_starts):
        return torch.empty_like(t_starts)
    measures = function(t_starts, t_ends, ray_indices)
    if measures.shape != t_starts.shape:
        rows = [("expected", str(tuple(t_starts.shape))), ("got", str(tuple(measures.shape)))]
        remedy = "Return one number for each sample; `.squeeze(-1)` removes a last dim of 1."
        raise ShapeError(refusal(f"`{name}` of `sampling` returned another shape", rows, remedy))
    return measures
