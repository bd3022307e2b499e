"""Every layout with every way to ask for a gradient does what docs/guide/layouts.md says, on both engines.

The page is the table of what is expected: `python tests/layers/layouts_page.py` writes it anew. Of
the cells each commit tries some.
"""

import re
import subprocess
import sys

import pytest

import tinsmith as ts
from layers.layouts import DECLARATIONS, ROWS
from layers.layouts_outcome import outcome
from layers.layouts_page import BEGIN, END, NONE, PAGE, Cell, read, written

pytestmark = [pytest.mark.thinned(4), pytest.mark.compiled_engine]

EXPECTED = read(PAGE.read_text())
CELLS = [pytest.param(row, column, id=f"{row.code}-{column}") for row in ROWS for column in DECLARATIONS]


MANY_NODES = 300


@pytest.fixture
def ground(lang64):
    """Return the engine; restart it after a field that was never placed, since it launches nothing more then.

    And before it holds too many nodes: after some 700, with sparse ones among them, Taichi's memory is
    corrupted, and the process dies.
    """
    yield lang64
    state = lang64.lang.impl.get_runtime()
    is_stuck = any(one.ptr.snode() is None for one in (*state.global_vars, *state.grad_vars))
    if is_stuck or lang64.field(lang64.f64, shape=()).snode.ptr.id > MANY_NODES:
        lang64.reset()


@pytest.mark.thinned(12)
@pytest.mark.parametrize(("row", "column"), CELLS)
def test_each_layout_with_each_way_to_place_gradients(ground, engine, row, column):
    assert outcome(ground, row, DECLARATIONS[column]) == EXPECTED[Cell(row.code, column, engine)]


def test_the_page_has_every_cell_and_its_tables_as_they_are_written():
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert {(cell.row, cell.column) for cell in EXPECTED} == {
        (row.code, column) for row in ROWS for column in DECLARATIONS
    }
    assert written(page, EXPECTED) == page


def test_no_layout_has_a_wrong_gradient():
    assert [cell for cell, text in EXPECTED.items() if text.startswith("WRONG")] == []
    assert {text for text in EXPECTED.values() if ": " not in text} == {"right", "no gradient", NONE}


@pytest.mark.costly
def test_the_program_on_the_page_runs(tmp_path):
    program = tmp_path / "page.py"  # a file: the engines read a kernel's source
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program.write_text(text)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_lazy_grad_of_root_does_not_reach_a_builder(lang64):
    x, builder = lang64.field(lang64.f64), lang64.FieldsBuilder()
    builder.dense(lang64.i, 3).place(x)
    lang64.root.lazy_grad()
    builder.finalize()
    with pytest.raises(ts.GradientError, match="`x`.*has no gradient"):
        ts.EmptyTin().register_input_field(x, name="x", needs_grad=True)
