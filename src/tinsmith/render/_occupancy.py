"""OccupancyGrid: the cells of space that contain something, updated from a radiance field while it trains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .. import kernels
from .._errors import ArgumentError, CheckpointError, ShapeError, refusal
from .._integers import read_integer, read_integers
from ..nn import read_checkpoint, write_checkpoint
from ..operation import Op, op
from ._cameras import find_visible_balls
from ._crossing import convert_box
from ._ops import get_op, register_maker

_BLOCK, _OCTETS = 4, 8
"""A word of the bit field: its block has 4 cells along each side, and it has 8 bytes, the lowest one first."""
_LONGEST_CAUSE = 400  # characters of an error that another one shows
_KIND = "tinsmith occupancy grid"


class OccupancyGrid(nn.Module):
    """A grid of cells, each with a density and an occupied flag. All cells are occupied at first.

    Level l covers the box scaled by 2^l about its center, with the same number of cells; where levels overlap, the
    finest one applies. The grid has buffers and no parameters, so it moves with its module and is part of its
    `state_dict`.
    Like nerfacc's `OccGridEstimator` it is updated every few steps (16, for example):

        if step % 16 == 0:
            grid.update(lambda positions: field.density(positions), step=step)

    Args:
        aabb: (6), lower corner x, y, z and upper corner x, y, z of the finest level, in world units.
        resolution: cells along each axis, or (x, y, z).
        levels: number of nested boxes, each twice as large as the one before.
        decay: the factor by which a cell's density is multiplied when the cell is sampled again.
        threshold: the density above which a cell is occupied, in the unit of `update`; see `binarise`.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one.

    Attributes:
        aabb: (6), float32.
        density: (levels, x, y, z), float32: the decayed maximum of the densities sampled in each cell; -1 in cells that
            `mark_invisible_cells` has marked.
        bits: int64, the bit field that `march` reads: a word for each block of 4 x 4 x 4 cells; see `occupied`.

    Raises:
        ShapeError: `aabb` is not a box.
        ArgumentError: a number is out of range.

    Example:
        >>> grid = ts.render.OccupancyGrid((-1, -1, -1, 1, 1, 1), resolution=32)
        >>> grid.update(lambda x: (x.norm(dim=-1) < 0.5).float(), step=0)
        >>> round(grid.share, 1)
        0.1
    """

    aabb: Tensor
    cells: Tensor
    density: Tensor
    bits: Tensor

    def __init__(
        self,
        aabb: Tensor | Sequence[float],
        resolution: int | Sequence[int] = 128,
        levels: int = 1,
        *,
        decay: float = 0.95,
        threshold: float = 0.01,
        engine: str | None = None,
    ) -> None:
        super().__init__()
        shape = _check_sizes(resolution, levels)
        _refuse_outside("decay", decay, 0.0, 1.0)
        _refuse_outside("threshold", threshold, 0.0, float("inf"))
        box = convert_box(aabb.tolist() if isinstance(aabb, Tensor) else aabb, torch.empty(0, dtype=torch.float32))
        self.decay, self.threshold, self.engine = decay, threshold, engine
        self.resolution, self.levels = shape[1:], shape[0]
        self.register_buffer("aabb", box)
        self.register_buffer("cells", torch.tensor(self.resolution, dtype=torch.int32), persistent=False)
        self.register_buffer("density", torch.zeros(shape))
        self.register_buffer("bits", torch.empty(0))
        self.occupied = torch.ones(shape, dtype=torch.bool)

    # What is occupied ---------------------------------------------------------------------
    @property
    def occupied(self) -> Tensor:
        """The occupied cells, (levels, x, y, z), bool: a copy. Assign a tensor to set them."""
        return _unpack_bits(self.bits, self.resolution)

    @occupied.setter
    def occupied(self, occupied: Tensor) -> None:
        expected = (self.levels, *self.resolution)
        if tuple(occupied.shape) != expected or occupied.dtype != torch.bool:
            rows = [("expected", f"{expected}, torch.bool"), ("got", f"{tuple(occupied.shape)}, {occupied.dtype}")]
            raise ShapeError(refusal("`occupied` does not fit the OccupancyGrid", rows, "Give a bool for each cell."))
        self.bits = _pack_bits(occupied.to(self.bits.device))

    @property
    def share(self) -> float:
        """The fraction of occupied cells, over all levels."""
        return float(self.occupied.float().mean())

    # What no camera sees ------------------------------------------------------------------
    @torch.no_grad()
    def mark_invisible_cells(
        self,
        poses: Tensor,
        intrinsics: Tensor,
        width: int,
        height: int,
        *,
        near: float = 0.0,
        convention: str = "opencv",
    ) -> None:
        """Mark the cells that no camera sees. They become empty, and `update` skips them.

        A cell is visible if its bounding ball intersects the frustum of a camera, so no partly visible cell is
        marked. Marks of an earlier call are replaced: cells that are visible now are occupied until the next `update`.

        Args:
            poses: (k, 4, 4), (k, 3, 4), or without k for one camera: camera to world, rotations and translations.
            intrinsics: (k, 3, 3), or (3, 3) for all cameras, in pixels; see `pinhole_rays`.
            width: width of the images in pixels.
            height: height of the images in pixels.
            near: the smallest depth that a camera sees, in world units.
            convention: "opencv" or "opengl".

        Raises:
            ShapeError: a tensor has another shape.
            ArgumentError: an unknown convention, or an image without pixels.

        Example:
            >>> grid = ts.render.OccupancyGrid((-1, -1, -1, 1, 1, 1), resolution=4)
            >>> intrinsics = torch.tensor([[32.0, 0, 32], [0, 32, 32], [0, 0, 1]])
            >>> grid.mark_invisible_cells(torch.eye(4), intrinsics, 64, 64)  # it looks along +z
            >>> grid.occupied[0, 2, 2].tolist()
            [False, True, True, True]
        """
        cells, device = self.density[0].numel(), self.density.device
        middles = torch.full((cells, 3), 0.5, device=device)
        for level in range(self.levels):
            centers = self._compute_positions(level, torch.arange(cells, device=device), middles)
            radius = ((self.aabb[3:] - self.aabb[:3]) * 2**level / self.cells).norm() / 2
            seen = find_visible_balls(
                centers, radius, poses, intrinsics, (width, height), near=near, convention=convention
            ).view(self.resolution)
            was_marked = self.density[level] < 0
            occupied = _unpack_bits(self.bits[level, None], self.resolution)[0]
            self.bits[level] = _pack_bits(((occupied | was_marked) & seen)[None])[0]
            self.density[level] = torch.where(seen, self.density[level].clamp(min=0), -1.0)

    # Updating ----------------------------------------------------------------------------
    @torch.no_grad()
    def update(
        self,
        density_fn: Callable[[Tensor], Tensor],
        *,
        step: int,
        warmup: int = 256,
        fraction: float = 0.25,
        generator: torch.Generator | None = None,
        chunk: int = 2**18,
    ) -> None:
        """Sample the density at a random position in each of some cells, and update which cells are occupied.

        The density of a sampled cell becomes max(decay * its density, the new sample); then `binarise` is called.
        Before step `warmup` all cells are sampled; after that, in each level, a random `fraction` of the cells, and the
        same number of occupied ones (all, if there are fewer). Cells that `mark_invisible_cells` has marked are left
        out.

        Args:
            density_fn: maps positions (m, 3) to densities (m) or (m, 1), not negative; or to densities times the
                length of a step, as in nerfacc: `threshold` then has this unit.
            step: the number of the training step.
            warmup: the first step that samples only some cells.
            fraction: the fraction of the cells that is sampled from step `warmup` on.
            generator: the random generator, on the grid's device.
            chunk: number of positions per call of `density_fn`, which limits the memory.

        Raises:
            ShapeError: `density_fn` returns another shape.
            ArgumentError: `density_fn` returns a NaN, or `fraction` or `chunk` is out of range.
        """
        _refuse_outside("fraction", fraction, 0.0, 1.0)
        _refuse_outside("chunk", chunk, 1, float("inf"))
        for level in range(self.levels):
            chosen = None if step < warmup else self._choose_cells(level, fraction, generator)
            self._sample_cells(density_fn, level, chosen, generator, int(chunk))
        self.binarise()

    def decay_(self) -> None:
        """Multiply the densities of all cells by `decay`, also of those that `update` skips, but not of cells marked
        invisible.

        Call `binarise` afterwards.
        """
        self.density = torch.where(self.density < 0, self.density, self.decay * self.density)

    def binarise(self) -> None:
        """Set the occupied cells to those with a density above min(mean of all visible cells, `threshold`)."""
        visible = (self.density >= 0).sum().clamp(min=1)
        bound = (self.density.clamp(min=0).sum() / visible).clamp(max=self.threshold).view(1)
        words: Op = get_op("occupied_bits", self.engine, self.density)
        x, y, z = self.bits.shape[1:]
        self.bits = words(self.density, bound, bx=x, by=y, bz=z)

    def _choose_cells(self, level: int, fraction: float, generator: torch.Generator | None) -> Tensor:
        """Draw a fraction of a level's cells, and as many of its occupied ones. Return their flat indices."""
        cells, device = self.density[level].numel(), self.density.device
        count = int(cells * fraction)
        drawn = torch.randint(cells, (count,), generator=generator, device=device)
        occupied = _unpack_bits(self.bits[level, None], self.resolution).flatten().nonzero()[:, 0]
        if len(occupied) > count:
            occupied = occupied[torch.randint(len(occupied), (count,), generator=generator, device=device)]
        return torch.cat([drawn, occupied])

    def _sample_cells(
        self,
        density_fn: Callable[[Tensor], Tensor],
        level: int,
        chosen: Tensor | None,
        generator: torch.Generator | None,
        chunk: int,
    ) -> None:
        held = self.density[level].view(-1)
        numbers = (held >= 0).nonzero()[:, 0] if chosen is None else chosen[held[chosen] >= 0]
        if not len(numbers):
            return
        parts = [density_fn(self._draw_positions(level, some, generator)) for some in numbers.split(chunk)]
        densities = torch.cat(
            [_check_density(part, len(some)) for part, some in zip(parts, numbers.split(chunk), strict=True)]
        )
        before = held[numbers]
        held[numbers] = self.decay * before  # a cell that was drawn twice gets the same value twice
        held.scatter_reduce_(0, numbers, densities.to(held), "amax")

    def _draw_positions(self, level: int, numbers: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw a random world position, (m, 3), in each cell with these flat indices (m)."""
        within = torch.rand((len(numbers), 3), generator=generator, device=numbers.device)
        return self._compute_positions(level, numbers, within)

    def _compute_positions(self, level: int, numbers: Tensor, within: Tensor) -> Tensor:
        """Convert positions within cells to world positions (m, 3).

        `numbers` (m) are flat indices of the cells; `within` (m, 3) is from 0 to 1 along a cell's sides.
        """
        _, y, z = self.resolution
        cell = torch.stack([numbers // (y * z), numbers // z % y, numbers % z], -1)
        middle, half = (self.aabb[:3] + self.aabb[3:]) / 2, (self.aabb[3:] - self.aabb[:3]) / 2
        return middle + half * 2**level * (2 * (cell + within) / self.cells - 1)

    # Files --------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write the grid to a safetensors file: its settings, densities and occupied cells.

        Raises:
            InputError: the file cannot be written.
        """
        settings = {name: getattr(self, name) for name in ("resolution", "levels", "decay", "threshold")}
        write_checkpoint(path, {"kind": _KIND, "settings": settings, "state": self.state_dict()})

    @classmethod
    def load(cls, path: str | Path, *, engine: str | None = None) -> OccupancyGrid:
        """Read a grid that `save` wrote, onto the CPU.

        Raises:
            CheckpointError: the file is missing, broken, or not written by `save`.
        """
        read = read_checkpoint(path)
        if read.get("kind") != _KIND:
            rows = [("file", str(path)), ("holds", str(read.get("kind", "something else")))]
            raise CheckpointError(refusal("the file holds no occupancy grid", rows, "Pass one that save() wrote."))
        try:
            settings, state = read["settings"], read["state"]
            # Checked before a grid of this size is allocated: the file may be far smaller than its settings claim.
            expected = _check_sizes(settings["resolution"], settings["levels"])
            if tuple(state["density"].shape) != expected:
                raise ValueError(f"densities {tuple(state['density'].shape)}, not {expected}")
            grid = cls(
                state["aabb"],
                settings["resolution"],
                settings["levels"],
                decay=settings["decay"],
                threshold=settings["threshold"],
                engine=engine,
            )
            grid.load_state_dict(state)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as cause:
            rows = [("file", str(path)), ("because", repr(cause)[:_LONGEST_CAUSE])]
            remedy = "Save the grid again."
            raise CheckpointError(refusal("the occupancy grid's file is broken", rows, remedy)) from cause
        return grid

    def extra_repr(self) -> str:
        box = ", ".join(f"{number:g}" for number in self.aabb.tolist())
        return f"({box}), resolution={self.resolution}, levels={self.levels}, {self.share:.1%} occupied"


def _check_sizes(resolution: int | Sequence[int], levels: int) -> tuple[int, int, int, int]:
    cells = read_integers(resolution) * (3 if read_integer(resolution) is not None else 1)
    number = read_integer(levels)
    if len(cells) != 3 or not all(1 <= count <= 2**20 for count in cells) or number is None or not 1 <= number <= 16:
        rows = [
            ("resolution", f"{resolution!r}", "1 to 2^20, one number or three"),
            ("levels", f"{levels!r}", "1 to 16"),
        ]
        remedy = "Pass values in range: resolution=128 is usual."
        raise ArgumentError(refusal("`resolution` or `levels` of OccupancyGrid is out of range", rows, remedy))
    return number, *cells


def _refuse_outside(name: str, number: float, least: float, most: float) -> None:
    if not least <= number <= most:
        rows = [("expected", f"{least} to {most}"), ("got", repr(number))]
        raise ArgumentError(refusal(f"`{name}` is out of range in OccupancyGrid", rows, f"Pass another {name}."))


def _check_density(density: Tensor, count: int) -> Tensor:
    """Check the densities that `density_fn` returned for `count` positions, and return them flat.

    Raises:
        ShapeError, ArgumentError: they have another shape, or contain NaN.
    """
    if density.numel() != count or density.ndim > 2:
        rows = [("expected", f"({count}) or ({count}, 1)"), ("got", str(tuple(density.shape)))]
        remedy = "Return one per position."
        raise ShapeError(refusal("`density_fn` of OccupancyGrid.update returned a wrong shape", rows, remedy))
    if bool(density.isnan().any()):
        rows = [("expected", "densities"), ("got", f"{int(density.isnan().sum())} NaN of {count}")]
        remedy = "Check the field's parameters for NaN."
        raise ArgumentError(refusal("`density_fn` of OccupancyGrid.update returned NaN", rows, remedy))
    return density.reshape(-1)


def _pack_bits(occupied: Tensor) -> Tensor:
    """Pack bools (l, x, y, z) into words (l, x / 4, y / 4, z / 4), int64, one for each block of 4 x 4 x 4 cells.

    Blocks at the upper ends are padded with empty cells.
    """
    missing = [extent for size in reversed(occupied.shape[1:]) for extent in (0, -size % _BLOCK)]
    padded = nn.functional.pad(occupied, missing)
    levels, x, y, z = (padded.shape[0], *(size // _BLOCK for size in padded.shape[1:]))
    blocks = padded.view(levels, x, _BLOCK, y, _BLOCK, z, _BLOCK).permute(0, 1, 3, 5, 2, 4, 6)
    octets = blocks.reshape(levels, x, y, z, _OCTETS, 8).byte() << _make_bit_indices(occupied)
    return octets.sum(-1, dtype=torch.uint8).view(torch.int64)[..., 0]


def _unpack_bits(bits: Tensor, resolution: tuple[int, int, int]) -> Tensor:
    """Unpack the words of `_pack_bits` to bools (l, x, y, z), without the padding."""
    levels, x, y, z = bits.shape
    alone = (bits[..., None].view(torch.uint8)[..., None] >> _make_bit_indices(bits)) & 1
    blocks = alone.bool().view(levels, x, y, z, _BLOCK, _BLOCK, _BLOCK).permute(0, 1, 4, 2, 5, 3, 6)
    whole = blocks.reshape(levels, _BLOCK * x, _BLOCK * y, _BLOCK * z)
    return whole[:, : resolution[0], : resolution[1], : resolution[2]]


def _make_bit_indices(like: Tensor) -> Tensor:
    return torch.arange(8, dtype=torch.uint8, device=like.device)


@register_maker("occupied_bits")
def _make_bits_op(lang: Any, fp: str) -> Op:  # noqa: ARG001  # as all makers
    spec = "density[l, x, y, z], threshold[1] -> bits[l, bx, by, bz]: i64"
    return op(spec, init={"bits": "empty"})(kernels.occupied_bits(lang))
