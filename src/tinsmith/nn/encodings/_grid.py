"""Grid: features at several resolutions, interpolated. Its gradients are computed by separate, handwritten kernels.

In plain calls an autograd Function runs them, each only if its gradient is needed: training a grid mostly needs no
gradient in the positions, and that is half of the work. They are ops, so second derivatives need no further code. Under
`torch.func`, forward mode and `torch.compile` only the forward op is used, with its generated derivatives. Those
add to the table atomically, which is slower on the CPU.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import kernels
from ...calls import language
from ...engines import NAMES
from ...operation import Op, OpOptions
from ...reference import GridLevel
from ...torch_side import Family, Recipe, register_family
from ...tracing import constant_when_traced, is_transformed, suspend_transforms
from ._encoder import Encoder

_WORD = 2**32
_SPREAD = 1e-4


class Ops(NamedTuple):
    """The ops of a grid: its value and its gradients by position and by table, from the kernels of `kernels.grid`."""

    value: Op
    by_position: Op
    by_table: Op


class Grid(Encoder):
    """A grid encoding: a table of learned features at several resolutions, interpolated at each position.

    Args:
        n_input_dims: number of input dims, 1 to 7.
        levels: the levels, from `reference.grid_levels`.
        n_features: number of features per level.
        interpolation: "Nearest", "Linear" or "Smoothstep".
    """

    def __init__(self, n_input_dims: int, levels: tuple[GridLevel, ...], n_features: int, interpolation: str) -> None:
        self.n_input_dims = n_input_dims
        self.levels = levels
        self.n_features = n_features
        self.interpolation = interpolation
        self.n_output_dims = len(levels) * n_features
        self.n_params = (levels[-1].first + levels[-1].size) * n_features
        self.scales = torch.tensor([level.scale for level in levels], dtype=torch.float32)
        self.cells = torch.tensor([_format_level(level) for level in levels], dtype=torch.int32)
        self._there: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        static = (self.n_input_dims, self.n_features, self.interpolation, len(self.levels))
        ops = _OPS[_build_ops(engine, x.device, x.dtype, *static)]
        table = params.view(-1, self.n_features)
        scales, cells = self._levels_on(x.device)
        if torch.compiler.is_compiling() or is_transformed():
            return ops.value(x, table, scales, cells)
        return _Grid.apply(ops, self.interpolation == "Nearest", x, table, scales, cells)

    def initial_params(self, draw: torch.Generator) -> Tensor:
        return torch.empty(self.n_params, dtype=torch.float32).uniform_(-_SPREAD, _SPREAD, generator=draw)

    def _levels_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if torch.compiler.is_compiling():
            return self.scales.to(device), self.cells.to(device)
        levels = self._there.get(device)
        if levels is None:
            # These tensors are kept for later calls, so they must not be wrapped by a transform or a fake mode.
            with suspend_transforms():
                levels = self._there[device] = (self.scales.to(device), self.cells.to(device))
        return levels

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_there": {}}


def _format_level(level: GridLevel) -> list[int]:
    """Return the row of a level in the kernels' argument `cells`: first slot, size, hash mask, 1 if hashed, factors."""
    mask = level.size - 1 if level.is_hashed else -1
    factors = [factor - _WORD if factor >= _WORD // 2 else factor for factor in level.factors]
    return [level.first, level.size, mask, int(level.is_hashed), *factors]


class _Grid(torch.autograd.Function):
    """The autograd Function of a grid, whose gradients are computed by handwritten kernels."""

    @staticmethod
    def forward(ctx: Any, ops: Ops, is_steady: bool, *tensors: Tensor) -> Tensor:
        ctx.ops, ctx.is_steady = ops, is_steady
        ctx.save_for_backward(*tensors)
        return ops.value(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        x, table, scales, cells = ctx.saved_tensors
        _, _, wants_x, wants_table, *_ = ctx.needs_input_grad
        by_x = by_table = None
        if wants_x:
            c = cotangents[0]
            by_x = torch.zeros_like(x) if ctx.is_steady else ctx.ops.by_position(x, table, scales, cells, c)
        if wants_table:
            by_table = ctx.ops.by_table(x, scales, cells, cotangents[0], t=table.shape[0])
        return None, None, by_x, by_table, None, None


_Key = tuple[str, str, int, int, str, int, bool]
_OPS: dict[_Key, Ops] = {}
"""Ops by engine, dtype, dims, features, interpolation, number of workers that levels are split over (0: one), atomics.

A global dict, so that `torch.compile` finds them too.
"""


@constant_when_traced
def _build_ops(
    engine: str | None, device: torch.device, dtype: torch.dtype, dims: int, features: int, shape: str, levels: int
) -> _Key:
    """Return the key of a grid's ops in `_OPS`; build them in the first call."""
    lang = language(engine, device)
    on_cpu, threads = device.type == "cpu", torch.get_num_threads()
    # Two workers per thread, so that a thread that is done early has more to do.
    apart = min(levels, 2 * threads) if on_cpu and threads <= levels else 0
    return _keep_ops(lang, (lang.__name__, NAMES[dtype], dims, features, shape, apart, not on_cpu))


def _keep_ops(lang: ModuleType, key: _Key) -> _Key:
    if key not in _OPS:
        _OPS[key] = _make_ops(lang, key)
    return key


def _find(
    engine: str, device: torch.device, dtype: torch.dtype, which: str, dims: int, features: int, shape: str, apart: int
) -> Op:
    lang, on_cpu = language(engine, device), device.type == "cpu"
    key = _keep_ops(lang, (lang.__name__, NAMES[dtype], dims, features, shape, apart if on_cpu else 0, not on_cpu))
    return _OPS[key][Ops._fields.index(which)]


register_family("grid", Family(_find))


def _make_ops(lang: ModuleType, key: _Key) -> Ops:
    engine, fp, dims, features, interpolation, apart, atomic = key
    built = kernels.grid(
        lang, fp=fp, n_dims=dims, n_features=features, interpolation=interpolation, apart=apart > 0, atomic=atomic
    )
    x, table, levels = f"x[n, {dims}]", f"table[t, {features}]", f"scales[l]: f32, cells[l, {dims + 4}]: i32"
    given, cotangent = f"{x}, {table}, {levels}", "c[n, _]"
    scratch = f"parts[{apart}, n, {dims}]" if apart else None

    def make(which: str, spec: str, **options: Any) -> Op:
        recipe = Recipe("grid", engine, (which, dims, features, interpolation, apart))
        # No two levels share rows of the table, but that follows from the numbers in `cells`, not from the kernels.
        options = {"adjoint": "source", "races": "allow", "steady": True, "recipe": recipe, **options}
        return Op([getattr(built, which)], spec, OpOptions(**options))

    return Ops(
        make("value", f"{given} -> y[n, l * {features}]", init={"y": "empty"}),
        make("by_position", f"{given}, {cotangent} -> slope[n, {dims}]", init={"slope": "empty"}, scratch=scratch),
        make("by_table", f"{x}, {levels}, {cotangent} -> total[t, {features}]"),
    )
