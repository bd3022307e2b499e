"""Every block of Python on every page runs, from top to bottom, as it stands. (The README's: tests/test_readme.py.)"""

import re

import pytest
from pages.blocks import ROOT, blocks_of, with_outputs
from pages.programs import PageError, outputs_of, run

LINTED = (ROOT / "docs" / "reference" / "lint").glob("TS*.md")  # their kernels are linted, test_rule_pages.py
PAGES = sorted(set((ROOT / "docs").rglob("*.md")) - set(LINTED))
WITH_PROGRAMS = [page for page in PAGES if blocks_of(page.read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def troubles():
    """What went wrong, by page: all are run together, several at once."""
    return run(WITH_PROGRAMS)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_runs(page, troubles):
    assert page not in troubles, troubles[page]
    text = page.read_text(encoding="utf-8")
    outputs = outputs_of(page)
    assert len(outputs) == len(blocks_of(text))
    for block, output in zip(blocks_of(text), outputs, strict=True):
        assert output.strip() or not block.is_shown, f"{block.name} prints nothing, where output is to be shown"


def test_every_mark_belongs_to_a_block():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown = sum(block.is_shown for block in blocks_of(text))
        assert len(re.findall(r"^ *<!-- output\b", text, re.MULTILINE)) == shown, page


PAGE = """# A page

```python title="one.py"
x = 6
print(x * 7)
```

<!-- output -->

Words between.

```python
raise ValueError(f"{x} is refused")
```
<!-- output: ValueError -->

```sh
cat one.py
```

<!-- output -->

<!-- not run: it needs two machines -->
```python
this is no Python
```

```sh
rm -rf everything
```
"""


@pytest.fixture
def a_page(monkeypatch, tmp_path):
    monkeypatch.setattr("pages.programs.CACHE", tmp_path / "cache")
    monkeypatch.setattr("pages.programs.ROOT", tmp_path)

    def write(text):
        page = tmp_path / "page.md"
        page.write_text(text, encoding="utf-8")
        return page

    return write


def test_outputs_come_where_they_are_marked(a_page):
    outputs = outputs_of(a_page(PAGE))
    assert outputs == ["42", "ValueError: 6 is refused", "x = 6\nprint(x * 7)"]
    shown = with_outputs(PAGE, outputs)
    assert "print(x * 7)\n```\n\n``` { .text .output }\n42\n```\n\nWords between." in shown
    assert "<!-- output" not in shown and "this is no Python" in shown


def test_a_command_that_is_meant_to_fail_shows_what_it_printed(a_page):
    assert outputs_of(a_page("```sh\necho found\nexit 2\n```\n<!-- output: 2 -->\n")) == ["found"]


WRONG = {
    "```python\n1 / 0\n```\n": "ZeroDivisionError: division by zero",
    "```python\nprint(1)\n```\n<!-- output: ValueError -->\n": "ValueError was to be raised, and was not",
    "```python\n1 / 0\n```\n<!-- output: ValueError -->\n": "ZeroDivisionError",
    "```sh\nno-such-command\n```\n<!-- output -->\n": "no-such-command",
    "```sh\nno-such-command | sed s/a/b/\n```\n<!-- output -->\n": "exit code 127, not 0",
    "```sh\ngrep x /dev/null\necho seen\n```\n<!-- output -->\n": "exit code 1, not 0",
    "```sh\necho right\n```\n<!-- output: 1 -->\n": "exit code 0, not 1",
}
"""Pages that do not do as they say, and words of what is told."""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What is told of each, by text: all are run together, as torch is loaded once for them."""
    folder = tmp_path_factory.mktemp("wrong")
    pages = {text: folder / f"page-{number}.md" for number, text in enumerate(WRONG)}
    for text, page in pages.items():
        page.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pages.programs.CACHE", folder / "cache")
        troubles = run(list(pages.values()))
    return {text: troubles[page] for text, page in pages.items() if page in troubles}


@pytest.mark.parametrize("text", WRONG)
def test_a_block_that_does_not_do_as_it_says_is_told(told, text):
    assert WRONG[text] in told[text]


def test_a_page_that_does_not_run_has_no_outputs(a_page):
    page = a_page(next(iter(WRONG)))
    with pytest.raises(PageError, match=r"(?s)page.md does not run.*ZeroDivisionError: division by zero"):
        outputs_of(page)
