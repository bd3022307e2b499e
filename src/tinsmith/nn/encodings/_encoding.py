"""Encoding: an encoding as a torch module that holds its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._integers import read_positive, read_seed
from ...torch_side import Layer, is_distributed, one_node, set_parameter
from ...tracing import reshape_result
from .._checks import check_dtype, prepare_input
from .._distributed import forward_on_parts
from .._precision import round_to, widen
from ..config import Section, resolve_section
from ._build import build_encoder
from ._encoder import draw_params


class Encoding(Layer):
    """An input encoding, described by a tiny-cuda-nn configuration.

    Otypes: Composite, Empty, Frequency, Grid (HashGrid, DenseGrid, TiledGrid), Identity, NRC (OneBlobFrequency),
    OneBlob, SphericalHarmonics, TriangleWave; the formulas are in `tinsmith.reference`.

    Args:
        n_input_dims: number of input dims, the coordinates of a position.
        encoding_config: the configuration, as a mapping, a JSON string or a path; None: all defaults.
        seed: seed of the initial parameters.
        dtype: dtype of the parameters and the result: float32, the default, float64, float16 or bfloat16. `.double()`,
            `.half()` and so on change it. Half precision is computed in float32, and rounded once, at the end.
        engine: "taichi" or "quadrants"; None for a running engine, else an installed one, which is then started.

    Attributes:
        n_input_dims, n_output_dims: number of dims of a position before and after encoding.
        params: all parameters, flat, in tiny-cuda-nn's layout: the table of a grid, with a row for each slot; empty
            for encodings without parameters.

    The input (..., n_input_dims) may have any real dtype, and is cast to that of the computation; the output is
    (..., n_output_dims). Differentiable in the input and in `params`, any number of times, in both modes. Which cell
    of a grid a position is in is not differentiated.

    Raises:
        ConfigError: a name, value or size in the configuration is invalid.
        DtypeError: `dtype`, or the dtype that the module was converted to, is none of the four.
        ShapeError: the input has another number of dims.

    Example:
        >>> encoding = ts.nn.Encoding(2, {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 12})
        >>> encoding(torch.rand(100, 2)).shape
        torch.Size([100, 8])
    """

    def __init__(
        self,
        n_input_dims: int,
        encoding_config: Section | Mapping[str, Any] | str | Path | None = None,
        seed: int = 1337,
        dtype: torch.dtype | None = None,
        *,
        engine: str | None = None,
    ) -> None:
        super().__init__()
        check_dtype(type(self).__name__, dtype or torch.float32)
        n_input_dims = read_positive("n_input_dims", "Encoding", n_input_dims)
        self.section = resolve_section("encoding", encoding_config)
        with torch.device("cpu"):  # drawn there, so that a seed means the same everywhere
            self.encoder = build_encoder(self.section, n_input_dims)
        self.n_input_dims = n_input_dims
        self.n_output_dims = self.encoder.n_output_dims
        self.seed = seed = read_seed("Encoding", seed)
        self.engine = engine
        start = draw_params(seed, self.encoder)
        self.params = torch.nn.Parameter(start.to(torch.get_default_device(), dtype or torch.float32))

    def reset_parameters(self) -> None:
        """Set the parameters to their initial values again, drawn from the module's seed.

        Call this for a module made on the meta device, after `to_empty`. If the parameters are a DTensor, each process
        sets its shard.
        """
        set_parameter(self.params, draw_params(self.seed, self.encoder))

    @one_node
    def forward(self, x: Tensor) -> Tensor:
        """Encode positions: (..., n_input_dims) to (..., n_output_dims)."""
        params = self.params
        x = prepare_input(self, x, self.section.otype)
        if is_distributed([x, params]):
            return forward_on_parts(self, x)
        flat = x if x.ndim == 2 else x.reshape(-1, self.n_input_dims)
        y = round_to(self.encoder(flat, widen(params), self.engine), params.dtype)
        return y if x.ndim == 2 else reshape_result(y, (*x.shape[:-1], self.n_output_dims))

    def extra_repr(self) -> str:
        """Return the sizes and the otype, for `repr`."""
        return f"{self.n_input_dims}, {self.n_output_dims}, otype={self.section.otype!r}, n_params={len(self.params)}"
