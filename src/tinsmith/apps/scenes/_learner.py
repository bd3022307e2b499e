"""Learning a scene with any renderer: snapshots, and the evaluation of held-out views."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from ..._errors import count_noun
from ...render import ssim
from .._film import as_pixels, flat_psnr, psnr_of_pixels
from .._outcome import Reached
from .._run import RunOptions
from .._training import Learner, Snapshot, Training
from ._views import BACKGROUNDS, Dataset, Views

_LOOKED_AT = 2  # held-out views that a snapshot evaluates; the end evaluates all


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
    """A rendered picture: `color` (h, w, 3), `opacity` (h, w), and `depth` (h, w), multiplied by the opacity."""

    @property
    def color(self) -> Tensor: ...
    @property
    def opacity(self) -> Tensor: ...
    @property
    def depth(self) -> Tensor: ...


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of k held-out views.

    Attributes:
        truth, ours: the given and the rendered pictures, (k, h, w, 3) uint8.
        opacity: (k, h, w).
        depth: (k, h, w), the mean distance of what is seen, multiplied by the opacity.
        psnrs, ssims: the PSNR in dB and the SSIM of each view.
    """

    truth: Tensor
    ours: Tensor
    opacity: Tensor
    depth: Tensor
    psnrs: tuple[float, ...]
    ssims: tuple[float, ...]

    @property
    def psnr(self) -> float:
        """The mean PSNR of the views, in dB."""
        return sum(self.psnrs) / len(self.psnrs)

    @property
    def flat_psnr(self) -> float:
        """The mean PSNR of the views painted in their mean color, in dB."""
        return sum(map(flat_psnr, self.truth)) / len(self.truth)

    @property
    def ssim(self) -> float:
        """The mean SSIM of the views."""
        return sum(self.ssims) / len(self.ssims)


@dataclass(frozen=True)
class SceneReached(Reached):
    """The outcome of learning a scene; `psnr` and `ssim` are means over `held_out` views."""

    ssim: float
    held_out: int

    @property
    def details(self) -> str:
        """The means of SSIM and PSNR as text."""
        return f"Means of {count_noun(self.held_out, 'held-out view')}: SSIM {self.ssim:.3f}, {self.psnr:.2f} dB."


class SceneLearner(Learner[Evaluation, SceneReached]):
    """A model that learns a scene. `ground` (3) is the background color of its pictures."""

    def __init__(self, dataset: Dataset, options: SceneRunOptions) -> None:
        self.dataset, self.steps = dataset, options.steps
        self.draw = torch.Generator().manual_seed(options.seed)
        self.generators = {"draw": self.draw}
        self.ground = torch.tensor(BACKGROUNDS[options.background], device=options.device)

    @abstractmethod
    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str) -> Rendered:
        """Render the current model from a camera, on the scene's background.

        Args:
            pose: the camera's pose (4, 4), from camera to world, in `convention`.
            intrinsics: the camera's intrinsics (3, 3).
            size: width and height.
            convention: "opengl" or "opencv".
        """

    def view(self, views: Views, number: int) -> Rendered:
        """Render the current model from the camera of one of the views."""
        size = (self.dataset.width, self.dataset.height)
        return self.render_camera(views.poses[number], views.intrinsics[number], size, "opengl")

    def take_snapshot(self) -> Snapshot:
        """Evaluate some of the held-out views."""
        test = self.dataset.test
        numbers = list(range(0, len(test), -(-len(test) // _LOOKED_AT)))
        targets = as_pixels(test.select(numbers).blend_with(self.ground.cpu()))
        psnrs = [
            psnr_of_pixels(as_pixels(self.view(test, number).color), target)
            for number, target in zip(numbers, targets, strict=True)
        ]
        return Snapshot(sum(psnrs) / len(psnrs))

    def evaluate(self, training: Training[Any]) -> Evaluation:
        """Evaluate all held-out views. Pictures are compared as they are written, in 8 bits."""
        training.look()
        test = self.dataset.test
        truth = as_pixels(test.blend_with(self.ground.cpu()))
        seen = [self.view(test, number) for number in range(len(test))]
        ours = torch.stack([as_pixels(view.color) for view in seen])
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
