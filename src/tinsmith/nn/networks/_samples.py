"""Samples: which samples belong to which network, laid out for a launch.

Equal batches are laid out once a size. Scattered points are sorted by their network, by counting, since a network's
samples must stand beside each other in `order` (not in memory: kernels look samples up).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from ...bridge import Op, apart, constant_when_traced, language, op
from ...kernels import counting_sort

_TASKS_PER_THREAD = 8
"""Tasks are what is shared out: enough that a thread that is late does not keep the others waiting."""


class Samples(NamedTuple):
    """What the kernels of `kernels.forward_networks` take besides numbers, int32, in its letters."""

    cells: torch.Tensor
    order: torch.Tensor
    start: torch.Tensor
    first: torch.Tensor

    @property
    def tasks(self) -> int:
        """How many tasks the networks are shared out to."""
        return len(self.first) - 1


def equal_batches(cells: int, batch: int, device: torch.device) -> Samples:
    """Of `cells` networks with `batch` samples each, one after the other in memory."""
    if torch.compiler.is_compiling():
        return _laid_out(cells, batch, device)
    return _kept(cells, batch, device, torch.get_num_threads())


@functools.lru_cache(maxsize=8)
def _kept(cells: int, batch: int, device: torch.device, _threads: int) -> Samples:
    """Few, for they are as long as batches are: a training of any few networks has many sizes."""
    with apart():
        return _laid_out(cells, batch, device)


def _laid_out(cells: int, batch: int, device: torch.device) -> Samples:
    start = torch.arange(cells + 1, device=device) * batch
    order = torch.arange(cells * batch, device=device)
    tasks = _tasks(cells, device.type)
    first = torch.arange(tasks + 1, device=device) * cells // tasks
    return Samples(torch.arange(cells, device=device).int(), order.int(), start.int(), first.int())


def sorted_by(cells: torch.Tensor, count: int, engine: str | None) -> Samples:
    """Of scattered samples: [sample] with the network of each, below `count`."""
    if cells.device.type == "cpu":
        order, start = _SORTERS[_sorter(engine, cells.device)](cells.int(), count=count, ends=count + 1)
    else:
        order = torch.argsort(cells, stable=True).int()
        start = torch.nn.functional.pad(torch.bincount(cells, minlength=count).cumsum(0), (1, 0)).int()
    tasks = _tasks(count, cells.device.type)
    shares = torch.linspace(0, len(cells), tasks + 1, device=cells.device).int()
    first = torch.searchsorted(start, shares, out_int32=True).clamp(max=count)
    first[0], first[-1] = 0, count
    return Samples(torch.arange(count, device=cells.device).int(), order, start, first)


@constant_when_traced
def _tasks(cells: int, device: str) -> int:
    if device != "cpu":
        return cells
    return max(1, min(cells, _TASKS_PER_THREAD * torch.get_num_threads()))


@constant_when_traced
def _sorter(engine: str | None, device: torch.device) -> str:
    """The key of the sorting op for an engine."""
    lang = language(engine, device)
    if lang.__name__ not in _SORTERS:
        spec = "cells[n]: i32 -> order[n]: i32, start[ends]: i32"
        _SORTERS[lang.__name__] = op(spec, scratch="place[count]: i32")(counting_sort(lang))
    return lang.__name__


_SORTERS: dict[str, Op] = {}
