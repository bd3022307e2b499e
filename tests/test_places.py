"""Places of lines, as people read them: a file, or a cell of a notebook."""

import sys

import pytest

import tinsmith as ts
from tinsmith.engines import name_file, name_place

CELL = "/tmp/ipykernel_7/123.py"


class Compiler:
    def format_code_name(self, name):
        return ("Cell", "In[4]") if name == CELL else None


@pytest.fixture
def shell(monkeypatch):
    """IPython, as it is in a notebook."""
    module = type(sys)("IPython")
    module.get_ipython = lambda: type("Shell", (), {"compile": Compiler()})
    monkeypatch.setitem(sys.modules, "IPython", module)
    return module


def test_a_cell_is_named_as_the_notebook_names_it(shell):
    assert name_place(CELL, 5) == "In[4]:5"
    assert name_file("swarm.py") == "swarm.py"
    assert str(ts.Finding("TS301", "error", CELL, 5, 9, "0.5 is cut to 0")).startswith("In[4]:5:9: error TS301")


def test_files_are_named_by_their_paths(shell, monkeypatch):
    # A program may import IPython without running in it, and early versions name no cells.
    for running in (None, type("Shell", (), {"compile": object()})):
        monkeypatch.setattr(shell, "get_ipython", lambda running=running: running)
        assert name_place(CELL, 5) == f"{CELL}:5"
    monkeypatch.delitem(sys.modules, "IPython")
    assert name_place("swarm.py", 5) == "swarm.py:5"
