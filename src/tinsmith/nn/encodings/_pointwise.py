"""Encodings of each number or direction by itself: Frequency, TriangleWave, OneBlob and SphericalHarmonics.

They run kernels with generated derivatives. benchmarks/results/encodings-cpu.md compares them with plain torch:
forward and backward of 100,000 points in 3-D on 2 cores.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ... import kernels
from ...calls import language
from ...engines import NAMES
from ...operation import Op, OpOptions
from ...torch_side import Family, Recipe, register_family
from ...tracing import constant_when_traced
from ._encoder import Encoder

_FACTORIES: dict[str, tuple[Any, str, str]] = {
    "Frequency": (kernels.frequency, "n_frequencies", "x[n, d] -> y[n, 2 * d * {}]"),
    "TriangleWave": (kernels.triangle_wave, "n_frequencies", "x[n, d] -> y[n, d * {}]"),
    "OneBlob": (kernels.one_blob, "n_bins", "x[n, d] -> y[n, d * {}]"),
    "SphericalHarmonics": (kernels.spherical_harmonics, "degree", "x[n, 3] -> y[n, {0} * {0}]"),
}
"""For each encoding: the factory of its kernel, the name of its one option, and its spec, formatted with the option."""


class Pointwise(Encoder):
    """An encoding of `_FACTORIES`. `size` is the value of its one option, such as the number of frequencies."""

    def __init__(self, otype: str, n_input_dims: int, size: int) -> None:
        self.otype = otype
        self.size = size
        self.n_input_dims = n_input_dims
        each = {"Frequency": 2 * size, "SphericalHarmonics": size * size}.get(otype, size)
        self.n_output_dims = each if otype == "SphericalHarmonics" else n_input_dims * each

    def __call__(self, x: Tensor, params: Tensor, engine: str | None = None) -> Tensor:
        return _OPS[_build_op(engine, x.device, x.dtype, self.otype, self.size)](x)


_Key = tuple[str, str, str, int]
_OPS: dict[_Key, Op] = {}
"""Ops by engine, dtype, otype and option. A global dict, so that `torch.compile` finds them too."""


@constant_when_traced
def _build_op(engine: str | None, device: torch.device, dtype: torch.dtype, otype: str, size: int) -> _Key:
    """Return the key of an encoding's op in `_OPS`; build the op in the first call."""
    lang = language(engine, device)
    key = (lang.__name__, NAMES[dtype], otype, size)
    if key not in _OPS:
        factory, option, spec = _FACTORIES[otype]
        kernel = factory(lang, fp=key[1], **{option: size})
        recipe = Recipe("pointwise", lang.__name__, (otype, size))
        options = OpOptions(init={"y": "empty"}, adjoint="source", steady=True, recipe=recipe)
        _OPS[key] = Op([kernel], spec.format(size), options)
    return key


def _find(engine: str, device: torch.device, dtype: torch.dtype, otype: str, size: int) -> Op:
    return _OPS[_build_op(engine, device, dtype, otype, size)]


register_family("pointwise", Family(_find))
