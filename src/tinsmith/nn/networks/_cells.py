"""Cells: the cells of a grid, and the selection of some of them by a mask, indices or positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..._errors import ArgumentError, refusal
from ..._integers import read_integers

At = torch.Tensor | Sequence[Any] | None


@dataclass(frozen=True)
class Cells:
    """The cells of a grid, numbered in row-major order."""

    grid_shape: tuple[int, ...]

    @property
    def count(self) -> int:
        return math.prod(self.grid_shape)

    def select(self, at: Any, device: torch.device) -> torch.Tensor:
        """Return the indices of the cells that a mask, indices or positions select: [k] int64.

        Raises:
            ArgumentError: the selection is invalid, see `NetworkArray.rows`.
        """
        given = _as_tensor(at, device)
        if given.dtype == torch.bool:
            if tuple(given.shape) != self.grid_shape:
                rows = [("expected", str(self.grid_shape)), ("got", str(tuple(given.shape)))]
                raise ArgumentError(refusal("the mask `at` does not have the shape of the grid", rows))
            return given.flatten().nonzero()[:, 0]
        return self._select_by_indices(given if given.numel() else given.long())

    def _select_by_indices(self, given: torch.Tensor) -> torch.Tensor:
        is_places = given.ndim == 2 and given.shape[1] == len(self.grid_shape)
        if given.is_floating_point() or given.is_complex() or not (given.ndim == 1 or is_places):
            rows = [("got", f"{tuple(given.shape)} {given.dtype}"), ("grid", str(self.grid_shape))]
            remedy = "Pass a boolean mask of the grid's shape, [k] indices of cells, or [k, axis] places."
            raise ArgumentError(refusal("`at` does not select cells", rows, remedy))
        given = given.long()  # torch cannot compare uint16
        sizes = torch.tensor(self.grid_shape if is_places else [self.count], device=given.device)
        outside = (given < 0) | (given >= sizes)
        if bool(outside.any()):
            rows = [("cell", str(given[outside.nonzero()[0, 0]].tolist())), ("grid", str(self.grid_shape))]
            remedy = f"Count cells from 0 to {self.count - 1}, or each axis of the grid from 0."
            raise ArgumentError(refusal("`at` names a cell outside the grid", rows, remedy))
        steps = torch.tensor([math.prod(self.grid_shape[axis + 1 :]) for axis in range(len(self.grid_shape))])
        cells = (given * steps.to(given.device)).sum(1) if is_places else given
        if len(cells.unique()) != len(cells):
            raise ArgumentError(refusal("`at` names a cell twice", remedy="Name each once."))
        return cells


def read_grid_shape(given: int | Sequence[int]) -> tuple[int, ...]:
    sizes = read_integers(given)
    if not sizes or min(sizes) < 1:
        rows = [("got", repr(given)), ("expected", "(8, 8), or 64")]
        raise ArgumentError(refusal("`grid_shape` is not the shape of a grid", rows))
    return sizes


def _as_tensor(at: Any, device: torch.device) -> torch.Tensor:
    """Convert a selection of cells to one tensor. A tuple of index arrays, one for each axis, becomes [k, axis]."""
    try:
        if isinstance(at, tuple) and at and all(getattr(axis, "ndim", 0) == 1 for axis in at):
            return torch.stack([torch.as_tensor(axis, device=device) for axis in at], 1)
        return torch.as_tensor(at, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        rows = [("got", f"{type(at).__name__}: {error}")]
        remedy = "Pass a boolean mask of the grid's shape, [k] indices of cells, or [k, axis] places."
        raise ArgumentError(refusal("`at` does not select cells", rows, remedy)) from error
