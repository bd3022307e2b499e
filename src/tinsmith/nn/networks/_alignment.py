"""Alignment: how tiny-cuda-nn pads the output of an encoding to a multiple of a number of columns.

Most encodings are padded with ones, grids with zeros. In a Composite that concatenates, each part is padded too, so
that the next part begins at a multiple of its own alignment. The alignment of a grid is its number of features per
level. (In tiny-cuda-nn: `set_alignment` in encoding.h, the constructor of encodings/composite.h.)
"""

from __future__ import annotations

import itertools
import math

from ..._errors import ConfigError, refusal
from ..config import Section
from ..encodings import Composite, Encoder, Grid

ALIGNMENT = 16
"""The alignment of tiny-cuda-nn: its FullyFusedMLP multiplies tiles of 16 x 16, and its CutlassMLP has the same
alignment, so that checkpoints fit both (`REQUIRED_ALIGNMENT` in fully_fused_mlp.h and cutlass_mlp.h)."""

Columns = list[float | None]
"""The content of each column of a padded encoding: a constant, or None for the encoding's next output."""


def find_columns(encoder: Encoder, section: Section, alignment: int) -> Columns:
    """Return the columns of an encoding after padding to a multiple of `alignment`.

    Raises:
        ConfigError: the parts of a Composite are added or multiplied, but padded in different columns.
    """
    try:
        return _find_constant_columns(
            encoder, _round_up(_compute_width(encoder), math.lcm(alignment, _compute_alignment(encoder)))
        )
    except _MixedColumn as error:
        headline = f"`{section.where}`: the parts that a Composite combines are padded in different columns"
        rows = [("alignment", str(alignment)), ("reduction", str(error))]
        raise ConfigError(refusal(headline, rows, "Pass alignment=1, which pads nothing.")) from error


class _MixedColumn(Exception):
    """Raised if a reduction would combine an output of one part with a padding constant of another."""


def _compute_alignment(encoder: Encoder) -> int:
    """Return the alignment of an encoding: its first column must be a multiple of this number of columns."""
    if isinstance(encoder, Grid):
        return encoder.n_features
    return math.lcm(*(_compute_alignment(part) for _, part in encoder.parts)) if isinstance(encoder, Composite) else 1


def _compute_width(encoder: Encoder) -> int:
    """Return the width of an encoding, with padding between its parts but none requested from outside."""
    if not isinstance(encoder, Composite):
        return encoder.n_output_dims
    if encoder.reduction != "Concatenation":
        return max(_round_up(_compute_width(part), _compute_alignment(encoder)) for _, part in encoder.parts)
    return _round_up(
        sum(_compute_part_widths(encoder)) + _compute_width(encoder.parts[-1][1]), _compute_alignment(encoder)
    )


def _compute_part_widths(encoder: Composite) -> list[int]:
    """Return the padded widths of all parts but the last: each is padded to the alignment of the next part."""
    parts = [part for _, part in encoder.parts]
    widths: list[int] = []
    for part, following in itertools.pairwise(parts):
        begin = sum(widths)
        widths.append(_round_up(begin + _compute_width(part), _compute_alignment(following)) - begin)
    return widths


def _find_constant_columns(encoder: Encoder, width: int) -> Columns:
    if not isinstance(encoder, Composite):
        constant = 0.0 if isinstance(encoder, Grid) else 1.0
        return [None] * encoder.n_output_dims + [constant] * (width - encoder.n_output_dims)
    parts = [part for _, part in encoder.parts]
    if encoder.reduction == "Concatenation":
        widths = _compute_part_widths(encoder)
        widths.append(width - sum(widths))
        return [column for part, own in zip(parts, widths, strict=True) for column in _find_constant_columns(part, own)]
    return [
        _reduce_column(encoder.reduction, column)
        for column in zip(*(_find_constant_columns(p, width) for p in parts), strict=True)
    ]


def _reduce_column(reduction: str, column: tuple[float | None, ...]) -> float | None:
    constants = [value for value in column if value is not None]
    if constants and len(constants) < len(column):
        raise _MixedColumn(reduction)
    if not constants:
        return None
    return sum(constants) if reduction == "Sum" else math.prod(constants)


def _round_up(size: int, of: int) -> int:
    return -(-size // of) * of
