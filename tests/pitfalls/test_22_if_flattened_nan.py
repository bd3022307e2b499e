"""Pitfall 22: with `flatten_if` a guarded division becomes a `select`, and its gradient NaN (taichi #7116)."""

import subprocess
import sys

import pytest
import torch

import tinsmith as ts
from support.right import assert_right

PROGRAM = """
import torch, {engine} as lang
import tinsmith as ts
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64, flatten_if=True)

@ts.op("x[n] -> y[n]")
@lang.kernel
def guarded(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        v = 0.0
        a = x[i] * 2.0
        if a > 0.0:
            v = 1.0 / a
        y[i] = v

x = torch.tensor([0.0, 2.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
guarded(x).sum().backward()
torch.testing.assert_close(x.grad, torch.tensor([0.0, -0.125, 0.0, -2.0], dtype=torch.float64))
print("right")
"""


@pytest.mark.costly
@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_a_guarded_division_with_flattened_branches(name, tmp_path):
    script = tmp_path / "flattened.py"  # a file: the engines read a kernel's source
    script.write_text(PROGRAM.format(engine=name))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("right"), f"exit {done.returncode}: {done.stderr[-2000:]}"


def test_a_guarded_division(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def guarded(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = 0.0
            a = x[i] * 2.0
            if a > 0.0:
                v = 1.0 / a
            y[i] = v

    def twin(x):
        return torch.where(x > 0, 0.5 / torch.where(x > 0, x, 1.0), 0.0)

    x = draw(20)
    assert_right(guarded, twin, (torch.where(x.abs() < 0.4, 0.0, x),))
