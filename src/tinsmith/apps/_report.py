"""The report of a training: what every app writes about its curves, its pictures and its numbers."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from PIL import Image

from .._version import __version__
from ._files import as_json
from ._pictures import Writer, arrange_side_by_side, stack_sheets, write_curve

REPORT_FILES = ("curve.png", "summary.json", "report.html")

_LOGARITHMIC = "loss"  # the label of the curve that is drawn on a logarithmic scale


@dataclass(frozen=True)
class Report:
    """The curves, pictures and numbers of a training.

    Attributes:
        title: the heading: the command, and what the model learned from.
        score: the quality as text.
        facts: numbers and options, by their names in `summary.json`.
        curves: steps and values of each curve, by its label.
        rows: pictures to compare, side by side in a row; each has its caption as key.
        unit: the word for a step of the training, which the curves' x axes show.
    """

    title: str
    score: str
    facts: Mapping[str, object]
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    rows: Sequence[Mapping[str, Image.Image]]
    unit: str = "step"

    def draw_rows(self) -> Image.Image:
        """Draw all rows of pictures with their captions as one picture."""
        return stack_sheets([arrange_side_by_side(row) for row in self.rows])

    def writers(self) -> dict[str, Writer]:
        """Return the function that writes each of `REPORT_FILES`, by the file's name."""
        writers = (
            lambda path: write_curve(path, self.curves, logarithmic=_LOGARITHMIC, unit=self.unit),
            lambda path: path.write_text(as_json(self.facts, indent=2) + "\n", encoding="utf-8"),
            lambda path: path.write_text(self.build_page(), encoding="utf-8"),
        )
        return dict(zip(REPORT_FILES, writers, strict=True))

    def build_page(self) -> str:
        """Build the HTML page of the training: one file that loads nothing else and runs no script."""
        style = Path(__file__).with_name("page.css").read_text("utf-8") + _STYLE
        return "\n".join(
            [
                '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width, initial-scale=1">',
                f'<title>{escape(f"{self.title}: {self.score}")}</title>\n<link rel="icon" href="data:,">',
                f"<style>\n{style}</style>\n</head>\n<body>\n<main>",
                f'<header><h1>{escape(self.title)}</h1></header>\n<p class="score">{escape(self.score)}</p>',
                *_build_rows(self.rows),
                *_build_curves(self.curves, self.unit),
                *_build_facts(self.facts),
                f"<footer>tinsmith {__version__}. The same numbers are in summary.json.</footer>",
                "</main>\n</body>\n</html>\n",
            ]
        )


_STYLE = """
h2 { font-size: 16px; margin: 8px 0 -4px; }
h1 small { margin-top: 2px; }
.score { font-size: 26px; margin: 0; }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 8px 16px; }
.facts dd { font-size: 15px; white-space: normal; overflow-wrap: anywhere; }
.curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 16px; }
.curves svg { width: 100%; height: 200px; display: block; }
.curves path { fill: none; stroke: var(--accent); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.curves line { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; align-items: end; }
.row + .row { border-top: 1px solid var(--line); margin-top: 12px; padding-top: 12px; }
.row div { min-width: 0; }
.row p { margin: 0 0 6px; font-size: 13px; color: var(--faint); overflow-wrap: anywhere; }
.row img { width: 100%; max-width: 560px; height: auto; border-radius: 3px; display: block; background: var(--line); }
.row img.small { image-rendering: pixelated; }
footer { font-size: 13px; color: var(--faint); }
"""

_LABELS = {"psnr_db": "PSNR, dB", "ssim": "SSIM", "seconds": "time"}
_HIDDEN = {"figure"}  # a format string of a simulation, whose text is the score
_POINTS = 600  # of a drawn curve: a longer one is drawn through every n-th point
_SMALL = 200  # pixels: a smaller picture is shown with sharp pixels, and stored without loss
_LARGEST = 1024  # pixels of a picture's longer side
_QUALITY = 90  # of pictures as JPEG


