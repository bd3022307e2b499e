"""Samples: which samples belong to which network, laid out for a launch.

Equal batches are laid out once a size. Scattered points are sorted by their network, by counting, and so are their
numbers: looked up by the networks' kernels, each would be waited for between two sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..._cache import cache_results
from ...calls import language
from ...engines import NAMES
from ...kernels import counting_sort, move_rows
from ...operation import Op, OpOptions
from ...torch_side import Family, Recipe, register_family
from ...tracing import constant_when_traced, has_modes, outside_transforms

_TASKS_PER_THREAD = 8
"""Tasks are what is shared out: enough that a thread that is late does not keep the others waiting."""


class Samples(NamedTuple):
    """What the kernels of `kernels.forward_networks` take besides numbers, int32, in its letters."""

    start: torch.Tensor
    first: torch.Tensor


def equal_batches(cells: int, batch: int, device: torch.device) -> Samples:
    """Of `cells` networks with `batch` samples each, one after the other in memory."""
    if torch.compiler.is_compiling() or has_modes():  # fake tensors would be kept for true ones
        return _lay_out_samples(cells, batch, device)
    return _get_layout(cells, batch, device, torch.get_num_threads())


@cache_results("layouts of batches", 8)
def _get_layout(cells: int, batch: int, device: torch.device, _threads: int) -> Samples:
    """Few, for they are as long as batches are: a training of any few networks has many sizes."""
    with outside_transforms():
        return _lay_out_samples(cells, batch, device)


def _lay_out_samples(cells: int, batch: int, device: torch.device) -> Samples:
    tasks = _tasks(cells, device.type)
    start = torch.arange(cells + 1, device=device) * batch
    first = torch.arange(tasks + 1, device=device) * cells // tasks
    return Samples(start.int(), first.int())


class Sorting(NamedTuple):
    """Scattered samples, those of one network beside each other."""

    samples: Samples
    place: torch.Tensor
    """[sample] int32: where each stands."""
    engine: str | None

    def sort(self, rows: torch.Tensor) -> torch.Tensor:
        """[sample, channel], each row to its place. Differentiable."""
        return _Sorted.apply(rows, self.place, self.engine)

    def restore(self, rows: torch.Tensor) -> torch.Tensor:
        """[sample, channel] in the order in which they were passed. Differentiable."""
        return _Restored.apply(rows, self.place, self.engine)


class _Sorted(torch.autograd.Function):
    """As torch's own, by index; but no two rows have one place, so the gradient is moved back, not added up."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, place: torch.Tensor, engine: str | None) -> torch.Tensor:
        ctx.engine = engine
        ctx.save_for_backward(place)
        return _OPS[_mover(engine, rows.device, rows.dtype, rows.shape[1])](rows, place)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Restored.apply(gradients[0], *ctx.saved_tensors, ctx.engine), None, None


class _Restored(torch.autograd.Function):
    """The other way."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, place: torch.Tensor, engine: str | None) -> torch.Tensor:
        ctx.engine = engine
        ctx.save_for_backward(place)
        return rows.index_select(0, place)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Sorted.apply(gradients[0], *ctx.saved_tensors, ctx.engine), None, None


def sort_by_network(cells: torch.Tensor, count: int, engine: str | None) -> Sorting:
    """Scattered samples by the network of each: [sample] int64, below `count`."""
    if cells.device.type == "cpu":
        place, start = _OPS[_sorter(engine, cells.device)](cells, count=count, ends=count + 1)
    else:
        order = torch.argsort(cells, stable=True)
        place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device)).int()
        start = torch.nn.functional.pad(torch.bincount(cells, minlength=count).cumsum(0), (1, 0)).int()
    tasks = _tasks(count, cells.device.type)
    shares = torch.linspace(0, len(cells), tasks + 1, dtype=torch.float64, device=cells.device).int()
    first = torch.searchsorted(start, shares, out_int32=True).clamp(max=count)
    first[0], first[-1] = 0, count
    return Sorting(Samples(start, first), place, engine)


@constant_when_traced
def _tasks(cells: int, device: str) -> int:
    if device != "cpu":
        return cells
    return max(1, min(cells, _TASKS_PER_THREAD * torch.get_num_threads()))


# A tracer takes keys for constants, and would look into what makes an op.
_Key = tuple[str, str, int]
_OPS: dict[_Key, Op] = {}


@constant_when_traced
def _sorter(engine: str | None, device: torch.device) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, "sort", 0)
    if key not in _OPS:
        spec = "cells[n]: i64 -> place[n]: i32, start[ends]: i32"
        recipe = Recipe("sorting", key[0], ("sort", 0))
        options = OpOptions(scratch="tally[count]: i32", init={"place": "empty"}, steady=True, recipe=recipe)
        _OPS[key] = Op([counting_sort(lang)], spec, options)
    return key


@constant_when_traced
def _mover(engine: str | None, device: torch.device, dtype: torch.dtype, channels: int) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, NAMES[dtype], channels)
    if key not in _OPS:
        spec = f"rows[n, {channels}], place[n]: i32 -> moved[n, {channels}]"
        kernel = move_rows(lang, fp=NAMES[dtype], channels=channels)
        recipe = Recipe("sorting", key[0], ("move", channels))
        _OPS[key] = Op([kernel], spec, OpOptions(init={"moved": "empty"}, races="allow", steady=True, recipe=recipe))
    return key


def _find(engine: str, device: torch.device, dtype: torch.dtype, which: str, channels: int) -> Op:
    return _OPS[_sorter(engine, device) if which == "sort" else _mover(engine, device, dtype, channels)]


register_family("sorting", Family(_find))
