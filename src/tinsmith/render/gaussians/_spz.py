"""SPZ files: Gaussians in a tenth of a PLY's size, with 8 bits or a few more per number. Viewers open them.

The file is a gzip of a header and of arrays, in this order: positions (24 bits each), opacities, colors, logarithms of
scales, rotations (the three smallest parts of the quaternion, 10 bits each), and harmonics. Its axes are x right, y up,
z back; those of this library, and of PLY files, are x right, y down, z ahead. So Gaussians are rotated by half a turn
around x when they are written or read.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from ..._errors import ArgumentError, refusal
from ..._integers import read_integers
from ..._untrusted import MakeError, decompressed_limit, open_untrusted, size_of
from ._splat_files import COEFFICIENTS, check_splats, make_read_error, write_bytes

_HEADER = struct.Struct("<IIIBBBB")
"""Magic number, version, number of Gaussians, degree of harmonics, fractional bits of positions, flags, reserved."""
_MAGIC = 0x5053474E
_ANTIALIASED, _HAS_EXTENSIONS = 1, 2
_MOST_FRACTIONAL_BITS = 12
_POSITION_LIMIT = (1 << 23) - 1
_COLOR_SCALE = 0.15
_MAGNITUDE = (1 << 9) - 1
"""The largest stored magnitude of a quaternion's part; a further bit is the sign."""


def save_spz(
    path: str | Path, splats: Mapping[str, Tensor], *, antialiased: bool = False, sh_bits: tuple[int, int] = (5, 4)
) -> None:
    """Write Gaussians to an SPZ file, version 3, which is lossy and has about a tenth of the size of a PLY.

    Precision: positions to 1 / 8192 (less exact where one is beyond 2047), opacities to 1 / 510 after the
    sigmoid, logarithms of scales to 1 / 32 and from -10 to 5.9, parts of the rotation to 1 / 1445, colors at degree 0
    to 1 / 77 and from -3.3 to 3.3, other harmonics from -1 to 0.99.

    Args:
        path: the file, which is replaced.
        splats: as for `save_ply`; x right, y down, z ahead, as in `rasterization`.
        antialiased: mark the Gaussians as trained with `rasterize_mode="antialiased"`.
        sh_bits: bits of coefficients of degree 1 and of higher degrees, 1 to 8. Fewer bits compress better.

    Raises:
        ArgumentError: a tensor is missing or unknown, or not finite; a position is beyond 8 million.
        ShapeError: they do not fit.
        InputError: the file cannot be written.

    Example:
        >>> gaussians = ts.render.gaussians
        >>> splats = {"means": torch.rand(5, 3), "scales": -torch.rand(5, 3), "quats": torch.rand(5, 4)}
        >>> splats |= {"opacities": torch.rand(5), "sh0": torch.rand(5, 1, 3), "shN": torch.rand(5, 15, 3) / 2}
        >>> gaussians.save_spz("splats.spz", splats)
        >>> (gaussians.load_spz("splats.spz")["means"] - splats["means"]).abs().max() < 1 / 8000
        tensor(True)
    """
    bits = read_integers(sh_bits)
    if len(bits) != 2 or not all(1 <= one <= 8 for one in bits):
        words = "`sh_bits` of `save_spz` must be two integers from 1 to 8"
        raise ArgumentError(refusal(words, [("got", repr(sh_bits))]))
    held = {name: value.double().numpy() for name, value in check_splats("save_spz", splats).items()}
    positions = held["means"] * (1, -1, -1)
    rest = held["shN"].shape[1]
    fractional_bits = _choose_fractional_bits(positions)
    fixed = np.rint(positions * 2.0**fractional_bits).astype("<i4")
    opacities = 255 / (1 + np.exp(-held["opacities"]))
    colors = 255 * (held["sh0"] * _COLOR_SCALE + 0.5)
    parts = [
        fixed.view(np.uint8).reshape(-1, 4)[:, :3],  # the lower three bytes
        _round_to_bytes(opacities),
        _round_to_bytes(colors),
        _round_to_bytes(16 * (held["scales"] + 10)),
        _pack_rotations(held["quats"]),
        _pack_harmonics(held["shN"] * _compute_harmonic_signs(rest), bits),
    ]
    flags = _ANTIALIASED if antialiased else 0
    header = _HEADER.pack(_MAGIC, 3, len(positions), COEFFICIENTS.index(rest), fractional_bits, flags, 0)
    # Without a time stamp, so that equal Gaussians make equal files.
    write_bytes(Path(path), gzip.compress(header + b"".join(part.tobytes() for part in parts), mtime=0))


