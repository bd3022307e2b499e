"""torch keeps compiled graphs on disk by their text; a kernel edited between two runs must not meet an older graph."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import setuptools, torch
import {engine} as ti
import tinsmith as ts

ti.init(arch=ti.cpu)


@ts.op("x[n] -> y[n]{dtype}")
@ti.kernel
def edited(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = {formula}


x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
values = torch.compile(lambda x: (edited(x) * 1.5).relu() + 1.0)(x)
values.sum().backward()
print(values.tolist(), x.grad.tolist())
"""

DOUBLED = "[4.0, 7.0, 10.0, 13.0] [3.0, 3.0, 3.0, 3.0]"
SQUARED = "[2.5, 7.0, 14.5, 25.0] [3.0, 6.0, 9.0, 12.0]"


@pytest.mark.parametrize(
    ("dtype", "formula", "expected"),
    [(": f64", "2 * x[i]", DOUBLED), (": f32", "x[i] * x[i]", SQUARED)],
    ids=["another dtype", "another formula"],
)
def test_an_edited_kernel_is_compiled_anew(engine, tmp_path, dtype, formula, expected):
    def run(dtype, formula):
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(engine=engine, dtype=dtype, formula=formula))
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
        done = subprocess.run([sys.executable, program], env={**os.environ, **cache}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.splitlines()[-1]

    assert run(": f32", "2 * x[i]") == DOUBLED
    assert run(dtype, formula) == expected
