"""Networks, by tiny-cuda-nn's configurations: one by itself, and arrays of thousands of small ones."""

from __future__ import annotations

from ._array import NetworkArray
from ._network import Network, NetworkWithInputEncoding

__all__ = ["Network", "NetworkArray", "NetworkWithInputEncoding"]
