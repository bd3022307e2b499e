"""Every block of Python on every page runs, from top to bottom, as it stands, and prints what the page shows.

The README's: tests/test_readme.py.
"""

import functools
import re

import pytest
from pages.blocks import ROOT, Output, as_the_site_has_it, blocks_of, shown_outputs, with_outputs, without_outputs
from pages.programs import PageError, outputs_of, pages_with_programs, run

PAGES = sorted((ROOT / "docs").rglob("*.md"))
# They start process after process, and take as long as a third of all pages. What they show is tested in small by
# tests/layers/test_distributed.py, tests/bridge/test_distributed.py, tests/cli/test_check.py and test_pytest_plugin.py.
LONG = {"docs/how-to/distributed.md", "docs/how-to/check-in-ci.md"}
# How many pages run before the next test.
TOGETHER = 12
WITH_PROGRAMS = [
    pytest.param(page, id=name, marks=pytest.mark.costly if name in LONG else ())
    for page in pages_with_programs()
    for name in [page.relative_to(ROOT).as_posix()]
]


@pytest.fixture(scope="module")
def find_trouble(request):
    """Say what went wrong with a page. Pages run several at once, and few in a row: nobody waits long for the lock."""
    items = [one for one in request.session.items if getattr(one, "originalname", "") == "test_a_page_runs"]
    pages = [one.callspec.params["page"] for one in items]

    @functools.cache
    def run_some(number):
        return run(pages[number * TOGETHER : (number + 1) * TOGETHER])

    return lambda page: run_some(pages.index(page) // TOGETHER).get(page)


def test_the_list_of_long_pages_names_existing_pages():
    assert {one.id for one in WITH_PROGRAMS} >= LONG


@pytest.mark.thinned(5)
@pytest.mark.parametrize("page", WITH_PROGRAMS)
def test_a_page_runs(page, find_trouble):
    trouble = find_trouble(page)
    assert trouble is None, trouble
    text = page.read_text(encoding="utf-8")
    outputs = outputs_of(page)
    assert len(outputs) == len(blocks_of(text))
    for block, shown, output in zip(blocks_of(text), shown_outputs(text), outputs, strict=True):
        if block.is_shown:
            assert output.strip(), f"{block.name} prints nothing, where output is to be shown"
            assert shown.is_of(output), (
                f"run ./scripts/docs write: {block.name} shows\n{shown.text}\nand prints\n{output}"
            )


def test_every_mark_belongs_to_a_block():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        shown = sum(block.is_shown for block in blocks_of(text))
        assert len(re.findall(r"^ *<!-- output\b", text, re.MULTILINE)) == shown, page


def test_comments_of_commands_are_not_cut():
    """A column of the site has 79 letters where the window has 1,280 pixels."""
    shells = re.compile(r"^ *```sh[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
    for page in PAGES:
        for text in shells.findall(page.read_text(encoding="utf-8")):
            assert not [line for line in text.splitlines() if " # " in line and len(line) > 79], page


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


COMMAND = "```sh\necho found\nexit 2\n```\n<!-- output: 2 -->\n"
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
def small_pages(tmp_path_factory):
    """Return pages by their text with the reported errors; all run together, as torch is loaded once for them."""
    folder = tmp_path_factory.mktemp("small")
    pages = {text: folder / f"page-{number}.md" for number, text in enumerate([PAGE, COMMAND, *WRONG])}
    for text, page in pages.items():
        page.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pages.programs.CACHE", folder / "cache")
        troubles = run(list(pages.values()))
    return pages, {text: troubles[page] for text, page in pages.items() if page in troubles}


@pytest.fixture
def their_cache(small_pages, monkeypatch):
    """Return the cache folder of the small pages."""
    monkeypatch.setattr("pages.programs.CACHE", small_pages[0][PAGE].parent / "cache")


@pytest.mark.usefixtures("their_cache")
def test_outputs_come_where_they_are_marked(small_pages):
    outputs = outputs_of(small_pages[0][PAGE])
    assert outputs == ["42", "ValueError: 6 is refused", "x = 6\nprint(x * 7)"]
    written = with_outputs(PAGE, outputs)
    assert "<!-- output -->\n\n```text\n42\n```\n\nWords between." in written
    assert "<!-- output: ValueError -->\n\n```text\nValueError: 6 is refused\n```\n" in written
    assert [one.text for one in shown_outputs(written)] == [f"{one}\n" for one in outputs]
    assert blocks_of(written) == blocks_of(PAGE) and without_outputs(written) == PAGE
    assert with_outputs(written, outputs) == written
    site = as_the_site_has_it(written)
    assert "print(x * 7)\n```\n\n``` { .text .output }\n42\n```\n\nWords between." in site
    assert "<!-- output" not in site and "this is no Python" in site


def test_an_output_that_is_another_one_is_written_again():
    page = "```python\nprint(1)\n```\n<!-- output -->\n"
    written = with_outputs(page, ["```\nold\n```"])
    assert "<!-- output -->\n\n````text\n```\nold\n```\n````\n" in written
    assert shown_outputs(written) == [Output("```\nold\n```\n", "")]
    assert with_outputs(written, ["new"]) == with_outputs(page, ["new"])
    varying = with_outputs(page.replace("output", "output, varies"), ["took 3.1 ms"])
    assert with_outputs(varying, ["took 12 ms"]) == varying
    assert "took 12 s" in with_outputs(varying, ["took 12 s"])


@pytest.mark.parametrize(
    ("shown", "varies", "printed", "is_same"),
    [
        ("1.5 ms\n", "", "1.5 ms", True),
        ("1.5 ms\n", "", "1.6 ms", False),
        ("[0.38421, 3]  1e-10\n", "", "[0.38422, 3] 2.5e-09", True),
        ("[0.38421, 3]\n", "", "[0.38421, 4]", False),
        ("1.5 of 2.5\n", "", "1.5", False),
        ("a  1.5 ms\n", "varies", "a 11,000.25 ms", True),
        ("<op at 0x7f>\n", "varies", "<op at 0x81>", True),
        ("1.5 ms\n", "varies", "1.5 us", False),
        ("1.5 ms\n", "any", "what", True),
        ("", "any", "what", False),
    ],
)
def test_numbers_marked_as_varying_may_differ(shown, varies, printed, is_same):
    assert Output(shown, varies).is_of(printed) == is_same


@pytest.mark.usefixtures("their_cache")
def test_a_command_that_is_meant_to_fail_shows_what_it_printed(small_pages):
    assert outputs_of(small_pages[0][COMMAND]) == ["found"]


@pytest.mark.parametrize("text", WRONG)
def test_a_block_with_another_outcome_is_reported(small_pages, text):
    assert WRONG[text] in small_pages[1][text]


def test_a_page_that_does_not_run_has_no_outputs(small_pages, monkeypatch):
    text, *_ = WRONG
    page = small_pages[0][text]
    monkeypatch.setattr("pages.programs.run", lambda pages: {page: small_pages[1][text]})
    with pytest.raises(PageError, match=r"(?s)page-2.md does not run.*ZeroDivisionError: division by zero"):
        outputs_of(page)
