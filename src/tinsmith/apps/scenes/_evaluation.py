"""The evaluation: every held-out view, rendered and compared with its picture."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...render import ssim
from .._film import as_pixels, flat_psnr, psnr_of_pixels
from ._learning import SceneTraining


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


def evaluate_model(training: SceneTraining) -> Evaluation:
    """How good the model is by now. Pictures are compared as they are written, in 8 bits."""
    test = training.dataset.test
    truth = as_pixels(test.on(training.ground.cpu()))
    seen = [training.view(test, number) for number in range(len(test))]
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
