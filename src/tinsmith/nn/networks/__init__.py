"""Networks described by tiny-cuda-nn's configurations: single networks, and arrays of thousands of small ones."""

from __future__ import annotations

from ._alignment import ALIGNMENT
from ._array import NetworkArray
from ._network import Network, NetworkWithInputEncoding
from ._stack import Activation, stack, unstack

__all__ = ["ALIGNMENT", "Activation", "Network", "NetworkArray", "NetworkWithInputEncoding", "stack", "unstack"]
