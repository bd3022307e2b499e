"""The files of a fit: pictures, a film, a curve, and the Gaussians themselves."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

from .._film import as_pixels, decibels, psnr, psnr_of_pixels
from .._pictures import picture, side_by_side, write_curve, write_files, write_film, write_summary
from ._training import Training

FILES = ("fitted.png", "comparison.png", "fit.gif", "curve.png", "gaussians.safetensors", "summary.json")

_SHRUNK = 0.4  # in the third panel, so that each Gaussian is seen
_GREY = 0.4  # the ground of that panel: what takes colour away is seen on it too


def write_all(folder: Path, training: Training, seconds: float) -> list[Path]:
    """Write everything but the checkpoint; each file is complete or absent. Raises InputError."""
    with torch.no_grad():
        fitted = as_pixels(training.image())
        comparison = _comparison(training, fitted)
    errors = training.history.errors
    curves = {"PSNR, dB": (range(len(errors)), [psnr(error) for error in errors])}
    writers = (
        picture(fitted).save,
        comparison.save,
        lambda path: write_film(path, training.history.frames, fitted),
        lambda path: write_curve(path, curves),
        lambda path: _write_gaussians(path, training, fitted),
        lambda path: write_summary(path, _facts(training, fitted, seconds)),
    )
    return write_files(folder, dict(zip(FILES, writers, strict=True)))


def _comparison(training: Training, fitted: Tensor) -> Image.Image:
    photo = training.photo
    panels = {
        "the photograph": picture(photo.pixels),
        f"fitted, {decibels(psnr_of_pixels(fitted, photo.pixels))}": picture(fitted),
        f"its {len(training.gaussians.pos)} Gaussians, shrunk": picture(_shrunk(training)),
    }
    return side_by_side(panels)


def _shrunk(training: Training) -> Tensor:
    """Every Gaussian at less than half its size: they no longer cover the image, but show how they lie."""
    shown = training.gaussians.activate()
    shown["scale"] = shown["scale"] * _SHRUNK
    image = training.render(**shown, h=training.photo.height, w=training.photo.width)
    return as_pixels(_GREY + image)


def _write_gaussians(path: Path, training: Training, fitted: Tensor) -> None:
    """pos, scale, angle, colour, opacity, as `reference.splat` takes them."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in training.gaussians.activate().items()}
    facts = {
        "h": training.photo.height,
        "w": training.photo.width,
        "psnr": psnr_of_pixels(fitted, training.photo.pixels),
    }
    save_file(
        tensors, path, {name: json.dumps(value) for name, value in facts.items()} | {"photo": training.photo.name}
    )


def _facts(training: Training, fitted: Tensor, seconds: float) -> dict[str, object]:
    photo = training.photo
    return {
        "photograph": photo.name,
        "width": photo.width,
        "height": photo.height,
        "psnr_db": psnr_of_pixels(fitted, photo.pixels),
        "step": training.step,
        "steps": training.steps,
        "seconds": seconds,
        "gaussians": len(training.gaussians.pos),
        "parameters": sum(part.numel() for part in training.gaussians.tensors().values()),
    }
