"""Writers of what every training leaves to look at: pictures, a film, a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from ._files import written_beside

_PANEL_SIDE = 384  # pixels; smaller photographs are shown enlarged
_MARGIN = 12
_CAPTION = 20
_FRAME_MS = 70
_LAST_FRAME_MS = 2000

Writer = Callable[[Path], object]


def write_files(folder: Path, writers: Mapping[str, Writer]) -> list[Path]:
    """Write each file by its name; each is whole or not there. Raises InputError."""
    for name, write in writers.items():
        with written_beside(folder / name) as beside:
            write(beside)
    return [folder / name for name in writers]


def picture(pixels: Tensor) -> Image.Image:
    """(h, w, 3) uint8 as an image of Pillow's."""
    return Image.fromarray(pixels.numpy())


def side_by_side(panels: Mapping[str, Image.Image]) -> Image.Image:
    """Pictures of one size next to each other, each under its caption."""
    first = next(iter(panels.values()))
    zoom = max(1, round(_PANEL_SIDE / max(first.size)))
    width, height = first.width * zoom, first.height * zoom
    sheet = Image.new("RGB", (len(panels) * (width + _MARGIN) + _MARGIN, height + _MARGIN + _CAPTION), "white")
    draw = ImageDraw.Draw(sheet)
    for number, (caption, panel) in enumerate(panels.items()):
        left = _MARGIN + number * (width + _MARGIN)
        sheet.paste(panel.resize((width, height), Image.Resampling.NEAREST), (left, _CAPTION))
        draw.text((left, 4), caption, fill="black", font=ImageFont.load_default())
    return sheet


def write_film(path: Path, frames: Sequence[Tensor], reached: Tensor) -> None:
    """A GIF of the frames, which ends with what was reached."""
    last = picture(reached)
    if frames:
        last = last.resize((frames[-1].shape[1], frames[-1].shape[0]), Image.Resampling.LANCZOS)
    palette = last.quantize(256)  # one palette for all: colours do not flicker from frame to frame
    film = [picture(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    film.append(palette)
    durations = [_FRAME_MS] * len(frames) + [_LAST_FRAME_MS]
    film[0].save(path, save_all=True, append_images=film[1:], duration=durations, loop=0, optimize=False)


def write_curve(
    path: Path, curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], logarithmic: str = ""
) -> None:
    """A PNG with one diagram a curve, above each other: by its label the steps, and the values there.

    `logarithmic` names a curve whose axis is logarithmic, if all of it is above 0.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # slow to load; no window is ever opened
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
