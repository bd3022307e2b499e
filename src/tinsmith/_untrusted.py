"""Opening of untrusted files, and the limits beyond which every loader refuses them.

A file may come from anyone. A loader opens it with `open_untrusted` (pictures: `open_picture`; safetensors:
`read_safetensors`), reads the header first, and allocates no more memory than the header and the file's size justify.
JSON is parsed only by `parse_json`. The loader interprets the contents, and chooses which error is raised. The table
in SECURITY.md lists these limits; tests/test_untrusted.py compares the two.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ._errors import TinsmithError

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor

MakeError = Callable[[str], TinsmithError]
"""Creates a loader's error, which names the file, from a reason."""
MakePictureError = Callable[[str, str], TinsmithError]
"""Creates a loader's error, which names the picture's file, from a reason and a remedy."""

CONFIGURATION_BYTES = 1 << 20
JSON_BYTES = 1 << 25
"""The limit for a JSON file, and for the header of a safetensors file."""
JSON_DEPTH = 200
JSON_DIGITS = 300
"""The maximum number of characters of a number in a JSON file.

A float64 can represent an integer of 300 digits, but not of 310.
"""
GZIP_RATIO = 32
"""The number of bytes that one compressed byte may expand to, beyond `GZIP_BYTES`."""
GZIP_BYTES = 1 << 24
PICTURE_PIXELS = 1 << 25
"""The maximum number of pixels of a picture, unless its file has a byte for each `PIXELS_PER_BYTE` pixels."""
PIXELS_PER_BYTE = 64
READABLE_PICTURE = "Give an image that Pillow reads: JPEG, PNG, WebP, ..."
"""The remedy for a picture that cannot be read."""

# A closing quote is optional: a pattern that can fail at the end of a long text is quadratic.
_STRINGS_AND_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)


@contextmanager
def open_untrusted(path: str | Path, make_error: MakeError, most: int | None = None) -> Iterator[BinaryIO]:
    """Open a regular file for reading. Errors of the operating system inside the block become the loader's too.

    Args:
        path: the file. A pipe or a device is refused: it may have no end.
        make_error: makes the loader's error from a reason.
        most: the maximum size in bytes; no limit by default.
    """
    try:
        # A path with NUL or a lone surrogate raises ValueError.
        with _open_regular(path, make_error, most) as file:
            yield file
    except OSError as cause:
        raise make_error(cause.strerror or str(cause)) from cause
    except MemoryError as cause:
        raise make_error("it does not fit into memory") from cause


def read_untrusted(path: str | Path, make_error: MakeError, most: int | None = None) -> bytes:
    """Read a whole file, opened with `open_untrusted`."""
    with open_untrusted(path, make_error, most) as file:
        return file.read()


def size_of(file: BinaryIO) -> int:
    """Return the size of an open file in bytes."""
    return os.fstat(file.fileno()).st_size


