"""The guide is true of Quadrants as well: its programs, written for that engine, run and say the same."""

import pytest
from pages.blocks import ROOT
from pages.programs import outputs_of, run

GUIDE = ROOT / "docs" / "guide"
SAME = ["index", "memory", "randomness", "recursions"]  # what others print hangs on the clock, on threads, on rounding
RUN = ["backward", "developing", "loops", "precision", "rules"]


def on_quadrants(name, folder):
    """The page with every kernel written for Quadrants."""
    text = (GUIDE / f"{name}.md").read_text(encoding="utf-8")
    page = folder / f"{name}.md"
    page.write_text(text.replace("import taichi as ti", "import quadrants as ti"), encoding="utf-8")
    assert page.read_text(encoding="utf-8") != text, f"{name} imports no engine"
    return page


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_guide_runs_on_quadrants(tmp_path):
    pages = {name: on_quadrants(name, tmp_path) for name in SAME + RUN}
    troubles = run(list(pages.values()))
    assert not troubles, "\n".join(troubles.values())
    for name in SAME:
        assert outputs_of(pages[name]) == outputs_of(GUIDE / f"{name}.md"), name
