"""Pitfall 17: a loop-carried local in a loop of more than 32 rounds kills the process on Taichi (taichi #8027).

Its gradient stack holds 32 values where the trip count is unknown, and the 33rd is written past
its end. In a process of its own: right or refused, never dead.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import sys, torch, {engine} as lang
import tinsmith as ts
options = {{"ad_stack_experimental_enabled": True}} if "{engine}" == "quadrants" else {{}}
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64, **options)

@ts.op("x[n] -> y[]")
@lang.kernel
def product(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=0)):
    for _ in range(1):
        p = 1.0
        for j in range(x.shape[0]):
            p = p * x[j]
        y[None] = p

for size in (20, 33, 200):
    x = (0.95 + 0.1 * torch.rand(size, dtype=torch.float64)).requires_grad_()
    try:
        product(x).backward()
    except ts.TinsmithError as error:
        assert "product" in str(error), error
        continue
    torch.testing.assert_close(x.grad, (x.prod() / x).detach())
print("alive")
"""


@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_a_long_product_is_right_or_refused(name, tmp_path):
    script = tmp_path / "long_product.py"  # a file: the engines read a kernel's source
    script.write_text(PROGRAM.format(engine=name))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("alive"), f"exit {done.returncode}: {done.stderr[-2000:]}"
