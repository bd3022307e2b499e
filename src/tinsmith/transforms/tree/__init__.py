"""Passes over a kernel's Python tree: it stays what its author wrote, made to fit a call."""

from ._annotated import annotated
from ._begun import begun_as_copies
from ._fielded import fielded
from ._lifted import lifted
from ._loops import NotRewritable
from ._ranged import ranged
from ._renamed import renamed
from ._serial import serial
from ._simplified import simplified
from ._split import gradients_split
from ._stored import drop_results, store_results
from ._taken_apart import without_structs
from ._unstored import unstored, without_gradient_stores

__all__ = [
    "NotRewritable",
    "annotated",
    "begun_as_copies",
    "drop_results",
    "fielded",
    "gradients_split",
    "lifted",
    "ranged",
    "renamed",
    "serial",
    "simplified",
    "store_results",
    "unstored",
    "without_gradient_stores",
    "without_structs",
]
