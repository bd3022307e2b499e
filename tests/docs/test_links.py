"""Links between the files that people read lead somewhere: to a file that is there, and to a heading in it."""

import re

import pytest
from pages.blocks import ROOT

PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
_FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def headings_of(text):
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    plain = [re.sub(r"[^\w\- ]", "", title.lower()).strip() for title in _HEADING.findall(_FENCED.sub("", text))]
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE)  # a name's entry is its own anchor in the site
    return {re.sub(r"[ -]+", "-", title) for title in plain} | set(names)


def broken(page, text):
    """Return the links of a page that lead nowhere."""
    links = []
    for markdown, html in _LINK.findall(_FENCED.sub("", text)):
        link = markdown or html
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_heading = not anchor or target.suffix != ".md" or not target.exists()
        if not target.exists() or not (is_heading or anchor in headings_of(target.read_text(encoding="utf-8"))):
            links.append(link)
    return links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not broken(page, page.read_text(encoding="utf-8"))


def test_a_broken_link_is_found():
    text = "[a](README.md) [b](nowhere.md) [c](README.md#how-fast) [d](README.md#how-slow) [e](https://x.y/z)"
    assert broken(ROOT / "page.md", text) == ["nowhere.md", "README.md#how-slow"]
