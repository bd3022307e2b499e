"""Logs for TensorBoard: named numbers at each step. torch's writer is created by the first write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .._extras import missing_package


class Board:
    """A log of named numbers for TensorBoard, written into a folder.

    Args:
        folder: where to write; None writes nothing.

    Raises:
        ConfigError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self._folder = folder
        self._kind = None if folder is None else _writer_kind()
        self._writer: Any = None

    @property
    def is_open(self) -> bool:
        """True if the log has a folder to write to."""
        return self._kind is not None

    def add(self, step: int, **values: float) -> None:
        """Write named numbers for a step. Hide what an earlier run wrote for this step and later ones."""
        if self._kind is None:
            return
        if self._writer is None:
            self._writer = self._kind(str(self._folder), purge_step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write pending numbers and close the file. The next `add` starts another file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _writer_kind() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise missing_package("`log_dir` of the Trainer", "nn", "tensorboard", "leave out log_dir") from error
    return SummaryWriter
