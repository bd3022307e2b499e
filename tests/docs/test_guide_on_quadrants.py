"""The guide and the first op are true of Quadrants: their programs, written for that engine, run and say the same."""

import pytest
from pages.blocks import ROOT
from pages.programs import outputs_of, run

DOCS = ROOT / "docs"
# What others print hangs on the clock, on threads, on rounding, on the engine's name.
SAME = ["guide/index", "guide/memory", "guide/randomness", "guide/recursions"]
RUN = ["guide/backward", "guide/developing", "guide/loops", "guide/precision", "guide/rules", "start/first-op"]


def on_quadrants(name, folder):
    """Return the text of a page with every kernel written for Quadrants."""
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    page = folder / f"{name.replace('/', '-')}.md"
    # docs/about/limits.md: what torch's benchmark and compiler need does not load after Quadrants everywhere.
    there = text.replace("import taichi as ti", "import setuptools\nimport quadrants as ti")
    page.write_text(there, encoding="utf-8")
    assert page.read_text(encoding="utf-8") != text, f"{name} imports no engine"
    return page


@pytest.mark.costly
@pytest.mark.parametrize("name", SAME + RUN)
def test_a_page_of_the_guide_runs_on_quadrants(name, tmp_path):
    page = on_quadrants(name, tmp_path)
    troubles = run([page])
    assert not troubles, troubles
    if name in SAME:
        assert outputs_of(page) == outputs_of(DOCS / f"{name}.md")
