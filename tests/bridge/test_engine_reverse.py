"""The engines' own reverse modes, which no covered kernel uses unless it is told to: the whole table by them too."""

import pytest
import torch

import cases
from support.adjoints import by

BY_HAND = "own_backward"  # a `while`: no engine differentiates it
DIFFERENTIATED = [case for case in cases.ALL if cases.differentiable(case.inputs(torch.float64))]


PAIRS = [
    (case, adjoint)
    for case in DIFFERENTIATED
    for adjoint in ("source", "engine")
    if (case.name, adjoint) != (BY_HAND, "engine")
]


@pytest.mark.parametrize(("case", "adjoint"), PAIRS, ids=str)
def test_gradients_by_either_adjoint(lang64, case, adjoint):
    op, inputs = by(adjoint, case.raw_op(lang64, torch.float64)), case.inputs(torch.float64, seed=2)

    def ours(*given):
        return op(*given, **case.keywords)

    cases.assert_same_values_and_gradients(ours, case.expected, inputs)
