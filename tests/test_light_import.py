"""`import tinsmith` is light: it loads neither an engine nor what only the command line needs."""

from __future__ import annotations

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
    """Processor seconds that a statement took in a fresh Python that has torch, and the guests loaded then."""
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


def test_import_loads_no_guest(after_import):
    assert after_import[1] == []


def test_import_beyond_torch_is_quick(after_import, record_property):
    # The number to hold is 0.2 s, measured in benchmarks/; a busy machine may take several times that.
    record_property("import_seconds", after_import[0])
    assert after_import[0] < 2


@pytest.mark.parametrize("guest", ["rich", "typer"])
def test_the_check_sees_a_guest(guest):
    assert guest in _loaded_after(f"import tinsmith, {guest}")[1]
