"""Numbers that pages tell in their own words are those of the results: each is what a table says, rounded.

What stands between marks on a page is written by scripts/pages, and held to the results in test_benchmarks_page.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from pages.blocks import ROOT

NUMBER = r"(\d[\d,]*(?:\.\d+)?)"
RATIO = re.compile(rf"{NUMBER} (?:x(?! [\d+])|times as|times faster|times than)")


class Cell(NamedTuple):
    """The number below a head, after what it is of, in the one row of a file that has these words."""

    file: str
    head: str
    words: tuple[str, ...]

    def number(self) -> float:
        rows = [row for row in rows_of(self.file) if self.head in row]
        cells = [row[self.head] for row in rows if all(word in " | ".join(row.values()) for word in self.words)]
        assert len(cells) == 1, f"{len(cells)} rows with {self.head!r} and {self.words} in {self.file}"
        return float(re.search(NUMBER, cells[0].rpartition(": ")[2])[1].replace(",", ""))


def rows_of(file):
    """Return the rows of all tables of a file, by their headings."""
    for table in re.findall(r"(?:^\|.*\n)+", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE):
        heads, _, *rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        yield from (dict(zip(heads, row, strict=True)) for row in rows)


def cells(name, head="ratio or difference"):
    return lambda *words: Cell(f"benchmarks/results/{name}.md", head, words)


def both(make, *words):
    """Make a cell for each engine, whose name replaces {}."""
    return [make(*[word.format(engine) for word in words]) for engine in ("taichi", "quadrants")]


call, gradient = cells("overhead-cpu"), cells("adjoint-cpu")
ours, generated = cells("overhead-cpu", "ours"), cells("adjoint-cpu", "generated")
splat, held_out = cells("splat", "times the faster of ours"), cells("rendering-cpu", "PSNR of held-out views")
ONE = "64 elements, y.backward(g) | ts.op on "
NEW = "10,000,000 elements, forward | ts.op on "
KEPT = "10,000,000 elements, forward, memory kept | ts.op on "
ALONE = "taichi: backward alone | "
CENSUS = ["right", "wrong", "refused", "process dies"]


def outcome(head, engine):
    return Cell("docs/about/census.md", head, (f"{engine} | 400",))


learn_image = {head: Cell("docs/how-to/learn-image.md", head, ("`hash-grid`",)) for head in ("PSNR", "steps")}
# The page, words on it with {} for a number, and which cell each rounds; of a list, every one.
CLAIMS = [
    (
        "docs/start/by-hand.md",
        "{} times as long as an op on Taichi, {} times on Quadrants",
        *both(call, f"{ONE}{{}}", "by hand"),
    ),
    ("docs/guide/backward.md", "rows of 256: {} x faster", gradient("softmax", ALONE, "closed form")),
    ("docs/guide/backward.md", "rays of 64: {} x as fast", gradient("compositing", ALONE, "by hand")),
    ("docs/guide/backward.md", "in place, 64 steps | {} x faster", gradient("chain in place", ALONE, "by hand")),
    ("docs/guide/backward.md", "2000 Gaussians | {} x: not worth it", gradient("splat", ALONE, "by hand")),
    ("docs/guide/engines.md", "of 64 elements | {} us | {} us |", *both(ours, f"{ONE}{{}}", "by hand")),
    (
        "docs/guide/engines.md",
        "array of a call, forward | {} us | {} us |",
        *both(call, "array, forward | ts.op on {}"),
    ),
    (
        "docs/guide/engines.md",
        "rays with 64 samples, forward and backward | {} ms | {} ms |",
        *both(generated, "compositing, {}, forward and backward"),
    ),
    (
        "docs/guide/engines.md",
        "2000 Gaussians, forward and backward | {} ms | {} ms |",
        *both(generated, "splat, {}, forward and backward"),
    ),
    ("docs/guide/engines.md", "gradient of that splat | {} s | {} s |", *both(gradient, "splat", "{}: cold")),
    ("docs/how-to/fit-scene.md", "1000 (default) | {} dB, mean of ten views", both(held_out, "tinsmith on {}")),
    (
        "docs/about/limits.md",
        "A call costs {} to {} microseconds** forward and backward on a CPU, compared with {} for",
        *reversed(both(ours, f"{ONE}{{}}", "by hand")),
        cells("overhead-cpu", "against")(f"{ONE}taichi", "torch Function"),
    ),
    (
        "docs/about/limits.md",
        "it reports all {} whose gradient by the engine is wrong, and {} whose gradient is right",
        outcome("wrong and reported", "Taichi"),
        outcome("right, but reported", "Taichi"),
    ),
    ("docs/guide/engines.md", "Taichi 1.7.4 | {} | {} | {} | {} |", *[outcome(head, "Taichi") for head in CENSUS]),
    (
        "docs/guide/engines.md",
        "with its gradient stack | {} | {} | {} | {} |",
        *[outcome(head, "Quadrants") for head in CENSUS],
    ),
    (
        "docs/about/limits.md",
        "a softmax over rows takes {} to {} times as long",
        gradient("softmax", "quadrants: forward", "plain torch"),
        gradient("softmax", ALONE, "plain torch"),
    ),
]


def found_on(page, words):
    """Find words on a page, across line breaks."""
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    return re.search(re.escape(words).replace(r"\{\}", NUMBER), text)


def rounds(shown, number):
    """Return True if a number is shown rounded, apart from trailing zeros of a whole number beyond two digits."""
    whole, _, digits = shown.replace(",", "").partition(".")
    unit = 10.0 ** -len(digits) if digits else 10.0 ** max(0, min(len(whole) - 2, len(whole) - len(whole.rstrip("0"))))
    return abs(float(f"{whole}.{digits}") - number) <= unit / 2 * (1 + 1e-9)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim[0]}: {claim[1]}")
def test_a_number_is_that_of_the_results(claim):
    page, words, *sources = claim
    match = found_on(page, words)
    assert match, "these words are on the page no more"
    for shown, source in zip(match.groups(), sources, strict=True):
        for cell in source if isinstance(source, list) else [source]:
            assert rounds(shown, cell.number()), f"{shown} is to be {cell.number()}: {cell}"


@pytest.mark.parametrize("page", sorted({"README.md", *(page for page, *_ in CLAIMS)}))
def test_no_ratio_is_without_a_source(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```|<!-- (\w+): begin.*?<!-- \1: end", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", lambda code: code[0].replace(" x", " X"), " ".join(text.split()))
    for words in [claim[1] for claim in CLAIMS if claim[0] == page]:
        text = re.sub(re.escape(words).replace(r"\{\}", NUMBER), "", text)
    assert not [text[one.start() - 60 : one.end() + 40] for one in RATIO.finditer(text)]


def test_rounding():
    assert rounds("5.9", 5.91) and rounds("390", 386.8) and rounds("5,000", 4973) and rounds("100,000", 101_270)
    assert rounds("10", 9.6) and rounds("2.6", 2.55) and rounds("21", 20.8)
    assert not any(
        [rounds("5.9", 5.84), rounds("10", 9.4), rounds("390", 380), rounds("1.22", 1.2), rounds("41", 41.6)]
    )
