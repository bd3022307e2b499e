"""PLY files: the vertices of a file in any of its three formats, ASCII, binary little-endian and binary big-endian.

What the properties mean is for the callers to say: `gaussians` reads splats from such files, `captures` reads points.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._errors import InputError

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
"""The formats, and the byte order of the numbers."""


@dataclass(frozen=True)
class _Element:
    """`count` entries of one kind. A list among its properties makes the size of an entry unknown."""

    name: str
    count: int
    properties: tuple[tuple[str, np.dtype], ...]
    has_lists: bool


@dataclass(frozen=True)
class _Header:
    format: str
    elements: tuple[_Element, ...]
    size: int


def read_vertices(whole: bytes, make_error: Callable[[str], InputError]) -> np.ndarray:
    """Return the vertices of a PLY file, one entry each, with a field for each property.

    Args:
        whole: the file.
        make_error: makes an error that names the file, from a reason.

    Raises:
        InputError: the file is not PLY, or is broken, or a list makes the position of its vertices unknown.
    """
    header = _read_header(whole, make_error)
    is_text = header.format == "ascii"
    place, lines = header.size, 0
    for element in header.elements:
        if element.has_lists and (element.name == "vertex" or not is_text):
            raise make_error(f"element {element.name} has lists")
        try:
            row = np.dtype(list(element.properties)).newbyteorder(_BYTE_ORDERS[header.format])
        except ValueError as cause:
            raise make_error(f"element {element.name}: {cause}") from cause
        left = len(whole) - place
        if element.name == "vertex":
            # In text, an entry has a character and a line break for each of its numbers at least.
            least = 2 * len(element.properties) if is_text else row.itemsize
            if element.count < 0 or least * element.count > left + is_text:
                size = "numbers" if is_text else "bytes"
                each = len(element.properties) if is_text else row.itemsize
                raise make_error(f"{element.count} vertices of {each} {size}, but {left} bytes are left")
            if is_text:
                return _parse_text(whole[header.size :], row, element.count, lines, make_error)
            return np.frombuffer(whole, row, element.count, place)
        place += 0 if is_text else row.itemsize * element.count
        lines += element.count
    raise make_error("there is no element vertex")


def _parse_text(
    body: bytes, row: np.dtype, count: int, skipped: int, make_error: Callable[[str], InputError]
) -> np.ndarray:
    if count == 0:
        return np.zeros(0, row)
    source = io.BytesIO(body)
    try:
        vertices = np.loadtxt(source, row, comments=None, skiprows=skipped, max_rows=count, ndmin=1)
    except ValueError as cause:
        raise make_error(f"its vertices: {cause}") from cause
    if len(vertices) != count:
        raise make_error(f"{count} vertices, but {len(vertices)} lines are left")
    return vertices


def _read_header(whole: bytes, make_error: Callable[[str], InputError]) -> _Header:
    end = whole.find(b"end_header", 0, _LONGEST_HEADER)
    after = whole.find(b"\n", end)
    if not whole.startswith(b"ply") or end < 0 or after < 0:
        raise make_error("it is not a PLY file: there is no header")
    lines = [line.split() for line in whole[:end].decode("ascii", "replace").splitlines()[1:]]
    elements: list[_Element] = []
    form = ""
    for words in lines:
        try:
            if words[:1] == ["format"]:
                form = words[1]
            elif words[:1] == ["element"]:
                elements.append(_Element(words[1], int(words[2]), (), False))
            elif words[:1] == ["property"]:
                elements[-1] = _with_property(elements[-1], words)
        except (IndexError, KeyError, ValueError) as cause:
            raise make_error(f"a line of the header: {' '.join(words)}") from cause
    if form not in _BYTE_ORDERS:
        raise make_error(f"its format is {form or 'missing'}, not one of {', '.join(_BYTE_ORDERS)}")
    return _Header(form, tuple(elements), after + 1)


def _with_property(element: _Element, words: list[str]) -> _Element:
    if words[1] == "list":
        return _Element(element.name, element.count, element.properties, True)
    added = (words[2], _TYPES[words[1]])
    return _Element(element.name, element.count, (*element.properties, added), element.has_lists)