def load_spz(path: str | Path) -> dict[str, Tensor]:
    """Read Gaussians from an SPZ file of version 2 or 3, written by any program.

    Args:
        path: the SPZ file.

    Returns:
        Tensors as for `save_spz`, float32, on the CPU; quaternions have length 1, and opacities are finite.

    Raises:
        InputError: the file is missing, broken or of another version, or has extensions.

    Example:
        >>> ts.render.gaussians.load_spz("none.spz")
        Traceback (most recent call last):
        tinsmith.InputError: the splats cannot be read
          file     none.spz
          because  No such file or directory
    """
    path = Path(path)
    make_error = partial(make_read_error, path)
    with open_untrusted(path, make_error) as file:
        compressed = size_of(file)
        try:
            header, whole = _decompress(file, compressed, make_error)
        except (OSError, EOFError, zlib.error) as cause:
            raise make_error(f"it is not a gzip file: {cause}") from cause
    count, rest, widths = header.count, COEFFICIENTS[header.degree], header.widths
    ends = np.cumsum([0, *(count * width for width in widths)])
    places = zip(ends[:-1], ends[1:], widths, strict=True)
    parts = [np.frombuffer(whole[begin:end], np.uint8).reshape(count, width) for begin, end, width in places]
    positions, opacities, colors, scales, rotations, harmonics = parts
    quats = _unpack_rotations(rotations) if header.version == 3 else _unpack_short_rotations(rotations)
    # Opacities of 0 and 1 have no finite logit. Moved inside by half a step, they are written as the same bytes again.
    shares = np.clip(opacities[:, 0] / 255.0, 0.5 / 255, 254.5 / 255)
    # Converted one after the other: all in float64 would take several times the memory of the result.
    return {
        "means": _as_tensor(_unpack_positions(positions) * 0.5**header.fractional_bits * (1, -1, -1)),
        "scales": _as_tensor(scales / 16.0 - 10),
        "quats": _as_tensor(quats * (1, 1, -1, -1)),
        "opacities": _as_tensor(np.log(shares / (1 - shares))),
        "sh0": _as_tensor(((colors / 255.0 - 0.5) / _COLOR_SCALE)[:, None]),
        "shN": _as_tensor((harmonics.reshape(count, rest, 3) - 128.0) / 128 * _compute_harmonic_signs(rest)),
    }


