"""The generated adjoint if the kernels are covered, otherwise the engine's reverse mode, with a warning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from ..._cache import Cache
from ..._errors import GradientError, refusal
from ..._user_warnings import warn
from ...ir import NotCovered
from .._key import CallKey
from .._routine import Make, Routine
from .._signature import Signature
from ._engine_reverse import EngineReverse
from ._reverse import ForwardWithResults, Reverse, ReverseAt, Wish
from ._source_adjoint import SourceAt, SourceReverse, check_compiles


class AutoReverse(Reverse):
    """The generated adjoint if the kernels are covered, otherwise the engine's reverse mode."""

    name = "auto"

    def __init__(self, signature: Signature) -> None:
        self.source = SourceReverse(signature)
        self.engine = EngineReverse(signature)
        self._at: Cache[SourceAt, AutoAt] = Cache("gradients of op and engine")

    def specialize(self, key: CallKey) -> AutoAt:
        source = self.source.specialize(key)
        auto = self._at.get(source)
        if auto is None:
            auto = self._at.keep(source, AutoAt(source, self.engine))
        return auto


class AutoAt(ReverseAt):
    """Chooses between the two sources of gradients for calls of one kind."""

    def __init__(self, source: SourceAt, engine: EngineReverse) -> None:
        self.source = source
        self.engine = engine
        self._warned: set[frozenset[str]] = set()

    def choose(self, active: frozenset[str]) -> ReverseAt:
        """Return the source of the gradients of these inputs: the generated adjoint, or the engine's reverse mode."""
        reason = self.source.refusal(active)
        # The engine's gradient of a race depends on the order of the iterations, so it is not used either. The error
        # of the generated adjoint says why.
        return self.source if reason is None or reason.race is not None or self._has_source_alone else self.engine

    @property
    def _has_source_alone(self) -> bool:
        """Return True if the engine has no reverse mode, so that only a generated gradient can be used."""
        return self.engine.signature.stages[0].engine.runs_source

    def check(self, active: frozenset[str]) -> None:
        with self._source_first(active):
            self.choose(active).check(active)

    def find_reads(self, active: frozenset[str]) -> frozenset[str]:
        return self.choose(active).find_reads(active)

    @contextlib.contextmanager
    def _source_first(self, active: frozenset[str]) -> Iterator[None]:
        """Enter a context in which a refusal of the engine's gradient also says, first, why none was generated.

        Users can usually fix that reason.
        """
        try:
            yield
        except GradientError as engines:
            reason = self.source.refusal(active)
            if reason is None or reason.race is not None or self._has_source_alone:
                raise
            check_compiles(self.source.key)
            op = self.engine.signature.op
            engine = self.engine.signature.stages[0].engine.name
            words = (
                f"op `{op}` has no gradient: none can be generated from its source, and "
                f"{engine}'s own gradient is refused, too"
            )
            rows = [("because of", reason.construct), ("at", reason.place)]
            remedy = f"{reason.remedy}, or give `backward=`. The error about {engine}'s own gradient:"
            raise GradientError(f"{refusal(words, rows, remedy)}\n{indent(str(engines), '  ')}") from engines

    def group_outputs(self, active: frozenset[str], given: frozenset[str]) -> tuple[frozenset[str] | None, ...]:
        return self.choose(active).group_outputs(active, given)

    def needs_stacks(self, active: frozenset[str]) -> bool:
        return self.choose(active).needs_stacks(active)

    def find_stack_depths(
        self, active: frozenset[str], shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
    ) -> tuple[int, ...]:
        with self._source_first(active):
            return self.engine.find_stack_depths(active, shapes, values)

    def forward_with_results(
        self, key: CallKey, active: frozenset[str], makes: Sequence[Make]
    ) -> ForwardWithResults | None:
        return self.choose(active).forward_with_results(key, active, makes)

    def backward(self, key: CallKey, wish: Wish) -> Routine:
        reason = self.source.refusal(wish.active)
        if reason is not None and self.choose(wish.active) is self.engine and wish.active not in self._warned:
            self._warned.add(wish.active)
            check_compiles(key)
            warn(_explain_engine_gradient(key.signature.op, reason))
        with self._source_first(wish.active):
            return self.choose(wish.active).backward(key, wish)


def _explain_engine_gradient(op: str, reason: NotCovered) -> str:
    """Return the warning that a gradient is the engine's own, with the reason why it is not the generated one."""
    return refusal(
        f"the gradient of op `{op}` is the engine's own, since none can be generated from its source; "
        "the engine's is silently wrong for some kernels",
        [("because of", reason.construct), ("at", reason.place)],
        f"{reason.remedy}; or pass adjoint='engine' to accept the engine's gradient.",
    )
