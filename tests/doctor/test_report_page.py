"""The page for browsers: it stands alone, every finding is below its line, and errors of gradients are pictures."""

from __future__ import annotations

import base64
import dataclasses
import io
import math
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tinsmith.doctor import Report
from tinsmith.doctor._excerpt import choose_excerpts
from tinsmith.doctor._page import _sheet, compute_relative_errors, draw_heat_map
from tinsmith.linter import Finding

SOURCE = '''\
"""Far above: "<not> shown"."""
import taichi as ti
A = 1
B = 2
C = 3


@ti.kernel
def swarm(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        count = 0
        count += x[i] < 1 and "<b>"
        y[i] = count


def far_below():
    return "nor this"


D = 1
'''


@dataclass
class Gradient:
    """What a page needs of a gradient check."""

    ok: bool
    inputs: tuple[Any, ...] = ()
    findings: tuple[Finding, ...] = ()
    kind: str = "op"

    @property
    def verdict(self) -> str:
        return "right" if self.ok else "refused" if self.findings else "wrong"

    @property
    def summary(self) -> str:
        return "x  WRONG at [1] & more"


@dataclass
class Compared:
    """The gradient by one input, which is off by `errors` beside 1."""

    name: str
    errors: Any
    has_reference: bool = True

    @property
    def op(self) -> Any:
        return 1.0 + torch.as_tensor(self.errors)

    @property
    def reference(self) -> Any:
        return torch.ones_like(self.op) if self.has_reference else None


class Pages(HTMLParser):
    """A page's tags, which must close as they were opened, its text, and what stands in rows."""

    ALONE = frozenset({"meta", "img", "!doctype"})

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text, self.ids = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self):
        return "".join(self.text)


@pytest.fixture
def swarm(tmp_path):
    (tmp_path / "swarm.py").write_text(SOURCE, "utf-8")
    return str(tmp_path / "swarm.py")


@pytest.fixture
def report(swarm):
    findings = [
        Finding("TS501", "info", swarm, 9, 0, "`x` is <odd>"),
        Finding("TS301", "error", swarm, 12, 9, "`count` loses `x[i] < 1`", "count = 0.0  # & <so> on"),
        Finding("TS303", "warning", "/gone/away.py", 3, 2, "an odd ` mark"),
    ]
    return Report("op `swarm`", findings, {}, ("lint",), ((swarm, 8),))


def test_the_page_is_self_contained(report):
    report = Report(report.name, report.findings, {"swarm": Gradient(False, (Compared("x", np.ones((2, 3))),))})
    page = Pages(report.html())
    assert not {"script", "link", "iframe"} & {tag for tag, _ in page.tags}
    sources = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    assert sources and all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"https?://|@import|url\(", report.html())


def test_findings_stand_below_their_lines(report):
    words = Pages(report.html()).words
    order = ["9def swarm(", "`x` is <odd>".replace("`", ""), '12        count += x[i] < 1 and "<b>"', "▲"]
    order += ["error TS301", "count loses x[i] < 1", "count = 0.0  # & <so> on", "13        y[i] = count"]
    source = words[words.index("⋯") :]
    places = [source.index(one) for one in order]
    assert places == sorted(places)
    caret = next(line for line in source.splitlines() if line.endswith("▲") or "▲" in line)
    assert caret.index("▲") == 8


def test_the_function_is_shown_whole_and_nothing_far_from_it(report):
    words = Pages(report.html()).words
    assert "@ti.kernel" in words and "y[i] = count" in words
    assert "nor this" not in words and "Far above" not in words


def test_links_lead_to_findings_worst_first(report):
    page = Pages(report.html())
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert [one for one in links if "finding" in one] == ["#finding-1", "#finding-2", "#finding-0"]
    assert sorted(page.ids) == [*(f"finding-{place}" for place in range(3)), *(f"rule-{one}" for one in RULES_NAMED)]


RULES_NAMED = ("TS301", "TS303", "TS501")


def test_a_rule_s_id_leads_to_what_the_rule_finds(report):
    page = Pages(report.html())
    links = [attrs["href"] for tag, attrs in page.tags if tag == "a"]
    assert all(links.count(f"#rule-{one}") == 2 for one in RULES_NAMED)  # in the list, and below the line
    assert "An integer variable is given a float, whose fraction is lost." in page.words


def test_a_remedy_has_a_label(report):
    assert "Write instead:count = 0.0  # & <so> on" in Pages(report.html()).words


def test_the_page_lists_what_was_checked(report):
    read = dataclasses.replace(report, kernels=3, without_examples=("swarm", "<odd>"))
    words = "3 kernels read. 2 ops have no example, so --run leaves them out: swarm, <odd>."
    assert words in Pages(read.html()).words and words in " ".join(str(read).split())
    assert "No kernel was found." in str(dataclasses.replace(report, kernels=0))
    assert "kernels read" not in str(report)


