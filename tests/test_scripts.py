"""The scripts' set-up: which Python it takes, when it has nothing to do, and how it refuses.

They run in a copy of the files that they read, so that no `.venv` of the developer's is touched and
nothing is downloaded; the whole set-up is seen by every fresh checkout that runs ./scripts/test.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NEEDED = ["pyproject.toml", "src/tinsmith/_version.py", "scripts/_setup.sh", "scripts/demo", "scripts/gpu_check"]

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="the scripts need bash")


@pytest.fixture
def checkout(tmp_path):
    root = tmp_path / "a check out"  # paths with spaces are paths
    for name in NEEDED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    return root


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(checkout: Path, command: str, **env: str):
    """Run a line of bash beside the checkout, with the set-up's functions known and `fail` not fatal to us."""
    settings = {name: value for name, value in os.environ.items() if name not in {"PYTHON", "NO_VENV"}} | env
    script = f"source '{checkout}/scripts/_setup.sh'; {command}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=checkout.parent,
        env=settings,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_scripts_choose_a_supported_python(checkout):
    assert run(checkout, 'find_python; echo "$BASE_PYTHON"', PYTHON=sys.executable).stdout.strip() == sys.executable


def test_a_python_too_old_is_named_with_its_version(checkout):
    old = executable(checkout / "old python", '[ "$1" = --version ] && echo Python 3.8.1 || exit 1')
    done = run(checkout, "find_python", PYTHON=str(old))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert f"needs Python 3.10 to 3.13, {old} is Python 3.8.1; install one, or name it: PYTHON=" in done.stderr


def test_every_place_names_the_same_pythons():
    minors = re.findall(r"^(?:OLDEST|NEWEST)=(\d+)", (ROOT / "scripts/_setup.sh").read_text(), re.MULTILINE)
    oldest, newest = map(int, minors)
    for page in ["README.md", "CONTRIBUTING.md", "docs/start/install.md"]:
        ranges = re.findall(r"Python (3\.\d+ to 3\.\d+)", (ROOT / page).read_text(encoding="utf-8"))
        assert ranges == [f"3.{oldest} to 3.{newest}"], page
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">=3.{oldest}"' in project
    assert re.findall(r"Python :: 3\.(\d+)", project) == [str(minor) for minor in range(oldest, newest + 1)]


def test_no_python_at_all_is_one_clear_line(checkout):
    done = run(checkout, "find_python", PYTHON=str(checkout / "nowhere"))
    assert done.returncode == 1
    assert done.stderr.strip().endswith(f"no Python found at {checkout}/nowhere; install Python 3.10 to 3.13")
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def set_up_checkout(checkout):
    """Make a checkout with a .venv; setting it up again would fail, since it has no base Python."""
    executable(checkout / ".venv/bin/python", f'[ "$2" = pip ] && exit 1; exec "{sys.executable}" "$@"')
    assert run(checkout, 'fingerprint dev >"$VENV/.tinsmith-dev"').returncode == 0
    return checkout


@pytest.mark.parametrize("extras", ["dev", "quadrants", "''"])
def test_nothing_is_done_when_nothing_changed(set_up_checkout, extras):
    done = run(set_up_checkout, f'set_up {extras}; echo "$VENV_PYTHON"', PYTHON="nowhere")
    assert done.stdout.splitlines() == [f"{set_up_checkout}/.venv/bin/python"]


@pytest.mark.parametrize("changed", ["pyproject.toml", "src/tinsmith/_version.py", "scripts/_setup.sh"])
def test_the_venv_is_set_up_again_after_a_change(set_up_checkout, changed):
    with (set_up_checkout / changed).open("a") as file:
        file.write("\n# changed\n")
    done = run(set_up_checkout, "set_up dev", PYTHON="nowhere")
    assert done.stdout.startswith("Setting up ")
    assert done.returncode == 1


def test_no_venv_uses_the_python_as_it_is(checkout):
    done = run(checkout, 'set_up dev; echo "$VENV_PYTHON $PYTHONPATH"', NO_VENV="1", PYTHON=sys.executable)
    assert done.stdout.startswith(f"{sys.executable} {checkout}/src")
    assert not (checkout / ".venv").exists()


def test_the_package_never_sees_the_scripts_own_setting(checkout):
    """It would refuse it: an exported TINSMITH_ENVIRONMENTS made every test of ./scripts/matrix fail."""
    done = run(checkout, 'echo "$ENVIRONMENTS"; env', TINSMITH_ENVIRONMENTS="/kept here")
    assert done.stdout.splitlines()[0] == "/kept here"
    assert "TINSMITH_ENVIRONMENTS" not in done.stdout


@pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="this machine has an NVIDIA GPU")
def test_gpu_check_without_a_gpu_is_one_clear_line(checkout):
    done = subprocess.run([checkout / "scripts/gpu_check"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "gpu_check: no NVIDIA GPU on this machine; nothing was checked\n"
    assert not (checkout / ".venv").exists()


def test_a_release_that_is_not_ready_is_refused_with_reasons(checkout):
    for name in ["scripts/release", "CITATION.cff", "CHANGELOG.md"]:
        shutil.copy(ROOT / name, checkout / name)
    with (checkout / "CHANGELOG.md").open("a") as changelog:
        changelog.write("\n## Unreleased\n")
    (checkout / "changelog.d").mkdir()
    (checkout / "changelog.d/one.md").write_text("A sentence.")
    done = subprocess.run(
        ["bash", checkout / "scripts/release", "--tag", "v9.9.9"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and done.stderr == "release: nothing was built\n"
    assert "the tag is v9.9.9, the version is " in done.stdout
    assert "changelog.d: sentences that are not in CHANGELOG.md yet" in done.stdout
    assert "CHANGELOG.md: the section Unreleased has no number yet" in done.stdout


def test_a_misspelt_option_of_release_is_named(checkout):
    shutil.copy(ROOT / "scripts/release", checkout / "scripts/release")
    done = subprocess.run(
        ["bash", checkout / "scripts/release", "--dryrun"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == "release: unknown option: --dryrun (--dry-run, --tag TAG, --out FOLDER)\n"


SCRIPTS = [
    "scripts/demo",
    "scripts/docs",
    "scripts/test",
    "scripts/fuzz",
    "scripts/genesis",
    "scripts/golden",
    "scripts/gpu_check",
    "scripts/matrix",
    "scripts/readme",
    "scripts/release",
    "scripts/words",
    ".ci/run",
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_scripts_can_be_executed(name):
    assert os.access(ROOT / name, os.X_OK)
