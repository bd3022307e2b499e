"""Gaussians that learn a scene: steps of one picture each, their renderings, and their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...render import l1_ssim_loss
from ...render.captures import convert_to_viewmat
from ...render.gaussians import save_ply
from .._pictures import Writer, write_loop
from .._report import Report
from .._training import Training
from ..scenes import (
    PICTURE_FILES,
    Dataset,
    Evaluation,
    Orbit,
    SceneLearner,
    depth_film,
    describe_scene,
    make_scene_report,
    picture_writers,
    turntable,
)
from ._gaussians import Gaussians, initialize_gaussians
from ._options import SplatOptions

FILES = (*PICTURE_FILES, "depth.gif", "splats.ply")

_WIDER = 1.1  # the scene's scale, as a multiple of the cameras' distance: the value of gsplat's trainer


@dataclass(frozen=True)
class Seen:
    """A rendered picture: `color` (h, w, 3), `opacity` (h, w), and `depth` (h, w), which is the distance along the
    camera's axis multiplied by the opacity.
    """

    color: Tensor
    opacity: Tensor
    depth: Tensor


class SplatLearner(SceneLearner):
    """Gaussians that learn a scene. The state is that of the Gaussians and the generator."""

    def __init__(self, dataset: Dataset, options: SplatOptions) -> None:
        super().__init__(dataset, options)
        self.options = options
        values = initialize_gaussians(dataset, options.gaussians, options.degree, self.draw)
        self.trainer: Gaussians = Gaussians(values, _WIDER * Orbit.from_views(dataset.train).distance, options)
        train = dataset.train
        self._pictures = train.pictures.to(options.device)
        self._viewmats = convert_to_viewmat(train.poses).to(options.device, torch.float32)
        self._matrices = train.intrinsics.to(options.device, torch.float32)

    def training_step(self, training: Training[Any]) -> float:
        number = int(torch.randint(len(self.dataset.train), (), generator=self.draw))
        ground = self.ground
        # Random backgrounds make the Gaussians distinguish transparency from the background.
        if self.dataset.is_transparent:
            ground = torch.rand(3, generator=self.draw).to(ground.device)
        size = (self.dataset.width, self.dataset.height)
        images, _, info = self.trainer.render(self._viewmats[number], self._matrices[number], size, ground)
        pixels = self._pictures[number].float() / 255
        target = torch.lerp(ground.expand_as(pixels[..., :3]), pixels[..., :3], pixels[..., 3:])
        loss = l1_ssim_loss(images[0], target)
        self.trainer.learn(loss, info, training.step)
        return loss.item()

    @torch.no_grad()
    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str) -> Seen:
        """Render the current model from a camera, on the scene's background. `size` is (width, height)."""
        flip = pose.new_tensor([1, -1, -1, 1] if convention == "opencv" else [1, 1, 1, 1])
        viewmat = convert_to_viewmat(pose * flip).to(self.options.device, torch.float32)
        matrix = intrinsics.to(self.options.device, torch.float32)
        images, alphas, _ = self.trainer.render(viewmat, matrix, size, self.ground, "RGB+D")
        return Seen(images[0, ..., :3], alphas[0, ..., 0], images[0, ..., 3])

    def make_report(self, training: Training[Any], evaluation: Evaluation) -> Report:
        option_names = ("degree", "strategy", "background", "seed", "most")
        facts = {
            **describe_scene(training, self.dataset, evaluation),
            "gaussians": len(self.trainer),
            **{name: getattr(self.options, name) for name in option_names},
        }
        return make_scene_report(f"fit-splats: {self.dataset.name}", training.history, evaluation, facts)

    def writers(self, training: Training[Any], evaluation: Evaluation, report: Report) -> Mapping[str, Writer]:
        frames = turntable(self)
        depths = depth_film(report, frames)
        return {
            **picture_writers(report, evaluation, frames),
            "depth.gif": lambda path: write_loop(path, depths),
            "splats.ply": lambda path: save_ply(path, self.trainer.params),
        }
