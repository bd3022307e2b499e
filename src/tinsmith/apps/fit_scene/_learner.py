"""A radiance field that learns a scene: its steps, its renderings, and its files."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._errors import InputError, refusal
from ...nn import Trainer
from ...render import PixelSampler, Rays, image_rays
from .._pictures import Writer
from .._processes import ALONE, Processes
from .._report import Report
from .._run import require_at_least
from .._training import Training
from ..scenes import (
    Dataset,
    Evaluation,
    SceneLearner,
    describe_scene,
    make_scene_report,
    picture_writers,
    require_background,
    turntable,
)
from ._field import COLOR, DENSITY, GRID, HARMONICS, Scene, Seen


@dataclass(frozen=True)
class SceneOptions:
    """The options of fit-scene; `tinsmith fit-scene --help` describes each.

    `rays` is the number of rays per step, `samples` the number of samples of a ray that crosses the whole box, if all
    of it is occupied. The scene lies within -`bound` to `bound` on each axis.

    Raises:
        InputError: a number is too small, or the background is unknown.
    """

    out: Path
    dataset: Path | None = None
    steps: int = 1000
    rays: int = 2048
    size: int = 64
    bound: float = 1.5
    samples: int = 96
    background: str = "white"
    distortion: float = 0.0
    seed: int = 1337
    engine: str | None = None
    device: str = "cpu"
    tensorboard: bool = False
    resume: bool = False
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_at_least(1, steps=self.steps, rays=self.rays, samples=self.samples)
        require_at_least(16, size=self.size)
        require_at_least(0, seed=self.seed)
        _require_number("bound", self.bound, "a number above 0", 0 < self.bound < math.inf)
        _require_number("distortion", self.distortion, "0 or a number above", 0 <= self.distortion < math.inf)
        require_background(self.background)


def _require_number(name: str, value: float, wanted: str, fits: bool) -> None:
    if not fits:
        raise InputError(refusal(f"`{name}` has an invalid value", [("got", str(value)), ("expected", wanted)]))


_CHUNK = 8192  # rays of a picture that are rendered at a time
_UPDATE_EVERY = 8  # steps between updates of the occupancy grid
_LOG_EVERY = 50  # steps


class FieldLearner(SceneLearner):
    """A radiance field that learns a scene. The state is that of the trainer and the generators."""

    def __init__(self, dataset: Dataset, options: SceneOptions, processes: Processes = ALONE) -> None:
        super().__init__(dataset, options)
        self.options, self.processes = options, processes
        # For random positions within the grid's cells.
        self.places = torch.Generator(options.device).manual_seed(options.seed)
        self.generators["places"] = self.places
        self.scene = Scene(
            options.bound, options.samples, options.seed, options.engine, with_distortion=options.distortion > 0
        ).to(options.device)
        processes.align(self.scene)
        log = options.out / "tensorboard" if options.tensorboard and processes.is_first else None
        self.trainer: Trainer = Trainer(
            self.scene,
            _optimizer(options.steps),
            self._losses,
            log_dir=log,
            log_every=_LOG_EVERY,
            process_group=processes.group,
        )
        cameras = (x.to(options.device, torch.float32) for x in (dataset.train.poses, dataset.train.intrinsics))
        self._train = PixelSampler(
            dataset.train.pictures.to(options.device), *cameras, convention="opengl", engine=options.engine
        )
        self._speed = _Speed()

    def training_step(self, training: Training[Any]) -> float:
        if training.step % _UPDATE_EVERY == 0:
            self.scene.grid.update(self.scene.solidity, step=training.step, generator=self.places)
        loss = self.trainer.training_step(*(self.processes.share(one) for one in self._draw_rays())).item()
        taken = training.step + 1
        if taken % _LOG_EVERY == 0:
            speed = self.options.rays * self._speed.since(taken)
            occupied = float(self.scene.grid.share)
            self.trainer.log(psnr=training.history.psnr, rays_per_second=speed, occupied=occupied)
        return loss

    def _draw_rays(self) -> tuple[Tensor, Tensor]:
        """Draw rays at random; return them as the scene's inputs, with the colors that they should see."""
        n, views = self.options.rays, self.dataset.train
        number = torch.randint(len(views), (n,), generator=self.draw)
        row = torch.randint(self.dataset.height, (n,), generator=self.draw)
        column = torch.randint(self.dataset.width, (n,), generator=self.draw)
        offsets = torch.rand(n, 1, generator=self.draw)
        ground = torch.rand(n, 3, generator=self.draw) if self.dataset.is_transparent else None
        rays, values, _ = self._train.pick(number, row, column)
        ground = (self.ground if ground is None else ground).to(values.device).expand(n, 3)
        colors = values.float() / 255
        target = torch.lerp(ground, colors[:, :3], colors[:, 3:])
        return _pack_rays(rays, ground, offsets.to(values.device)), target

    def _losses(self, prediction: Tensor, target: Tensor) -> Tensor:
        seen = Seen.from_columns(prediction)
        loss = (seen.color - target).square().mean()
        return loss + self.options.distortion * seen.distortion.mean() if self.options.distortion else loss

    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str) -> Seen:
        """Render the current model from a camera, on the scene's background. `size` is (width, height)."""
        device = self.options.device
        camera = (pose.to(device, torch.float32), intrinsics.to(device, torch.float32))
        rays = image_rays(*camera, *size, convention=convention, engine=self.options.engine)
        x = _pack_rays(
            Rays(*(part.reshape(-1, 3) for part in rays)), self.ground, torch.full((1, 1), 0.5, device=device)
        )
        columns = torch.cat([self.trainer.inference(chunk) for chunk in x.split(_CHUNK)])
        return Seen(*(part.unflatten(0, (size[1], size[0])) for part in Seen.from_columns(columns)))

    def evaluate(self, training: Training[Any]) -> Evaluation:
        """Evaluate all held-out views, add the result to the log, and close the log."""
        evaluation = super().evaluate(training)
        self.trainer.log(psnr=evaluation.psnr, ssim=evaluation.ssim)
        self.trainer.close()
        return evaluation

    def make_report(self, training: Training[Any], evaluation: Evaluation) -> Report:
        option_names = ("rays", "bound", "samples", "background", "distortion", "seed")
        facts = {
            **describe_scene(training, self.dataset, evaluation),
            "parameters": sum(part.numel() for part in self.scene.parameters()),
            "occupied": float(self.scene.grid.share),
            **{name: getattr(self.options, name) for name in option_names},
            "field": {"grid": GRID, "density": DENSITY, "harmonics": HARMONICS, "color": COLOR},
        }
        return make_scene_report(f"fit-scene: {self.dataset.name}", training.history, evaluation, facts)

    def writers(self, training: Training[Any], evaluation: Evaluation, report: Report) -> Mapping[str, Writer]:
        return picture_writers(report, evaluation, turntable(self))


def _pack_rays(rays: Rays, ground: Tensor, offsets: Tensor) -> Tensor:
    """Concatenate rays, background colors and offsets to (n, 10), the input of `Scene`."""
    n = len(rays.origins)
    return torch.cat([rays.origins, rays.directions, ground.expand(n, 3), offsets.expand(n, 1)], 1)


class _Speed:
    """Measures the steps per second from one query to the next."""

    def __init__(self) -> None:
        self._step, self._time = 0, math.nan

    def since(self, step: int) -> float:
        now = time.perf_counter()
        speed = (step - self._step) / (now - self._time)
        self._step, self._time = step, now
        return speed


def _optimizer(steps: int) -> dict[str, Any]:
    """Return the configuration of the optimizer: Adam whose rate falls to a thirtieth in the second half, and averaged
    weights.
    """
    adam = {"otype": "Adam", "learning_rate": 1e-2, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-15}
    falls = {"decay_start": steps // 2, "decay_interval": max(1, steps // 8), "decay_base": 0.4}
    return {"otype": "EMA", "decay": 0.95, "nested": {"otype": "ExponentialDecay", **falls, "nested": adam}}
