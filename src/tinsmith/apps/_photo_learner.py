"""Base class of the learners of a photograph: the quality of their picture, and the facts about it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ._film import as_pixels, flat_psnr, psnr_of_pixels
from ._outcome import Reached
from ._photo import Photo
from ._training import Learner, Training


class PhotoLearner(Learner[Tensor, Reached]):
    """A model that learns a photograph. Its evaluation is its picture, (rows, columns, 3) uint8."""

    photo: Photo

    @abstractmethod
    def image(self) -> Tensor:
        """Render the model's current picture, (rows, columns, 3), floats from 0 to 1."""

    @torch.no_grad()
    def evaluate(self, training: Training[Any]) -> Tensor:
        return as_pixels(self.image())

    def psnr(self, evaluation: Tensor) -> float:
        """Return the PSNR in dB of a picture (rows, columns, 3) uint8 against the photograph."""
        return psnr_of_pixels(evaluation, self.photo.pixels)

    def summarize(self, evaluation: Tensor, run: Mapping[str, Any]) -> Reached:
        return Reached(**run, psnr=self.psnr(evaluation), flat=flat_psnr(self.photo.pixels))

    def describe(self, training: Training[Any], evaluation: Tensor) -> dict[str, object]:
        """Return the entries of the summary file that all learners of a photograph share."""
        return {
            "photograph": self.photo.name,
            "width": self.photo.width,
            "height": self.photo.height,
            "psnr_db": self.psnr(evaluation),
            "step": training.step,
            "steps": training.steps,
            "seconds": training.seconds,
        }
