"""Cores: the ops that share an operator.

Ops of one content share an operator, unless their Python values come from different objects, as those of two methods of
one class do, or of two closures: they may differ later.
"""

from __future__ import annotations

import weakref
from typing import Any

from .._errors import GraphError, refusal
from ..calls import Core, Signature


class Cores:
    """The living cores of one operator, each as good as another; the op's name, and the module of its kernel."""

    def __init__(self, signature: Signature) -> None:
        self.op = signature.op
        self.module = signature.stages[0].source.function.__module__
        self._cores: list[weakref.ref[Core]] = []

    def takes(self, core: Core) -> bool:
        """Whether a core may join: where there is none, or one with the same objects."""
        return all(_is_same(one.environment, core.environment) for one in self._living()[:1])

    def add(self, core: Core) -> None:
        self._cores = [*(known for known in self._cores if known() is not None), weakref.ref(core)]

    def find(self) -> Core:
        """One of them: the last."""
        for known in reversed(self._cores):
            core = known()
            if core is not None:
                return core
        words = f"a traced graph calls op `{self.op}` of module `{self.module}`, which no longer exists"
        raise GraphError(refusal(words, remedy="Keep the op alive as long as what was compiled with it."))

    @property
    def is_alive(self) -> bool:
        """Whether there is one."""
        return bool(self._living())

    def _living(self) -> list[Core]:
        return [core for known in self._cores if (core := known()) is not None]


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(first is second for first, second in zip(one, other, strict=True))