def _build_rows(rows: Sequence[Mapping[str, Image.Image]]) -> Iterator[str]:
    if not rows:
        return
    yield "<h2>Side by side</h2>\n<figure>"
    for row in rows:
        yield '<div class="row">'
        for caption, picture in row.items():
            kind = ' class="small"' if max(picture.size) < _SMALL else ""
            text = escape(caption)
            yield f'<div><p>{text}</p><img{kind} src="{_encode(picture)}" alt="{text}"></div>'
        yield "</div>"
    yield "</figure>"


def _encode(picture: Image.Image) -> str:
    """Return a picture as a data URL: PNG if it is small, else JPEG of a limited size."""
    held = io.BytesIO()
    if max(picture.size) < _SMALL:
        form = "png"
        picture.save(held, "PNG")
    else:
        form, shrunk = "jpeg", picture.convert("RGB")
        shrunk.thumbnail((_LARGEST, _LARGEST))
        shrunk.save(held, "JPEG", quality=_QUALITY)
    return f"data:image/{form};base64,{base64.b64encode(held.getvalue()).decode()}"


def _build_curves(curves: Mapping[str, tuple[Sequence[float], Sequence[float]]], unit: str) -> Iterator[str]:
    drawn = [_build_curve(label, *curve, unit, is_logarithmic=label == _LOGARITHMIC) for label, curve in curves.items()]
    if any(drawn):
        yield '<h2>Training</h2>\n<div class="curves">'
        yield from filter(None, drawn)
        yield "</div>"


def _build_curve(
    label: str, steps: Sequence[float], values: Sequence[float], unit: str, *, is_logarithmic: bool
) -> str:
    """Return a curve as HTML with an SVG; an empty string if it has fewer than two finite values."""
    points = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    if len(points) < 2:
        return ""
    stride = -(-len(points) // _POINTS)
    points = [*points[:-1:stride], points[-1]]
    is_logarithmic = is_logarithmic and min(value for _, value in points) > 0
    scaled = [math.log(value) if is_logarithmic else value for _, value in points]
    low, high, last = min(scaled), max(scaled), points[-1][0]
    path = "L".join(
        f"{step / (last or 1):.5f} {(high - y) / ((high - low) or 1):.5f}"
        for (step, _), y in zip(points, scaled, strict=True)
    )
    marks = [f"{math.exp(y) if is_logarithmic else y:.3g}" for y in (high, (high + low) / 2, low)]
    lines = "".join(f'<line x1="0" x2="1" y1="{y}" y2="{y}"/>' for y in (0, 0.5, 1))
    scale = f"by {unit}, logarithmic" if is_logarithmic else f"by {unit}"
    text = escape(label)
    return (
        f"<figure><figcaption><b>{text}</b> {scale}</figcaption>\n"
        f'<div class="axes"><div class="up">{"".join(f"<span>{mark}</span>" for mark in marks)}</div>'
        f'<svg viewBox="0 0 1 1" preserveAspectRatio="none" role="img" '
        f'aria-label="{text} by {unit}, from {values[0]:.3g} to {values[-1]:.3g}">{lines}<path d="M{path}"/></svg>'
        f'<div class="along"><span>0</span><span>{last:g}</span></div></div></figure>'
    )


def _build_facts(facts: Mapping[str, object]) -> Iterator[str]:
    yield '<h2>Numbers and options</h2>\n<figure><dl class="facts">'
    for name, value in facts.items():
        if name not in _HIDDEN and not isinstance(value, (Mapping, list)) and value is not None:
            label = _LABELS.get(name, name.replace("_", " "))
            yield f"<div><dt>{escape(label)}</dt><dd>{escape(_format(name, value))}</dd></div>"
    yield "</dl></figure>"


def _format(name: str, value: object) -> str:
    if name == "seconds":
        return f"{value:.1f} s"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 9999 else str(value)
