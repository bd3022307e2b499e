"""Locals that a loop hands on and that it only adds to: which of several they are, and their gradients."""

import re

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

HEAD = "def kernel(x: lang.types.ndarray(dtype=lang.f64, ndim=1), y: lang.types.ndarray(dtype=lang.f64, ndim=1)):\n"
START = ["for i in range(1):", "    a, b, c = x[0], x[1], x[2]"]
LOOPS = {  # the body of a loop of three iterations, and the same in Python
    "each adds for itself": ["a += x[j] ** 2", "b -= x[j] * x[1]", "c = x[j] + c"],
    "one adds another one": ["b += a", "a += x[j] ** 2", "c += x[j] * b"],
    "one adds what another one has become": ["a += x[j] ** 2", "b += a", "c = c + b"],
    "two add up in one": ["s = a + b", "a = s + x[j]", "b = b + x[j] ** 2", "c += 1.0"],
    "added twice": ["a = a + a + x[j]", "b = b + (x[j] + b)", "c = c - (x[j] - c)"],
    "subtracted from": ["a = x[j] - a", "b = x[j] - (x[1] - b)", "c = (c - x[j]) + x[0]"],
    "under conditions": ["if x[j] > 0.8:", "    a += x[j] ** 2", "    b = b * x[j]", "else:", "    b = b + x[j]"],
    "in one arm only": ["if x[j] > 0.8:", "    a = b + x[j]", "b += x[j] ** 2", "c += x[j]"],
    "in a condition": ["if a > 1.0:", "    b += x[j]", "a += x[j] ** 2"],
    "in a loop inside": ["for k in range(2):", "    a += x[j] * x[k]", "    b = b * x[k]", "    c += x[k] ** 2"],
    "handed on by a loop inside": ["for k in range(2):", "    a = b", "    b += x[k] ** 2", "c += a"],
    "copied in a loop inside": ["a += x[j] ** 2", "for k in range(2):", "    b = a", "    c += x[k]"],
    "stored": ["a += x[j]", "y[1] += a", "b += x[j] ** 2"],
}


@pytest.mark.parametrize("name", LOOPS)
def test_gradients(lang64, name):
    lines = [*START, "    for j in range(3):", *(f"        {line}" for line in LOOPS[name])]
    lines += ["    y[0] += a * a + 2.0 * b + c * b"]
    op = ts.op("x[n] -> y[2]")(compile_text(lang64, HEAD + "".join(f"    {line}\n" for line in lines)))
    x = torch.tensor([0.7, 0.9, 1.3], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(run_in_python(lines, x), x)
    (gradient,) = torch.autograd.grad(op(x).sum(), x)
    torch.testing.assert_close(gradient, expected)


def run_in_python(lines, x):
    y = [0.0, 0.0]
    # `a += b` would change a tensor that has another name too.
    text = re.sub(r"(\S+) ([+-])= (.*)", r"\1 = \1 \2 (\3)", "\n".join(lines))
    exec(text, {"x": x, "y": y})
    return y[0] + y[1]
