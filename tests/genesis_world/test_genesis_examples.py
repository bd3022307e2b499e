"""The examples with Genesis run at reduced size; the page about them shows their code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "genesis"
PAGE = ROOT / "docs" / "how-to" / "genesis.md"

with_genesis = pytest.mark.skipif(util.find_spec("genesis") is None, reason="needs Genesis: pip install genesis-world")


def _run(name: str, out: Path) -> str:
    """Run an example in a process of its own, at reduced size; return what it prints."""
    command = [sys.executable, EXAMPLES / f"{name}.py", "--quick", "--out", out]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "agg"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1700)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _find_numbers(pattern: str, printed: str) -> list[float]:
    """Return the number that a pattern finds in each line that it matches."""
    return [float(number) for number in re.findall(pattern, printed)]


def _check_pictures(out: Path, film: str) -> None:
    with Image.open(out / film) as image:
        assert image.width >= 480
        assert image.n_frames > 1
    with Image.open(out / "loss.png") as image:
        assert image.width >= 480


@pytest.mark.genesis
@with_genesis
@pytest.mark.costly
@pytest.mark.timeout(1800)
def test_the_throw_has_the_gradient_of_genesis(tmp_path):
    printed = _run("throw", tmp_path)
    (differences,) = _find_numbers(r"off by (\S+) from central differences", printed)
    (own,) = _find_numbers(r"off by (\S+) from Genesis' own backward", printed)
    assert differences < 1e-6
    assert own < 1e-6
    misses = _find_numbers(r"iteration +\d+: +([\d.]+) cm", printed)
    assert misses[-1] < misses[0]
    _check_pictures(tmp_path, "throw.gif")


@pytest.mark.genesis
@with_genesis
@pytest.mark.costly
@pytest.mark.timeout(1800)
def test_the_chain_has_the_gradient_of_differences(tmp_path):
    printed = _run("swing_up", tmp_path)
    assert "bitwise as Genesis computes it" in printed
    (of_period,) = _find_numbers(r"central differences: off by (\S+) of", printed)
    (of_run,) = _find_numbers(r"by differences \S+, off by (\S+)", printed)
    assert of_period < 1e-6
    assert of_run < 1e-5
    _check_pictures(tmp_path, "swing-up.gif")


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_a_program_of_cells(example):
    text = example.read_text(encoding="utf-8")
    assert text.startswith('"""')
    assert text.count("\n# %% ") >= 4
    assert f"python examples/genesis/{example.name}" in text


def test_the_page_shows_code_of_the_examples():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    programs = [path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")]
    shown = ["\n".join(map(str.strip, text.splitlines())) for text in programs]
    assert blocks
    for block in blocks:
        # The page leaves out `if __name__ == "__main__":`, and with it one level of indentation.
        parts = ["\n".join(map(str.strip, part.splitlines())) for part in block.strip().split("\n\n\n")]
        assert all(any(part in text for text in shown) for part in parts), block
