"""CellEncoding: the encoding of the inputs of an array's networks, with separate parameters for each network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.func import vmap

from ...torch_side import Layer, one_node, set_parameter
from .._checks import require_seed
from .._distributed import own_rows, shard_rows
from .._precision import compute_dtype, widen
from ..config import Section
from ..encodings import Encoding, draw_params
from ._matrices import fill_batches

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class CellEncoding(Layer):
    """An encoding for each cell. `params` is [cell, number], with no elements for encodings without parameters."""

    params: torch.Tensor
    holds_matrices = False  # optimizers treat tables and matrices differently

    def __init__(
        self,
        n_input_dims: int,
        config: Section | Mapping[str, Any] | str | Path,
        cells: int,
        seed: int,
        dtype: torch.dtype,
        engine: str | None,
    ) -> None:
        super().__init__()
        one = Encoding(n_input_dims, config, seed, dtype, engine=engine)
        self.section, self.encoder, self.engine = one.section, one.encoder, engine
        self.n_output_dims = one.n_output_dims
        self.seed = seed
        self._store_params(self._draw(cells, seed).to(one.params))

    def _draw(self, cells: int, seed: int) -> torch.Tensor:
        """Draw the initial parameters [cell, number], on the CPU."""
        return draw_params(seed, *[self.encoder] * cells).view(cells, self.encoder.n_params)

    def reset_parameters(self) -> None:
        """Set the parameters to their initial values again, drawn from the array's seed.

        Raises:
            ArgumentError: the encoding belongs to a `part` of another array.
        """
        set_parameter(self.params, self._draw(len(self.params), require_seed(self.seed)))

    def _store_params(self, params: torch.Tensor) -> None:
        """Store the parameters as a `Parameter`, or as a buffer if they have no elements."""
        if params.shape[1]:
            self.params = torch.nn.Parameter(params)
        else:
            self.register_buffer("params", params, persistent=False)

    @one_node
    def forward(self, x: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
        """Encode [cell, batch, n_in] to [cell, batch, n_out], with the parameters of the cells `rows` (None: all).

        Half precision is encoded in float32, which the result then has.
        """
        x = x.to(compute_dtype(self.params.dtype))
        if not self.params.shape[1]:
            y = self.encoder(x.flatten(0, 1), widen(self.params[:0].flatten()), self.engine)
            return y.reshape(*x.shape[:2], self.n_output_dims)
        params = own_rows(self.params)
        params = widen(params if rows is None else params[rows])
        if not len(params):  # vmap does not support an empty batch
            return x.new_zeros(*x.shape[:2], self.n_output_dims) + params.sum()
        return vmap(lambda one, table: self.encoder(one, table, self.engine))(x, params)

    def route_points(self, points: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Encode scattered points, [point, n_in] to [point, n_out], each with the parameters of its cell, [point]."""
        if not self.params.shape[1]:
            points = points.to(compute_dtype(self.params.dtype))
            return self.encoder(points, widen(self.params[:0].flatten()), self.engine)
        filled, place = fill_batches(points, cells, len(own_rows(self.params)))
        return self(filled)[cells, place]

    def extra_repr(self) -> str:
        """Return the otype and the shape of the parameters, for `repr`."""
        return f"otype={self.section.otype!r}, n_params={tuple(self.params.shape)}"

    def shard(self, mesh: DeviceMesh) -> None:
        """Shard the parameters over processes by cells, in place."""
        if self.params.shape[1]:
            self.params = torch.nn.Parameter(shard_rows(self.params, mesh), self.params.requires_grad)

    def part(self, rows: torch.Tensor | None) -> CellEncoding:
        """Copy the encodings of the cells `rows` (None: all), with their parameters."""
        # Without `__init__`, which would draw parameters that are not used.
        encoding = CellEncoding.__new__(CellEncoding)
        torch.nn.Module.__init__(encoding)
        encoding.section, encoding.encoder, encoding.engine = self.section, self.encoder, self.engine
        encoding.n_output_dims, encoding.seed = self.n_output_dims, None
        params = own_rows(self.params.detach())
        chosen = params if rows is None else params[rows]
        encoding._store_params(chosen.clone())
        encoding.requires_grad_(self.params.requires_grad)
        return encoding
