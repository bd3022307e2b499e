"""The pages of rules, which the documentation shows and `tinsmith rule` prints."""

from __future__ import annotations

from pathlib import Path

from .._errors import InputError, refusal

_HERE = Path(__file__).resolve()
_FOLDERS = (_HERE.parent / "pages", _HERE.parents[3] / "docs" / "reference" / "lint")
"""Where the pages are: in an installed package, and in a checkout. pyproject.toml copies them into wheels."""
_END = "\n\nAll rules: ["


def read_rule_page(rule: str) -> str:
    """Return the page of a rule as Markdown: what it finds, why that matters, a wrong kernel and a right one.

    Args:
        rule: the id of the rule.

    Raises:
        InputError: this installation has no pages.
    """
    for folder in _FOLDERS:
        file = folder / f"{rule}.md"
        if file.is_file():
            return file.read_text("utf-8").partition(_END)[0].rstrip() + "\n"
    rows = [("looked in", str(folder)) for folder in _FOLDERS]
    raise InputError(refusal(f"the page of {rule} is missing", rows, "Install tinsmith again."))
