"""Stores to elements that nothing used before: their adjoint is not cleared, and the one that was given not copied."""

import random
import re

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

HEAD = "def kernel(x: lang.types.ndarray(), j: lang.types.ndarray(), y: lang.types.ndarray()):\n"
FREE = {
    "columns": "for i in x:\n y[i, 0] = lang.sin(x[i]); y[i, 1] = x[i] * x[i]",
    "every other one": "for i in x:\n y[2 * i, 0] = lang.sin(x[i]); y[2 * i + 1, 0] = x[i] * x[i]",
    "by loops of their own": "for i in x:\n y[2 * i, 0] = lang.sin(x[i])\nfor i in x:\n y[1 + i * 2, 0] = x[i] * x[i]",
    "named": "for i in x:\n k = 2 * i\n m = k + 1\n y[k, 0] = lang.sin(x[i]); y[m, 0] = x[i] * x[i]",
    "from the end": "n = x.shape[0]\nfor i in x:\n y[n - i, 0] = lang.sin(x[i]); y[n - i, 1] = x[i] * x[i]",
    "unrolled": "for i in x:\n for k in lang.static(range(3)):\n  y[3 * i + k, 0] = lang.sin(x[i] * (k + 1))",
    "inner loops": "for i in x:\n for t in range(2):\n  y[2 * i, t] = x[i] * t\n"
    " for t in range(2):\n  y[2 * i + 1, t] = x[i]",
    "a branch": "for i in x:\n if x[i] > 0.9:\n  y[i, 0] = lang.sin(x[i])\n else:\n  y[i, 1] = x[i] * x[i]",
    "read by a later loop": "for i in x:\n y[i, 0] = lang.sin(x[i])\nfor i in x:\n y[i, 1] = x[i] * y[i, 0]",
}
CLEARED = {  # in one thread, in order
    "twice": "for i in x:\n y[i, 0] = lang.sin(x[i]); y[i, 0] = x[i] * x[i]",
    "by another loop": "for i in x:\n y[2 * i, 0] = lang.sin(x[i])\nfor i in x:\n y[i, 0] = x[i] * x[i]",
    "somewhere in between": "for i in range(9):\n y[3 * i, 0] = lang.sin(x[i]); y[2 * i + 1, 0] = x[i]",
    "where a number from memory says": "for i in range(9):\n y[j[i], 0] = lang.sin(x[i])",
    "perhaps there": "for i in range(9):\n k = j[i]\n if k < 3:\n  k = i\n y[k, 0] = lang.sin(x[i])",
    "in one place": "for i in range(9):\n y[0, 0] = lang.sin(x[i])",
    "where a product wraps around": "for i in range(9):\n y[i * 65536 * 65536, 0] = lang.sin(x[i])",
    "once a round": "for i in range(9):\n for t in range(3):\n  y[i, 0] = lang.sin(x[i] + t)",
    "halves": "for i in range(9):\n y[i // 2, 0] = lang.sin(x[i]); y[i % 2, 1] = x[i]",
    "a diagonal": "for i in range(9):\n for t in range(3):\n  y[i + t, 0] = lang.sin(x[i] * (t + 1))",
    "after a sum": "for i in range(9):\n y[j[i], 0] += lang.sin(x[i])\nfor i in x:\n y[i, 0] = x[i] * x[i]",
    "after a greatest": "for i in x:\n lang.atomic_max(y[j[i], 0], x[i])\nfor i in x:\n y[i, 0] = x[i] * x[i]",
    "from itself": "for i in x:\n y[i, 0] = lang.sin(x[i])\nfor i in x:\n y[i, 0] = y[i, 0] * x[i]",
    "the one before": "for i in range(8):\n y[i + 1, 0] = lang.sin(x[i]) + y[i, 0] * y[i, 0]",
    "while": "for i in x:\n t = 0\n while t < 3:\n  y[i, t] = lang.sin(x[i] + t)\n  t += 1",
}


def made(lang, body):
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    text = text.replace("    for i in range", "    lang.loop_config(serialize=True)\n    for i in range")
    return ts.op("x[n], j[n]: i32 -> y[p, q]", adjoint="source")(compile_text(lang, text))


def clears(op):
    return re.search(r"grad_y\[.*\] = (\w+\.f32\()?0\.0", adjoint_source(op)) is not None


def assert_right(op):
    x, j = torch.rand(9, dtype=torch.float64) + 0.4, torch.randint(0, 9, (9,), dtype=torch.int32)
    x.requires_grad_()
    y = op(x, j, p=32, q=3)
    c = torch.randn_like(y)
    given = c.clone()
    (gradient,) = torch.autograd.grad(y, x, c)
    assert torch.equal(c, given)
    answer = ts.oracle(op, x.detach(), j, cotangents=c, p=32, q=3)
    torch.testing.assert_close(y.detach(), answer.outputs["y"])
    torch.testing.assert_close(gradient, answer.gradients["x"])


@pytest.mark.parametrize("form", FREE)
def test_arrays_stored_once_are_not_zeroed(lang64, form):
    op = made(lang64, FREE[form])
    assert_right(op)
    assert not clears(op)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", CLEARED)
def test_arrays_that_may_hold_values_are_zeroed(lang64, form):
    op = made(lang64, CLEARED[form])
    assert_right(op)
    assert clears(op)


def test_components_of_a_vector(lang64):
    @ts.op("x[n] -> y[n, 2]", adjoint="source")
    @lang64.kernel
    def pairs(x: lang64.types.ndarray(), y: lang64.types.ndarray(dtype=lang64.math.vec2)):
        for i in x:
            y[i] = lang64.math.vec2(lang64.sin(x[i]), x[i] * x[i])

    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pairs, (x,))
    assert not clears(pairs)


def test_scratch_that_a_second_kernel_overwrites_in_part(lang64):
    """What the first stored there had no part in the outputs."""

    @lang64.kernel
    def fill(x: lang64.types.ndarray(), t: lang64.types.ndarray()):
        for i in x:
            t[i] = lang64.sin(x[i])

    @lang64.kernel
    def use(x: lang64.types.ndarray(), t: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0] // 2):
            t[2 * i] = x[i] * x[i]
        for i in x:
            y[i] = t[i] * t[i]

    op = ts.chain("x[n] -> y[n]", [fill, use], scratch="t[n]", adjoint="source")
    assert torch.autograd.gradcheck(op, (torch.rand(6, dtype=torch.float64, requires_grad=True),))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", range(30))
def test_random_multiples(lang64, seed):
    """Stores at random multiples and offsets, in order: whoever came last counts."""
    dice = random.Random(seed)
    lines = []
    for _ in range(dice.randint(1, 3)):
        lines += ["for i in range(6):", " for t in range(3):"]
        for _ in range(dice.randint(1, 3)):
            row = f"{dice.randint(0, 3)} * i + {dice.choice([0, 0, 1, 3])} * t + {dice.randint(0, 5)}"
            column = dice.choice(["t", "0", "1", "2 - t"])
            value = dice.choice(["lang.sin(x[i] + t)", "x[i] * x[t]", "lang.exp(x[i] * 0.3)"])
            lines.append(f"  y[{row}, {column}] {dice.choice(['=', '=', '+='])} {value}")
    assert_right(made(lang64, "\n".join(lines)))
