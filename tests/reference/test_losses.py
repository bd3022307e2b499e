"""The twin of the losses against numbers worked out on paper."""

from __future__ import annotations

import math

import pytest
import torch

from tinsmith import reference

P, T, Q = (0.3, 0.5, 1.0), (0.2, 1.0, 0.5), (0.5, 2.0, 1.0)
Y = 0.299 * 0.3 + 0.587 * 0.5 + 0.114 * 1.0

# name, the values of the elements before weighting, their slopes
PAPER = [
    ("L1", (0.1, 0.5, 0.5), (1, -1, 1)),
    ("L2", (0.01, 0.25, 0.25), (0.2, -1.0, 1.0)),
    ("RelativeL1", (0.1 / 0.31, 0.5 / 0.51, 0.5 / 1.01), (1 / 0.31, -1 / 0.51, 1 / 1.01)),
    ("RelativeL2", (0.01 / 0.1, 0.25 / 0.26, 0.25 / 1.01), (0.2 / 0.1, -1 / 0.26, 1 / 1.01)),
    (
        "RelativeL2Luminance",
        tuple(d / (Y * Y + 0.01) for d in (0.01, 0.25, 0.25)),
        tuple(d / (Y * Y + 0.01) for d in (0.2, -1, 1)),
    ),
    ("MAPE", (0.1 / 0.21, 0.5 / 1.01, 0.5 / 0.51), (1 / 0.21, -1 / 1.01, 1 / 0.51)),
    ("SMAPE", (0.1 / 0.26, 0.5 / 0.76, 0.5 / 0.76), (1 / 0.26, -1 / 0.76, 1 / 0.76)),
    ("CrossEntropy", (-0.2 * math.log(0.3), -math.log(0.5), 0.0), (-0.2 / 0.3, -2.0, -0.5)),
    ("Variance", (0.04 / 0.3 - 0.08, 2.0 - 0.5, 0.0), (-0.04 / 0.09, -4.0, -0.25)),
]


@pytest.mark.parametrize(("name", "values", "slopes"), PAPER)
def test_a_row_worked_out_on_paper(name, values, slopes):
    p, t, q = (torch.tensor([row], dtype=torch.float64) for row in (P, T, Q))
    value, gradient = reference.loss(name, p, t, q)
    assert value.item() == pytest.approx(sum(v / own for v, own in zip(values, Q, strict=True)) / 3)
    assert gradient[0].tolist() == pytest.approx([s / own / 3 for s, own in zip(slopes, Q, strict=True)])
