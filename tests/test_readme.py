"""The README's program runs, its error reads as shown, its files exist, and its badges are current.

Its commands take minutes and a fresh environment: ./scripts/readme runs them. A test checks that it leaves out none.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pages import badges

import tinsmith as ts

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
RUN = re.sub(r"<!-- not run: [^\n]+ -->\n```sh\n.*?```", "", README, flags=re.DOTALL)
CHECK = "assert k.grad is not None and k.grad.shape == (5,)"


def commands_in(text):
    """Return the lines of a text's shell blocks, without comments."""
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [line.partition(" #")[0].rstrip() for line in lines]


def test_the_first_program_of_the_readme_runs(tmp_path):
    program = tmp_path / "readme.py"  # a file: the engines read a kernel's source
    (shown,) = PYTHON
    program.write_text(f"{shown}\n{CHECK}\n", encoding="utf-8")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_readme_is_short():
    assert len(README.split()) < 900


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


def test_the_way_to_get_it_is_shown():
    """The clone command names no address: the build puts in the one of pyproject.toml."""
    left_out = [command for command in commands_in(README) if command not in commands_in(RUN)]
    assert left_out == ["git clone <address> tinsmith && cd tinsmith", 'pip install "tinsmith[apps,quadrants]"']


def test_the_badges_are_current():
    stale = [path.name for path, text in badges.badges().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run ./scripts/docs write"
    assert {f"docs/assets/badges/{path.name}" for path in badges.badges()} <= set(re.findall(r"\(([^)]+)\)", README))


def test_the_links_of_the_readme_exist():
    for link in re.findall(r"\]\(([^)#\s]+)|(?:src|srcset)=\"([^\"]+)", README):
        link = "".join(link)
        assert link.startswith("http") or (ROOT / link).exists(), link


@pytest.fixture(scope="module")
def commands():
    """Return the commands that ./scripts/readme runs."""
    if not shutil.which("bash"):
        pytest.skip("the scripts need bash")
    listed = [ROOT / "scripts" / "readme", "--list"]
    return subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_every_command_in_its_blocks_is_one_that_the_script_runs(commands):
    assert set(re.findall(r"^```(\w+)", README, re.MULTILINE)) == {"python", "sh", "text"}
    shown = commands_in(RUN)
    assert shown
    assert shown == commands


def test_every_command_in_its_words_stands_in_a_block_too(commands):
    words = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    named = [
        code
        for code in re.findall(r"`([^`]+)`", words)
        if re.match(r"(pip|pytest|python|tinsmith|\./\S+)\s|\./scripts", code)
    ]
    assert named
    for name in named:
        assert any(f"{command} ".startswith(f"{name} ") for command in [*commands, *commands_in(README)]), name


def test_two_commands_stand_near_its_top():
    """One sets everything up and runs the main job; one runs all tests. Both are there, and can be run."""
    top = README[: README.index("## ")]
    for name in ("scripts/demo", "scripts/test"):
        assert re.search(rf"^\./{name}\b", top, re.MULTILINE), name
        assert (ROOT / name).stat().st_mode & 0o111, name
