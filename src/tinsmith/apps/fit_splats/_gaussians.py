"""The Gaussians of fit-splats: their initial values, their optimizers, and the strategy that adds and removes them.

They start at the points of a reconstruction, or in the visual hull of the pictures.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...render.captures import convert_to_viewmat
from ...render.gaussians import DefaultStrategy, MCMCStrategy, rasterization
from ..scenes import Dataset, Orbit
from ._options import SplatOptions

_BETAS, _EPSILON = (0.9, 0.99), 1e-15
_RATES = {"means": 1.6e-3, "scales": 4e-2, "quats": 1e-2, "opacities": 0.1, "sh0": 3e-2, "shN": 7.5e-3}
"""Learning rates at the start, higher than the paper's, which are for 30 times as many steps. The rate of means is
multiplied by the scene's scale.
"""
_FALL, _MEANS_FALL = 0.1, 0.02  # the final learning rates, as parts of the first
_GROW = 6e-4  # Gaussians with a larger gradient in the image are cloned or split
_REFINE_EVERY = 100  # steps; after fewer steps, gradients come from too few pictures, and splits do harm
_REFINE_TO = {"default": 0.6, "mcmc": 0.75}  # as a part of all steps
_NOISE = 5e4  # a tenth of the paper's, since learning rates are ten times larger

_BOX = 0.35  # for scenes without points: half the side of the initial box, as a part of the cameras' distance
_CANDIDATES = 30  # random points in that box, for each Gaussian
_MOST_CANDIDATES = 2_000_000
_CLEAR = 0.05  # alpha below which a picture counts as transparent
_OPACITY = 0.3
_SPREAD = 0.7  # initial scale, as a part of the distance to the nearest Gaussians
_NEIGHBORS = 3
_PAIRS = 1 << 24  # distances that are in memory at a time
CONSTANT = 0.28209479177387814  # the spherical harmonic of degree 0


class Gaussians:
    """The parameters of Gaussians, their optimizers, and a strategy with its counts.

    Args:
        values: initial parameters by name, from `initialize_gaussians`.
        scale: the scale of the scene.
        options: the options of the run.
    """

    def __init__(self, values: dict[str, Tensor], scale: float, options: SplatOptions) -> None:
        self.options, self.scale = options, scale
        # For splits, relocations and noise.
        self.draw = torch.Generator().manual_seed(options.seed)
        self._take(values)
        self.strategy = _strategy(options, self.draw)
        self.strategy.check_sanity(self.params, self.optimizers)
        if isinstance(self.strategy, DefaultStrategy):
            self.counts = self.strategy.initialize_state(scale)
        else:
            self.counts = self.strategy.initialize_state()

    def __len__(self) -> int:
        return len(self.params["means"])

    def _take(self, values: dict[str, Tensor]) -> None:
        device = self.options.device
        self.params = {name: torch.nn.Parameter(value.to(device)) for name, value in values.items()}
        self.optimizers = {
            name: torch.optim.Adam([one], lr=self.rate(name, 0.0), betas=_BETAS, eps=_EPSILON)
            for name, one in self.params.items()
        }

    def rate(self, name: str, share: float) -> float:
        """Return the learning rate of a parameter after a share of all steps, from 0 to 1."""
        scale, fall = (self.scale, _MEANS_FALL) if name == "means" else (1.0, _FALL)
        return _RATES[name] * scale * fall**share

    def render(
        self, viewmat: Tensor, matrix: Tensor, size: tuple[int, int], ground: Tensor, mode: Any = "RGB"
    ) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Render a camera's view, (1, h, w, channels), with `rasterization`; return its three results."""
        p = self.params
        coefficients = torch.cat([p["sh0"], p["shN"]], 1)
        return rasterization(
            p["means"],
            p["quats"],
            p["scales"].exp(),
            p["opacities"].sigmoid(),
            coefficients,
            viewmat[None],
            matrix[None],
            *size,
            sh_degree=self.options.degree,
            packed=False,
            backgrounds=ground[None],
            render_mode=mode,
            engine=self.options.engine,
        )

    def learn(self, loss: Tensor, info: dict[str, Any], step: int) -> None:
        """Differentiate the loss, and step all optimizers and the strategy."""
        share = step / self.options.steps
        given = (self.params, self.optimizers, self.counts, step, info)
        self.strategy.step_pre_backward(*given)
        loss.backward()
        for name, optimizer in self.optimizers.items():
            optimizer.param_groups[0]["lr"] = self.rate(name, share)
            optimizer.step()
            optimizer.zero_grad()
        if isinstance(self.strategy, DefaultStrategy):
            self.strategy.grow_grad2d = _GROW if len(self) < self.options.most else math.inf
            self.strategy.step_post_backward(*given)
        else:
            self.strategy.step_post_backward(*given, lr=self.rate("means", share))

    # State for `Checkpoints` -------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        counts = {name: value for name, value in self.counts.items() if isinstance(value, Tensor)}
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        params = {name: value.detach() for name, value in self.params.items()}
        return {"params": params, "optimizers": optimizers, "counts": counts, "draw": self.draw.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._take(state["params"])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        device = self.options.device
        self.counts.update({name: value.to(device) for name, value in state["counts"].items()})
        self.draw.set_state(state["draw"])


def _strategy(options: SplatOptions, draw: torch.Generator) -> DefaultStrategy | MCMCStrategy:
    when = {
        "refine_start_iter": 0,
        "refine_stop_iter": round(_REFINE_TO[options.strategy] * options.steps) + 1,
        "refine_every": _REFINE_EVERY,
        "generator": draw,
    }
    if options.strategy == "mcmc":
        return MCMCStrategy(cap_max=options.most, noise_lr=_NOISE, **when)
    return DefaultStrategy(**when)


def initialize_gaussians(dataset: Dataset, count: int, degree: int, draw: torch.Generator) -> dict[str, Tensor]:
    """Return the initial parameters of at most `count` Gaussians by name: float32, on the CPU."""
    means, colors = _places(dataset, count, draw)
    n = len(means)
    quats = torch.randn(n, 4, generator=draw)
    return {
        "means": means.float(),
        "scales": (_SPREAD * _spacing(means.float())).log()[:, None].repeat(1, 3),
        "quats": torch.nn.functional.normalize(quats, dim=1),
        "opacities": torch.full((n,), _OPACITY).logit(),
        "sh0": ((colors.float() - 0.5) / CONSTANT)[:, None],
        "shN": torch.zeros(n, (degree + 1) ** 2 - 1, 3),
    }


def _places(dataset: Dataset, count: int, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return at most `count` initial positions (n, 3) and colors (n, 3) from 0 to 1: known points, or points in the
    visual hull.
    """
    points = dataset.points
    if len(points.positions):
        chosen = torch.randperm(len(points.positions), generator=draw)[:count]
        return points.positions[chosen], points.colors[chosen].double() / 255
    orbit = Orbit.from_views(dataset.train)
    candidates = torch.rand(min(_CANDIDATES * count, _MOST_CANDIDATES), 3, generator=draw, dtype=torch.float64)
    candidates = (2 * candidates - 1) * _BOX * orbit.distance + orbit.middle
    colors, is_hidden = _carve_hull(dataset, candidates)
    kept = is_hidden.nonzero()[:count, 0] if is_hidden.any() else torch.arange(min(count, len(candidates)))
    return candidates[kept], colors[kept]


def _carve_hull(dataset: Dataset, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean color of points in the pictures, and whether they are in the visual hull: no picture is
    transparent there.
    """
    views = dataset.train
    colors, times = torch.zeros_like(points), points.new_zeros(len(points), 1)
    is_hidden = torch.ones(len(points), dtype=torch.bool)
    for picture, viewmat, matrix in zip(views.pictures, convert_to_viewmat(views.poses), views.intrinsics, strict=True):
        before = points @ viewmat[:3, :3].T + viewmat[:3, 3]
        places = before @ matrix.T
        column, row = (places[:, :2] / places[:, 2:].clamp(min=1e-9)).floor().long().unbind(1)
        inside = (before[:, 2] > 0) & (column >= 0) & (column < dataset.width) & (row >= 0) & (row < dataset.height)
        pixels = picture[row.clamp(0, dataset.height - 1), column.clamp(0, dataset.width - 1)].double() / 255
        is_hidden &= ~(inside & (pixels[:, 3] < _CLEAR))
        colors += pixels[:, :3] * inside[:, None]
        times += inside[:, None]
    return torch.where(times > 0, colors / times.clamp(min=1), 0.5), is_hidden


def _spacing(means: Tensor) -> Tensor:
    """Return the mean distance of each point to its nearest neighbors, (n)."""
    n = len(means)
    if n <= _NEIGHBORS:
        return torch.full((n,), 0.1 * max(1.0, means.abs().max().item()))
    rows = max(1, _PAIRS // n)
    nearest = [torch.cdist(some, means).topk(_NEIGHBORS + 1, largest=False).values for some in means.split(rows)]
    return torch.cat(nearest)[:, 1:].mean(1).clamp(min=1e-6)
