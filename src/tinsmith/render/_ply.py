"""Vertices of PLY files in all three formats: ASCII, binary little-endian and binary big-endian.

The callers interpret the properties: `gaussians` reads splats from such files, `captures` reads points.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np

from .._untrusted import MakeError, size_of

_LONGEST_LINE = 80  # characters of a line that an error shows
_LONGEST_HEADER = 1 << 16  # bytes; a header of splats of degree 4 has 2 thousand
_TYPES = {
    name: np.dtype(code)
    for code, names in {
        "f4": ("float", "float32"),
        "f8": ("double", "float64"),
        "i1": ("char", "int8"),
        "u1": ("uchar", "uint8"),
        "i2": ("short", "int16"),
        "u2": ("ushort", "uint16"),
        "i4": ("int", "int32"),
        "u4": ("uint", "uint32"),
    }.items()
    for name in names
}
_BYTE_ORDERS: dict[str, Literal["=", "<", ">"]] = {"ascii": "=", "binary_little_endian": "<", "binary_big_endian": ">"}
"""The byte order of the numbers in each format."""


@dataclass(frozen=True)
class _Element:
    """An element of a PLY header: `count` entries of one kind. If `has_lists`, the size of an entry is unknown."""

    name: str
    count: int
    properties: tuple[tuple[str, np.dtype], ...]
    has_lists: bool


@dataclass(frozen=True)
class _Header:
    format: str
    elements: tuple[_Element, ...]
    size: int


def read_vertices(file: BinaryIO, make_error: MakeError) -> np.ndarray:
    """Read the vertices of a PLY file as a structured array, with a field for each property.

    Args:
        file: the file, at its beginning. Elements after the vertices are not read.
        make_error: a function from a reason to an error that names the file.

    Raises:
        InputError: the file is not PLY, or is broken, or a list makes the position of its vertices unknown.
    """
    header = _parse_header(file.read(_LONGEST_HEADER), make_error)
    is_text, size = header.format == "ascii", size_of(file)
    place, lines = header.size, 0
    for element in header.elements:
        if element.has_lists and (element.name == "vertex" or not is_text):
            raise make_error(f"its element `{element.name}` has list properties, which are not supported")
        try:
            row = np.dtype(list(element.properties)).newbyteorder(_BYTE_ORDERS[header.format])
        except ValueError as cause:
            raise make_error(f"element {element.name}: {cause}") from cause
        left = size - place
        if left < 0:
            raise make_error(f"it ends {-left} bytes before its element `{element.name}` begins")
        if element.name == "vertex":
            if not element.properties:
                raise make_error("its element `vertex` has no properties")
            # In text, each number takes at least one character and a separator.
            least = 2 * len(element.properties) if is_text else row.itemsize
            if least * element.count > left + is_text:
                kind = "numbers" if is_text else "bytes"
                each = len(element.properties) if is_text else row.itemsize
                raise make_error(
                    f"its header states {element.count} vertices of {each} {kind}, but {left} bytes follow"
                )
            if is_text:
                file.seek(header.size)
                return _parse_text(file, row, element.count, lines, make_error)
            file.seek(place)
            return np.frombuffer(file.read(row.itemsize * element.count), row, element.count)
        place += 0 if is_text else row.itemsize * element.count
        lines += element.count
    raise make_error("it has no element `vertex`")


def _parse_text(file: BinaryIO, row: np.dtype, count: int, skipped: int, make_error: MakeError) -> np.ndarray:
    if count == 0:
        return np.zeros(0, row)
    try:
        with warnings.catch_warnings():
            # numpy warns about missing lines, which are counted below, and about integers with a decimal point.
            warnings.simplefilter("ignore")
            vertices = np.loadtxt(file, row, comments=None, skiprows=skipped, max_rows=count, ndmin=1)
    except (OverflowError, TypeError, ValueError) as cause:
        raise make_error(f"its vertices: {cause}") from cause
    if len(vertices) != count:
        raise make_error(f"its header states {count} vertices, but {len(vertices)} lines follow")
    return vertices


def _parse_header(start: bytes, make_error: MakeError) -> _Header:
    end = start.find(b"end_header")
    after = start.find(b"\n", end)
    if not start.startswith(b"ply") or end < 0 or after < 0:
        raise make_error("it is not a PLY file: there is no header")
    lines = [line.split() for line in start[:end].decode("ascii", "replace").splitlines()[1:]]
    elements: list[_Element] = []
    form = ""
    for words in lines:
        try:
            if words[:1] == ["format"]:
                form = words[1]
            elif words[:1] == ["element"]:
                elements.append(_Element(words[1], _parse_count(words[2]), (), False))
            elif words[:1] == ["property"]:
                elements[-1] = _with_property(elements[-1], words)
        except (IndexError, KeyError, ValueError) as cause:
            raise make_error(f"a line of its header is invalid: {' '.join(words)[:_LONGEST_LINE]}") from cause
    if form not in _BYTE_ORDERS:
        raise make_error(f"its format is {form or 'missing'}, not one of {', '.join(_BYTE_ORDERS)}")
    return _Header(form, tuple(elements), after + 1)


def _parse_count(word: str) -> int:
    count = int(word)
    if count < 0:
        raise ValueError(word)
    return count


def _with_property(element: _Element, words: list[str]) -> _Element:
    if words[1] == "list":
        return _Element(element.name, element.count, element.properties, True)
    added = (words[2], _TYPES[words[1]])
    return _Element(element.name, element.count, (*element.properties, added), element.has_lists)
