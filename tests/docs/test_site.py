"""The site is built without a warning, and asks no other computer for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages.blocks import ROOT

pytest.importorskip("mkdocs", reason="the site is built where the docs extra is installed")
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site."""
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
    import tinsmith.render.nerfacc

    entries = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*/index.html"))
    for face in (ts, tinsmith.nn, tinsmith.render, tinsmith.render.gaussians, tinsmith.render.nerfacc):
        missing = [name for name in face.__all__ if f'id="{face.__name__}.{name}"' not in entries]
        elsewhere = {name for name in missing if f'id="tinsmith.render.nerfacc.{name}"' in entries}
        assert set(missing) - elsewhere <= {"__version__", "gaussians", "nerfacc", "nn", "render"}


def test_examples_of_docstrings_are_code(site):
    entries = [page.read_text(encoding="utf-8") for page in (site / "reference").glob("*/index.html")]
    assert sum(page.count("&gt;&gt;&gt;") for page in entries) > 20
    assert not any(
        re.search(r"<blockquote>\s*<blockquote>", page) for page in entries
    )  # a prompt that was read as prose


def test_types_in_signatures_are_links_and_no_name_is_private(site):
    page = (site / "reference" / "check" / "index.html").read_text(encoding="utf-8")
    assert re.search(r'class="autorefs autorefs-internal"[^>]*href="[^"]*#tinsmith.Finding"', page)
    for path in (site / "reference").glob("*/index.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'(?:title|href)="[^"]*tinsmith(?:\.\w+)*\._[^"]*"', text), path
        signatures = re.findall(r'class="doc-signature.*?</pre>', text, re.DOTALL)
        words = [re.sub(r"<[^>]+>", "", one) for one in signatures]
        # `_auto_clear` is an argument of Stannum's.
        assert not [one for one in words if re.search(r"(?<!\w)_(?!auto_clear)[A-Za-z]\w*", one)], path


def test_the_page_of_a_name_stands_first_in_a_search(site):
    docs = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    boosts = {one["location"]: one.get("boost", 1) for one in docs}
    assert boosts["reference/op/"] > boosts["reference/scan/"] > boosts["guide/"] > boosts["about/decisions/blocks/"]
    assert any(one["location"].startswith("reference/op/") and "ts.op" in one["text"] for one in docs)


def test_a_search_for_autograd_function_finds_the_page_about_it(site):
    """The search splits words at spaces only, so its title must not say `autograd.Function`."""
    docs = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    (page,) = [one for one in docs if one["location"] == "how-to/autograd-function/"]
    assert page["title"].lower().endswith("autograd function")
    assert page["boost"] == max(one.get("boost", 1) for one in docs)


def test_an_arrow_in_inline_code_is_whole(site):
    text = re.sub(r"<pre\b.*?</pre>", "", (site / "reference/spec/index.html").read_text("utf-8"), flags=re.DOTALL)
    assert text.count('<span class="arrow">-&gt;</span>') > 1
    assert not re.search(r"<code>[^<]*-&gt;", text)
    assert ".arrow { white-space: nowrap; }" in (site / "assets" / "site.css").read_text(encoding="utf-8")


def test_decisions_and_logs_are_in_the_section_for_contributors():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    before, _, after = nav.partition("  - Contributing:\n")
    logs = ["about/decisions/", "about/census.md", "about/fuzz.md", "about/locks.md", "repository/CONTRIBUTING.md"]
    assert all(log in after and log not in before for log in logs)
    assert "about/benchmarks.md" in before and "about/limits.md" in before


def test_code_on_the_home_page_is_at_most_80_characters_wide():
    blocks = re.findall(r"```\w+.*?\n(.*?)```", (ROOT / "docs" / "index.md").read_text("utf-8"), re.DOTALL)
    assert blocks and max(len(line) for block in blocks for line in block.splitlines()) <= 80


def test_the_changelog_is_in_the_site(site):
    page = (site / "about" / "changelog" / "index.html").read_text(encoding="utf-8")
    assert "0.1.0" in page and 'href="../../reference/torch/"' in page


def test_outputs_are_below_their_programs(site):
    page = (site / "reference" / "errors" / "index.html").read_text(encoding="utf-8")
    assert "n was 1024" in page and "&lt;!-- output" not in page and '<div class="output highlight">' in page


def test_the_site_loads_nothing_from_other_hosts(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)\"", page.read_text(encoding="utf-8")
        )
        outside = [one for one in loaded if re.match(r"(https?:)?//", one)]
        assert not outside, page.relative_to(site)


def test_files_of_the_repository_that_pages_link_to_are_in_the_site(site: Path):
    copy = site / "repository" / "tests" / "pitfalls" / "test_01_leaf_doubling.py" / "index.html"
    assert "test_01_leaf_doubling" in copy.read_text(encoding="utf-8")
