"""The twins of resampling, against what is known of them."""

import torch

from tinsmith import reference


def test_samples_divide_the_weight_evenly():
    edges = torch.tensor([0.0, 0.5, 0.8, 2.0, 2.2], dtype=torch.float64)
    cdfs = torch.tensor([0.0, 0.1, 0.4, 0.4, 0.9], dtype=torch.float64)
    new_edges, t = reference.importance_sampling(edges, cdfs, 50, 0.25)
    before = torch.stack([_weight_before(edges, cdfs, x) for x in t])
    torch.testing.assert_close(before, 0.9 * (torch.arange(50, dtype=torch.float64) + 0.25) / 50)
    assert (new_edges[:-1] <= t).all() and (t <= new_edges[1:]).all()


def _weight_before(edges, cdfs, x):
    covered = ((x - edges[:-1]) / edges.diff()).clamp(0, 1)
    return cdfs[0] + (covered * cdfs.diff()).sum()


def test_the_loss_by_hand():
    edges, cdfs = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([0.0, 0.6, 1.0])
    proposal_edges, proposal_cdfs = torch.tensor([0.0, 0.5, 1.5, 3.0]), torch.tensor([0.0, 0.1, 0.2, 0.3])
    # Interval 0 meets the first two of the proposal, interval 1 the last two: 0.6 and 0.4 against 0.2 each.
    expected = torch.tensor(0.4**2 / 0.6 + 0.2**2 / 0.4)
    torch.testing.assert_close(reference.proposal_loss(edges, cdfs, proposal_edges, proposal_cdfs), expected)
