"""Extras: what each brings agrees with pyproject.toml; where one is missing, the command that installs it is right."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tinsmith import _extras
from tinsmith._errors import ConfigError
from tinsmith._extras import EXTRAS, install_command, require_packages

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
HERE = Path(_extras.__file__)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_of_the_table_is_the_one_that_is_declared(extra):
    (listed,) = re.findall(rf"^{extra} = \[(.*)\]$", PROJECT, re.MULTILINE)
    # The table has no packages that only some versions of Python need.
    declared = set(re.findall(r'"([a-z][a-z-]*)[<>=][^";]*"', listed))
    assert declared == set(EXTRAS[extra].values())


def test_the_core_needs_torch_an_engine_and_numpy():
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    names = re.findall(r'^    "([\w-]+)', listed, re.MULTILINE)
    assert names == ["torch", "taichi", "quadrants", "numpy", "typing_extensions", "lazy_loader"]


def test_a_dependency_is_bounded_above():
    (core,) = re.findall(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    (extras,) = re.findall(r"^# src/tinsmith/_extras.py(.*?)^# What the benchmarks", PROJECT, re.MULTILINE | re.DOTALL)
    bounds = re.findall(r'"[\w-]+([<>=][^"]*)"', core + extras)
    assert len(bounds) > 10 and all(",<" in one for one in bounds)


class Installed:
    """A distribution as an installer leaves it."""

    def __init__(self, root: Path, origin: dict | None = None, installer: str = "pip"):
        self.root = root
        self.texts = {"INSTALLER": f"{installer}\n", "direct_url.json": json.dumps(origin) if origin else None}

    def read_text(self, name):
        return self.texts[name]

    def locate_file(self, name):
        return self.root / name


SITE = HERE.parents[1]
WHEEL = HERE.as_uri()  # any file that is there
FOLDER = Path("/", "a check out") if sys.platform != "win32" else Path("C:/a check out")
CASES = {
    "index": (None, "pip", 'pip install "tinsmith[apps]"'),
    "uv": (None, "uv", 'uv pip install "tinsmith[apps]"'),
    "wheel": ({"url": WHEEL, "archive_info": {}}, "pip", f'pip install "tinsmith[apps] @ {WHEEL}"'),
    "wheel by uv": ({"url": WHEEL, "archive_info": {}}, "uv", f'uv pip install "tinsmith[apps] @ {WHEEL}"'),
    "wheel that is gone": ({"url": "file:///gone.whl", "archive_info": {}}, "pip", 'pip install "tinsmith[apps]"'),
    "folder": ({"url": FOLDER.as_uri(), "dir_info": {}}, "pip", f'pip install "{FOLDER}[apps]"'),
    "editable": (
        {"url": ROOT.as_uri(), "dir_info": {"editable": True}},
        "pip",
        f'pip install -e "{ROOT}[apps]"',
    ),
    "editable by uv": (
        {"url": ROOT.as_uri(), "dir_info": {"editable": True}},
        "uv",
        f'uv pip install -e "{ROOT}[apps]"',
    ),
    "git": (
        {"url": "https://host/t.git", "vcs_info": {"vcs": "git", "commit_id": "a1b2"}},
        "pip",
        'pip install "tinsmith[apps] @ git+https://host/t.git@a1b2"',
    ),
    "editable elsewhere": (
        {"url": FOLDER.as_uri(), "dir_info": {"editable": True}},
        "pip",
        "pip install matplotlib pillow rich safetensors typer",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_command_fits_how_it_was_installed(case, monkeypatch):
    origin, installer, expected = CASES[case]
    monkeypatch.setattr(metadata, "distributions", lambda **_: [Installed(SITE, origin, installer)])
    assert install_command("apps") == expected


def test_packages_are_named_if_tinsmith_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(metadata, "distributions", lambda **_: [Installed(tmp_path)])
    assert install_command("view") == "pip install viser"


def test_in_a_project_of_uv_it_is_added_to_the_project(monkeypatch, tmp_path):
    (tmp_path / "uv.lock").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setattr(metadata, "distributions", lambda **_: [Installed(SITE, installer="uv")])
    assert install_command("apps") == 'uv add "tinsmith[apps]"'


def test_a_missing_package_is_refused_with_the_way_to_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    monkeypatch.setattr(metadata, "distributions", lambda **_: [Installed(SITE)])
    with pytest.raises(ConfigError) as refused:
        require_packages("the viewer", "view")
    assert str(refused.value) == ('the viewer needs viser, which is not installed\nRun pip install "tinsmith[view]".')


BARE = """
import sys
sys.modules.update(dict.fromkeys(["typer", "PIL", "matplotlib", "safetensors"]))  # None: they cannot be imported
"""


def run_bare(program: str, *arguments: str):
    """Run a program where the extra `apps` is not installed; rich is, which engines bring along."""
    return subprocess.run(
        [sys.executable, "-c", BARE + program, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["doctor"], ["fit-image"]])
def test_the_command_line_says_what_to_install(arguments):
    done = run_bare("from tinsmith.__main__ import main; main()", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "tinsmith: the command line needs typer, which is not installed"
    assert lines[1].startswith("Run pip install ") and len(lines) == 2


USES = {
    "tinsmith.apps": "import tinsmith.apps",
    "write_checkpoint": "import tinsmith as ts; ts.nn.write_checkpoint('run.safetensors', {})",
    "read_checkpoint": "import tinsmith as ts; ts.nn.read_checkpoint('run.safetensors')",
    "load_splats": "import tinsmith as ts; ts.render.gaussians.load_splats('a.safetensors')",
    "html": "import tinsmith as ts; ts.Report('one').html()",
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("use", USES)
def test_a_part_without_its_extra_says_what_to_install(use):
    done = run_bare(USES[use])
    assert done.returncode == 1
    assert "ConfigError: " in done.stderr and "which is not installed\nRun pip install " in done.stderr


def test_the_core_works_without_the_extra():
    done = run_bare("import tinsmith as ts, torch; print(ts.nn.Trainer.__name__, ts.render.composite.__name__)")
    assert done.stdout.split() == ["Trainer", "composite"], done.stderr
