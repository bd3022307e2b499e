"""Platforms: pip installs an engine that has a wheel there, and tinsmith works with the one that is installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tinsmith.engines import _registry

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PLATFORMS = {
    # system, machine: engines that have wheels (taichi 1.7.4, quadrants 1.3 and 1.4)
    ("linux", "x86_64"): {"taichi", "quadrants"},
    ("linux", "aarch64"): {"quadrants"},
    ("darwin", "arm64"): {"taichi", "quadrants"},
    ("win32", "AMD64"): {"taichi", "quadrants"},
}


def requirements():
    (core,) = re.findall(r"^dependencies = \[\n(.*?)^\]", PROJECT, re.MULTILINE | re.DOTALL)
    return [Requirement(one) for one in re.findall(r'^ +"([^"]+)"', core, re.MULTILINE)]


@pytest.mark.parametrize("place", PLATFORMS)
@pytest.mark.parametrize("python", ["3.10", "3.13"])
def test_pip_installs_one_engine_which_has_a_wheel(place, python):
    system, machine = place
    environment = {"sys_platform": system, "platform_machine": machine, "python_version": python}
    needed = {one.name for one in requirements() if one.marker is None or one.marker.evaluate(environment)}
    engines = needed & {"taichi", "quadrants"}
    assert len(engines) == 1
    assert engines <= PLATFORMS[place]
    assert {"torch", "numpy"} <= needed


def test_the_page_says_the_same():
    (row,) = re.findall(r"^\| system \|.*$", (ROOT / "docs/about/versions.md").read_text("utf-8"), re.MULTILINE)
    assert "Linux on ARM (Quadrants alone)" in row


WITHOUT = """
import importlib.machinery as machinery
import sys

find = machinery.PathFinder.find_spec
machinery.PathFinder.find_spec = classmethod(
    lambda cls, name, path=None, target=None: None if name.split(".")[0] in MISSING else find(name, path, target)
)
import torch, tinsmith as ts
"""
PROGRAM = """
from tinsmith.testing import assert_differentiable

try:
    ts.init(engine="taichi")
except ts.EngineError as refused:
    print(refused)
grid = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 8, "base_resolution": 4}
encoding = ts.nn.Encoding(2, grid)
x = torch.rand(8, 2, requires_grad=True)
encoding(x).sum().backward()
print("encoding", tuple(x.grad.shape))
print(ts.init("cpu"))
import quadrants as qd


@ts.op("x[n] -> y[n]")
@qd.kernel
def square(x: qd.types.ndarray(), y: qd.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


x = torch.ones(3, requires_grad=True)
square(x).sum().backward()
print("op", x.grad.tolist())
assert_differentiable(square, torch.rand(3, dtype=torch.float64))

from tinsmith.__main__ import main

folder = sys.argv[-1]
for command in ("doctor", "fit-image --steps 1 --size 32 --gaussians 20 --out OUT", f"check {__file__}"):
    sys.argv = ["tinsmith", *command.replace("OUT", folder).split()]
    try:
        main()
    except SystemExit as ended:
        print("exit", command.split()[0], ended.code)
print("loaded", "taichi" in sys.modules)
"""


def run(tmp_path, missing, program):
    path = tmp_path / "program.py"
    path.write_text(f"MISSING = {missing!r}\n{WITHOUT}{program}", encoding="utf-8")
    done = subprocess.run([sys.executable, path, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_taichi_everything_runs_on_quadrants(tmp_path):
    pytest.importorskip("quadrants")
    shown = run(tmp_path, ("taichi",), PROGRAM)
    assert "engine 'taichi' is not installed\nRun pip install taichi, or use engine='quadrants'.\n" in shown
    assert "encoding (8, 2)" in shown
    assert "('quadrants',)" in shown
    assert "op [2.0, 2.0, 2.0]" in shown
    assert re.findall(r"^exit (\S+) (\d)", shown, re.MULTILINE) == [("doctor", "0"), ("fit-image", "0"), ("check", "0")]
    assert "loaded False" in shown


def test_without_an_engine_the_remedy_is_one(tmp_path):
    program = "try:\n    ts.init()\nexcept ts.EngineError as refused:\n    print(refused)\n"
    assert run(tmp_path, ("taichi", "quadrants"), program) == "no engine is installed\nRun pip install taichi.\n"


@pytest.mark.parametrize("installed", [("quadrants",), ()], ids=["quadrants", "nothing"])
def test_taichi_is_not_suggested_on_linux_on_arm(installed, monkeypatch):
    monkeypatch.setattr(_registry, "_has_taichi_wheel", lambda: False)
    monkeypatch.setattr(_registry, "list_installed", lambda: installed)
    with pytest.raises(_registry.EngineError) as refused:
        _registry.get("taichi")
    assert "pip install taichi" not in str(refused.value)
    wanted = "use engine='quadrants'." if installed else "use Quadrants. Run "
    assert f"Taichi has no wheel for Linux on ARM: {wanted}" in str(refused.value)
    if not installed:
        with pytest.raises(_registry.EngineError, match=r"no engine is installed\nRun pip install .*quadrants"):
            _registry.choose_default()
