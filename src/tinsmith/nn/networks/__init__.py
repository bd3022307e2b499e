"""Networks: one by itself, by tiny-cuda-nn's configurations."""

from __future__ import annotations

from ._network import Network, NetworkWithInputEncoding

__all__ = ["Network", "NetworkWithInputEncoding"]
