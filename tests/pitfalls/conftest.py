"""What every pitfall needs: random inputs in float64."""

import pytest
import torch

import cases


@pytest.fixture
def draw():
    """Draw random float64 tensors: `draw(3, 4, low=0.0, high=1.0)`."""
    return cases.Draw(torch.float64)
