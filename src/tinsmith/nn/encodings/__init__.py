"""Encodings of positions for networks, described by tiny-cuda-nn's configurations.

`Encoding` is the torch module. It calls an `Encoder`, a function of positions and of a flat tensor of parameters
without state, which other modules use too: an array of networks, or a network with its encoding in one tensor.
"""

from __future__ import annotations

from ._build import build_encoder
from ._encoder import Composite, Encoder, draw_params
from ._encoding import Encoding
from ._grid import Grid

__all__ = [
    "Composite",
    "Encoder",
    "Encoding",
    "Grid",
    "build_encoder",
    "draw_params",
]
