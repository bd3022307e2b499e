"""The report of a training: what every app writes about its curves, its pictures and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ._pictures import Writer, arrange_side_by_side, stack_sheets, write_curve, write_summary
from ._report_page import build_page

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

        def write_page(path: Path) -> None:
            page = build_page(self.title, self.score, self.facts, self.curves, self.rows, _LOGARITHMIC, self.unit)
            path.write_text(page, encoding="utf-8")

        writers = (
            lambda path: write_curve(path, self.curves, logarithmic=_LOGARITHMIC, unit=self.unit),
            lambda path: write_summary(path, self.facts),
            write_page,
        )
        return dict(zip(REPORT_FILES, writers, strict=True))
