"""The error for a graph that calls an operator which does not exist in this process."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .._cache import DIGITS
from .._errors import GraphError, refusal
from ._cores import Cores
from ._schema import make_identifier

_NAME = re.compile(rf"(?P<op>\w+?)(_tangent)*_[0-9a-f]{{{DIGITS}}}(_\d+)?(_backward)?")


def explain_missing(name: str, known: Iterable[Cores]) -> GraphError | None:
    """Return the error that explains why an operator is missing: its op does not exist, or has been edited.

    Args:
        name: the operator's name, without namespace.
        known: the ops of this process.

    Returns:
        The error, or None if the name is not that of an op's operator.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    op = match["op"]
    edited = next((one for one in known if make_identifier(one.op) == op and one.is_alive), None)
    if edited is None:
        words = f"a graph calls op `{op}` (`tinsmith::{name}`), which does not exist in this process"
        return GraphError(refusal(words, remedy="Import the module that makes it, then load the graph."))
    words = f"a graph calls op `{op}` as it was when the graph was made; it has been edited since"
    rows = [("in the graph", f"tinsmith::{name}"), ("now", f"module `{edited.module}`")]
    remedy = (
        "Export the graph again: the kernel, a function that it calls, the spec, the engine or tinsmith has changed."
    )
    return GraphError(refusal(words, rows, remedy))
