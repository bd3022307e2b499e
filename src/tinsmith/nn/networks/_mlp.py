"""Mlp: one network as a function of its input and a flat tensor of its matrices. It has no state.

The layout is tiny-cuda-nn's: no biases; layer after layer, each [out, in], row by row. Matrices are padded to
multiples of 16, which tensor cores need: the inputs with ones (or zeros, after a grid), the outputs with rows
that are never read. `alignment=1` turns the padding off. The padding of the inputs is constant, so it is never
materialized: the sum of its columns is added as a bias of the first layer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from ..._errors import ConfigError, refusal
from .._activations import apply
from ..config import MOST_PARAMS, Section

_FREQUENCY = 30.0
"""The frequency of the first layer of sines: SIREN (Sitzmann et al. 2020), section 3.2."""


@dataclass(frozen=True)
class Mlp:
    """A network as a function of its input and its matrices.

    Attributes:
        shapes: (out, in) of each matrix.
        activation, output_activation: the names of the activations.
        n_output_dims: number of rows of the last matrix that are read; the others are padding.
    """

    shapes: tuple[tuple[int, int], ...]
    activation: str
    output_activation: str
    n_output_dims: int

    @classmethod
    def from_section(cls, section: Section, n_columns: int, n_output_dims: int, alignment: int) -> Mlp:
        """Build the network from its part of a configuration, for an input padded to `n_columns` columns.

        Raises:
            ConfigError: the network has too many parameters for 32-bit indices.
        """
        options = section.options
        hidden = [options["n_neurons"]] * options["n_hidden_layers"]
        widths = [n_columns, *hidden, -(-n_output_dims // alignment) * alignment]
        shapes = tuple((after, before) for before, after in itertools.pairwise(widths))
        n_params = sum(rows * columns for rows, columns in shapes)
        if n_params > MOST_PARAMS:
            sizes = [(key, f"{options[key]:,}") for key in ("n_neurons", "n_hidden_layers")]
            rows = [("numbers in its matrices", f"{n_params:,}", f"at most {MOST_PARAMS:,}"), *sizes]
            headline = f"`{section.where}` is too large for 32 bits"
            raise ConfigError(refusal(headline, rows, "Use fewer neurons or layers."))
        return cls(shapes, options["activation"], options["output_activation"], n_output_dims)

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each matrix."""
        return [rows * columns for rows, columns in self.shapes]

    def __call__(
        self, x: Tensor, pieces: Sequence[Tensor], columns: Tensor | None = None, constants: Tensor | None = None
    ) -> Tensor:
        """Evaluate the network: (..., n_input_dims) to (..., n_output_dims).

        Args:
            x: the inputs, of the same dtype as the matrices. Differentiable.
            pieces: each matrix, flat. Differentiable.
            columns: the columns of the first matrix that the inputs belong to; None for the leading ones.
            constants: (columns), the padding's constants in the other columns, and 0 in these; None if all are 0.
        """
        matrices = [piece.view(shape) for piece, shape in zip(pieces, self.shapes, strict=True)]
        matrices[-1] = matrices[-1][: self.n_output_dims]
        # FSDP may cast the parameters to another dtype than the buffers.
        bias = None if constants is None else matrices[0] @ constants.to(matrices[0].dtype)
        if columns is not None:
            matrices[0] = matrices[0].index_select(1, columns)
        elif x.shape[-1] < self.shapes[0][1]:
            matrices[0] = matrices[0][:, : x.shape[-1]]  # a view, where `index_select` copies
        for matrix in matrices[:-1]:
            x = apply(self.activation, functional.linear(x, matrix, bias))
            bias = None
        return apply(self.output_activation, functional.linear(x, matrices[-1], bias))

    def remove_padding(self, n_input_dims: int) -> Mlp:
        """Return the same network without padding."""
        widths = [n_input_dims, *[rows for rows, _ in self.shapes[:-1]], self.n_output_dims]
        return replace(self, shapes=tuple((after, before) for before, after in itertools.pairwise(widths)))

    def pad(self, params: Tensor, own: Sequence[int]) -> Tensor:
        """Convert the parameters of the network without padding to this padded layout. The function stays the same.

        Args:
            params: flat: the matrices of `remove_padding(len(own))`, and anything that follows them.
            own: the columns of the first matrix that the inputs belong to.
        """
        narrow = self.remove_padding(len(own))
        *pieces, rest = params.split([*narrow.sizes, params.numel() - sum(narrow.sizes)])
        padded = [params.new_zeros(shape) for shape in self.shapes]
        for number, (to, piece, (rows, columns)) in enumerate(zip(padded, pieces, narrow.shapes, strict=True)):
            places = list(own) if number == 0 else list(range(columns))
            to[:rows, places] = piece.view(rows, columns)
        return torch.cat([*(matrix.flatten() for matrix in padded), rest])

    def initial_params(self, draw: torch.Generator) -> Tensor:
        """Draw the initial weights, flat, float32 on the CPU: uniform in -bound to bound (`compute_bound`)."""
        drawn = [torch.rand(size, generator=draw, dtype=torch.float32) * 2 - 1 for size in self.sizes]
        bounds = [compute_bound(self.activation, k, fan_in, fan_out) for k, (fan_out, fan_in) in enumerate(self.shapes)]
        return torch.cat([weights * bound for weights, bound in zip(drawn, bounds, strict=True)])


def compute_bound(activation: str, layer: int, fan_in: int, fan_out: int) -> float:
    """Return the bound of a layer's uniform initial weights, by tiny-cuda-nn's rules.

    It is Xavier's, sqrt(6 / (fan in + fan out)). If the activation is a sine, it is SIREN's: 30 / (fan in) in the first
    layer and sqrt(6 / fan in) in the others.
    """
    if activation != "Sine":
        return math.sqrt(6 / (fan_in + fan_out))
    return _FREQUENCY / max(fan_in, 1) if layer == 0 else math.sqrt(6 / fan_in)
