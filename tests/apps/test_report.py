"""The page of a run: it holds all that it shows, says what the files say, and suits narrow, wide, light and dark."""

from __future__ import annotations

import base64
import io
import math
import re

import pytest
from PIL import Image

from tinsmith.apps._report import REPORT_FILES, Report

ROWS = [
    {"held-out view 0": Image.new("RGB", (24, 20), "red"), "rendered, 30.1 dB": Image.new("RGB", (24, 20), "blue")},
    {"<b>large</b>": Image.new("RGB", (1500, 900), "green"), "small": Image.new("L", (8, 8), 70)},
]
LOSSES = [2.0 * 0.99**step for step in range(2000)]
CURVES = {"loss": (range(2000), LOSSES), "PSNR, dB": ([0, 500, 1999], [10.0, 20.5, 31.25])}
FACTS = {"dataset": "<script>alert(1)</script>", "psnr_db": 31.25, "rays": 20480, "seconds": 12.34, "nested": {"a": 1}}


def _build(**changes):
    given = {"title": "fit-scene: a & b", "score": "31.25 dB", "facts": FACTS, "curves": CURVES, "rows": ROWS} | changes
    return Report(**given).build_page()


def test_the_page_is_escaped_and_self_contained():
    page = _build()
    assert "<title>fit-scene: a &amp; b: 31.25 dB</title>" in page
    assert "<script" not in page and "&lt;script&gt;alert(1)&lt;/script&gt;" in page and "<b>large" not in page
    assert not re.findall(r"""(?:src|href)="(?!data:)|url\(|@import""", page)
    assert all(words in page for words in ("20,480", "12.3 s", "31.25")) and "nested" not in page
    pictures = [
        Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r'image/\w+;base64,([^"]+)"', page)
    ]
    assert [picture.size for picture in pictures] == [(24, 20), (24, 20), (1024, 614), (8, 8)]
    assert pictures[0].getpixel((5, 5)) == (255, 0, 0)


def test_curves_go_from_the_first_value_to_the_last_through_few_points():
    paths = re.findall(r'<path d="M([^"]+)"', _build())
    loss, psnr = ([tuple(map(float, point.split())) for point in path.split("L")] for path in paths)
    assert 300 < len(loss) <= 601 and (loss[0], loss[-1]) == ((0, 0), (1, 1))
    # A straight line: the loss falls exponentially, and its scale is logarithmic.
    assert max(abs(x - y) for x, y in loss) < 1e-4
    assert psnr == [
        (0, 1),
        (pytest.approx(500 / 1999, abs=1e-5), pytest.approx((31.25 - 20.5) / 21.25, abs=1e-5)),
        (1, 0),
    ]


def test_curves_name_the_unit_of_their_steps():
    page = _build(unit="iteration")
    assert "by iteration, logarithmic</figcaption>" in page and "by iteration</figcaption>" in page
    assert "by step" not in page and "by step" in _build()


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.nan, 3.0], [math.inf, -1.0]])
def test_a_curve_of_less_than_two_numbers_is_left_out(values):
    page = _build(curves={"loss": (range(len(values)), values)}, rows=[])
    assert "<path" not in page and "Training" not in page and "Side by side" not in page


def test_a_report_writes_its_files(tmp_path):
    for name, write in Report("a title", "a score", FACTS, CURVES, ROWS[:1]).writers().items():
        write(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == set(REPORT_FILES)
    assert "a score" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_suits_narrow_and_wide_windows_light_and_dark(browse, tmp_path, width):
    file = tmp_path / "report.html"
    file.write_text(_build(), encoding="utf-8")
    with browse(file.as_uri(), width=width, height=800) as page:
        grounds = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        tops = page.evaluate(
            "[...document.querySelectorAll('.row:first-child img')].map(x => x.getBoundingClientRect().top)"
        )
        assert len(tops) == 2 and tops[0] == tops[1]
        assert grounds[0] != grounds[1] and not page.complaints
