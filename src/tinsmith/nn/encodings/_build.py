"""Construction of an encoder from a section of a configuration."""

from __future__ import annotations

from ..._errors import ConfigError, refusal
from ...reference import grid_levels
from ..config import MOST_PARAMS, Section
from ._encoder import Composite, Empty, Encoder, Identity
from ._grid import Grid
from ._pointwise import Pointwise

_MOST_DIMS = 7  # as many primes as tiny-cuda-nn's hash has


def build_encoder(section: Section, n_input_dims: int) -> Encoder:
    """Build the encoder that a section of a configuration describes.

    Args:
        section: the section, from `config.resolve_section("encoding", ...)`.
        n_input_dims: number of input dims, the coordinates of a position.

    Raises:
        ConfigError: the encoding does not support this number of dims, or its table is too large for 32 bits.

    Example:
        >>> from tinsmith.nn.config import resolve_section
        >>> build_encoder(resolve_section("encoding", {"otype": "Frequency", "n_frequencies": 4}), 3).n_output_dims
        24
    """
    options = section.options
    if section.otype == "Composite":
        return _build_composite(section, n_input_dims)
    if section.otype == "Grid":
        return _build_grid(section, n_input_dims)
    if section.otype == "Identity":
        return Identity(n_input_dims, options["scale"], options["offset"])
    if section.otype == "Empty":
        return Empty(n_input_dims)
    if section.otype == "SphericalHarmonics" and n_input_dims != 3:
        raise _make_misfit_error(section, n_input_dims, "3: directions, as (direction + 1) / 2")
    size = next(options[key] for key in ("n_frequencies", "n_bins", "degree") if key in options)
    return Pointwise(section.otype, n_input_dims, size)


def _build_grid(section: Section, n_input_dims: int) -> Grid:
    options = section.options
    if not 1 <= n_input_dims <= _MOST_DIMS:
        raise _make_misfit_error(section, n_input_dims, f"1 to {_MOST_DIMS}")
    try:
        levels = grid_levels(
            n_input_dims,
            n_levels=options["n_levels"],
            base_resolution=options["base_resolution"],
            per_level_scale=options["per_level_scale"],
            kind=options["type"],
            log2_hashmap_size=options["log2_hashmap_size"],
        )
    except (OverflowError, ValueError) as cause:
        # A resolution overflows float32, in which tiny-cuda-nn computes it.
        rows = [(key, f"{options[key]:g}") for key in ("base_resolution", "per_level_scale")]
        rows += [("n_levels", str(options["n_levels"]))]
        headline = f"`{section.where}` has a level whose resolution is beyond the range of float32"
        remedy = "Pass a per_level_scale near 2, and a smaller base_resolution."
        raise ConfigError(refusal(headline, rows, remedy)) from cause
    n_features = options["n_features_per_level"]
    n_params = (levels[-1].first + levels[-1].size) * n_features
    if n_params > MOST_PARAMS:
        sides = f"{levels[0].resolution:,} to {levels[-1].resolution:,}, in {n_input_dims} dims"
        rows = [("numbers in its table", f"{n_params:,}"), ("resolutions", sides)]
        remedy = "Use fewer or coarser levels, or type Hash, whose levels have 2^log2_hashmap_size slots at most."
        raise ConfigError(refusal(f"`{section.where}` is too large for 32 bits", rows, remedy))
    return Grid(n_input_dims, levels, n_features, options["interpolation"])


def _build_composite(section: Section, n_input_dims: int) -> Composite:
    wanted = [nested.options["n_dims_to_encode"] for nested in section.nested]
    begins = [nested.options["dims_to_encode_begin"] for nested in section.nested]
    rest = n_input_dims - sum(size or 0 for size in wanted)
    parts: list[tuple[int, Encoder]] = []
    begin, shares = 0, []
    for nested, size, given in zip(section.nested, wanted, begins, strict=True):
        begin = begin if given is None else given
        size = rest if size is None else size
        shares.append((nested.where, f"{nested.otype} of dims {begin} to {begin + size - 1}"))
        if size < 0 or begin + size > n_input_dims:
            remedy = "Give it more input dims, or encode fewer."
            headline = f"`{section.where}` encodes more dims than the {n_input_dims} that there are"
            raise ConfigError(refusal(headline, shares, remedy))
        if size:
            parts.append((begin, build_encoder(nested, size)))
        begin += size
    if not parts:
        raise _make_misfit_error(section, n_input_dims, "1 or more of them encoded")
    _check_widths(section, parts)
    return Composite(n_input_dims, parts, section.options["reduction"])


def _check_widths(section: Section, parts: list[tuple[int, Encoder]]) -> None:
    widths = [part.n_output_dims for _, part in parts]
    reduction = section.options["reduction"]
    if reduction != "Concatenation" and len(set(widths)) > 1:
        rows = [("output dims of what is nested", ", ".join(map(str, widths)))]
        remedy = f"Give all of them the same number of output dims: a {reduction} needs it."
        raise ConfigError(refusal(f"`{section.where}` cannot be reduced", rows, remedy))


def _make_misfit_error(section: Section, n_input_dims: int, expected: str) -> ConfigError:
    rows = [("got", f"n_input_dims = {n_input_dims}"), ("expected", expected)]
    return ConfigError(refusal(f"`{section.where}`, {section.otype}, does not fit the input", rows))
