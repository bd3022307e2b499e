"""Paths that are not taken, with derivatives that are infinite or not a number: nothing of them is in a gradient.

Rules 1 and 2 of docs/reference/conventions.md. The derivatives at -1, 0 and 4 are written out by hand.
"""

import math
import textwrap

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

X = torch.tensor([-1.0, 0.0, 4.0], dtype=torch.float64)
B = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
ROOT = [2.0, 2.0, 0.25]  # of `sqrt(x)` where x > 0, and of `2 x` elsewhere

PATHS = {  # what makes y[i] of x[i] and b[i], and its derivatives by x
    "if": ("if x[i] > 0.0:\n  y[i] = lang.sqrt(x[i])\nelse:\n  y[i] = 2.0 * x[i]", ROOT),
    "worked out before": (
        "r = lang.sqrt(x[i])\nif x[i] > 0.0:\n  y[i] = r\nelse:\n  y[i] = 2.0 * x[i]",
        ROOT,
    ),
    "a local written again": ("r = lang.sqrt(x[i])\nif x[i] <= 0.0:\n  r = 2.0 * x[i]\ny[i] = r", ROOT),
    "an element written again": ("y[i] = lang.log(x[i])\ny[i] = 2.0 * x[i]", [2.0, 2.0, 2.0]),
    "an element written again in a branch": (
        "y[i] = lang.sqrt(x[i])\nif x[i] <= 0.0:\n  y[i] = 2.0 * x[i]",
        ROOT,
    ),
    "ternary": ("r = lang.sqrt(x[i])\ny[i] = r if x[i] > 0.0 else 2.0 * x[i]", ROOT),
    "select": ("y[i] = lang.select(x[i] <= 0.0, 2.0 * x[i], lang.sqrt(x[i]))", ROOT),
    "select of what hangs on it": (
        "r = lang.sqrt(x[i])\nq = r * lang.exp(r) + 1.0 / r\n"
        "y[i] = lang.select(x[i] > 0.0, r, 2.0 * x[i]) + lang.select(x[i] > 5.0, q, 0.0)",
        ROOT,
    ),
    "quotient": ("y[i] = lang.select(b[i] > 0.0, x[i] / b[i], 2.0 * x[i])", [2.0, 2.0, 0.5]),
    "power": ("y[i] = lang.select(x[i] > 0.0, x[i] ** 0.5, 2.0 * x[i])", ROOT),
    "inverse": (
        "m = lang.Matrix([[x[i], 0.0], [0.0, 1.0]])\ny[i] = lang.select(x[i] > 0.0, m.inverse()[0, 0], 2.0 * x[i])",
        [2.0, 2.0, -1.0 / 16.0],
    ),
    "break": (
        "r = 0.0\nfor k in range(3):\n  if x[i] <= 0.0:\n    break\n  r += lang.log(x[i])\ny[i] = r",
        [0.0, 0.0, 0.75],
    ),
    "continue": (
        "r = 0.0\nfor k in range(3):\n  if x[i] <= 0.0:\n    continue\n  r += lang.log(x[i])\ny[i] = r",
        [0.0, 0.0, 0.75],
    ),
    "handed on": (
        "r = x[i]\nfor k in range(2):\n  r = lang.select(r > 0.0, lang.sqrt(r), r)\ny[i] = r",
        [1.0, 1.0, 0.125 / math.sqrt(2.0)],
    ),
    "and": (
        "y[i] = 2.0 * x[i]\nif x[i] > 0.0 and lang.sqrt(x[i]) > 1.0:\n  y[i] = lang.sqrt(x[i])",
        ROOT,
    ),
    "no iteration": (
        "r = 2.0 * x[i]\nq = lang.sqrt(x[i])\nfor k in range(int(x[i] > 0.0)):\n  r = q\ny[i] = r",
        ROOT,
    ),
}
FACTORS = {  # the same, where 0 is multiplied with what has an infinite derivative
    "a factor of 0": ("y[i] = b[i] * lang.sqrt(x[i] + 1.0) + x[i]", [1.0, 1.0, 1.0 + 1.0 / math.sqrt(5.0)]),
    "a flag": (
        "m = 0.0\nif x[i] > 0.0:\n  m = 1.0\ny[i] = m * lang.sqrt(lang.max(x[i], 0.0)) + x[i]",
        [1.0, 1.0, 1.25],
    ),
}


def op_of(lang, body):
    text = f"""
def kernel(x: lang.types.ndarray(ndim=1), b: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in range(x.shape[0]):
{textwrap.indent(body, " " * 8)}
"""
    return ts.op("x[n], b[n] -> y[n]", adjoint="source")(compile_text(lang, text))


def slopes_of(op):
    x = X.clone().requires_grad_()
    return torch.autograd.grad(op(x, B).sum(), x)[0]


def slopes_in_a_batch(op):
    slopes = torch.func.vmap(torch.func.grad(lambda x, b: op(x, b).sum()))(X[:, None], B[:, None])
    return slopes[:, 0]


def compute_tangents(op):
    return torch.func.jvp(lambda x: op(x, B), (X,), (torch.ones_like(X),))[1]


def oracle_of(op):
    return ts.oracle(op, X, B, cotangents=torch.ones_like(X)).gradients["x"].double()


REVERSE = {"backward": slopes_of, "vmap": slopes_in_a_batch, "oracle": oracle_of}


@pytest.mark.thinned(6)
@pytest.mark.parametrize("mode", [*REVERSE, "forward"])
@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_is_not_taken_has_no_part(lang64, path, mode):
    body, wanted = PATHS[path]
    derivatives = {**REVERSE, "forward": compute_tangents}[mode](op_of(lang64, body))
    torch.testing.assert_close(derivatives, torch.tensor(wanted, dtype=torch.float64))


@pytest.mark.parametrize("mode", REVERSE)
@pytest.mark.parametrize("path", FACTORS)
def test_zero_cotangents_give_zero_gradients(lang64, path, mode):
    body, wanted = FACTORS[path]
    torch.testing.assert_close(REVERSE[mode](op_of(lang64, body)), torch.tensor(wanted, dtype=torch.float64))


def test_forward_mode_multiplies_with_0_as_torch_does(lang64):
    """A factor of 0 times an infinite tangent, and a tangent of 0 times an infinite derivative."""

    def twin(x):
        return torch.where(x > 0.0, 1.0, 0.0) * torch.relu(x).sqrt() + x

    tangents = compute_tangents(op_of(lang64, FACTORS["a flag"][0]))
    _, wanted = torch.func.jvp(twin, (X,), (torch.ones_like(X),))
    assert wanted.isnan().tolist() == [True, True, False]
    torch.testing.assert_close(tangents, wanted, equal_nan=True)


def test_a_cotangent_of_0_has_a_derivative(lang64):
    """What rule 1 leaves out is no constant: torch's own trick for forward mode differentiates by a cotangent of 0."""
    op = op_of(lang64, "y[i] = lang.sqrt(x[i]) * lang.log(x[i]) + b[i] / x[i]")
    x, b = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64), torch.ones_like(X)

    def twin(x, b):
        return x.sqrt() * x.log() + b / x

    v = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64)
    mine, theirs = (torch.autograd.functional.jvp(lambda x, f=f: f(x, b), x, v)[1] for f in (op, twin))
    torch.testing.assert_close(mine, theirs)

    def by_tangent(f):
        return torch.func.grad(lambda t: torch.func.jvp(lambda x: f(x, b), (x,), (t,))[1].sum())(torch.zeros_like(x))

    torch.testing.assert_close(by_tangent(op), by_tangent(twin))
