"""What every app leaves to look at: films in colors that suit all of them, captions that fit, and words for a PSNR."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from tinsmith.apps._files import as_json
from tinsmith.apps._film import flat_psnr, format_decibels, psnr
from tinsmith.apps._pictures import arrange_side_by_side, caption_film, write_film


def _frames(count):
    """Return frames from colored stripes to a smooth slope of blues, which share no color; (48, 64, 3) uint8."""
    y, x = np.mgrid[0:48, 0:64]
    first = np.stack([200 + y, 40 + x * 2, 30 + (x // 4 % 2) * 100], -1)
    last = np.stack([20 + x // 3, 60 + y, 255 - x - y], -1)
    shares = [number / (count - 1) for number in range(count)]
    return [torch.from_numpy((first * (1 - t) + last * t).astype(np.uint8)) for t in shares]


def _apart(shown, frame):
    """Compute the PSNR of a film's frame as the eye sees it, with the colors of neighboring pixels mixed."""
    pictures = [
        one.convert("RGB").filter(ImageFilter.GaussianBlur(1.5)) for one in (shown, Image.fromarray(frame.numpy()))
    ]
    ours, theirs = (np.asarray(one, float) / 255 for one in pictures)
    return psnr(np.square(ours - theirs).mean())


def test_the_palette_of_a_film_fits_its_first_and_last_frames(tmp_path):
    frames = _frames(21)
    write_film(tmp_path / "film.gif", frames[:-1], frames[-1])
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 21
        psnrs = []
        for number in (0, 10, 20):
            film.seek(number)
            psnrs.append(_apart(film, frames[number]))
    assert min(psnrs) > 36, psnrs  # 26 and less where the palette is that of the last frame
    assert psnrs[-1] > 40


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_film_of_few_frames(tmp_path, count):
    frames = _frames(5)
    write_film(tmp_path / "film.gif", frames[:count], frames[-1])
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == count + 1


@pytest.mark.parametrize(("size", "shown"), [((24, 20), (480, 400)), ((20, 40), (480, 480)), ((600, 90), (600, 90))])
def test_a_film_with_captions_is_wide_and_shows_whole_frames(size, shown):
    frame = torch.full((size[1], size[0], 3), 90, dtype=torch.uint8)
    (made,) = caption_film([frame], "a title that is far too long for a film of this width" * 3, "once around")
    assert (made.shape[1], made.shape[0]) == (shown[0], shown[1] + 49)
    assert (made[:49, -6:] == 255).all() and (made[:49] < 64).any()
    filled = (made[49:] == 90).all(-1)
    factor = 1 if max(size) > 480 else 480 / max(size)
    assert filled.sum() == round(size[0] * factor) * round(size[1] * factor)


@pytest.mark.parametrize("size", [(3, 200), (50, 40), (600, 500)])
def test_captions_are_not_wider_than_their_columns(size):
    long = "what is to be seen in this picture, told at length"
    sheet = np.asarray(
        arrange_side_by_side({long: Image.new("RGB", size, "red"), "b": Image.new("RGB", size, "red")}).convert("L")
    )
    assert (sheet[:, -8:] == 255).all() and (sheet[:, :8] == 255).all()
    is_red = (np.asarray(sheet) > 60) & (np.asarray(sheet) < 90)
    second = np.flatnonzero(is_red.any(0))[-1] - size[0] * max(1, round(384 / max(size)))
    assert (sheet[:, second - 6 : second] == 255).all()  # a gap between the columns, in the captions too


def test_a_psnr_is_formatted():
    assert (format_decibels(35.64), format_decibels(35.64, 2), format_decibels(math.inf)) == (
        "35.6 dB",
        "35.64 dB",
        "exact",
    )


def test_facts_that_are_not_finite_become_null_in_json():
    text = as_json({"psnr_db": math.inf, "by_view": {"a": math.inf, "b": 3.0}, "curve": [(1, math.nan)]})
    assert json.loads(text) == {"psnr_db": None, "by_view": {"a": None, "b": 3.0}, "curve": [[1, None]]}


def test_the_psnr_of_a_single_color():
    pixels = torch.zeros(2, 2, 3, dtype=torch.uint8)
    assert flat_psnr(pixels) == math.inf
    pixels[0] = 255
    assert flat_psnr(pixels) == pytest.approx(psnr(0.25))