@dataclass(frozen=True)
class _Header:
    version: int
    count: int
    degree: int
    fractional_bits: int

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of bytes of each part of a Gaussian, in the order of the file."""
        return (9, 1, 3, 3, 4 if self.version == 3 else 3, 3 * COEFFICIENTS[self.degree])


def _decompress(file: BinaryIO, compressed: int, make_error: MakeError) -> tuple[_Header, bytes]:
    """Read and decompress an SPZ file. Raise the loader's error unless exactly the bytes follow that the header states.

    At most one byte more than that is decompressed, so that a small file cannot expand to gigabytes.
    """
    with gzip.GzipFile(fileobj=file) as source:
        header = _parse_header(source.read(_HEADER.size), make_error)
        each = sum(header.widths)
        expected, most = header.count * each, decompressed_limit(compressed)
        if expected > most:
            words = f"its header states {header.count} Gaussians of {each} bytes; at most {most} bytes are read from a"
            raise make_error(
                f"{words} file of {compressed} bytes, since a small file can expand to more than the memory"
            )
        whole = source.read(expected + 1)
    if len(whole) != expected:
        left = f"more than {expected}" if len(whole) > expected else len(whole)
        raise make_error(f"its header states {header.count} Gaussians of {each} bytes, but {left} bytes follow")
    return header, whole


def _parse_header(start: bytes, make_error: MakeError) -> _Header:
    if len(start) < _HEADER.size or start[:4] != struct.pack("<I", _MAGIC):
        raise make_error("it is not an SPZ file: there is no header")
    _, version, count, degree, fractional_bits, flags, _ = _HEADER.unpack(start)
    if version not in (2, 3):
        raise make_error(f"its version is {version}, not 2 or 3")
    if flags & _HAS_EXTENSIONS:
        raise make_error("it has extensions, which are not supported")
    if degree >= len(COEFFICIENTS):
        raise make_error(f"its harmonics have degree {degree}, more than 4")
    return _Header(version, count, degree, fractional_bits)


def _as_tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def _choose_fractional_bits(positions: np.ndarray) -> int:
    """Return the largest number of fractional bits, at most 12, with which all positions fit 24 bits.

    Raises:
        ArgumentError: a position is too large even without fractional bits.
    """
    furthest = float(np.abs(positions).max(initial=0.0))
    for bits in range(_MOST_FRACTIONAL_BITS, -1, -1):
        if round(furthest * 2**bits) <= _POSITION_LIMIT:
            return bits
    rows = [("furthest", f"{furthest:g}"), ("expected", f"at most {_POSITION_LIMIT:,}")]
    remedy = "Scale the scene down."
    raise ArgumentError(refusal("`means` of `save_spz` are too far from the origin for the format", rows, remedy))


def _round_to_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _compute_harmonic_signs(rest: int) -> np.ndarray:
    """Return the factors, (rest, 1), by which half a turn around x multiplies each harmonic above degree 0.

    With (x, y, z) to (x, -y, -z), the factor in z of degree n and order m gets (-1)^(n + m), and (x + iy)^m becomes its
    conjugate, whose imaginary part belongs to -m.
    """
    orders = [(n, m) for n in range(1, 5) for m in range(-n, n + 1)]
    signs = [(-1.0) ** (n + m) * (-1 if m < 0 else 1) for n, m in orders[:rest]]
    return np.array(signs).reshape(rest, 1)


def _pack_harmonics(values: np.ndarray, sh_bits: tuple[int, ...]) -> np.ndarray:
    """Quantize coefficients of harmonics to bytes whose lower bits are 0, which gzip compresses better."""
    steps = np.where(np.arange(values.shape[1]) < 3, 1 << (8 - sh_bits[0]), 1 << (8 - sh_bits[1]))[:, None]
    nearest = np.rint(values * 128 / steps) * steps + 128
    # 256 does not fit a byte, and 255 would have its lower bits set.
    return np.clip(nearest, 0, 256 - steps).astype(np.uint8)


def _unpack_positions(stored: np.ndarray) -> np.ndarray:
    """Convert stored positions, 24-bit signed integers with the lowest byte first, to int64."""
    low, middle, high = (stored[:, place::3].astype(np.int64) for place in range(3))
    whole = low | middle << 8 | high << 16
    return np.where(whole >= 1 << 23, whole - (1 << 24), whole)


def _pack_rotations(quats: np.ndarray) -> np.ndarray:
    """Pack quaternions (n, 4), w x y z, to 32 bits each, (n).

    2 bits are the index of the largest part; the other parts follow in order, each a sign and 9 bits.
    """
    turned = quats[:, [1, 2, 3, 0]] * (1, -1, -1, 1)  # x y z w, as the format has them
    turned = turned / np.maximum(np.linalg.norm(turned, axis=1, keepdims=True), 1e-300)
    largest = np.abs(turned).argmax(1)
    turned *= np.where(np.take_along_axis(turned, largest[:, None], 1) < 0, -1, 1)
    packed = largest.astype(np.uint64)
    for part in range(4):
        value = turned[:, part]
        bits = np.rint(np.abs(value) * np.sqrt(2) * _MAGNITUDE).astype(np.uint64) | (value < 0).astype(np.uint64) << 9
        packed = np.where(largest == part, packed, packed << 10 | bits)
    return packed.astype("<u4")


def _unpack_rotations(stored: np.ndarray) -> np.ndarray:
    """Unpack the rotations of version 3 to quaternions (n, 4), w x y z: invert `_pack_rotations`."""
    packed = np.ascontiguousarray(stored).view("<u4")[:, 0].astype(np.int64)
    largest = packed >> 30
    quats = np.zeros((len(packed), 4))
    for part in range(3, -1, -1):
        is_stored = largest != part
        size = (packed & _MAGNITUDE) / (_MAGNITUDE * np.sqrt(2)) * np.where(packed >> 9 & 1, -1, 1)
        quats[:, part] = np.where(is_stored, size, 0)
        packed = np.where(is_stored, packed >> 10, packed)
    missing = np.sqrt(np.maximum(1 - (quats**2).sum(1), 0))
    np.put_along_axis(quats, largest[:, None], missing[:, None], 1)
    return quats[:, [3, 0, 1, 2]]


def _unpack_short_rotations(stored: np.ndarray) -> np.ndarray:
    """Unpack the rotations of version 2 to quaternions (n, 4), w x y z: x, y and z are bytes, and w is not negative."""
    vector = stored / 127.5 - 1
    return np.concatenate([np.sqrt(np.maximum(1 - (vector**2).sum(1, keepdims=True), 0)), vector], 1)
