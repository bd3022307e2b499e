"""Every public name stands on a page of the reference, once; what is written from tables is current."""

import re

import pytest
from pages import cli_page, configurations_page
from pages.blocks import ROOT

import tinsmith as ts
import tinsmith.nn
import tinsmith.render
import tinsmith.render.gaussians
import tinsmith.render.nerfacc
import tinsmith.testing

PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
SHOWN = [name for page in PAGES for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]
IN_WORDS = {
    "tinsmith.__version__",
    "tinsmith.nn",
    "tinsmith.render",
    "tinsmith.render.gaussians",
    "tinsmith.render.nerfacc",
    # Names of nerfacc's, which stand on its page.
    *(
        f"tinsmith.render.{name}"
        for name in tinsmith.render.nerfacc.__all__
        if getattr(tinsmith.render, name, None) is getattr(tinsmith.render.nerfacc, name)
    ),
}  # a string, and modules that have pages


@pytest.mark.parametrize(
    "face",
    [ts, tinsmith.nn, tinsmith.render, tinsmith.render.gaussians, tinsmith.render.nerfacc, tinsmith.testing],
    ids=lambda face: face.__name__,
)
def test_every_public_name_is_on_a_page(face):
    names = {f"{face.__name__}.{name}" for name in face.__all__} - IN_WORDS
    assert not names - set(SHOWN), "add `::: NAME` to a page of docs/reference"
    gone = {name for name in SHOWN if name.rpartition(".")[0] == face.__name__} - names
    assert not gone, "there is no such name any more"


def test_no_name_is_shown_twice():
    assert len(SHOWN) == len(set(SHOWN))


def test_names_without_a_docstring_page_are_in_the_words():
    texts = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
    assert "`tinsmith.__version__`" in texts["engines.md"]
    assert texts["nn.md"].startswith("# nn\n") and texts["render.md"].startswith("# render\n")


def test_the_command_line_is_that_of_the_page():
    stale = [path.name for path, text in cli_page.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run ./scripts/docs write"


def test_no_cell_of_the_command_line_is_blank():
    rows = [line for line in cli_page.commands().splitlines() if line.startswith("|")]
    assert rows and not [row for row in rows if re.search(r"\|\s*\|", row)]
    # A default in the words of an option is not told twice.
    assert "| all floating inputs |" in "\n".join(rows) and "Default:" not in "\n".join(rows)


def test_the_configurations_are_those_of_the_page():
    [(path, text)] = configurations_page.pages().items()
    assert path.read_text(encoding="utf-8") == text, "run ./scripts/docs write"


def test_the_error_tree_is_that_of_the_errors():
    from tinsmith import _errors

    tree = "\n".join(line.strip() for line in _errors.__doc__.splitlines() if "──" in line)
    assert tree in (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")


def test_every_setting_is_on_its_page():
    import dataclasses

    from tinsmith._config import Config

    text = (ROOT / "docs" / "reference" / "config.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(Config):
        if isinstance(field.default, str | None):
            shown = f"`{field.default}`" if field.default else "unset"
        else:
            shown = int(field.default)
        assert f"| `TINSMITH_{field.name.upper()}` | {shown} |" in text


def test_documented_items_with_shared_text_are_split():
    pytest.importorskip("griffe")
    from pages.examples import as_griffe_reads

    text = "Raises:\n    ShapeError, DtypeError: as a call\n        does.\n\nExample:\n    >>> 1"
    apart = "    ShapeError: as a call\n        does.\n    DtypeError: as a call\n        does."
    assert as_griffe_reads(text) == f"Raises:\n{apart}\n\nExamples:\n    >>> 1"
    assert as_griffe_reads("Words, more: words.") == "Words, more: words."