def test_missing_files_and_odd_characters(report):
    words = Pages(report.html()).words
    assert "/gone/away.py" in words and "an odd ` mark" in words


def test_a_clean_report_shows_the_kernel(swarm):
    page = Pages(Report("op `swarm`", [], {}, ("lint",), ((swarm, 8),)).html())
    assert "nothing found" in page.words and "for i in x:" in page.words
    assert not page.ids


def test_the_page_is_written_to_the_given_path(report, tmp_path):
    text = report.html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text("utf-8") == text


def test_the_gradient_has_a_text_and_one_picture_per_input(report):
    inputs = (Compared("x", np.eye(3)), Compared("k", np.zeros(4)), Compared("none", np.zeros((0, 2))))
    inputs += (Compared("large", np.zeros(4), has_reference=False),)
    page = Pages(Report("f", [], {"swarm(small)": Gradient(False, inputs)}).html())
    assert "gradient of swarm(small): wrong" in page.words and "x  WRONG at [1] & more" in page.words
    assert "(3, 3) error" in page.words and "large" not in page.words
    assert len([tag for tag, _ in page.tags if tag == "figure"]) == 3
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 2
    assert "gradient of f: right" in Pages(Report("f", [], {"f": Gradient(True)}).html()).words


def test_a_refused_gradient_is_not_called_wrong():
    gradient = Gradient(False, findings=(Finding("TS703", "error", "f.py", 1, 0, "refused"),))
    words = Pages(Report("f", [], {"f": gradient}).html()).words
    assert "gradient of f: refused" in words and "f: wrong" not in words


ERRORS = [
    # mine, true, relative errors
    ([1.0, -4.0], [1.0, -2.0], [0.0, 0.5]),
    ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
    ([3.0, 0.0], [0.0, 0.0], [1.0, 0.0]),
    ([1.0, math.inf], [2.0, 1.0], [0.5, math.inf]),
    ([], [], []),
]


@pytest.mark.parametrize(("mine", "true", "errors"), ERRORS)
def test_relative_errors(mine, true, errors):
    assert compute_relative_errors(torch.tensor(mine), torch.tensor(true)).tolist() == errors


def pixels(errors):
    head, _, data = draw_heat_map(errors).partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 3, 4), (2, 1, 2, 5), (1, 3000), (3000, 2)])
def test_pictures_of_all_shapes(shape):
    seen = pixels(np.random.default_rng(0).random(shape))
    assert 50 < seen.shape[0] < 700 and 300 < seen.shape[1] < 700


def test_the_wrong_element_is_dark():
    errors = np.zeros((4, 6))
    errors[1, 4] = 0.7
    seen = pixels(errors)[:, :380]  # without the color bar
    dark = np.argwhere((seen[..., 0] < 130) & (seen[..., 1] < 40) & (seen[..., 0] > seen[..., 1] + 60))
    assert len(dark) > 500
    row, column = dark.mean(axis=0) / seen.shape[:2]
    assert 0.2 < row < 0.5 and 0.6 < column < 0.95


def test_rounding_is_pale():
    seen = pixels(np.full((4, 6), 3e-10))[:, :380]
    inside = seen[20:-60, 60:-40]
    assert inside.min() > 200


def test_values_that_are_not_finite_are_gray():
    seen = pixels(np.array([[0.0, np.nan], [np.inf, 1.0]]))
    assert (np.abs(seen - 153).max(axis=-1) < 3).sum() > 1000


def test_downsampling_keeps_the_worst_error():
    errors = np.zeros((1, 5000))
    errors[0, 4321] = 9.0
    sheet = _sheet(errors)
    assert sheet.shape[1] <= 512 and sheet.max() == 9.0
    assert sheet.argmax() / sheet.shape[1] == pytest.approx(4321 / 5000, abs=0.01)


EXCERPTS = [
    ({12}, [range(8, 14)]),
    ({9, 13}, [range(8, 14)]),
    ({3}, [range(1, 6)]),
    ({3, 12}, [range(1, 6), range(8, 14)]),
    ({7, 12}, [range(5, 14)]),
    ({20}, [range(18, 21)]),
    ({99, 0}, []),
]


@pytest.mark.parametrize(("marked", "shown"), EXCERPTS)
def test_the_lines_shown_around_findings(marked, shown):
    assert choose_excerpts(SOURCE.splitlines(), marked) == shown


def test_the_innermost_function_of_a_finding_is_shown():
    lines = ["def test():", "    a = 1", "    def kernel():", "        b = 2", "    c = 3"]
    assert choose_excerpts(lines, {4}) == [range(3, 5)]
    assert choose_excerpts(lines, {5}) == [range(1, 6)]


def test_a_file_that_does_not_parse_is_shown_around_the_line():
    assert choose_excerpts(["def f(:", "    pass", "", "", "x = 1"], {1}) == [range(1, 4)]
