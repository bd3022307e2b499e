"""The files of a learned scene: sheets of held-out views, a turntable, a curve, a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from ..._errors import count_noun
from .._film import as_pixels, format_decibels
from .._pictures import (
    BRIGHTEST_ERROR,
    Writer,
    apply_colormap,
    arrange_side_by_side,
    caption_film,
    draw_error_map,
    make_image,
    take_pixels,
    write_loop,
)
from .._report import Report
from .._training import History, Training
from ._learner import Evaluation, Rendered, SceneLearner
from ._views import Dataset, Orbit

PICTURE_FILES = ("comparison.png", "depth.png", "opacity.png", "turntable.gif")

_SHOWN = 4  # held-out views in a sheet
_TURNTABLE_FRAMES = 48
_TURNTABLE_ZOOM, _TURNTABLE_SIDE = 2, 160  # times a picture's size, since a field resolves more; at most these pixels
_MOST_RANKED = 1_000_000  # depths for a quantile; torch accepts no more than 16 million
_SEEN_THROUGH = 0.05  # opacity below which no depth is shown


def make_scene_report(title: str, history: History, evaluation: Evaluation, facts: Mapping[str, object]) -> Report:
    """Make the report of a training on a scene: held-out views beside the given pictures."""
    curves = {
        "loss": (range(len(history.losses)), history.losses),
        "PSNR held out, dB": (history.looked, history.psnrs),
    }
    views = count_noun(len(evaluation.ours), "held-out view")
    score = f"{format_decibels(evaluation.psnr, 2)}, SSIM {evaluation.ssim:.3f} on {views}"
    return Report(title, score, facts, curves, _compare_views(evaluation))


def picture_writers(report: Report, evaluation: Evaluation, frames: Sequence[Rendered]) -> dict[str, Writer]:
    """Return the function that writes each of `PICTURE_FILES`, by name; `frames` are those of a turntable."""
    shown = caption_film(
        [as_pixels(frame.color) for frame in frames], *_describe_film(report), "Once around the scene."
    )
    writers = (
        report.draw_rows().save,
        _depths(evaluation).save,
        _opacities(evaluation).save,
        lambda path: write_loop(path, shown),
    )
    return dict(zip(PICTURE_FILES, writers, strict=True))


def _describe_film(report: Report) -> tuple[str, str]:
    """Return the two lines at the top of a film's caption: the title with the training step, and the quality."""
    return f"{report.title}, step {report.facts['step']}", report.score


def _pick_evenly(count: int) -> list[int]:
    """Return the numbers of the views that are shown: at most four, evenly spaced."""
    shown = min(_SHOWN, count)
    return [round(place * (count - 1) / max(1, shown - 1)) for place in range(shown)]


def _compare_views(evaluation: Evaluation) -> list[dict[str, Image.Image]]:
    """Return rows of pictures by their captions: some held-out views, what is rendered, and the error."""
    rows: list[dict[str, Image.Image]] = []
    for number in _pick_evenly(len(evaluation.ours)):
        ours, truth = evaluation.ours[number], evaluation.truth[number]
        score = f"{format_decibels(evaluation.psnrs[number])}, SSIM {evaluation.ssims[number]:.3f}"
        rows.append(
            {
                f"held-out view {number}": make_image(truth),
                f"rendered, {score}": make_image(ours),
                f"error; bright: {BRIGHTEST_ERROR:.0%} and more": draw_error_map(ours, truth),
            }
        )
    return rows


def _depths(evaluation: Evaluation) -> Image.Image:
    """Draw the depths of held-out views: near is yellow, far is violet, transparent is white."""
    near, far = _depth_range(evaluation.depth, evaluation.opacity)
    panels = {
        f"view {number}: depth, {near:.2f} yellow to {far:.2f} violet": _shaded_depth(
            evaluation.depth[number], evaluation.opacity[number], near, far
        )
        for number in _pick_evenly(len(evaluation.depth))
    }
    return arrange_side_by_side(panels)


def depth_film(report: Report, frames: Sequence[Rendered]) -> list[Tensor]:
    """Convert the depths of frames to colors as `_depths` does, each (h, w, 3) uint8 with a caption."""
    depth, opacity = (torch.stack([getattr(frame, name).cpu() for frame in frames]) for name in ("depth", "opacity"))
    near, far = _depth_range(depth, opacity)
    shown = [_shaded_depth(one, other, near, far) for one, other in zip(depth, opacity, strict=True)]
    depths = f"Depth, once around the scene: {near:.2f} yellow to {far:.2f} violet."
    return caption_film([take_pixels(image) for image in shown], *_describe_film(report), depths)


def _depth_range(depth: Tensor, opacity: Tensor) -> tuple[float, float]:
    solid = opacity > _SEEN_THROUGH
    held = (depth / opacity.clamp(min=1e-6))[solid] if solid.any() else depth.new_zeros(1)
    near, far = held[:: 1 + len(held) // _MOST_RANKED].quantile(torch.tensor([0.01, 0.99])).tolist()
    return near, far


def _shaded_depth(depth: Tensor, opacity: Tensor, near: float, far: float) -> Image.Image:
    mean = depth / opacity.clamp(min=1e-6)
    shown = apply_colormap(1 - (mean - near) / max(far - near, 1e-6), "viridis")
    mask = make_image(as_pixels((opacity > _SEEN_THROUGH).float()))
    return Image.composite(shown, Image.new("RGB", shown.size, "white"), mask)


def _opacities(evaluation: Evaluation) -> Image.Image:
    shown = _pick_evenly(len(evaluation.opacity))
    return arrange_side_by_side(
        {f"view {number}: opacity": make_image(as_pixels(evaluation.opacity[number])) for number in shown}
    )


def turntable(learner: SceneLearner) -> list[Rendered]:
    """Render pictures from an orbit around the scene."""
    dataset = learner.dataset
    orbit, size = Orbit.from_views(dataset.train), (dataset.width, dataset.height)
    zoom = min(_TURNTABLE_ZOOM, _TURNTABLE_SIDE / max(size))
    sides = (max(1, round(size[0] * zoom)), max(1, round(size[1] * zoom)))
    scale = torch.tensor([sides[0] / size[0], sides[1] / size[1], 1.0])
    intrinsics = dataset.train.intrinsics[0] * scale[:, None]
    poses = [orbit.pose(number / _TURNTABLE_FRAMES) for number in range(_TURNTABLE_FRAMES)]
    return [learner.render_camera(pose, intrinsics, sides, "opengl") for pose in poses]


def describe_scene(training: Training[Any], dataset: Dataset, evaluation: Evaluation) -> dict[str, object]:
    """Return the entries of the summary file that all trainings on scenes share."""
    return {
        "dataset": dataset.name,
        "width": dataset.width,
        "height": dataset.height,
        "views": len(dataset.train),
        "held_out": len(dataset.test),
        "psnr_db": evaluation.psnr,
        "ssim": evaluation.ssim,
        "psnr_db_by_view": dict(zip(dataset.test.names, evaluation.psnrs, strict=True)),
        "step": training.step,
        "steps": training.steps,
        "seconds": training.seconds,
    }
