"""The optimisation: one step, its state, and its history."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .._film import as_pixels, film_steps, psnr, shrink_to_film
from .._photo import Photo
from ._gaussians import Gaussians, Renderer

_RATES = {"pos": 0.06, "log_scale": 0.12, "angle": 0.05, "colour": 0.04, "logit": 0.03}
"""Adam's learning rates at the start; that of pos in mean distances between Gaussians."""

_LAST_RATE = 0.05  # the factor at the end


@dataclass
class History:
    """The fit so far: the mean squared error before each step, and frames (rows, columns, 3) uint8 of the film."""

    errors: list[float] = field(default_factory=list)
    frames: list[Tensor] = field(default_factory=list)

    @property
    def psnr(self) -> float:
        """In dB, before the last step; the image neither clamped nor rounded."""
        return psnr(self.errors[-1]) if self.errors else math.nan


class Training:
    """Gaussians on their way to a photograph.

    The state is `gaussians`, `optimiser`, `history` and `step`, the number of steps taken; no
    random numbers are drawn. So on the CPU, where one thread renders and one sums up the error,
    the same state continues bitwise the same.
    """

    def __init__(self, photo: Photo, gaussians: Gaussians, steps: int, render: Renderer, device: str) -> None:
        self.photo = photo
        self.steps = steps
        self.step = 0
        self.history = History()
        self.gaussians = Gaussians(**{name: value.to(device) for name, value in gaussians.tensors().items()})
        self._target = photo.pixels.to(device).float() / 255
        self.render = render
        self._filmed = film_steps(steps)
        self.optimiser = self._make_optimiser()

    def _make_optimiser(self) -> torch.optim.Adam:
        spacing = math.sqrt(self.photo.height * self.photo.width / len(self.gaussians.pos))
        groups = []
        for name, value in self.gaussians.tensors().items():
            rate = _RATES[name] * (spacing if name == "pos" else 1)
            groups.append({"params": [value.requires_grad_()], "lr": rate, "first_lr": rate})
        return torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-15, fused=True)

    @property
    def psnr(self) -> float:
        """In dB, before the last step; nan before the first."""
        return self.history.psnr

    quality = psnr

    def advance(self) -> None:
        """One step of Adam down the mean squared error."""
        for group in self.optimiser.param_groups:
            group["lr"] = group["first_lr"] * _share_of_rate(self.step / self.steps)
        self.optimiser.zero_grad()
        image = self.image()
        error = (image - self._target).square().mean()
        error.backward()
        self.optimiser.step()
        self.history.errors.append(error.item())
        if self.step in self._filmed:
            self.history.frames.append(as_pixels(shrink_to_film(image.detach())))
        self.step += 1

    def image(self) -> Tensor:
        """The Gaussians as they are now, (h, w, 3)."""
        return self.render(**self.gaussians.activate(), h=self.photo.height, w=self.photo.width)


def _share_of_rate(done: float) -> float:
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(done, 1)))
