"""Samples: the assignment of samples to networks, as the fused kernels take it.

That of equal batches is computed once per size. Scattered points are sorted by network with a counting sort, and
their values are moved to the sorted order: gathering them in the networks' kernels would stall on each load.
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
from ...tracing import constant_when_traced, has_modes, suspend_transforms

_TASKS_PER_THREAD = 8
"""Tasks are what threads are assigned: enough of them that one slow thread does not delay the whole launch."""


class Samples(NamedTuple):
    """The index arguments of `kernels.forward_networks`, int32 tensors.

    Attributes:
        start: the first sample of each network, and the number of samples.
        first: the first network of each task, and the number of networks.
    """

    start: torch.Tensor
    first: torch.Tensor


def lay_out_batches(cells: int, batch: int, device: torch.device) -> Samples:
    """Return the assignment of samples for `cells` networks with `batch` consecutive samples each."""
    if torch.compiler.is_compiling() or has_modes():  # the cache must not keep fake tensors
        return _lay_out_samples(cells, batch, device)
    return _get_layout(cells, batch, device, torch.get_num_threads())


@cache_results("layouts of batches", 8)
def _get_layout(cells: int, batch: int, device: torch.device, _threads: int) -> Samples:
    """Return the assignment of samples of equal batches, cached. Training of some networks at a time has many sizes."""
    with suspend_transforms():
        return _lay_out_samples(cells, batch, device)


def _lay_out_samples(cells: int, batch: int, device: torch.device) -> Samples:
    tasks = _count_tasks(cells, device.type)
    start = torch.arange(cells + 1, device=device) * batch
    first = torch.arange(tasks + 1, device=device) * cells // tasks
    return Samples(start.int(), first.int())


class Sorting(NamedTuple):
    """A permutation of scattered samples that makes those of each network contiguous."""

    samples: Samples
    place: torch.Tensor
    """[sample] int32: the position of each sample in the sorted order."""
    engine: str | None

    def sort(self, rows: torch.Tensor) -> torch.Tensor:
        """Permute the rows of [sample, channel] to the sorted order. Differentiable."""
        return _Sorted.apply(rows, self.place, self.engine)

    def restore(self, rows: torch.Tensor) -> torch.Tensor:
        """Permute sorted rows, [sample, channel], back to the original order. Differentiable."""
        return _Restored.apply(rows, self.place, self.engine)


class _Sorted(torch.autograd.Function):
    """The permutation of rows to the sorted order. Its backward pass is the inverse permutation, without additions."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, place: torch.Tensor, engine: str | None) -> torch.Tensor:
        ctx.engine = engine
        ctx.save_for_backward(place)
        return _OPS[_build_moving_op(engine, rows.device, rows.dtype, rows.shape[1])](rows, place)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Restored.apply(gradients[0], *ctx.saved_tensors, ctx.engine), None, None


class _Restored(torch.autograd.Function):
    """The permutation of rows from the sorted order back to the original one."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, place: torch.Tensor, engine: str | None) -> torch.Tensor:
        ctx.engine = engine
        ctx.save_for_backward(place)
        return rows.index_select(0, place)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return _Sorted.apply(gradients[0], *ctx.saved_tensors, ctx.engine), None, None


def sort_by_network(cells: torch.Tensor, count: int, engine: str | None) -> Sorting:
    """Sort samples by network. `cells`, [sample] int64, is the network of each sample, less than `count`."""
    if cells.device.type == "cpu":
        place, start = _OPS[_build_sorting_op(engine, cells.device)](cells, count=count, ends=count + 1)
    else:
        order = torch.argsort(cells, stable=True)
        place = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device)).int()
        start = torch.nn.functional.pad(torch.bincount(cells, minlength=count).cumsum(0), (1, 0)).int()
    tasks = _count_tasks(count, cells.device.type)
    shares = torch.linspace(0, len(cells), tasks + 1, dtype=torch.float64, device=cells.device).int()
    first = torch.searchsorted(start, shares, out_int32=True).clamp(max=count)
    first[0], first[-1] = 0, count
    return Sorting(Samples(start, first), place, engine)


@constant_when_traced
def _count_tasks(cells: int, device: str) -> int:
    if device != "cpu":
        return cells
    return max(1, min(cells, _TASKS_PER_THREAD * torch.get_num_threads()))


# Functions return keys, which a tracer treats as constants, rather than ops.
_Key = tuple[str, str, int]
_OPS: dict[_Key, Op] = {}


@constant_when_traced
def _build_sorting_op(engine: str | None, device: torch.device) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, "sort", 0)
    if key not in _OPS:
        spec = "cells[n]: i64 -> place[n]: i32, start[ends]: i32"
        recipe = Recipe("sorting", key[0], ("sort", 0))
        options = OpOptions(scratch="tally[count]: i32", init={"place": "empty"}, steady=True, recipe=recipe)
        _OPS[key] = Op([counting_sort(lang)], spec, options)
    return key


@constant_when_traced
def _build_moving_op(engine: str | None, device: torch.device, dtype: torch.dtype, channels: int) -> _Key:
    lang = language(engine, device)
    key = (lang.__name__, NAMES[dtype], channels)
    if key not in _OPS:
        spec = f"rows[n, {channels}], place[n]: i32 -> moved[n, {channels}]"
        kernel = move_rows(lang, fp=NAMES[dtype], channels=channels)
        recipe = Recipe("sorting", key[0], ("move", channels))
        _OPS[key] = Op([kernel], spec, OpOptions(init={"moved": "empty"}, races="allow", steady=True, recipe=recipe))
    return key


def _find(engine: str, device: torch.device, dtype: torch.dtype, which: str, channels: int) -> Op:
    return _OPS[
        _build_sorting_op(engine, device) if which == "sort" else _build_moving_op(engine, device, dtype, channels)
    ]


register_family("sorting", Family(_find))
