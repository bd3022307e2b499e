"""Passes over a kernel's tree, one a file. Each takes a tree and returns another."""

from ._aliases import flat, has_aliases
from ._annotated import annotated
from ._batched import batched
from ._fielded import fielded
from ._lifted import lifted
from ._loops import NotRewritable
from ._pruned import pruned
from ._ranged import ranged
from ._rearrayed import rearrayed
from ._rehomed import rehomed
from ._renamed import renamed
from ._scoped import scoped
from ._seeded import draws, seeded
from ._serial import serial
from ._simplified import simplified
from ._slopes import Slope, slopes
from ._unstored import unstored
from .tangent import Tangent, tangent

__all__ = [
    "NotRewritable",
    "Slope",
    "Tangent",
    "annotated",
    "batched",
    "draws",
    "fielded",
    "flat",
    "has_aliases",
    "lifted",
    "pruned",
    "ranged",
    "rearrayed",
    "rehomed",
    "renamed",
    "scoped",
    "seeded",
    "serial",
    "simplified",
    "slopes",
    "tangent",
    "unstored",
]
