"""The notebook is the page, with the outputs that the page shows; its cells run in an interactive Python, too."""

import json
import subprocess
import sys

import pytest
from pages import notebook
from pages.blocks import cells_of, shown_outputs

RUN = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            shell.run_cell("".join(cell["source"]), store_history=True).raise_error()
        expected = "".join(text for output in cell["outputs"] for text in output["text"])
        assert printed.getvalue().endswith(expected), (printed.getvalue(), expected)
"""


def test_the_notebook_is_generated_from_the_page():
    assert notebook.NOTEBOOK.read_text(encoding="utf-8") == notebook.notebook(), "run ./scripts/docs write"


def test_the_notebook_has_every_program_with_its_output():
    page = notebook.PAGE.read_text(encoding="utf-8")
    cells = json.loads(notebook.notebook())["cells"]
    install, *programs = [cell for cell in cells if cell["cell_type"] == "code"]
    assert "".join(install["source"]) == notebook.INSTALL
    assert len(programs) == sum(cell.is_program for cell in cells_of(page)) > 4
    outputs = ["".join(cell["outputs"][0]["text"]) if cell["outputs"] else "" for cell in programs]
    # A finding is in a file on the page, and in a cell of the notebook: the third program's is the fourth.
    assert "types.py:5:9: error" in shown_outputs(page)[2].text
    texts = [one.text.replace("types.py:5:9", "In[4]:5:9") for one in shown_outputs(page)]
    assert outputs == texts and all(outputs[place] for place in (0, 2))
    assert "<!-- output" not in json.dumps(cells) and "```python" not in json.dumps(cells)


def test_the_notebook_runs(tmp_path):
    """Where a kernel's source is in no file; it prints what it shows."""
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", RUN, notebook.NOTEBOOK], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
