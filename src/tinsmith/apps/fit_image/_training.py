"""The optimisation: one step, its state, and what is remembered along the way."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from ._gaussians import Gaussians, Renderer
from ._photo import Photo

_RATES = {"pos": 0.06, "log_scale": 0.12, "angle": 0.05, "colour": 0.04, "logit": 0.03}
"""Adam's learning rates at the start; that of pos in mean distances between Gaussians."""

_LAST_RATE = 0.05  # what is left of them at the end
_FRAMES = 48
_FRAME_SIDE = 320  # pixels; the film of a large photograph is smaller than it


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
    random numbers are drawn. So on the CPU, where one thread paints and another sums up the error,
    the same state continues the same way, to the bit.
    """

    def __init__(self, photo: Photo, gaussians: Gaussians, steps: int, render: Renderer, device: str) -> None:
        self.photo = photo
        self.steps = steps
        self.step = 0
        self.history = History()
        self.gaussians = Gaussians(**{name: value.to(device) for name, value in gaussians.tensors().items()})
        self._target = photo.pixels.to(device).float() / 255
        self.render = render
        self._filmed = _film_steps(steps)
        self.optimiser = self._make_optimiser()

    def _make_optimiser(self) -> torch.optim.Adam:
        spacing = math.sqrt(self.photo.height * self.photo.width / len(self.gaussians.pos))
        groups = []
        for name, value in self.gaussians.tensors().items():
            rate = _RATES[name] * (spacing if name == "pos" else 1)
            groups.append({"params": [value.requires_grad_()], "lr": rate, "first_lr": rate})
        return torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-15, fused=True)

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
            self.history.frames.append(as_pixels(_film_sized(image.detach())))
        self.step += 1

    def image(self) -> Tensor:
        """The Gaussians as they are now, (h, w, 3)."""
        return self.render(**self.gaussians.shown(), h=self.photo.height, w=self.photo.width)


def as_pixels(image: Tensor) -> Tensor:
    """An image between 0 and 1 as uint8 on the CPU."""
    return (image.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()


def psnr(error: float) -> float:
    """The peak signal-to-noise ratio in dB of a mean squared error, the peak being 1."""
    return math.inf if error == 0 else -10 * math.log10(error)


def psnr_of_pixels(pixels: Tensor, photo: Photo) -> float:
    """The peak signal-to-noise ratio of a picture as it is written, in 8 bits."""
    return psnr((pixels.double() - photo.pixels.double()).div(255).square().mean().item())


def _film_sized(image: Tensor) -> Tensor:
    shrink = max(image.shape[:2]) / _FRAME_SIDE
    if shrink <= 1:
        return image
    size = [max(1, round(side / shrink)) for side in image.shape[:2]]
    return functional.interpolate(image.permute(2, 0, 1)[None], size, mode="area")[0].permute(1, 2, 0)


def _share_of_rate(done: float) -> float:
    return _LAST_RATE + (1 - _LAST_RATE) * 0.5 * (1 + math.cos(math.pi * min(done, 1)))


def _film_steps(steps: int) -> set[int]:
    """The steps that are filmed, denser at the start, where more happens."""
    return {round(steps * (number / _FRAMES) ** 2.5) for number in range(_FRAMES)}
