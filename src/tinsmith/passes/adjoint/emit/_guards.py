"""Guards: which branches a frame must have taken for the adjoint of a local to be other than zero.

An adjoint starts at zero, so it is zero wherever nothing was added to it: outside the arm of a branch in which all its
uses stand. What is computed from it there is zero too, by linearity. So those statements go under the same
condition, and a pair of a splat and a pixel that a threshold leaves out costs no atomic addition of zero.

    w = x[i] * a             if a > 0.1:
    if a > 0.1:       ->         grad_w = grad_y[i]
        y[i] = w                 grad_x[i] += grad_w * a
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ....ir import nodes
from .._ssa import BranchArm

Guard = tuple[BranchArm, ...]
"""Arms that must all be taken, a branch before those inside it."""


@dataclass
class Guards:
    """Guards of the adjoints of one frame's locals, as far as the frame has been reversed.

    Attributes:
        own: the frame's locals.
        path: arms around the step that is being reversed.
    """

    own: frozenset[str]
    path: Guard = ()
    _of: dict[str, Guard] = field(default_factory=dict)

    def note_use(self, local: str) -> None:
        """Record that something is added to a local's adjoint under the present path."""
        known = self._of.get(local)
        # With a second use elsewhere, only the arms around both are certain.
        self._of[local] = self.path if known is None else _common(known, self.path)

    def beyond_path(self, names: Iterable[str]) -> Guard | None:
        """Return the arms, inside the path, outside which these adjoints are zero; None if they are zero everywhere."""
        guards = [self._of[name] for name in names if name in self._of]
        if not guards:
            return None
        # A step of several results is reversed where any of them has an adjoint.
        weakest = guards[0]
        for one in guards[1:]:
            weakest = _common(weakest, one)
        return weakest[len(_common(weakest, self.path)) :]

    @contextlib.contextmanager
    def extend_path(self, more: Guard) -> Iterator[None]:
        """Enter a context in which the path also contains these arms, for reversing the steps inside them."""
        outer, self.path = self.path, (*self.path, *more)
        try:
            yield
        finally:
            self.path = outer


def put_under(block: Sequence[nodes.Stmt], guard: Guard) -> list[nodes.Stmt]:
    """Return statements that run only where a guard holds."""
    guarded = tuple(block)
    for one in reversed(guard if guarded else ()):
        body, orelse = (guarded, ()) if one.holds else ((), guarded)
        guarded = (nodes.If(one.condition, body, orelse),)
    return [*guarded]


def _common(one: Guard, other: Guard) -> Guard:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return one[:length]
