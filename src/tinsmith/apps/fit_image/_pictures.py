"""What a fit leaves to look at: pictures, a film, a curve, and the Gaussians themselves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from safetensors.torch import save_file
from torch import Tensor

from .._files import written_beside
from ._training import History, Training, as_pixels, psnr, psnr_of_pixels

FILES = ("fitted.png", "comparison.png", "fit.gif", "curve.png", "gaussians.safetensors")

_PANEL_SIDE = 384  # pixels; smaller photographs are shown enlarged
_MARGIN = 12
_CAPTION = 20
_SHRUNK = 0.4  # in the third panel, so that each Gaussian is seen
_GREY = 0.4  # the ground of that panel: what takes colour away is seen on it too
_FRAME_MS = 70
_LAST_FRAME_MS = 2000


def write_all(folder: Path, training: Training) -> list[Path]:
    """Write everything but the checkpoint; each file is whole or not there. Raises InputError."""
    with torch.no_grad():
        fitted = as_pixels(training.image())
        comparison = _comparison(training, fitted)
    writers: tuple[Callable[[Path], object], ...] = (
        _picture(fitted).save,
        comparison.save,
        lambda path: _write_film(path, training.history.frames, fitted),
        lambda path: _write_curve(path, training.history),
        lambda path: _write_gaussians(path, training, fitted),
    )
    for name, write in zip(FILES, writers, strict=True):
        with written_beside(folder / name) as beside:
            write(beside)
    return [folder / name for name in FILES]


def _comparison(training: Training, fitted: Tensor) -> Image.Image:
    photo = training.photo
    panels = {
        "the photograph": _picture(photo.pixels),
        f"fitted, {psnr_of_pixels(fitted, photo):.1f} dB": _picture(fitted),
        f"its {len(training.gaussians.pos)} Gaussians, shrunk": _picture(_shrunk(training)),
    }
    zoom = max(1, round(_PANEL_SIDE / max(photo.height, photo.width)))
    width, height = photo.width * zoom, photo.height * zoom
    sheet = Image.new("RGB", (len(panels) * (width + _MARGIN) + _MARGIN, height + _MARGIN + _CAPTION), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (caption, panel) in enumerate(panels.items()):
        left = _MARGIN + number * (width + _MARGIN)
        sheet.paste(panel.resize((width, height), Image.Resampling.NEAREST), (left, _CAPTION))
        draw.text((left, 4), caption, fill="black", font=ImageFont.load_default())
    return sheet


def _shrunk(training: Training) -> Tensor:
    """Every Gaussian at less than half its size: they no longer cover the image, but show how they lie."""
    shown = training.gaussians.shown()
    shown["scale"] = shown["scale"] * _SHRUNK
    image = training.render(**shown, h=training.photo.height, w=training.photo.width)
    return as_pixels(_GREY + image)


def _write_film(path: Path, frames: list[Tensor], fitted: Tensor) -> None:
    last = _picture(fitted)
    if frames:
        last = last.resize((frames[-1].shape[1], frames[-1].shape[0]), Image.Resampling.LANCZOS)
    palette = last.quantize(256)  # one palette for all: colours do not flicker from frame to frame
    film = [_picture(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    film.append(palette)
    durations = [_FRAME_MS] * len(frames) + [_LAST_FRAME_MS]
    film[0].save(path, save_all=True, append_images=film[1:], duration=durations, loop=0, optimize=False)


def _write_curve(path: Path, history: History) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to load; no window is ever opened
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    axes.plot([psnr(error) for error in history.errors])
    axes.set_xlabel("step")
    axes.set_ylabel("PSNR, dB")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def _write_gaussians(path: Path, training: Training, fitted: Tensor) -> None:
    """pos, scale, angle, colour, opacity, as `reference.splat` takes them."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in training.gaussians.shown().items()}
    facts = {"h": training.photo.height, "w": training.photo.width, "psnr": psnr_of_pixels(fitted, training.photo)}
    save_file(
        tensors, path, {name: json.dumps(value) for name, value in facts.items()} | {"photo": training.photo.name}
    )


def _picture(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.numpy())
