"""`atomic_mul` in a user's kernel: engines end the process where they find no use for its being atomic."""

import subprocess
import sys
import textwrap

import pytest

FORMS = {
    "an element of its own": "for i in x:\n    y[i] = 2.0\n    ti.atomic_mul(y[i], x[i])",
    "one further on": "n = y.shape[0]\nfor i in x:\n    y[n - 1 - i] = 2.0\n    ti.atomic_mul(y[n - 1 - i], x[i])",
    "by another name": "for i in x:\n    k = i\n    y[k] = 2.0\n    ti.atomic_mul(y[k], x[i])",
    "in a function": "for i in x:\n    y[i] = 3.0\n    multiplied(y, i, x[i])",
    "an inner loop": "for j in y:\n    y[j] = 1.0\n    for i in range(x.shape[0]):\n        ti.atomic_mul(y[j], x[i])",
    "what it returns": "for i in x:\n    y[i] = 2.0\n    old = ti.atomic_mul(y[i], x[i])\n    y[i] += old * x[i]",
    "a serial loop": """
        for i in y:
            y[i] = 1.0
        ti.loop_config(serialize=True)
        for i in range(x.shape[0]):
            ti.atomic_mul(y[i % 2], x[i])""",
    "no loop": "y[0] = 2.0\nti.atomic_mul(y[0], x[1])",
}
HEAD = """
import {engine} as ti
import tinsmith as ts
import torch

ts.init("cpu", default_fp=ti.f64, engine="{engine}")


@ti.func
def multiplied(a: ti.template(), k, factor):
    ti.atomic_mul(a[k], factor)


def check(op):
    x = torch.tensor([1.1, 0.7, 1.3], dtype=torch.float64)
    y = op(x)
    slopes = torch.func.jacrev(op)(x)
    step = 1e-6
    differences = [(op(x + step * v) - op(x - step * v)) / (2 * step) for v in torch.eye(3).double()]
    torch.testing.assert_close(slopes, torch.stack(differences, 1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch.func.jacfwd(op)(x), slopes)
    torch.testing.assert_close(torch.vmap(op)(torch.stack([x, x])), torch.stack([y, y]))
    right = ts.oracle(op, x, cotangents=torch.ones_like(x))
    torch.testing.assert_close(y, right.outputs["y"])
    torch.testing.assert_close(slopes.sum(0), right.gradients["x"])
"""
FORM = """
print("{name}", flush=True)


@ts.op("x[n] -> y[n]")
@ti.kernel
def op(x: ti.types.ndarray(), y: ti.types.ndarray()):
{body}


check(op)
"""


@pytest.mark.compiled_engine
@pytest.mark.costly
@pytest.mark.parametrize("engine", ["taichi", "quadrants"])
def test_atomic_products_without_conflicts_do_not_end_the_process(engine, tmp_path):
    """In a process of its own, which used to end without a word of Python's: the last line printed names the form."""
    path = tmp_path / "program.py"
    bodies = {name: textwrap.indent(textwrap.dedent(text).strip(), "    ") for name, text in FORMS.items()}
    forms = [FORM.format(name=name, body=body) for name, body in bodies.items()]
    path.write_text(HEAD.format(engine=engine) + "".join(forms))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert done.stdout.splitlines()[-len(FORMS) :] == list(FORMS)
