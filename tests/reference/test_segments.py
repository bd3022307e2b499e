"""The twins of sums and products along rays, against numbers worked out by hand."""

import pytest
import torch

from tinsmith import reference

RAYS = torch.tensor([[1, 3], [4, 0], [4, 2]])
VALUES = torch.tensor([9.0, 2.0, 0.0, 3.0, 4.0, 5.0, 9.0])
EXPECTED = {
    "inclusive_sum": [0, 2, 2, 5, 4, 9, 0],
    "exclusive_sum": [0, 0, 2, 2, 0, 4, 0],
    "inclusive_prod": [0, 2, 0, 0, 4, 20, 0],
    "exclusive_prod": [0, 1, 2, 0, 1, 4, 0],
    "segment_sum": [5, 0, 9],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_numbers(name):
    function = getattr(reference, name)
    assert function(VALUES, RAYS).tolist() == EXPECTED[name]
    columns = function(torch.stack([VALUES, VALUES], 1), RAYS)
    assert columns[:, 0].tolist() == columns[:, 1].tolist() == EXPECTED[name]


def test_weighted_sums():
    weights = torch.arange(7.0)
    assert reference.accumulate(weights, VALUES[:, None], RAYS).tolist() == [[2 + 9], [0], [16 + 25]]
