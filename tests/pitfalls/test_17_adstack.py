"""Pitfall 17: a loop-carried local in a loop of more than 32 rounds kills the process on Taichi (taichi #8027).

Its gradient stack holds 32 values where the trip count is unknown, and the 33rd is written past its end. A generated
adjoint has a tape of the size that it needs. By the engine's reverse mode, in a process of its own: right or refused,
never dead.
"""

import subprocess
import sys

import pytest
import torch

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch

pytestmark = pytest.mark.thinned(4)

PROGRAM = """
import sys, torch, {engine} as lang
import tinsmith as ts
options = {{"ad_stack_experimental_enabled": True}} if "{engine}" == "quadrants" else {{}}
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64, **options)

@ts.op("x[n] -> y[]", adjoint="engine")
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


def product(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def product(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            p = 1.0
            for j in range(x.shape[1]):
                p = p * x[i, j]
            y[i] = p

    return product


@pytest.mark.parametrize("trips", [20, 32, 33, 1000])
def test_a_long_product(lang64, draw, trips):
    assert_right(product(lang64), lambda x: x.prod(1), (draw(3, trips, low=0.9, high=1.1),))


def test_a_long_product_in_a_batch(lang64, draw):
    assert_right_in_a_batch(product(lang64), lambda x: x.prod(1), (draw(2, 3, 100, low=0.9, high=1.1),))


def test_many_long_products(lang64, draw):
    """In parallel: every iteration has its own place on the tape."""
    x = draw(500, 300, low=0.9, high=1.1).requires_grad_()
    product(lang64)(x).sum().backward()
    torch.testing.assert_close(x.grad, (x.prod(1, keepdim=True) / x).detach())


def test_a_nest_of_long_loops(lang64, draw):
    """40 rounds of 50 rounds, and both carry something."""

    @ts.op("x[n, m] -> y[n]")
    @lang64.kernel
    def nest(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.5
            for _ in range(40):
                t = s
                for j in range(x.shape[1]):
                    t = lang64.sin(t + x[i, j])
                s = s * t + x[i, 0]
            y[i] = s

    def twin(x):
        s = torch.full_like(x[:, 0], 0.5)
        for _ in range(40):
            t = s
            for column in x.T:
                t = torch.sin(t + column)
            s = s * t + x[:, 0]
        return s

    assert_right(nest, twin, (draw(2, 50, low=-0.5, high=0.5),))


@pytest.mark.costly
@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_a_long_product_by_the_engine_is_right_or_refused(name, tmp_path):
    script = tmp_path / "long_product.py"  # a file: the engines read a kernel's source
    script.write_text(PROGRAM.format(engine=name))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("alive"), f"exit {done.returncode}: {done.stderr[-2000:]}"


USING_LOCALS = """
import sys, torch, {engine} as lang
import tinsmith as ts
options = {{"ad_stack_experimental_enabled": True}} if "{engine}" == "quadrants" else {{}}
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64, **options)

@ts.op("x[n] -> y[2]", adjoint="engine")
@lang.kernel
def squares(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in range(2):
        s = 0.0
        for j in range(x.shape[0]):
            s += x[j] * x[j]
        y[i] = s

@ts.op("x[n] -> y[2]", adjoint="engine")
@lang.kernel
def handed(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in range(2):
        t = 0.0
        s = 0.0
        for j in range(x.shape[0]):
            s += t
            t = x[j] * x[j]
        y[i] = s + t

for size in (20, 33, 3000):
    for op in (squares, handed):
        x = torch.rand(size, dtype=torch.float64, requires_grad=True)
        op(x).sum().backward()
        torch.testing.assert_close(x.grad, 4.0 * x.detach())
print("alive")
"""


@pytest.mark.costly
@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_a_long_sum_by_the_engine_is_right(name, tmp_path):
    """It keeps nothing of the sum, but what each iteration works out by the way."""
    script = tmp_path / "long_sums.py"
    script.write_text(USING_LOCALS.format(engine=name))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("alive"), f"exit {done.returncode}: {done.stderr[-2000:]}"