def is_file(path: Path) -> bool:
    """Return True if a file exists at this path. Return False, and do not raise, for an invalid path."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def parse_json(text: str, **hooks: Any) -> Any:
    """Parse JSON as `json.loads` does; refuse nesting beyond JSON_DEPTH and numbers longer than JSON_DIGITS.

    Args:
        text: the JSON.
        **hooks: `object_pairs_hook` and `parse_constant` of `json.loads`.

    Raises:
        json.JSONDecodeError: it is invalid or beyond a limit, or contains half of a surrogate pair.
    """
    _check_depth(text)
    try:
        value = json.loads(text, parse_int=_parse_int, parse_float=_parse_float, **hooks)
    except _NumberError as cause:
        raise json.JSONDecodeError(str(cause), text, max(text.find(cause.literal), 0)) from cause
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as cause:
            raise json.JSONDecodeError(
                "A `\\u` escape for half of a surrogate pair", text, max(text.find("\\u"), 0)
            ) from cause
    return value


def read_safetensors(path: str | Path, make_error: MakeError) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Read the metadata and the tensors of a safetensors file onto the CPU."""
    from safetensors import SafetensorError, safe_open  # not needed to import tinsmith

    with open_untrusted(path, make_error) as file:
        header, size = int.from_bytes(file.read(8), "little"), size_of(file)
    if JSON_BYTES < header <= size:
        raise make_error(f"its header has {header:,} bytes, more than {JSON_BYTES:,}")
    try:
        with safe_open(path, "pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  (no mapping)
            return opened.metadata() or {}, tensors
    except (OSError, OverflowError, RuntimeError, SafetensorError, TypeError, ValueError) as cause:
        # torch refuses shapes that safetensors lets through, such as (0, 2^63).
        raise make_error(str(cause)) from cause


@contextmanager
def open_picture(path: str | Path, make_picture_error: MakePictureError) -> Iterator[Image.Image]:
    """Open a picture whose number of pixels is within the limits; decode it inside the block."""
    from PIL import Image, UnidentifiedImageError  # not needed to import tinsmith

    def make_error(reason: str) -> TinsmithError:
        return make_picture_error(reason, READABLE_PICTURE)

    with open_untrusted(path, make_error) as file:
        try:
            with warnings.catch_warnings():
                # Pillow's size limit is replaced by the one here; its other warnings are about unused metadata.
                warnings.simplefilter("ignore")
                opened = Image.open(file)
            with opened:
                if opened.format == "EPS":
                    raise make_error("it is a program in PostScript, which Pillow would run")
                _require_few_pixels(opened.width, opened.height, size_of(file), make_picture_error)
                yield opened
        except TinsmithError:
            raise
        except UnidentifiedImageError as cause:
            raise make_error("it is not an image of a known format") from cause
        except Image.DecompressionBombError as cause:
            # Pillow refuses the largest pictures itself, and says how many pixels they have only in its message.
            count = re.search(r"\d+", str(cause))
            pixels = f"{int(count[0]):,} pixels" if count else "too many pixels"
            most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
            raise _make_size_error(pixels, f"{most:,} are read from any file", most, make_picture_error) from cause
        except MemoryError:
            raise
        except Exception as cause:
            # Pillow's decoders raise almost anything for broken files.
            raise make_error(str(cause) or type(cause).__name__) from cause


def decompressed_limit(compressed: int) -> int:
    """Return the maximum decompressed size of a gzip file with `compressed` bytes."""
    return GZIP_BYTES + GZIP_RATIO * compressed


def _open_regular(path: str | Path, make_error: MakeError, most: int | None) -> BinaryIO:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise make_error("it is a pipe, a device or a socket, not a file")
        if most is not None and status.st_size > most:
            raise make_error(f"it has {status.st_size:,} bytes, more than {most:,}")
        return open(path, "rb")
    except TinsmithError:
        raise
    except ValueError as cause:
        raise make_error(f"no file can have this name: {cause}") from cause


def _require_few_pixels(width: int, height: int, size: int, make_error: MakePictureError) -> None:
    """Raise an error if a picture, whose file has `size` bytes, has more pixels than are read."""
    most = max(PICTURE_PIXELS, PIXELS_PER_BYTE * size)
    if width * height > most:
        pixels = f"{width:,} x {height:,} = {width * height:,} pixels in {size:,} bytes"
        raise _make_size_error(pixels, f"{most:,} are read from a file of this size", most, make_error)


def _make_size_error(pixels: str, limit: str, most: int, make_error: MakePictureError) -> TinsmithError:
    """Create the error for a picture with more than `most` pixels. `pixels` and `limit` say both numbers in words."""
    reason = f"it has {pixels}; at most {limit}, since a small file that decompresses to more can fill the memory"
    side = math.isqrt(most) // 100 * 100
    return make_error(reason, f"Scale the picture down, for example to {side:,} x {side:,} pixels.")


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= JSON_DEPTH:
        return
    depth = 0
    for match in _STRINGS_AND_BRACKETS.finditer(text):
        first = text[match.start()]
        if first in "[{":
            depth += 1
            if depth > JSON_DEPTH:
                raise json.JSONDecodeError(f"Nested more than {JSON_DEPTH} deep", text, match.start())
        elif first in "]}":
            depth -= 1


class _NumberError(Exception):
    def __init__(self, reason: str, literal: str) -> None:
        super().__init__(reason)
        self.literal = literal


def _parse_int(literal: str) -> int:
    if len(literal) > JSON_DIGITS:
        raise _NumberError(f"A number of more than {JSON_DIGITS} digits", literal)
    return int(literal)


def _parse_float(literal: str) -> float:
    if len(literal) > JSON_DIGITS:
        raise _NumberError(f"A number of more than {JSON_DIGITS} digits", literal)
    value = float(literal)
    if not math.isfinite(value):
        raise _NumberError("A number beyond the range of float64", literal)
    return value
