"""`tinsmith doctor` prints one line and the probes that fail; `--all` shows versions, devices, probes and caches."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import warnings
from importlib import metadata

import pytest
import torch
from typer.testing import CliRunner

from support.engine_keeper import load_quietly
from tinsmith import engines, tracing
from tinsmith._cache import Cache
from tinsmith._disk_cache import measure_disk_cache, write_entry
from tinsmith.cli import _doctor, app
from tinsmith.engines import _registry
from tinsmith.tracing import _torch_state

GOOD = engines.Probe("kernels carry `_primal`", "taichi", True, "seen on [n] kernels")
BAD = engines.Probe("launch takes a gradient pointer", "quadrants", False, "no such method")


@pytest.fixture
def doctor(monkeypatch):
    def run(*probes, options=(), columns=200):
        monkeypatch.setattr(engines, "run_probes", lambda: iter(probes))
        monkeypatch.setattr(tracing, "torch_probes", lambda: ())
        return CliRunner().invoke(app, ["doctor", *options], env={"COLUMNS": str(columns)})

    return run


def test_a_healthy_installation_prints_one_line(doctor, monkeypatch):
    monkeypatch.setattr(_doctor, "_setuptools_loads", lambda: True)
    result = doctor(GOOD, GOOD, columns=80)
    assert result.exit_code == 0
    (line,) = result.stdout.splitlines()
    assert line.startswith(f"All 2 probes pass: torch {torch.__version__}, ")
    assert metadata.version("taichi") in line
    assert ("no GPU" in line) is not torch.cuda.is_available()


def test_no_engine_is_an_error(doctor, monkeypatch):
    monkeypatch.setattr(_registry, "list_installed", lambda: ())
    result = doctor()
    assert result.exit_code == 2
    assert "no engine is installed" in result.stderr and "pip install" in result.stderr


def test_engines_print_no_banner_into_the_json():
    command = [sys.executable, "-m", "tinsmith", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert json.loads(done.stdout)["probes"]


def test_all_shows_versions_and_devices(doctor):
    result = doctor(GOOD, options=["--all"])
    for package in ("torch", "taichi", "numpy"):
        assert metadata.version(package) in result.stdout
    assert "cpu" in result.stdout
    assert ("none that torch can use" in result.stdout) is not torch.cuda.is_available()


def test_a_missing_package_is_said_to_be_missing(doctor, monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    assert doctor(GOOD, options=["--all"]).stdout.count("not installed") == 4
    assert doctor(GOOD).stdout.startswith(("All 1 probes pass: no GPU", "All 1 probes pass: 1 GPU"))


def test_all_shows_every_probe(doctor):
    result = doctor(GOOD, GOOD, options=["--all"])
    assert result.exit_code == 0
    assert "seen on [n] kernels" in result.stdout  # brackets are not read as markup
    assert "All 2 probes pass" in result.stdout


def test_a_setuptools_that_warns_is_no_failure(doctor, monkeypatch):
    """As where distutils was loaded before it."""

    def warn(_name):
        warnings.warn("Distutils was imported before Setuptools", stacklevel=1)

    monkeypatch.setattr(importlib, "import_module", warn)
    result = doctor(GOOD)
    assert result.exit_code == 0, result.exception
    assert "torch.compile fails" not in result.stdout


def test_a_broken_setuptools_is_reported(doctor, monkeypatch):
    """As after Quadrants on Python 3.11; torch.compile would fail of it."""

    class Finder:
        @staticmethod
        def find_spec(name, *_):
            assert name != "setuptools", "distutils/core.py"

    monkeypatch.delitem(sys.modules, "setuptools", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    result = doctor(GOOD)
    assert result.exit_code == 0
    assert "torch.compile fails here" in result.stdout and "import setuptools" in result.stdout
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "setuptools", sys)
    monkeypatch.setattr(engines, "run_probes", lambda: iter([GOOD]))
    monkeypatch.setattr(tracing, "torch_probes", lambda: ())
    assert "torch.compile" not in CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"}).stdout


def test_a_probe_that_fails_is_named_and_is_the_exit_code(doctor):
    result = doctor(GOOD, BAD)
    assert result.exit_code == 1
    first, line, last = result.stdout.splitlines()
    assert first.startswith("1 of 2 probes failed: torch ")
    assert line == "failed: quadrants: launch takes a gradient pointer: no such method"
    assert "`tinsmith doctor --all`" in last
    result = doctor(GOOD, BAD, options=["--all"])
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if BAD.name in line)
    assert "quadrants" in line and "NO" in line and "no such method" in line


def test_a_probe_of_torch_that_fails_is_named_and_is_the_exit_code(doctor, monkeypatch):
    monkeypatch.setattr(engines, "run_probes", lambda: iter([GOOD]))
    monkeypatch.setattr(_torch_state, "is_transformed", lambda: False)
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "250"})
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if "an active transform of torch.func is detected" in line)
    assert line.startswith("failed: torch: ") and "wrong gradients" in line
    assert "1 of " in result.stdout and "cannot be trusted with these versions" in result.stdout


def test_a_missing_name_of_torch_is_reported(monkeypatch):
    """No op can then be made at all."""
    monkeypatch.setattr(engines, "run_probes", lambda: iter([GOOD]))
    monkeypatch.delattr(tracing, "torch_probes", raising=False)
    monkeypatch.setitem(sys.modules, "tinsmith.tracing._probes", None)
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "250"})
    assert result.exit_code == 1
    line = next(line for line in result.stdout.splitlines() if "ops can be imported" in line)
    assert "no op can be made with this torch" in line and "tracing._probes" in line


def test_the_installed_packages_pass_all_probes():
    for engine in engines.list_installed():
        load_quietly(engine)  # first imported by the command, an engine would keep the test's stdout for its own
    result = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output


def test_it_lists_caches(doctor):
    cache = Cache("things of a test", 40)
    for place in range(30):
        cache.keep(place, place)
    line = next(line for line in doctor(GOOD, options=["--all"]).stdout.splitlines() if "things of a test" in line)
    assert re.findall(r"\w[\w ]*\w|\w", line) == ["things of a test", "1", "30", "40"]


def test_it_shows_the_cache_on_disk(doctor, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    write_entry("00", b"12345678")
    line = next(line for line in doctor(GOOD, options=["--all"]).stdout.splitlines() if str(tmp_path) in line)
    assert re.findall(r"[\d,]+", line)[-3:] == ["1", "24", "268,435,456"]


def test_json_has_every_section(doctor, monkeypatch, disk_cache):
    cache = Cache("things of another test", 40)
    cache.keep(1, 1)
    for probe, code in ((GOOD, 0), (BAD, 1)):
        monkeypatch.setattr(engines, "run_probes", lambda probe=probe: iter([probe]))
        monkeypatch.setattr(tracing, "torch_probes", lambda: ())
        result = CliRunner().invoke(app, ["doctor", "--json"])
        assert result.exit_code == code
        shown = json.loads(result.stdout)
        assert shown["versions"]["torch"] == torch.__version__
        assert shown["probes"] == [{"of": probe.package, "fact": probe.name, "holds": probe.ok, "detail": probe.detail}]
        assert {"name": "things of another test", "caches": 1, "entries": 1, "most": 40} in shown["caches"]
        assert shown["cache on disk"] == measure_disk_cache()._asdict()
