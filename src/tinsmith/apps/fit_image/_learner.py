"""The optimization of fit-image: Gaussians that learn a photograph, and their pictures, film and curve."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from .._film import as_pixels, format_decibels, psnr, shrink_to_film
from .._photo import Photo, PhotoLearner
from .._pictures import Writer, make_image, write_film
from .._report import Report
from .._training import History, Snapshot, Training, decay_rate
from ._gaussians import Gaussians, Renderer

FILES = ("fitted.png", "comparison.png", "fit.gif", "gaussians.safetensors")

_RATES = {"pos": 0.06, "log_scale": 0.12, "angle": 0.05, "color": 0.04, "logit": 0.03}
"""Adam's learning rates at the start; that of pos in mean distances between Gaussians."""

_SHRUNK = 0.4  # the scale in the third panel, so that each Gaussian is visible
_GRAY = 0.4  # the background of that panel, on which Gaussians that subtract color are visible too


class GaussianLearner(PhotoLearner):
    """Gaussians that learn a photograph.

    The state is `gaussians` and `optimizer`; no random numbers are drawn. On the CPU, one thread renders and one
    computes the error, so the same state continues bitwise the same.
    """

    def __init__(self, photo: Photo, gaussians: Gaussians, steps: int, render: Renderer, device: str) -> None:
        self.photo, self.steps, self.render = photo, steps, render
        self.gaussians = Gaussians(**{name: value.to(device) for name, value in gaussians.tensors().items()})
        self._target = photo.pixels.to(device).float() / 255
        self.optimizer = self._make_optimizer()
        self.generators = {}

    def _make_optimizer(self) -> torch.optim.Adam:
        spacing = math.sqrt(self.photo.height * self.photo.width / len(self.gaussians.pos))
        groups = []
        for name, value in self.gaussians.tensors().items():
            rate = _RATES[name] * (spacing if name == "pos" else 1)
            groups.append({"params": [value.requires_grad_()], "lr": rate, "first_lr": rate})
        return torch.optim.Adam(groups, betas=(0.9, 0.95), eps=1e-15, fused=True)

    def quality(self, history: History) -> float:
        """Return the PSNR in dB before the last step, of an image neither clamped nor rounded; NaN before the first
        step.
        """
        return psnr(history.loss)

    def training_step(self, training: Training[Any]) -> float:
        """Run one step of Adam on the mean squared error; return the error before the step."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["first_lr"] * decay_rate(training.step / self.steps)
        self.optimizer.zero_grad()
        error = (self.image() - self._target).square().mean()
        error.backward()
        self.optimizer.step()
        return error.item()

    @torch.no_grad()
    def take_snapshot(self) -> Snapshot:
        return Snapshot(frame=as_pixels(shrink_to_film(self.image())))

    def image(self) -> Tensor:
        """Render the current Gaussians, (h, w, 3)."""
        return self.render(**self.gaussians.activate(), h=self.photo.height, w=self.photo.width)

    @torch.no_grad()
    def make_report(self, training: Training[Any], evaluation: Tensor) -> Report:
        errors, gaussians = training.history.losses, self.gaussians
        steps = range(len(errors))
        curves = {"loss": (steps, errors), "PSNR, dB": (steps, [psnr(error) for error in errors])}
        facts = {
            **self.describe(training, evaluation),
            "gaussians": len(gaussians.pos),
            "parameters": sum(part.numel() for part in gaussians.tensors().values()),
        }
        panels = {
            "the photograph": make_image(self.photo.pixels),
            f"fitted, {format_decibels(self.psnr(evaluation))}": make_image(evaluation),
            f"its {len(gaussians.pos)} Gaussians, shrunk": make_image(self._shrunk()),
        }
        score = format_decibels(self.psnr(evaluation), 2)
        return Report(f"fit-image: {self.photo.name}", score, facts, curves, [panels])

    def writers(self, training: Training[Any], evaluation: Tensor, report: Report) -> Mapping[str, Writer]:
        writers = (
            make_image(evaluation).save,
            report.draw_rows().save,
            lambda path: write_film(path, training.history.frames, evaluation),
            lambda path: self._write_gaussians(path, evaluation),
        )
        return dict(zip(FILES, writers, strict=True))

    def _shrunk(self) -> Tensor:
        """Render every Gaussian at less than half its size: they no longer cover the image, but show where they are."""
        shown = self.gaussians.activate()
        shown["scale"] = shown["scale"] * _SHRUNK
        return as_pixels(_GRAY + self.render(**shown, h=self.photo.height, w=self.photo.width))

    def _write_gaussians(self, path: Path, evaluation: Tensor) -> None:
        """Write pos, scale, angle, color and opacity, the parameters of `reference.splat`, to a safetensors file."""
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.gaussians.activate().items()}
        facts = {"h": self.photo.height, "w": self.photo.width, "psnr": self.psnr(evaluation)}
        metadata = {name: json.dumps(value) for name, value in facts.items()} | {"photo": self.photo.name}
        save_file(tensors, path, metadata)
