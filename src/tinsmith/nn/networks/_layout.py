"""Layout: the parameters of many small networks in one tensor, and their conversion to the form that kernels take.

One tensor `[cell, row, width]` holds all networks, so that an optimizer has one parameter, and selecting networks
is indexing its first axis. `NetworkShape` describes the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from ...engines import NAMES
from ...kernels import NetworkShape
from ..config import Section
from ._mlp import compute_bound

_MACHINE_VECTOR = 64
"""Bytes of a machine vector. Longer ones would need a stricter alignment of memory than torch guarantees."""

_LEAST_LANES = 4
"""Smallest vector length: kernels process four rows, or outputs, at a time, and read them from one vector."""

_MOST_BY_SAMPLE = 96
"""Most parameters of a network whose vectors run over samples: width 4 with four hidden layers, width 8 with one.
Larger ones take too long to compile, since all loops are unrolled, and at width 16 this form is no faster."""
_MOST_ROWS = 32
"""Most rows of a network whose vectors run over samples: engines warn about longer unrolled loops."""
_SAMPLES = 8
"""Samples in one vector: 16 are no faster, and take twice as long to compile."""


@dataclass(frozen=True)
class Layout:
    """The layout of the networks' parameters. `shape` has the width of the network itself; its `lanes` is 1."""

    shape: NetworkShape
    whole: NetworkShape
    """The shape that kernels are built for: vectors over samples, or rows padded to whole machine vectors."""
    segments: tuple[int, ...]
    """The number of rows of each part: (weights, biases) of each hidden layer, then output weights and biases."""

    @classmethod
    def from_section(cls, n_in: int, n_out: int, section: Section, *, biases: bool, dtype: torch.dtype) -> Layout:
        """Build the layout of a network with these sizes from the network's part of a configuration."""
        hidden = section.options["n_hidden_layers"]
        width = section.options["n_neurons"] if hidden else n_in  # the fan-in of the output layer
        act, out = section.options["activation"], section.options["output_activation"]
        shape = NetworkShape(n_in, n_out, width, hidden, act, out, biases, 1, NAMES[dtype])
        return cls(shape, _choose_kernel_shape(shape), _count_segment_rows(shape))

    def convert_params(self, params: torch.Tensor) -> torch.Tensor:
        """Convert parameters [cell, row, width] to the form that kernels take: unchanged, or [vector, lanes].

        Allocates memory only if rows must be padded; the added neurons have zero weights. Differentiable.
        """
        to = self.whole
        if to.width != self.shape.width:
            params = torch.cat([part for parts in self._pad_to_width(params) for part in parts], 1)
        return params if to.by_sample else params.reshape(-1, to.lanes)

    def _pad_to_width(self, params: torch.Tensor) -> list[list[torch.Tensor]]:
        wide = self.whole.width
        extra = wide - self.shape.width
        *layers, outputs, last = params.split(self.segments, 1)
        padded = []
        for number, part in enumerate(layers):
            is_further = number >= 2 and number % 2 == 0  # weights of a hidden layer after the first one
            padded.append([functional.pad(part, (0, extra, 0, extra if is_further else 0))])
        padded.append([functional.pad(outputs, (0, extra))])
        if self.shape.biases:
            flat = last.flatten(1)[:, : self.shape.n_out]
            rows = -(-self.shape.n_out // wide)
            padded.append([functional.pad(flat, (0, rows * wide - self.shape.n_out)).view(-1, rows, wide)])
        return padded

    def layers(self, params: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Return the weights [cell, in, out] and biases [cell, 1, out] (or None) of each layer, as views.

        Differentiable.
        """
        parts = params.split(self.segments, 1)
        pairs: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        for weights, biases in zip(parts[:-2:2], parts[1:-2:2], strict=True):
            pairs.append((weights, biases if self.shape.biases else None))
        outputs, last = parts[-2:]
        flat = last.flatten(1)[:, None, : self.shape.n_out]
        return [*pairs, (outputs.transpose(1, 2), flat if self.shape.biases else None)]


def _count_segment_rows(shape: NetworkShape) -> tuple[int, ...]:
    bias = int(shape.biases)
    hidden = (shape.n_in, bias, *(shape.width, bias) * (shape.hidden - 1)) if shape.hidden else ()
    return (*hidden, shape.n_out, shape.rows - shape.outputs - shape.n_out)


def _choose_kernel_shape(shape: NetworkShape) -> NetworkShape:
    if shape.rows * shape.width <= _MOST_BY_SAMPLE and shape.rows <= _MOST_ROWS:
        return replace(shape, lanes=_SAMPLES, by_sample=True)
    most = _MACHINE_VECTOR // (4 if shape.dtype == "f32" else 8)
    lanes = math.gcd(shape.width, most)
    if lanes >= _LEAST_LANES:
        return replace(shape, lanes=lanes)
    wide = -(-shape.width // most) * most if shape.width > most else _power_of_two(shape.width)
    return replace(shape, width=wide, lanes=min(wide, most))


def _power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count` and at least `_LEAST_LANES`."""
    return max(_LEAST_LANES, 1 << (count - 1).bit_length())


def draw_initial_params(layout: Layout, cells: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Draw the initial parameters, [cell, row, width], on the CPU: weights uniform in -bound to bound, biases 0.

    They are drawn independently for each network; `compute_bound` is that of one network.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.device("cpu"):  # so that a seed means the same everywhere
        params = torch.zeros(cells, layout.shape.rows, layout.shape.width, dtype=dtype)
        for number, (weights, _) in enumerate(layout.layers(params)):
            drawn = torch.rand(weights.shape, generator=generator, dtype=torch.float64) * 2 - 1
            weights.copy_(drawn * compute_bound(layout.shape.activation, number, *weights.shape[1:]))
    return params
