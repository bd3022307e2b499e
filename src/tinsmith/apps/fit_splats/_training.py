"""The training: steps, each on one picture, and its history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...render import l1_ssim_loss
from ...render.captures import viewmat_of
from .._film import film_steps
from ..scenes import BACKGROUNDS, Dataset, History, Orbit, Views, look
from ._gaussians import Gaussians
from ._options import SplatOptions
from ._start import first_gaussians

_WIDER = 1.1  # the scene's scale, in parts of the cameras' distance: as gsplat's trainer has it


@dataclass(frozen=True)
class Seen:
    """A picture: `colour` (h, w, 3), `opacity` (h, w), `depth` (h, w) along the camera's axis, times opacity."""

    colour: Tensor
    opacity: Tensor
    depth: Tensor


class Training:
    """Gaussians on their way to a scene. The state is theirs, the generator's, `history` and `step`."""

    def __init__(self, dataset: Dataset, options: SplatOptions) -> None:
        self.dataset, self.options = dataset, options
        self.step, self.steps = 0, options.steps
        self.history = History()
        self.draw = torch.Generator().manual_seed(options.seed)
        self.ground = torch.tensor(BACKGROUNDS[options.background], device=options.device)
        values = first_gaussians(dataset, options.gaussians, options.degree, self.draw)
        self.trainer = Gaussians(values, _WIDER * Orbit.of(dataset.train).distance, options)
        self._looks = film_steps(options.steps)
        train = dataset.train
        self._pictures = train.pictures.to(options.device)
        self._viewmats = viewmat_of(train.poses).to(options.device, torch.float32)
        self._matrices = train.intrinsics.to(options.device, torch.float32)

    @property
    def psnr(self) -> float:
        """In dB, of the held-out views that were evaluated last; nan before."""
        return self.history.psnrs[-1] if self.history.psnrs else math.nan

    quality = psnr

    def advance(self) -> None:
        """One step."""
        if self.step in self._looks:
            look(self)
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
        self.trainer.learn(loss, info, self.step)
        self.history.losses.append(loss.item())
        self.step += 1

    # Looking -------------------------------------------------------------------------------
    def view(self, views: Views, number: int) -> Seen:
        """Render the view of a picture."""
        size = (self.dataset.width, self.dataset.height)
        return self.render_camera(views.poses[number], views.intrinsics[number], size, "opengl")

    @torch.no_grad()
    def render_camera(self, pose: Tensor, intrinsics: Tensor, size: tuple[int, int], convention: str) -> Seen:
        """Render a camera's view on the scene's background with the current model; `size` is (width, height)."""
        flip = pose.new_tensor([1, -1, -1, 1] if convention == "opencv" else [1, 1, 1, 1])
        viewmat = viewmat_of(pose * flip).to(self.options.device, torch.float32)
        matrix = intrinsics.to(self.options.device, torch.float32)
        images, alphas, _ = self.trainer.render(viewmat, matrix, size, self.ground, "RGB+D")
        return Seen(images[0, ..., :3], alphas[0, ..., 0], images[0, ..., 3])

    # State ---------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """State of a resumed run besides the Gaussians: a nest for a checkpoint."""
        return {
            "step": self.step,
            "draw": self.draw.get_state(),
            "losses": torch.tensor(self.history.losses, dtype=torch.float64),
            "looked": self.history.looked,
            "psnrs": self.history.psnrs,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the result of `state`."""
        self.step = state["step"]
        self.draw.set_state(state["draw"])
        self.history = History(state["losses"].tolist(), state["looked"], state["psnrs"])
