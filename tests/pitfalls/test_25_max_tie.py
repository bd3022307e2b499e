"""Pitfall 25: at a tie the engines give all to the second operand; torch gives each a half."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards


def larger_and_smaller(lang):
    @ts.op("a[n], b[n] -> y[n], z[n]")
    @lang.kernel
    def larger(a: lang.types.ndarray(), b: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in a:
            y[i] = lang.max(a[i], b[i])
            z[i] = lang.min(a[i], b[i])

    return larger


def twin(a, b):
    return torch.maximum(a, b), torch.minimum(a, b)


def tied(draw):
    a, b = draw(12), draw(12)
    return a, torch.where(torch.arange(12) % 2 == 0, a, b)


def test_ties(lang64, draw):
    assert_right(larger_and_smaller(lang64), twin, tied(draw))


def test_ties_forwards(lang64, draw):
    assert_right_forwards(larger_and_smaller(lang64), twin, tied(draw))
