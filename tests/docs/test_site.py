"""The site is built without a warning, and asks no other computer for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages.blocks import ROOT

pytest.importorskip("mkdocs", reason="the site is built where the docs extra is installed")
pytestmark = pytest.mark.timeout(900)  # on a cold cache the build runs the programs of all pages


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr, done.stderr[-4000:]
    return folder


def test_public_names_have_entries(site):
    import tinsmith as ts
    import tinsmith.nn
    import tinsmith.render
    import tinsmith.render.gaussians

    entries = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*/index.html"))
    for face in (ts, tinsmith.nn, tinsmith.render, tinsmith.render.gaussians):
        missing = [name for name in face.__all__ if f'id="{face.__name__}.{name}"' not in entries]
        assert set(missing) <= {"__version__", "gaussians", "nn", "render"}


def test_examples_of_docstrings_are_code(site):
    entries = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*/index.html")]
    assert sum(page.count("&gt;&gt;&gt;") for page in entries) > 20
    assert not any(
        re.search(r"<blockquote>\s*<blockquote>", page) for page in entries
    )  # a prompt that was read as prose


def test_outputs_are_below_their_programs(site):
    page = (site / "reference" / "errors" / "index.html").read_text(encoding="utf-8")
    assert "n was 1024" in page and "&lt;!-- output" not in page


def test_nothing_is_asked_of_another_computer(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text(encoding="utf-8")
        )
        outside = [one for one in loaded if re.match(r"(https?:)?//", one)]
        assert not outside, page.relative_to(site)


def test_files_of_the_repository_that_pages_link_to_are_in_the_site(site: Path):
    copy = site / "repository" / "tests" / "pitfalls" / "test_01_leaf_doubling.py" / "index.html"
    assert "test_01_leaf_doubling" in copy.read_text(encoding="utf-8")
