"""Kernels of fully fused networks: their layers, run by rows or by lanes, forwards, backwards and while learning."""

from ._networks import backward_networks, forward_networks, learning_networks
from ._shape import NetworkShape

__all__ = [
    "NetworkShape",
    "backward_networks",
    "forward_networks",
    "learning_networks",
]
