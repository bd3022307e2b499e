"""Writers of the results of every training: pictures, a film, a curve."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ._files import replace_when_whole

BRIGHTEST_ERROR = 0.1  # mean over the channels, of 1; the same for all maps, so that they can be compared

_PANEL_SIDE = 384  # pixels; smaller photographs are shown enlarged
_MARGIN = 12
_LEAST_TEXT = 15  # pixels; larger above larger pictures
_SAMPLED = 5  # frames that a film's palette is made of
_FRAME_MS = 70
_LAST_FRAME_MS = 2000

Writer = Callable[[Path], object]


def write_files(folder: Path, writers: Mapping[str, Writer]) -> list[Path]:
    """Write each file by its name; each file is complete or absent. Raises InputError."""
    for name, write in writers.items():
        with replace_when_whole(folder / name) as beside:
            write(beside)
    return [folder / name for name in writers]


def write_summary(path: Path, facts: Mapping[str, object]) -> None:
    """A JSON file; what is not a finite number, such as the PSNR of a picture without any error, is null there."""
    path.write_text(json.dumps(_finite(facts), indent=2) + "\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(held) for key, held in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def picture(pixels: Tensor) -> Image.Image:
    """(h, w, 3) uint8 as an image of Pillow's."""
    return Image.fromarray(pixels.numpy())


def apply_colormap(values: Tensor, colours: str = "inferno") -> Image.Image:
    """(h, w) numbers from 0 to 1 in the colours of a map of matplotlib's; what is beyond is cut off."""
    shade = values.detach().clamp(0, 1).mul(255).round().to(torch.uint8).cpu()
    return Image.fromarray(_colours(colours)[shade.numpy()])


@functools.cache
def _colours(name: str) -> np.ndarray:
    from matplotlib import colormaps  # slow to load

    return colormaps[name](np.arange(256), bytes=True)[:, :3]


def error_map(pixels: Tensor, target: Tensor) -> Image.Image:
    """Where a picture (h, w, 3) uint8 differs from another: black where it does not, bright where it does."""
    return apply_colormap((pixels.float() - target.float()).abs().mean(-1) / 255 / BRIGHTEST_ERROR)


def side_by_side(panels: Mapping[str, Image.Image]) -> Image.Image:
    """Pictures of one size next to each other, each under its caption."""
    first = next(iter(panels.values()))
    zoom = max(1, round(_PANEL_SIDE / max(first.size)))
    width, height = first.width * zoom, first.height * zoom
    text = max(_LEAST_TEXT, max(width, height) // 32)
    font, top = ImageFont.load_default(text), 2 * text
    column = max(width, *(math.ceil(font.getlength(caption)) for caption in panels)) + _MARGIN
    sheet = Image.new("RGB", (len(panels) * column + _MARGIN, height + _MARGIN + top), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (caption, panel) in enumerate(panels.items()):
        left = _MARGIN + number * column
        sheet.paste(panel.resize((width, height), Image.Resampling.NEAREST), (left, top))
        draw.text((left, top // 2), caption, fill="black", font=font, anchor="lm")
    return sheet


def stack_sheets(sheets: Sequence[Image.Image]) -> Image.Image:
    """Sheets of one width above each other."""
    whole = Image.new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)), "white")
    top = 0
    for sheet in sheets:
        whole.paste(sheet, (0, top))
        top += sheet.height
    return whole


def write_loop(file: Path | BinaryIO, frames: Sequence[Tensor]) -> None:
    """A GIF of frames of one size that goes round and round."""
    film = _in_one_palette([picture(frame) for frame in frames])
    film[0].save(file, "GIF", save_all=True, append_images=film[1:], duration=_FRAME_MS, loop=0, optimize=False)


def write_film(path: Path, frames: Sequence[Tensor], reached: Tensor) -> None:
    """A GIF of the frames, which ends with the result."""
    last = picture(reached)
    if frames:
        last = last.resize((frames[-1].shape[1], frames[-1].shape[0]), Image.Resampling.LANCZOS)
    film = [
        *_in_one_palette([picture(frame) for frame in frames]),
        # The last frame is shown longest, so it has its own palette.
        *_dither(last, last),
    ]
    durations = [_FRAME_MS] * len(frames) + [_LAST_FRAME_MS]
    film[0].save(path, save_all=True, append_images=film[1:], duration=durations, loop=0, optimize=False)


def _in_one_palette(frames: Sequence[Image.Image]) -> list[Image.Image]:
    """Frames of one size in 256 colours, the same for all: a palette a frame takes ten times as long to find."""
    if not frames:
        return []
    width, height = (-(-side // 2) for side in frames[0].size)
    sample = Image.new("RGB", (width, _SAMPLED * height))
    # From the first to the last: early frames have colours that later ones do not have.
    for number in range(_SAMPLED):
        frame = frames[round(number * (len(frames) - 1) / (_SAMPLED - 1))]
        sample.paste(frame.resize((width, height), Image.Resampling.NEAREST), (0, number * height))
    return _dither(sample, *frames)


def _dither(sample: Image.Image, *pictures: Image.Image) -> list[Image.Image]:
    """Pictures in the 256 colours that suit a sample; dithered, since smooth grounds fall into patches otherwise."""
    # 2 to 4 dB better than the median cut that it starts from.
    palette = sample.quantize(256, kmeans=1)
    return [one.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG) for one in pictures]


def write_curve(
    path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], logarithmic: str = ""
) -> None:
    """A PNG with one diagram a curve, above each other: by its label the steps, and the values there.

    `logarithmic` names a curve whose axis is logarithmic, if all of it is above 0.
    """
    # Slow to load; opens no window.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 1 + 2.5 * len(curves)), layout="constrained")
    diagrams = FigureCanvasAgg(figure).figure.subplots(len(curves), sharex=True, squeeze=False)[:, 0]
    for axes, (label, (steps, values)) in zip(diagrams, curves.items(), strict=True):
        axes.plot(steps, values)
        if label == logarithmic and values and min(values) > 0:
            axes.set_yscale("log")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    diagrams[-1].set_xlabel("step")
    figure.savefig(path, dpi=120)
