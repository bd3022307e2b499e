"""The README keeps its word: its program runs, its error reads as shown, its files exist.

Its commands take minutes and a fresh environment: ./scripts/readme runs them. Here is held that it leaves out none.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tinsmith as ts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
CHECK = "assert k.grad is not None and k.grad.shape == (5,)"


def test_its_program_runs(tmp_path):
    program = tmp_path / "readme.py"  # a file: the engines read a kernel's source
    (shown,) = PYTHON
    program.write_text(f"{shown}\n{CHECK}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_it_is_short():
    assert len(README.split()) <= 1150


def test_the_refusal_reads_as_shown(lang):
    @ts.op("x[n], w[n] -> y[]")
    @lang.kernel
    def dot(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            y[None] += x[i] * w[i]

    shown = re.search(r"```text\nShapeError: (.*?)```", README, re.DOTALL)
    assert shown is not None
    with pytest.raises(ts.ShapeError) as refused:
        dot(torch.ones(1024), torch.ones(1023))
    assert str(refused.value).splitlines()[:3] == shown.group(1).splitlines()[:3]


def test_what_it_links_to_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert link.startswith("http") or (ROOT / link).exists(), link


@pytest.fixture(scope="module")
def commands():
    """What ./scripts/readme runs."""
    if not shutil.which("bash"):
        pytest.skip("the scripts need bash")
    listed = [ROOT / "scripts" / "readme", "--list"]
    return subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_every_command_in_its_blocks_is_one_that_the_script_runs(commands):
    assert set(re.findall(r"^```(\w+)", README, re.MULTILINE)) == {"python", "sh", "text"}
    shown = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    assert shown
    assert [line.partition(" #")[0].rstrip() for line in shown] == commands


def test_every_command_in_its_words_stands_in_a_block_too(commands):
    words = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    named = [
        code
        for code in re.findall(r"`([^`]+)`", words)
        if re.match(r"(pip|pytest|python|tinsmith|\./\S+)\s|\./scripts", code)
    ]
    assert named
    for name in named:
        assert any(f"{command} ".startswith(f"{name} ") for command in commands), name


def test_two_commands_stand_near_its_top():
    """One sets everything up and runs the main job; one runs all tests. Both are there, and can be run."""
    top = README[: README.index("## ")]
    for name in ("scripts/demo", "scripts/test"):
        assert re.search(rf"^\./{name}\b", top, re.MULTILINE), name
        assert (ROOT / name).stat().st_mode & 0o111, name
