"""The error for a graph that uses an operator which this process does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._cache import DIGITS
from .._errors import GraphError, refusal
from ._cores import Cores
from ._schema import identifier

_NAME = re.compile(rf"(?P<op>\w+?)(_tangent)*_[0-9a-f]{{{DIGITS}}}(_\d+)?(_backward)?")


def missing(name: str, known: Iterable[Cores]) -> GraphError | None:
    """The error for an operator's name; None for a name that is not one of an op's operator.

    Args:
        name: without namespace.
        known: the ops of this process.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    op = match["op"]
    edited = next((one for one in known if identifier(one.op) == op and one.is_alive), None)
    if edited is None:
        words = f"a graph calls op `{op}` (`tinsmith::{name}`), which does not exist in this process"
        return GraphError(refusal(words, remedy="Import the module that makes it, then load the graph."))
    words = f"a graph calls op `{op}` as it was when the graph was made; it has been edited since"
    rows = [("in the graph", f"tinsmith::{name}"), ("now", f"module `{edited.module}`")]
    remedy = (
        "Export the graph again: the kernel, a function that it calls, the spec, the engine or tinsmith has changed."
    )
    return GraphError(refusal(words, rows, remedy))
