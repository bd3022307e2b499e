"""Files that are complete or absent: written under another name, then renamed.

Every app checks its output folder here before it starts, and writes each file with
`replace_when_whole`, so that neither a crash, a full disk nor Ctrl-C leaves an incomplete file
under its name.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from .._errors import InputError, refusal

_ANOTHER_FOLDER = "Choose another folder with --out."


def require_image(path: Path | None) -> None:
    """Raise InputError if the image file does not exist. None stands for the photograph that matplotlib ships."""
    if path is not None and not path.exists():
        raise InputError(refusal("the image does not exist", [("file", str(path))], "Check the path, or leave it out."))


def require_dataset(folder: Path | None) -> None:
    """Raise InputError if the dataset is not a folder. None stands for the built-in scene."""
    if folder is not None and not folder.is_dir():
        headline = "the dataset is not a folder" if folder.exists() else "the dataset does not exist"
        remedy = "Name a folder that holds transforms_train.json, transforms.json, or a reconstruction of COLMAP's."
        raise InputError(refusal(headline, [("dataset", str(folder))], remedy))


def require_folder(folder: Path) -> None:
    """Raise InputError if the output folder is a file."""
    if folder.exists() and not folder.is_dir():
        remedy = "Name a folder; it is created if missing."
        raise InputError(refusal("--out is a file, not a folder", [("file", str(folder))], remedy))


def require_writable(folder: Path) -> None:
    """Create `folder` if it is missing, and check that files can be written to it.

    Raises:
        InputError: the folder cannot be created or written to, or is not a folder.
    """
    require_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as cause:
        headline = "the output folder cannot be written"
        raise InputError(
            refusal(headline, [("folder", str(folder)), ("because", _reason(cause))], _ANOTHER_FOLDER)
        ) from cause


@contextmanager
def replace_when_whole(path: Path) -> Iterator[Path]:
    """Enter a context that yields a temporary path, which is renamed to `path` at the end, or removed on an error.

    The temporary path has the same suffix, since writers of pictures go by the suffix.

    Raises:
        InputError: the disk is full, or the folder was removed.
    """
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        beside.touch()
        mode = beside.stat().st_mode
        yield beside
        # safetensors creates files that only the owner may read.
        beside.chmod(mode)
        os.replace(beside, path)
    except (OSError, *_safetensors_errors()) as cause:
        words = f"{path.name} cannot be written"
        raise InputError(refusal(words, [("file", str(path)), ("because", _reason(cause))], _ANOTHER_FOLDER)) from cause
    finally:
        beside.unlink(missing_ok=True)


def as_json(value: object, indent: int | None = None) -> str:
    """Return nested values as JSON. NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_drop_non_finite(value), indent=indent)


def _drop_non_finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _drop_non_finite(held) for key, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_drop_non_finite(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _safetensors_errors() -> tuple[type[Exception], ...]:
    """Return the exception that safetensors raises when a write fails, as a tuple; () if it is not imported.

    It is not a subclass of OSError, even if the disk is full.
    """
    module = sys.modules.get("safetensors")
    return (module.SafetensorError,) if module is not None else ()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
