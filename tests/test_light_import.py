"""`import tinsmith` is light: it loads neither an engine nor what only the command line needs."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

GUESTS = ["PIL", "cv2", "imageio", "matplotlib", "quadrants", "rich", "safetensors", "taichi", "typer"]

PROBE = """
import sys
import time
import torch

start = time.process_time()
{statement}
print(time.process_time() - start)
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def _loaded_after(statement: str) -> tuple[float, list[str]]:
    """Return processor seconds of a statement in a fresh Python that has torch, and the optional packages loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    seconds, modules = done.stdout.splitlines()[-2:]
    return float(seconds), [guest for guest in GUESTS if guest in modules.split()]


@pytest.fixture(scope="module")
def after_import():
    return _loaded_after("import tinsmith")


def test_import_does_not_load_the_compiler():
    """`torch.compiler.disable` and its like load it where they decorate: a second, for whoever never compiles."""
    said = "import sys, torch, tinsmith; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-1] == "False"


def test_import_loads_no_optional_package(after_import):
    assert after_import[1] == []


def test_import_beyond_torch_is_quick(after_import, record_property):
    # The number to hold is 0.2 s, measured in benchmarks/; a busy machine may take several times that.
    record_property("import_seconds", after_import[0])
    assert after_import[0] < 2


@pytest.mark.parametrize("guest", ["rich", "typer"])
def test_the_check_notices_an_optional_package(guest):
    assert guest in _loaded_after(f"import tinsmith, {guest}")[1]


FIRST_OP = """
import importlib
import sys
import torch

lang = importlib.import_module({engine!r})
lang.init(arch=lang.cpu, log_level=lang.ERROR)
import tinsmith as ts

@lang.kernel
def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = 3.0 * x[i]

before = set(sys.modules)
assert ts.op("x[n] -> y[n]")(triple)(torch.ones(2)).tolist() == [3.0, 3.0]
print(*sorted(set(sys.modules) - before))
"""
UNUSED = [
    "tinsmith.calls.backward._source_adjoint",
    "tinsmith.calls.derived._tangents",
    "tinsmith.codegen._exact",
    "tinsmith.engines.python._engine",
    "tinsmith.kernels._grid",
    "tinsmith.linter._scan",
    "tinsmith.linter.rules",
    "tinsmith.operation.reports._explain",
    "tinsmith.passes.adjoint._plan",
    "tinsmith.passes.blocks._in_order",
    "tinsmith.passes.tangent._kernel",
    "tinsmith.torch_side._distributed",
    "tinsmith.torch_side._flops",
    "tinsmith.torch_side._functions",
    "tinsmith.torch_side._sharding",
]
"""What a call without a gradient does not load, a file for each part of the library."""


@pytest.mark.parametrize("engine", ["taichi", "quadrants"])
def test_a_first_op_and_call_load_no_more_modules_than_listed(engine, tmp_path):
    pytest.importorskip(engine)
    path = tmp_path / "first_op.py"
    path.write_text(FIRST_OP.format(engine=engine), encoding="utf-8")  # engines read the source of kernels
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TINSMITH_")}
    # What the cache on disk holds needs fewer modules, and an earlier test may have filled it.
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, str(path)], check=True, capture_output=True, text=True, timeout=120, env=environment
    )
    loaded = done.stdout.splitlines()[-1].split()
    files = [name for name in loaded if name.startswith("tinsmith.")]
    assert 100 < len(files) <= 200
    other = {"taichi": "quadrants", "quadrants": "taichi"}[engine]
    assert {*files}.isdisjoint([*UNUSED, f"tinsmith.engines._{other}"])


@pytest.mark.parametrize("name", UNUSED)
def test_the_list_of_modules_not_loaded_names_existing_ones(name):
    assert importlib.util.find_spec(name) is not None


CHECK = """
import sys
from tinsmith.cli import app

try:
    app(["check", {file!r}])
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


def test_a_check_of_files_loads_no_torch(tmp_path):
    file = tmp_path / "racy.py"
    kernel = (
        "@ti.kernel\ndef racy(x: ti.types.ndarray(), y: ti.types.ndarray()):\n    for i in x:\n        y[0] = x[i]\n"
    )
    file.write_text(f"import taichi as ti\n{kernel}", encoding="utf-8")
    said = CHECK.format(file=str(file))
    done = subprocess.run([sys.executable, "-c", said], check=True, capture_output=True, text=True, timeout=120)
    assert "TS105" in done.stdout and done.stdout.splitlines()[-1] == "1 False"
