"""The twins of the penalties, against what is known of them."""

import math

import torch

from tinsmith import reference

RAY = torch.tensor([[0, 4], [4, 0]])


def test_distortion_is_the_double_integral_of_piecewise_constant_weights():
    """The integral of |x - y| w(x) w(y) over both, by brute force over fine points of the four intervals."""
    edges = torch.tensor([0.0, 0.5, 0.8, 2.0, 2.2], dtype=torch.float64)
    weights = torch.tensor([0.1, 0.3, 0.2, 0.15], dtype=torch.float64)
    fine = 400
    steps = edges.diff()
    x = (edges[:-1, None] + steps[:, None] * (torch.arange(fine) + 0.5) / fine).flatten()
    share = (weights / fine).repeat_interleave(fine)
    expected = (share[:, None] * share * (x[:, None] - x).abs()).sum()
    losses = reference.distortion_loss(weights, (edges[:-1] + edges[1:]) / 2, steps, RAY)
    torch.testing.assert_close(losses[0], expected, rtol=1e-5, atol=0)
    assert losses[1] == 0


def test_entropy_of_even_weights_is_the_logarithm_of_their_number():
    entropies = reference.entropy_penalty(torch.full((4,), 0.2), RAY)
    assert math.isclose(entropies[0].item(), math.log(4), rel_tol=1e-6) and entropies[1] == 0
    assert reference.entropy_penalty(torch.tensor([0.0, 0.7, 0.0, 0.0]), RAY)[0].abs() < 1e-6
    assert reference.entropy_penalty(torch.full((4,), 1e-4), RAY, faintest=1e-3)[0] == 0


def test_opacity_penalty_is_largest_at_one_over_e():
    opacity = torch.linspace(0, 1, 1001)
    assert abs(opacity[reference.opacity_penalty(opacity).argmax()].item() - math.exp(-1)) < 1e-3
