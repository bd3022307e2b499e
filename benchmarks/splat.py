"""The renderer of `tinsmith fit-image` against the same written as plain tensor operations.

    python benchmarks/splat.py [--size 256] [--gaussians 2000] [--rounds 9] [--quick] [--out benchmarks/results]

Two people without this library are asked. The first writes what the formula says: every Gaussian
in every pixel, some Gaussians at a time, each batch recomputed in the backward pass so that memory
does not run out. The second takes pains: each Gaussian only in a square around itself, Gaussians
sorted by the size of their squares, all squares of a size at once. Both get their gradients from
autograd. All render the same Gaussians, fitted to the default photograph for a while, so that
their sizes are those that occur.

Prints one table and writes it to splat.md. All ways take turns, so that a busy
machine meets them alike; still, torch's threads suffer most from company (they wait for each other
after every operation), so that only a quiet machine is fair to plain torch.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from _harness import Call, Effort, Timing, ratio, timed
from _report import machine
from tinsmith import reference
from tinsmith.apps._photo import Photo, load_photo
from tinsmith.apps._training import Training
from tinsmith.apps.fit_image._gaussians import make_renderer, scatter_gaussians
from tinsmith.apps.fit_image._learner import GaussianLearner

RESULTS = Path(__file__).parent / "results"
Way = Callable[..., Tensor]
"""pos, scale, angle, color, opacity, h=, w= -> image."""

ENGINES = ("taichi", "quadrants")
BATCH = 50  # Gaussians at a time; from 4 to 100 the time is the same on 2 cores
FITTING_STEPS = 100


def every_pixel(pos: Tensor, scale: Tensor, angle: Tensor, color: Tensor, opacity: Tensor, *, h: int, w: int) -> Tensor:
    """Render every Gaussian in every pixel, `BATCH` Gaussians at a time."""

    def render(*part: Tensor) -> Tensor:
        return reference.splat(*part, h=h, w=w)

    image = torch.zeros(h, w, 3)
    for part in zip(*(tensor.split(BATCH) for tensor in (pos, scale, angle, color, opacity)), strict=True):
        image = image + checkpoint(render, *part, use_reentrant=False)
    return image


def squares(pos: Tensor, scale: Tensor, angle: Tensor, color: Tensor, opacity: Tensor, *, h: int, w: int) -> Tensor:
    """Render each Gaussian in a square around itself, all Gaussians of similar size at once."""
    with torch.no_grad():
        reach = scale.amax(-1) * torch.sqrt(2 * torch.log((255 * opacity).clamp(min=1)))
        size = reach.clamp(min=1).log2().ceil().int()
    image = torch.zeros(h * w, 3, dtype=pos.dtype)
    for exponent in size.unique().tolist():
        chosen = (size == exponent).nonzero()[:, 0]
        for part in chosen.split(max(1, 2**21 // 4**exponent)):  # so many that a batch fits into memory
            given = (tensor[part] for tensor in (pos, scale, angle, color, opacity))
            image = _add_squares(image, *given, side=2**exponent, h=h, w=w)
    return image.view(h, w, 3)


def _add_squares(image, pos, scale, angle, color, opacity, *, side, h, w):
    """Add Gaussians to the squares of 2 side + 1 pixels around them in `image` (h w, 3); return the result."""
    step = torch.arange(-side, side + 1)
    center = pos.detach().floor().int()
    x, y = center[:, 0, None] + step, center[:, 1, None] + step
    dx, dy = (x + 0.5 - pos[:, :1])[:, None, :], (y + 0.5 - pos[:, 1:])[:, :, None]
    c, s = angle.cos()[:, None, None], angle.sin()[:, None, None]
    a = (c * dx + s * dy) / scale[:, 0, None, None]
    b = (c * dy - s * dx) / scale[:, 1, None, None]
    alpha = opacity[:, None, None] * torch.exp(-0.5 * (a * a + b * b))
    inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None, :]
    owner, row, column = (inside & (alpha.detach() * 255 >= 1)).nonzero(as_tuple=True)
    pixel = y[owner, row] * w + x[owner, column]
    return image.index_add(0, pixel, alpha[owner, row, column, None] * color[owner])


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--size", type=int, default=256)
    asked.add_argument("--gaussians", type=int, default=2000)
    asked.add_argument("--rounds", type=int, default=9)
    asked.add_argument("--quick", action="store_true", help="little of everything; its numbers mean nothing")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    if options.quick:
        options.size, options.gaussians, options.rounds = 32, 50, 2
    photo = load_photo(None, options.size)
    ops = {f"tinsmith on {engine}": make_renderer(engine, "cpu") for engine in ENGINES}
    given = fitted(photo, options.gaussians, next(iter(ops.values())))
    ways = {**ops, "plain torch, every pixel": every_pixel, "plain torch, squares": squares}
    require_agreement(ways, given, photo)
    load = os.getloadavg()[0]  # before ours
    effort = Effort(options.rounds, moment=0.05, patience=120)
    forward = timed({name: rendering(way, given, photo) for name, way in ways.items()}, effort)
    both = timed({name: differentiating(way, given, photo) for name, way in ways.items()}, effort)
    text = report(forward, both, photo, options, load)
    print(text)
    options.out.mkdir(exist_ok=True)
    (options.out / "splat.md").write_text(text, encoding="utf-8")


def fitted(photo: Photo, count: int, render: Way) -> dict[str, Tensor]:
    learner = GaussianLearner(photo, scatter_gaussians(photo, count, seed=0), FITTING_STEPS, render, "cpu")
    training = Training(learner)
    for _ in range(FITTING_STEPS):
        training.run_training_step()
    return {name: value.detach() for name, value in learner.gaussians.activate().items()}


def require_agreement(ways: dict[str, Way], given: dict[str, Tensor], photo: Photo) -> None:
    """Exit if a way renders another image."""
    images = {name: way(**given, h=photo.height, w=photo.width) for name, way in ways.items()}
    first = next(iter(images.values()))
    for name, image in images.items():
        difference = (image - first).abs().mean().item()
        if difference > 1e-5:
            raise SystemExit(f"{name} renders another image: mean difference {difference:.1e}")


def rendering(way: Way, given: dict[str, Tensor], photo: Photo) -> Call:
    def run() -> None:
        with torch.no_grad():
            way(**given, h=photo.height, w=photo.width)

    return run


def differentiating(way: Way, given: dict[str, Tensor], photo: Photo) -> Call:
    leaves = {name: value.clone().requires_grad_() for name, value in given.items()}
    weight = torch.rand(photo.height, photo.width, 3)

    def run() -> None:
        image = way(**leaves, h=photo.height, w=photo.width)
        torch.autograd.grad(image, list(leaves.values()), weight)

    return run


def report(
    forward: dict[str, Timing], both: dict[str, Timing], photo: Photo, options: argparse.Namespace, load: float
) -> str:
    ours = min((timing for name, timing in both.items() if "tinsmith" in name), key=lambda t: t.median)
    lines = [
        "# Splatting 2-D Gaussians: ours and plain tensor operations",
        "",
        f"{options.gaussians} Gaussians, {photo.width} x {photo.height} pixels, float32. Medians of {options.rounds} "
        "interleaved rounds, in ms; in brackets the middle half of the ratios within a round.",
        "",
        "| renderer | forward | forward + backward | times the faster of ours |",
        "|---|---:|---:|---:|",
    ]
    for name, timing in both.items():
        times = ratio(timing, ours)
        ms = f"{forward[name].median * 1e3:.1f} | {timing.median * 1e3:.1f}"
        lines.append(f"| {name} | {ms} | {times.middle:.1f} ({times.low:.1f} to {times.high:.1f}) |")
    return "\n".join([*lines, "", f"{machine()}. Load average before: {load:.1f}.", ""])


if __name__ == "__main__":
    main()
