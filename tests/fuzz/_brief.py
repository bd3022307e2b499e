"""The brief grammar: small programs of the wide grammar, for the Python engine."""

from __future__ import annotations

import random

from fuzz._grammar import Program
from fuzz._parts import Scope
from fuzz._wide import SCRATCH, WideStatements, WideTasks, wide_program


def write_brief(seed: int) -> Program:
    """The kernel of a seed; the same seed gives the same kernel."""
    tasks = _BriefTasks(random.Random(f"brief {seed}"))
    tasks.write()
    return wide_program(seed, "\n".join(tasks.words.lines))


class _BriefStatements(WideStatements):
    """One statement or two a block."""

    def body(self, scope: Scope) -> Scope:
        for _ in range(self.dice.choice([1, 1, 2] if scope.depth < 3 else [1])):
            scope = self.statement(scope)
        return scope


class _BriefTasks(WideTasks):
    """One loop."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice)
        self.words = _BriefStatements(dice)

    def write(self) -> None:
        """One loop, with what stands before it."""
        self.dice.choice(self.forms())()
        if not [name for name in self.written if name not in (*SCRATCH, "c")]:
            self._rows(("y",))
