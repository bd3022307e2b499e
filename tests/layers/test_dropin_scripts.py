"""A script written for Stannum runs unchanged but for its imports, and prints the same numbers."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.thinned(2)

SCRIPTS = Path(__file__).parent / "scripts"
OF_0_9_1 = sorted(path.stem for path in SCRIPTS.glob("*.py") if path.stem != "older_tin")


def switched(text):
    """Return the script with another library imported and nothing else changed."""
    text, lines = re.subn(r"^import stannum$", "import tinsmith as stannum", text, flags=re.MULTILINE)
    text, names = re.subn(r"^from stannum import", "from tinsmith import", text, flags=re.MULTILINE)
    assert lines + names == 1
    return text


def run_script(script, text, folder):
    """Run the script; return everything that it prints, as numbers."""
    path = folder / f"{script}.py"
    path.write_text(text, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    said = re.sub(r"^\[Taichi\].*$", "", printed.getvalue(), flags=re.MULTILINE)  # where it starts
    return [float(word) for word in re.findall(r"-?\d[\d.e+-]*", said)]


@pytest.mark.filterwarnings(r"ignore:\s*Some internal fields require gradients")  # Stannum's
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # Taichi's, in Stannum
@pytest.mark.parametrize("script", OF_0_9_1)
def test_a_script_prints_what_it_printed_with_stannum(script, tmp_path):
    pytest.importorskip("stannum", reason='pip install ".[peers]"')
    text = (SCRIPTS / f"{script}.py").read_text("utf-8")
    before = run_script(script, text, tmp_path)
    assert len(before) >= 10
    assert run_script(script, switched(text), tmp_path) == pytest.approx(before, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("script", OF_0_9_1)
def test_a_script_runs(script, tmp_path):
    """Where there is no Stannum to compare with, too."""
    assert run_script(script, switched((SCRIPTS / f"{script}.py").read_text("utf-8")), tmp_path)


def test_a_script_of_the_older_interface(tmp_path):
    text = switched((SCRIPTS / "older_tin.py").read_text("utf-8"))
    assert run_script("older_tin", text, tmp_path) == [1.5, 20.5, 300.5, 1, 2, 3, 1, 10, 100]
