"""Walking and copying syntax trees: for the files of this folder."""

from __future__ import annotations

from ..engines import copy_node, walk

__all__ = ["copy_node", "walk"]
