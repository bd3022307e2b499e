"""Learning a scene, with any renderer: snapshots, and the evaluation of held-out views."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ...render import ssim
from .._film import as_pixels, flat_psnr, psnr_of_pixels
from .._outcome import Reached
from .._run import RunOptions
from .._training import Learner, Snapshot, Training
from ._views import BACKGROUNDS, Dataset, Views

_LOOKED_AT = 2  # held-out views at a snapshot; all of them are looked at in the end


class SceneRunOptions(RunOptions, Protocol):
    """The options of all apps that learn a scene."""

    @property
    def dataset(self) -> Path | None: ...
    @property
    def size(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def background(self) -> str: ...
    @property
    def seed(self) -> int: ...


class Rendered(Protocol):
    """A picture: `colour` (h, w, 3), `opacity` (h, w), `depth` (h, w), not divided by the opacity."""

    @property
    def colour(self) -> Tensor: ...
    @property
    def opacity(self) -> Tensor: ...
    @property
    def depth(self) -> Tensor: ...


@dataclass(frozen=True)
class Evaluation:
    """Held-out views: `truth` and `ours` (k, h, w, 3) uint8, `opacity` and `depth` (k, h, w); of each PSNR and SSIM.

    `depth` is the mean distance of what is seen, not divided by the opacity.
    """

    truth: Tensor
    ours: Tensor
    opacity: Tensor
    depth: Tensor
    psnrs: tuple[float, ...]
    ssims: tuple[float, ...]

    @property
    def psnr(self) -> float:
        """The mean over the views, in dB."""
        return sum(self.psnrs) / len(self.psnrs)

    @property
    def flat_psnr(self) -> float:
        """The mean over the views of what one colour would reach, in dB."""
        return sum(map(flat_psnr, self.truth)) / len(self.truth)

    @property
    def ssim(self) -> float:
        """The mean over the views."""
        return sum(self.ssims) / len(self.ssims)


@dataclass(frozen=True)
class SceneReached(Reached):
    """What a training reached; `psnr` and `ssim` are means over `held_out` views."""

    ssim: float
    held_out: int

    @property
    def details(self) -> str:
        """The means, in words."""
        views = f"{self.held_out} held-out view{'s' * (self.held_out != 1)}"
        return f"Means of {views}: SSIM {self.ssim:.3f}, {self.psnr:.2f} dB."


class SceneLearner(Learner[Evaluation, SceneReached]):
    """A model on its way to a scene; `ground` (3) is what pictures are laid on."""

    def __init__(self, dataset: Dataset, options: SceneRunOptions) -> None:
        self.dataset, self.steps = dataset, options.steps
        self.draw = torch.Generator().manual_seed(options.seed)
        self.generators = {"draw": self.draw}
        self.ground = torch.tensor(BACKGROUNDS[options.background], device=options.device)

    @abstractmethod
    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str) -> Rendered:
        """Render a camera's view on the scene's background with the current model.

        Args:
            pose: of the camera, in `convention`: "opengl" or "opencv".
            intrinsics: of the camera.
            size: width and height.
            convention: of the pose.
        """

    def view(self, views: Views, number: int) -> Rendered:
        """Render the view of a picture."""
        size = (self.dataset.width, self.dataset.height)
        return self.render_camera(views.poses[number], views.intrinsics[number], size, "opengl")

    def take_snapshot(self) -> Snapshot:
        """Evaluate some of the held-out views."""
        test = self.dataset.test
        numbers = list(range(0, len(test), -(-len(test) // _LOOKED_AT)))
        targets = as_pixels(test.at(numbers).on(self.ground.cpu()))
        psnrs = [
            psnr_of_pixels(as_pixels(self.view(test, number).colour), target)
            for number, target in zip(numbers, targets, strict=True)
        ]
        return Snapshot(sum(psnrs) / len(psnrs))

    def evaluate(self, training: Training[Any]) -> Evaluation:
        """Evaluate all held-out views. Pictures are compared as they are written, in 8 bits."""
        training.look()
        test = self.dataset.test
        truth = as_pixels(test.on(self.ground.cpu()))
        seen = [self.view(test, number) for number in range(len(test))]
        ours = torch.stack([as_pixels(view.colour) for view in seen])
        pairs = list(zip(ours, truth, strict=True))
        return Evaluation(
            truth,
            ours,
            torch.stack([view.opacity.cpu() for view in seen]),
            torch.stack([view.depth.cpu() for view in seen]),
            tuple(psnr_of_pixels(picture, target) for picture, target in pairs),
            tuple(ssim(ours.double() / 255, truth.double() / 255).tolist()),
        )

    def summarize(self, evaluation: Evaluation, run: Mapping[str, Any]) -> SceneReached:
        return SceneReached(
            **run,
            psnr=evaluation.psnr,
            flat=evaluation.flat_psnr,
            ssim=evaluation.ssim,
            held_out=len(self.dataset.test),
        )
