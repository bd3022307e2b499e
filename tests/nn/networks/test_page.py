"""The programs of docs/how-to/networks.md run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "networks.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_there_are_programs():
    assert len(PROGRAMS) >= 2


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_runs(tmp_path, number):
    file = tmp_path / "program.py"
    file.write_text(PROGRAMS[number], encoding="utf-8")
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
