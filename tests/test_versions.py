"""Versions: bounds, what the matrix installs and what CI runs say the same; the matrix's table; CI's exit code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import version_table

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
SETUP = (ROOT / "scripts" / "_setup.sh").read_text(encoding="utf-8")

needs_bash = pytest.mark.skipif(not shutil.which("bash"), reason="the scripts need bash")


def parse_version(version):
    return [int(number) for number in version.split(".")]


def test_the_matrix_tests_the_bounds_of_torch():
    lower, upper = map(parse_version, re.search(r'"torch>=([\d.]+),<([\d.]+)"', PROJECT).groups())
    torch = {
        name: parse_version(version) for name, version in re.findall(r"^TORCH_(\w+)=([\d.]+)", SETUP, re.MULTILINE)
    }
    assert torch["OLDEST"][:2] == lower
    assert torch["OLDEST"] < torch["PINNED"] < torch["NEWEST"]
    assert [torch["NEWEST"][0], torch["NEWEST"][1] + 1] == upper


@pytest.mark.parametrize("package", ["torch", "taichi", "quadrants"])
def test_dependencies_on_private_names_are_bounded_above(package):
    bounds_of_all = re.findall(rf'"{package}([<>=][^"]*)"', PROJECT)
    assert bounds_of_all and all(",<" in bounds for bounds in bounds_of_all)


def test_every_row_of_the_page_was_right():
    """The committed table: no test failed, and every probe held."""
    page = version_table.PAGE.read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| 3\.", line)]
    torch = {row[1].partition("+")[0] for row in rows}
    assert set(re.findall(r"^TORCH_\w+=([\d.]+)", SETUP, re.MULTILINE)) <= torch
    for row in rows:
        held, _, checked = row[5].partition(" of ")
        assert held == checked and int(row[6]) > 0 and row[7] == "0", row


def test_the_torch_facing_tests_exist():
    files = (ROOT / "tests" / "torch_facing.txt").read_text(encoding="utf-8").splitlines()
    assert files == sorted(set(files))
    assert [name for name in files if not (ROOT / name).is_file()] == []


JUNIT = '<testsuites><testsuite tests="{}" failures="{}" errors="{}" skipped="{}"/></testsuites>'


def leave(folder, name, python, torch, broken=(), outcomes=(10, 0, 0, 0)):
    versions = {"python": python, "torch": torch, "taichi": "1.7.4", "quadrants": "1.3.3", "numpy": "2.4.6"}
    facts = {"versions": versions, "probes": 61, "broken": list(broken)}
    (folder / f"{name}.json").write_text(json.dumps(facts))
    (folder / f"{name}.xml").write_text(JUNIT.format(*outcomes))


def test_the_table_is_sorted_by_version_and_counts(tmp_path, capsys):
    leave(tmp_path, "newest", "3.11.7", "2.15.0", ["torch: autocast is seen: half precision"], (12, 2, 1, 3))
    leave(tmp_path, "oldest", "3.11.7", "2.6.0+cpu")
    leave(tmp_path, "python-oldest", "3.10.13", "2.6.0")
    (tmp_path / "pinned.json").write_text((tmp_path / "oldest.json").read_text())  # whose pytest died
    assert version_table.main(["print", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:5]] == [
        ["| 3.10.13", "2.6.0"],
        ["| 3.11.7", "2.6.0+cpu"],
        ["| 3.11.7", "2.15.0"],
    ]
    assert lines[4].endswith("| 60 of 61 | 6 | 3 | 3 |")
    assert "- newest: torch: autocast is seen: half precision" in lines


def test_the_page_is_written_between_its_marks():
    page = f"before\n{version_table.BEGIN}old\n{version_table.END}after\n"
    text = version_table.written(page, "new\n")
    assert text == f"before\n{version_table.BEGIN}\nnew\n\n{version_table.END}after\n"
    assert version_table.written(text, "new\n") == text


@needs_bash
@pytest.mark.parametrize(
    ("ordinary", "newest", "code", "last"),
    [
        (0, 0, 0, "newest torch, torch-facing tests: passed"),
        (1, 0, 1, "newest torch, torch-facing tests: passed"),
        (0, 1, 1, "newest torch, torch-facing tests: FAILED"),
        (0, 3, 0, "newest torch, torch-facing tests: not run, since it cannot be installed here"),
        (1, 3, 1, "newest torch, torch-facing tests: not run, since it cannot be installed here"),
    ],
)
def test_ci_combines_both_runs(tmp_path, ordinary, newest, code, last):
    for name, text in {
        ".ci/run": (ROOT / ".ci/run").read_text(),
        "scripts/test": f"#!/bin/sh\necho 12 passed\nexit {ordinary}\n",
        "scripts/matrix": f'#!/bin/sh\necho "$@"\nexit {newest}\n',
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    lines = done.stdout.splitlines()
    assert lines[0] == "12 passed"
    assert lines[1].split()[-1] == "newest"
    assert lines[-1] == last
    assert lines[-2].endswith("FAILED" if ordinary else "passed")
