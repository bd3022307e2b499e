"""Generated statements made short: as a person would write them, who knows what is needed where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...source.ir import nodes
from ._coalesced import coalesced
from ._joined import joined
from ._loaded_once import loaded_once
from ._pruned import pruned
from ._scoped import scoped
from ._sunk import sunk
from ._tidied import tidied
from ._uncopied import uncopied

Block = tuple[nodes.Stmt, ...]


def polished(body: Sequence[nodes.Stmt], kinds: Mapping[str, str]) -> Block:
    """Statements that do the same, with every local declared where an engine sees it.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    found, before = pruned(body), None
    while found != before:
        before = found
        found = joined(sunk(found))
    found = uncopied(loaded_once(tidied(found), kinds), kinds)
    return scoped(pruned(coalesced(pruned(found), kinds)), kinds)
