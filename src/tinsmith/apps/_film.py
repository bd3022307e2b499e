"""The film of a training: which steps are filmed, the size of frames, and the PSNR of pictures."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_FRAMES = 48
_FRAME_SIDE = 320  # pixels; the film of a large photograph is smaller than it


def film_steps(steps: int) -> set[int]:
    """The steps that are filmed, denser at the start, where more changes."""
    return {round(steps * (number / _FRAMES) ** 2.5) for number in range(_FRAMES)}


def shrink_to_film(image: Tensor) -> Tensor:
    """An image (rows, columns, 3), shrunk if it is larger than a film should be."""
    shrink = max(image.shape[:2]) / _FRAME_SIDE
    if shrink <= 1:
        return image
    size = [max(1, round(side / shrink)) for side in image.shape[:2]]
    return functional.interpolate(image.permute(2, 0, 1)[None], size, mode="area")[0].permute(1, 2, 0)


def as_pixels(image: Tensor) -> Tensor:
    """An image between 0 and 1 as uint8 on the CPU."""
    return (image.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()


def psnr(error: float) -> float:
    """The peak signal-to-noise ratio in dB of a mean squared error, the peak being 1."""
    return math.inf if error == 0 else -10 * math.log10(error)


def decibels(psnr: float, digits: int = 1) -> str:
    """Format a PSNR, such as "35.6 dB"; "exact" for a picture without error."""
    return "exact" if psnr == math.inf else f"{psnr:.{digits}f} dB"


def flat_psnr(pixels: Tensor) -> float:
    """The PSNR in dB of a picture's mean colour, for (rows, columns, 3) uint8: where learning starts."""
    values = pixels.double() / 255
    return psnr((values - values.mean((0, 1))).square().mean().item())


def psnr_of_pixels(pixels: Tensor, target: Tensor) -> float:
    """The peak signal-to-noise ratio in dB of a picture as it is written, in 8 bits, against another of its size."""
    return psnr((pixels.double() - target.double()).div(255).square().mean().item())
