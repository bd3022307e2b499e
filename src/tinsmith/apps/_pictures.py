"""Writers for the results of all trainings: pictures, a film, a curve, a summary."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ._files import replace_when_whole

BRIGHTEST_ERROR = 0.1  # mean error of the channels; the same for all maps, so that they can be compared

_PANEL_SIDE = 384  # pixels; smaller photographs are shown enlarged
_MARGIN = 12
_LEAST_TEXT = 15  # pixels; captions of larger pictures are larger
_TITLE, _LINE, _LEADING = 17, 14, 6  # pixels of a film's caption: sizes of its first line and of the others; margins
_FILM_SIDE = 480  # pixels to which small frames of a film are enlarged; the least width of one with a caption
_SAMPLED = 5  # frames from which a film's palette is computed
_FRAME_MS = 70
_LAST_FRAME_MS = 2000

Writer = Callable[[Path], object]


def write_files(folder: Path, writers: Mapping[str, Writer]) -> list[Path]:
    """Call each writer to write the file of its name. Each file is complete or absent. Raise InputError if
    one fails.
    """
    for name, write in writers.items():
        with replace_when_whole(folder / name) as beside:
            write(beside)
    return [folder / name for name in writers]


def make_image(pixels: Tensor) -> Image.Image:
    """Convert (h, w, 3) uint8 to an image of Pillow."""
    return Image.fromarray(pixels.numpy())


def take_pixels(image: Image.Image) -> Tensor:
    """Convert an image of Pillow to (h, w, 3) uint8."""
    return torch.from_numpy(np.array(image))


def apply_colormap(values: Tensor, colors: str = "inferno") -> Image.Image:
    """Convert numbers (h, w) from 0 to 1 to an image, with a color map of matplotlib. Values outside are clamped."""
    shade = values.detach().clamp(0, 1).mul(255).round().to(torch.uint8).cpu()
    return Image.fromarray(_colors(colors)[shade.numpy()])


@functools.cache
def _colors(name: str) -> np.ndarray:
    from matplotlib import colormaps  # slow to load

    return colormaps[name](np.arange(256), bytes=True)[:, :3]


def draw_error_map(pixels: Tensor, target: Tensor) -> Image.Image:
    """Draw where two pictures (h, w, 3) uint8 differ: black where they are equal, brighter for larger errors."""
    return apply_colormap((pixels.float() - target.float()).abs().mean(-1) / 255 / BRIGHTEST_ERROR)


def arrange_side_by_side(panels: Mapping[str, Image.Image]) -> Image.Image:
    """Arrange pictures of one size next to each other, each below its caption."""
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
    """Stack sheets of one width vertically."""
    whole = Image.new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)), "white")
    top = 0
    for sheet in sheets:
        whole.paste(sheet, (0, top))
        top += sheet.height
    return whole


def add_caption(frame: Tensor, *lines: str) -> Tensor:
    """Add lines of text above a frame (rows, columns, 3) uint8; the first is larger. A line that is too long is cut."""
    sizes = (_TITLE, *[_LINE] * (len(lines) - 1))
    top = sum(_LEADING + size for size in sizes) + _LEADING
    width = max(frame.shape[1], _FILM_SIDE)
    whole = Image.new("RGB", (width, frame.shape[0] + top), "white")
    whole.paste(make_image(frame), ((width - frame.shape[1]) // 2, top))
    pen, y = ImageDraw.Draw(whole), _LEADING
    for line, size in zip(lines, sizes, strict=True):
        font = ImageFont.load_default(size)
        pen.text((_LEADING, y), _cut_text(line, font, width - 2 * _LEADING), "black", font)
        y += size + _LEADING
    return take_pixels(whole)


def _cut_text(text: str, font: Any, width: int) -> str:
    """Return a text, or as much of its beginning as fits into a width in pixels, with an ellipsis."""
    if font.getlength(text) <= width:
        return text
    return next(cut for end in range(len(text), -1, -1) if font.getlength(cut := f"{text[:end]}...") <= width)


def caption_film(frames: Sequence[Tensor], *lines: str) -> list[Tensor]:
    """Add a caption to each frame (rows, columns, 3) uint8. Small frames are enlarged to 480 pixels before."""
    return [add_caption(_enlarge(frame), *lines) for frame in frames]


def _enlarge(frame: Tensor) -> Tensor:
    factor = _FILM_SIDE / max(frame.shape[:2])
    if factor <= 1:
        return frame
    size = round(frame.shape[1] * factor), round(frame.shape[0] * factor)
    return take_pixels(make_image(frame).resize(size, Image.Resampling.BICUBIC))


def write_loop(file: Path | BinaryIO, frames: Sequence[Tensor], *, is_dithered: bool = True) -> None:
    """Write frames of one size as a GIF that repeats.

    Args:
        file: a path or an open file.
        frames: (rows, columns, 3) uint8 each.
        is_dithered: mix colors from neighboring pixels. Drawings of few colors need none, and are smaller without.
    """
    film = _in_one_palette([make_image(frame) for frame in frames], is_dithered=is_dithered)
    film[0].save(file, "GIF", save_all=True, append_images=film[1:], duration=_FRAME_MS, loop=0, optimize=False)


def write_film(path: Path, frames: Sequence[Tensor], reached: Tensor) -> None:
    """Write a GIF of frames that ends with the result `reached`, which is shown longest."""
    last = make_image(reached)
    if frames:
        last = last.resize((frames[-1].shape[1], frames[-1].shape[0]), Image.Resampling.LANCZOS)
    film = [
        *_in_one_palette([make_image(frame) for frame in frames]),
        # The last frame is shown longest, so it has its own palette.
        *_reduce_colors(last, last),
    ]
    durations = [_FRAME_MS] * len(frames) + [_LAST_FRAME_MS]
    film[0].save(path, save_all=True, append_images=film[1:], duration=durations, loop=0, optimize=False)


def _in_one_palette(frames: Sequence[Image.Image], *, is_dithered: bool = True) -> list[Image.Image]:
    """Reduce frames of one size to 256 colors that they share: a palette for each frame takes ten times as long to
    find.
    """
    if not frames:
        return []
    width, height = (-(-side // 2) for side in frames[0].size)
    sample = Image.new("RGB", (width, _SAMPLED * height))
    # Sample from the first to the last: early frames have colors that later ones lack.
    for number in range(_SAMPLED):
        frame = frames[round(number * (len(frames) - 1) / (_SAMPLED - 1))]
        sample.paste(frame.resize((width, height), Image.Resampling.NEAREST), (0, number * height))
    return _reduce_colors(sample, *frames, is_dithered=is_dithered)


def _reduce_colors(sample: Image.Image, *pictures: Image.Image, is_dithered: bool = True) -> list[Image.Image]:
    """Reduce pictures to the 256 colors that suit a sample; smooth areas of many colors show bands if they are not
    dithered.
    """
    # k-means is 2 to 4 dB better than the median cut from which it starts.
    palette = sample.quantize(256, kmeans=1)
    dither = Image.Dither.FLOYDSTEINBERG if is_dithered else Image.Dither.NONE
    return [one.quantize(palette=palette, dither=dither) for one in pictures]


def write_curve(
    path: Path,
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    logarithmic: str = "",
    unit: str = "step",
) -> None:
    """Plot curves below each other in one PNG.

    Args:
        path: the file.
        curves: steps and values of each curve, by its label.
        logarithmic: the label of a curve that gets a logarithmic axis if all its values are above 0.
        unit: the label of the x axis.
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
    diagrams[-1].set_xlabel(unit)
    figure.savefig(path, dpi=120)
