"""Encodings of positions for networks, in tiny-cuda-nn's configuration language.

`Encoding` is the module. It contains an `Encoder`, which has no state of its own: a function of
positions and of a flat tensor of parameters, for code that keeps the parameters elsewhere (an array of networks,
or a network and its encoding in one tensor).
"""

from __future__ import annotations

from ._build import encoder
from ._composite import Composite
from ._encoder import Encoder, draw_params
from ._encoding import Encoding
from ._grid import Grid

__all__ = ["Composite", "Encoder", "Encoding", "Grid", "draw_params", "encoder"]
