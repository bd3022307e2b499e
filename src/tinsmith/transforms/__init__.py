"""Passes over a kernel's tree, one a file. Each takes a tree and returns another."""

from ._annotated import annotated
from ._batched import NotBatchable, batched
from ._rehomed import rehomed
from ._serial import serial

__all__ = ["NotBatchable", "annotated", "batched", "rehomed", "serial"]
