"""Layout: where the numbers of many small networks stand in one tensor, and how kernels want them.

One tensor `[cell, row, width]` holds every network, so that an optimizer has one parameter to go through, and
picking networks is picking rows of it. Which row is what, `NetworkShape` says.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from ...engines import NAMES
from ...kernels import NetworkShape
from ..config import Section

_MACHINE_VECTOR = 64
"""Bytes: more, and memory would have to begin at multiples that torch does not promise."""

_LEAST_LANES = 4
"""Kernels take four rows, or outputs, at a time, and look for them in one vector."""

_MOST_BY_SAMPLE = 96
"""Parameters of a network that is gone through by sample: width 4 with four hidden layers, width 8 with one. More take
too long to compile, as all is unrolled; and at width 16 it is no faster."""
_MOST_ROWS = 32
"""Of such a network: engines warn of longer loops that are unrolled."""
_SAMPLES = 8
"""At a time: 16 are no faster, and compile for twice as long."""


@dataclass(frozen=True)
class Layout:
    """What networks look like, with rows as wide as they are: `lanes` is 1."""

    shape: NetworkShape
    whole: NetworkShape
    """The shape that kernels are built for: by sample, or rows of whole machine vectors, wider where they must be."""
    segments: tuple[int, ...]
    """Rows of the layers and biases, in order: (inputs, biases) of each hidden layer, outputs, biases."""

    @classmethod
    def of(cls, n_in: int, n_out: int, section: Section, *, biases: bool, dtype: torch.dtype) -> Layout:
        """From the network's part of a configuration."""
        hidden = section.options["n_hidden_layers"]
        width = section.options["n_neurons"] if hidden else n_in  # what the outputs' rows go over
        act, out = section.options["activation"], section.options["output_activation"]
        shape = NetworkShape(n_in, n_out, width, hidden, act, out, biases, 1, NAMES[dtype])
        return cls(shape, _whole(shape), _segments(shape))

    def vectors(self, params: torch.Tensor) -> torch.Tensor:
        """[cell, row, width] as kernels take it: so, or as a list of vectors. New memory only where rows must be wider.

        Neurons that are added have zero weights to and from them. Differentiable.
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
            is_further = number >= 2 and number % 2 == 0  # weights of a layer that is fed by neurons
            padded.append([functional.pad(part, (0, extra, 0, extra if is_further else 0))])
        padded.append([functional.pad(outputs, (0, extra))])
        if self.shape.biases:
            flat = last.flatten(1)[:, : self.shape.n_out]
            rows = -(-self.shape.n_out // wide)
            padded.append([functional.pad(flat, (0, rows * wide - self.shape.n_out)).view(-1, rows, wide)])
        return padded

    def layers(self, params: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Weights [cell, in, out] and biases [cell, 1, out] of each layer, as views. Differentiable."""
        parts = params.split(self.segments, 1)
        pairs: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        for weights, biases in zip(parts[:-2:2], parts[1:-2:2], strict=True):
            pairs.append((weights, biases if self.shape.biases else None))
        outputs, last = parts[-2:]
        flat = last.flatten(1)[:, None, : self.shape.n_out]
        return [*pairs, (outputs.transpose(1, 2), flat if self.shape.biases else None)]


def _segments(shape: NetworkShape) -> tuple[int, ...]:
    bias = int(shape.biases)
    hidden = (shape.n_in, bias, *(shape.width, bias) * (shape.hidden - 1)) if shape.hidden else ()
    return (*hidden, shape.n_out, shape.rows - shape.outputs - shape.n_out)


def _whole(shape: NetworkShape) -> NetworkShape:
    if shape.rows * shape.width <= _MOST_BY_SAMPLE and shape.rows <= _MOST_ROWS:
        return replace(shape, lanes=_SAMPLES, by_sample=True)
    most = _MACHINE_VECTOR // (4 if shape.dtype == "f32" else 8)
    lanes = math.gcd(shape.width, most)
    if lanes >= _LEAST_LANES:
        return replace(shape, lanes=lanes)
    wide = -(-shape.width // most) * most if shape.width > most else _power_of_two(shape.width)
    return replace(shape, width=wide, lanes=min(wide, most))


def _power_of_two(count: int) -> int:
    """The first power of two that is not less, nor than a vector is long."""
    return max(_LEAST_LANES, 1 << (count - 1).bit_length())
