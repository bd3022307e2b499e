"""torch.autograd.gradcheck in float64 on every row of the table, on both engines."""

import pytest
import torch
from torch.autograd.gradcheck import GradcheckError, gradcheck

import cases

pytestmark = pytest.mark.thinned(8)

CHECKED = [case for case in cases.ALL if cases.select_differentiable(case.inputs(torch.float64))]


def test_the_table_has_enough_cases():
    assert len(CHECKED) >= 32


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_gradcheck(lang64, case):
    op = case.op(lang64, torch.float64)
    inputs = cases.make_leaves(case.inputs(torch.float64, seed=5))
    # Parallel additions into one element may round differently from run to run: nondet_tol.
    assert gradcheck(lambda *inputs: cases.list_tensors(op(*inputs)), inputs, nondet_tol=1e-12, check_batched_grad=True)


def test_gradcheck_can_fail(lang64):
    """A gradient that is wrong in one place is caught."""
    square = cases.select_cases("square")[0].op(lang64, torch.float64)
    (x,) = cases.make_leaves(cases.select_cases("square")[0].inputs(torch.float64))
    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        gradcheck(lambda x: square(torch.cat([x[:3], x[3:4].detach(), x[4:]])), (x,))
