"""Alignment: how tiny-cuda-nn pads the output of an encoding to a multiple of a number of columns.

Most encodings are filled up with ones, grids with zeros. Inside a Composite that concatenates, a part is filled up
too, so that what comes after it begins at a multiple of what that needs: a grid, of its features a level. (There:
`set_alignment` in encoding.h, the constructor of encodings/composite.h.)
"""

from __future__ import annotations

import itertools
import math

from ..._errors import ConfigError, refusal
from ..config import Section
from ..encodings import Composite, Encoder, Grid

ALIGNMENT = 16
"""What tiny-cuda-nn pads to: its FullyFusedMLP multiplies tiles of 16 x 16, and its CutlassMLP follows it so that
checkpoints fit both (`REQUIRED_ALIGNMENT` in fully_fused_mlp.h and cutlass_mlp.h)."""

Columns = list[float | None]
"""What stands in each column: a constant, or None for the encoding's next number."""


def columns_of(encoder: Encoder, section: Section, alignment: int) -> Columns:
    """The columns of an encoding, filled up to a multiple of `alignment`.

    Raises:
        ConfigError: parts of a Composite are to be added or multiplied whose columns are filled up in different places.
    """
    try:
        return _find_constant_columns(
            encoder, _multiple(_natural(encoder), math.lcm(alignment, _compute_alignment(encoder)))
        )
    except _Crossed as error:
        headline = f"`{section.where}`: parts to be reduced are filled up in different places."
        rows = [("alignment", str(alignment)), ("reduction", str(error))]
        raise ConfigError(refusal(headline, rows, "Pass alignment=1, which pads nothing.")) from error


class _Crossed(Exception):
    """A number of one part meets a constant of another."""


def _compute_alignment(encoder: Encoder) -> int:
    """What the place of its first number has to be a multiple of."""
    if isinstance(encoder, Grid):
        return encoder.n_features
    return math.lcm(*(_compute_alignment(part) for _, part in encoder.parts)) if isinstance(encoder, Composite) else 1


def _natural(encoder: Encoder) -> int:
    """Its width before anybody asks for more."""
    if not isinstance(encoder, Composite):
        return encoder.n_output_dims
    if encoder.reduction != "Concatenation":
        return max(_multiple(_natural(part), _compute_alignment(encoder)) for _, part in encoder.parts)
    return _multiple(sum(_widths(encoder)) + _natural(encoder.parts[-1][1]), _compute_alignment(encoder))


def _widths(encoder: Composite) -> list[int]:
    """The widths of all parts but the last: each ends where the next may begin."""
    parts = [part for _, part in encoder.parts]
    widths: list[int] = []
    for part, following in itertools.pairwise(parts):
        begin = sum(widths)
        widths.append(_multiple(begin + _natural(part), _compute_alignment(following)) - begin)
    return widths


def _find_constant_columns(encoder: Encoder, width: int) -> Columns:
    if not isinstance(encoder, Composite):
        constant = 0.0 if isinstance(encoder, Grid) else 1.0
        return [None] * encoder.n_output_dims + [constant] * (width - encoder.n_output_dims)
    parts = [part for _, part in encoder.parts]
    if encoder.reduction == "Concatenation":
        widths = _widths(encoder)
        widths.append(width - sum(widths))
        return [column for part, own in zip(parts, widths, strict=True) for column in _find_constant_columns(part, own)]
    return [
        _reduce_column(encoder.reduction, column)
        for column in zip(*(_find_constant_columns(p, width) for p in parts), strict=True)
    ]


def _reduce_column(reduction: str, column: tuple[float | None, ...]) -> float | None:
    constants = [value for value in column if value is not None]
    if constants and len(constants) < len(column):
        raise _Crossed(reduction)
    if not constants:
        return None
    return sum(constants) if reduction == "Sum" else math.prod(constants)


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of
