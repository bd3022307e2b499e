"""What compositing needs besides its inputs: outputs and gradients, no buffer a sample of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")

MEASURE = """\
import gc, re, sys, torch
from pathlib import Path
from tinsmith.render import composite

def status(key):
    return 1024 * int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text("ascii"))[1])

def samples(n, k):
    make = lambda *shape: torch.rand(*shape).requires_grad_()
    return make(n, k), make(n, k, 3), make(n, k), make(n, k)

def step(given):
    found = composite(*given, background=torch.ones(3))
    torch.autograd.grad(found.color.sum() + found.opacity.sum() + found.depth.sum(), given)

for given in samples(4, 4), samples(int(sys.argv[1]) // 64, 64):
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", "ascii")  # the peak starts anew
    size = sum(x.nbytes for x in given)
    before = status("VmRSS") - size
    step(given)
print((status("VmHWM") - before) / size)
"""


def peak(samples):
    """Measure the peak memory of a step, inputs included, in multiples of the inputs' size."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(samples)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return float(done.stdout.splitlines()[-1])


@pytest.mark.costly
@pytest.mark.parametrize("samples", [2_000_000, pytest.param(10_000_000, marks=pytest.mark.costly)])
def test_forward_and_backward_take_less_than_three_times_the_inputs(samples):
    """Inputs are 6 numbers a sample, weights 1, gradients 6: 2.17 times."""
    assert 2.1 < peak(samples) < 3
