"""Cores: the ops that share an operator, and the error for an operator that none of them has any more.

Ops with equal content share an operator, unless their Python values come from different objects, which may differ
later: two methods of one class, or two closures, for example.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable
from typing import Any

from .._cache import DIGITS
from .._errors import GraphError, refusal
from ..calls import Core, Signature
from ._schema import make_identifier

_NAME = re.compile(rf"(?P<op>\w+?)(_tangent)*_[0-9a-f]{{{DIGITS}}}(_\d+)?(_backward)?")


class Cores:
    """The living cores that share one operator; any of them can run its calls. Cores are held by weak references.

    Attributes:
        op: the op's name.
        module: the module of its first kernel.
    """

    def __init__(self, signature: Signature) -> None:
        self.op = signature.op
        self.module = signature.stages[0].source.function.__module__
        self._cores: list[weakref.ref[Core]] = []

    def accepts(self, core: Core) -> bool:
        """Return True if a core may join: there is no other yet, or both take Python values from the same objects."""
        return all(_is_same(one.captures.environment, core.captures.environment) for one in self._living()[:1])

    def add(self, core: Core) -> None:
        self._cores = [*(known for known in self._cores if known() is not None), weakref.ref(core)]

    def find(self) -> Core:
        """Return the core that was added last and still exists. Raise GraphError if there is none."""
        for known in reversed(self._cores):
            core = known()
            if core is not None:
                return core
        words = f"a traced graph calls op `{self.op}` of module `{self.module}`, which no longer exists"
        raise GraphError(refusal(words, remedy="Keep the op alive as long as what was compiled with it."))

    @property
    def is_alive(self) -> bool:
        """Whether one of the cores still exists."""
        return bool(self._living())

    def _living(self) -> list[Core]:
        return [core for known in self._cores if (core := known()) is not None]


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))


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
