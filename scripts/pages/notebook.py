"""The notebook of "Taichi in ten minutes", generated from the page so that both always agree.

Its first cell installs tinsmith where it is missing, as in Colab.
"""

from __future__ import annotations

import json
import re
from typing import Any

from .blocks import ROOT, Cell, cells_of

PAGE = ROOT / "docs" / "start" / "taichi.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
INSTALL = """\
import importlib.util
import subprocess
import sys

if not importlib.util.find_spec("tinsmith"):  # as in Colab
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "tinsmith"], check=True)\
"""
_PLACE = re.compile(r"^\w+\.py:(?=\d+:\d+: )", re.MULTILINE)
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def notebook() -> str:
    """Return the notebook as JSON, in the format 4.5."""
    cells = [Cell(True, INSTALL), *cells_of(PAGE.read_text(encoding="utf-8"))]
    counts = iter(range(1, len(cells) + 1))
    made = [
        _program(cell, next(counts), place) if cell.is_program else _prose(cell, place)
        for place, cell in enumerate(cells)
    ]
    whole = {"cells": made, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def write() -> None:
    """Write the notebook next to the page."""
    NOTEBOOK.write_text(notebook(), encoding="utf-8")


def _prose(cell: Cell, place: int) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": f"cell-{place}", "metadata": {}, "source": _lines(cell.text)}


def _program(cell: Cell, count: int, place: int) -> dict[str, Any]:
    # Where the page names the file of a program, a notebook names the cell.
    text = _PLACE.sub(f"In[{count}]:", cell.output)
    printed = {"name": "stdout", "output_type": "stream", "text": _lines(text)}
    return {
        "cell_type": "code",
        "execution_count": count,
        "id": f"cell-{place}",
        "metadata": {},
        "outputs": [printed] if cell.output else [],
        "source": _lines(cell.text),
    }


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
