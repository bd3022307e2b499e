"""The film of a training: which steps are shown, the size of frames, and the PSNR of pictures."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_FRAMES = 48
_FRAME_SIDE = 320  # pixels; larger photographs are shrunk for the film


def choose_film_steps(steps: int) -> set[int]:
    """Return the steps of a training at which the film gets a frame: more at the start, where the picture changes
    faster.
    """
    return {round(steps * (number / _FRAMES) ** 2.5) for number in range(_FRAMES)}


def shrink_to_film(image: Tensor) -> Tensor:
    """Return an image (rows, columns, 3), shrunk if its longer side exceeds that of a film."""
    shrink = max(image.shape[:2]) / _FRAME_SIDE
    if shrink <= 1:
        return image
    size = [max(1, round(side / shrink)) for side in image.shape[:2]]
    return functional.interpolate(image.permute(2, 0, 1)[None], size, mode="area")[0].permute(1, 2, 0)


def as_pixels(image: Tensor) -> Tensor:
    """Convert an image of floats from 0 to 1 to uint8 on the CPU. Values outside are clamped."""
    return (image.detach().clamp(0, 1) * 255).round().to(torch.uint8).cpu()


def psnr(error: float) -> float:
    """Return the peak signal-to-noise ratio in dB for a mean squared error; the peak is 1. Infinite if the
    error is 0.
    """
    return math.inf if error == 0 else -10 * math.log10(error)


def format_decibels(psnr: float, digits: int = 1) -> str:
    """Format a PSNR, such as "35.6 dB"; "exact" for a picture without error."""
    return "exact" if psnr == math.inf else f"{psnr:.{digits}f} dB"


def flat_psnr(pixels: Tensor) -> float:
    """Return the PSNR in dB of a picture (rows, columns, 3) uint8 painted in its mean color: the least that learning
    must reach.
    """
    values = pixels.double() / 255
    return psnr((values - values.mean((0, 1))).square().mean().item())


def psnr_of_pixels(pixels: Tensor, target: Tensor) -> float:
    """Return the PSNR in dB of a picture of 8 bits against another of the same size."""
    return psnr((pixels.double() - target.double()).div(255).square().mean().item())
