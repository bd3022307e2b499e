"""The engine's own reverse mode as a source of gradients, and refusals of kernels that it differentiates wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ... import linter
from ..._errors import GradientError, refusal, sentence
from ..._lazy import lazy
from ...compiling import Stage
from ...engines import name_place
from ...frontend import (
    Access,
    LaterChanges,
    Nest,
    Roles,
    SavedValues,
    Source,
    carrying_nests,
    find_saved_values,
    runs_in_blocks,
)
from .._signature import Signature, is_steady
from ._kernel_reverse import Argument, KernelReverse, Request, Rerun

DEFAULT_STACK = 32
"""The number of entries of Taichi's gradient stack if Taichi does not know how many it needs."""
_WRONG = frozenset({"TS401", "TS404", "TS405", "TS411", "TS412"})
"""Lint rules for kernels whose gradient would be silently wrong and that are not looked for here. In a census of random
kernels, nearly all that these rules report were wrong (docs/about/census.md). TS406 is not among them: there only
Taichi's own `kernel.grad()` is wrong. Here vectors are taken apart before Taichi makes the reverse kernel
(`engines/_taichi.py`)."""
STACK_OF_LISTS = 1024
"""The number of entries for a sum over a list whose length is known only after the launch. With 32, lists of 96 ended
the process without a message on one machine, and not on another."""
LARGEST_STACK = 1 << 16
"""The number of entries of all stacks of a kernel together that fit a thread's own memory (1 MiB in float64)."""


class EngineReverse(KernelReverse):
    """The engine's own reverse mode, on our memory.

    `instead` returns the remedy that messages name for a layer; for an op it is a hand-written backward kernel.
    """

    name = "engine"

    def __init__(self, signature: Signature, instead: Callable[[], str] | None = None) -> None:
        self.signature = signature
        self._instead = instead
        self._allocations = frozenset(signature.allocations)
        self._steady = frozenset(name for name in self._allocations if is_steady(signature, name))
        self._needed: dict[tuple[Stage, frozenset[str]], SavedValues] = {}
        self._checked: set[tuple[frozenset[str], frozenset[tuple[str, int]]]] = set()

    @lazy
    def _views(self) -> Mapping[Stage, tuple[Source, Mapping[str, Roles]]]:
        """Return each kernel as it is differentiated, with the roles of its arrays."""
        return {stage: stage.prepare_for_reverse(self._steady) for stage in self.signature.firsts}

    @lazy
    def _nests(self) -> Mapping[Stage, Sequence[Nest]]:
        """Return the loops of each kernel that carry values, which the engine keeps on a stack."""
        everything = frozenset(self.signature.arrays) | self._allocations
        return {
            stage: carrying_nests(view[0], find_saved_values(*view, everything, stage.home).locals, everything)
            if stage.engine.needs_stack_depth
            else ()
            for stage, view in self._views.items()
        }

    def needs_stacks(self, active: frozenset[str]) -> bool:
        return any(self._nests.values())

    def find_stack_depths(
        self, active: frozenset[str], shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
    ) -> tuple[int, ...]:
        return tuple([self._find_stack_depth(stage, shapes, values) for stage in self.signature.stages])

    def _find_stack_depth(self, stage: Stage, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]) -> int:
        """Return the depth of a stage's gradient stack; 0 if the engine's default depth is enough.

        It is rounded up to a power of two, so that new sizes seldom need another compiled kernel.
        """
        nests = self._nests[stage.first]
        own = {name: values[called] for name, called in stage.scalar_names.items()} if nests else {}
        depths = [self._find_depth(nest, stage.first, shapes, {**values, **own}) for nest in nests]
        needed = max(depths, default=0)
        return 0 if needed <= DEFAULT_STACK else 1 << (needed - 1).bit_length()

    def _find_depth(
        self, nest: Nest, stage: Stage, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Any]
    ) -> int:
        depth = nest.depth(shapes, values)
        if depth is None and nest.is_aside:
            # A sum over a list of unknown length: right where lists are not longer, which lint warns of (TS204).
            return min(STACK_OF_LISTS, LARGEST_STACK // len(self._nests[stage]))
        if depth is not None and depth * len(self._nests[stage]) <= LARGEST_STACK:
            return depth
        op = self.signature.op
        words = f"{stage.engine.name}'s reverse mode would overflow its gradient stack in op `{op}` and end the process"
        verb = "keeps values beside" if nest.is_aside else "changes"
        count = "not known before the launch" if depth is None else str(depth)
        rows = [("loop", f"{verb} `{nest.local}` in each iteration, at {nest.place}"), ("values to keep", count)]
        own = "" if self._instead else "run it on Quadrants (`engine='quadrants'`), "
        remedy = sentence(f"{own}make the loop `{stage.module_name}.static`, or {self._advise()}")
        raise GradientError(refusal(words, rows, remedy))

    def find_reads(self, active: frozenset[str]) -> frozenset[str]:
        return frozenset().union(*(self._find_needs(stage, active).values for stage in self.signature.firsts))

    def _find_needs(self, stage: Stage, active: frozenset[str]) -> SavedValues:
        """Return the arrays that one stage's reverse reads, and where it reads them."""
        stage = stage.first
        needs = self._needed.get((stage, active))
        if needs is None:
            with_adjoint = active | (self._allocations - self._steady)
            needs = self._needed[stage, active] = find_saved_values(*self._views[stage], with_adjoint, stage.home)
        return needs

    def find_gradient_arrays(self, active: frozenset[str]) -> frozenset[str]:
        return active | frozenset(self.signature.scratch)

    def starts_empty(self, name: str) -> bool:
        return False

    def list_requests(self, active: frozenset[str], floats: frozenset[str]) -> tuple[Request, ...]:
        with_gradient = (active | self._allocations) & floats
        requests = []
        for stage in reversed(self.signature.stages):
            arguments = [
                Argument(name, ("value", name), name if name in with_gradient else None) for name in stage.arrays
            ]
            requests.append(Request(stage, True, tuple(arguments)))
        return tuple(requests)

    def writes_adjoint(self, output: str) -> bool:
        """Return True if the reverse pass writes to an output's adjoint.

        The reverse of a plain store zeroes it, and that of a read adds to it. The reverse of an addition leaves it
        alone.
        """
        roles = [stage.roles[output] for stage in self.signature.firsts if output in stage.roles]
        return any(role.is_read or role.of("write") for role in roles)

    def choose_initial_values(self, name: str) -> Rerun:
        """Return the initial values of an array without adjoint whose stores run again, on temporary memory."""
        roles = [roles[name] for _, roles in self._views.values() if name in roles]
        if name not in self._steady or not any(role.is_written for role in roles):
            return ""
        return "final" if any(role.is_read for role in roles) else "fresh"

    def sums_over_batch(self, name: str) -> bool:
        return True

    def check(self, active: frozenset[str], known: Mapping[str, int] = MappingProxyType({})) -> None:
        """Raise GradientError if the gradients would be wrong. `known` are arguments with a constant value."""
        if self.signature.is_deterministic:
            words = (
                f"op `{self.signature.op}` has `deterministic=True`, but the engine's own gradient is not deterministic"
            )
            remedy = "Use the generated gradient, or a `backward=` kernel; or leave out `deterministic=True`."
            raise GradientError(refusal(words, remedy=remedy))
        key = (active, frozenset(known.items()))
        if key in self._checked or self.signature.trusts_engine:
            return
        kernels = {id(stage.kernel): stage for stage in self.signature.firsts}
        for stage in kernels.values():
            self._refuse_blocks(stage)
            self._refuse_known_wrong(stage)
        for stage in self.signature.firsts:
            needs = self._find_needs(stage, active)
            for name in stage.arrays:
                self._refuse_unordered(stage, name, needs.returns)
                if name in needs.values:
                    self._refuse_overwritten(stage, name, needs.reads[name])
                self._refuse_carried(stage, name)
        self._refuse_changed(active, known)
        self._checked.add(key)

    def _refuse_known_wrong(self, stage: Stage) -> None:
        """Refuse functions and locals that this engine's reverse mode differentiates wrongly, as reported by lint."""
        engine = stage.engine.name
        for finding in linter.lint_kernels([stage.kernel], self.signature.spec, engine):
            if finding.rule in _WRONG and engine in finding.engines:
                words = f"{engine}'s reverse mode returns a wrong gradient of op `{self.signature.op}`"
                rows = [(finding.rule, finding.message), ("at", name_place(finding.path, finding.line))]
                own = "" if self._instead else "; or pass `trust_engine=True`, if you are sure that it is right here"
                remedy = sentence(self._advise() + own)
                raise GradientError(refusal(words, rows, remedy))

    def _refuse_blocks(self, stage: Stage) -> None:
        """Refuse blocks of threads: in reverse they would have to meet at each `sync` in the opposite order."""
        where = runs_in_blocks(stage.source, stage.home)
        if where is not None:
            engine = stage.engine.name
            words = (
                f"{engine}'s reverse mode cannot be used for a kernel with blocks of threads: "
                "shared memory or `sync()` makes it unreliable"
            )
            remedy = (
                "Pass the shared memory as `scratch=`, with a row for each block, and "
                "write a separate loop for the code "
                f"between two `sync()`; or {self._advise()}."
            )
            raise GradientError(refusal(words, [("at", where)], remedy))

    def _refuse_unordered(self, stage: Stage, name: str, needed: frozenset[str]) -> None:
        """Refuse a gradient that needs the return value of an atomic: run again, the atomic returns another value."""
        use = stage.roles[name].use_of_result
        if use is None or (name in self._steady and name not in needed):
            return
        called = self._name_in_kernel(name)
        words = f"the gradient of op `{self.signature.op}` needs the return value of an atomic on `{called}`"
        atomic = f"{stage.module_name}.atomic_add(...)"
        remedy = f"Store it in an integer array, `slot[i] = {atomic}`, and use it in a later loop."
        raise GradientError(refusal(words, [("at", use.place)], remedy))

    def _refuse_carried(self, stage: Stage, name: str) -> None:
        """Refuse values that an outermost serial loop carries: the engine's reverse runs such a loop forward too."""
        carried = stage.roles[name].find_carried() if name in self._allocations - self._steady else None
        if carried is None:
            return
        engine = stage.engine.name
        op, called = self.signature.op, self._name_in_kernel(name)
        words = (
            f"{engine}'s reverse mode cannot reverse the loop of op `{op}` whose "
            f"iterations pass on values in `{called}`"
        )
        rows = [("used", carried[0].place), ("changed", carried[1].place)]
        remedy = f"Write the loop inside another, `for _ in range(1):`, or {self._advise()}."
        raise GradientError(refusal(words, rows, remedy))

    def _refuse_overwritten(self, stage: Stage, name: str, needed: frozenset[str]) -> None:
        view = self._views[stage][1][name]
        if name in self._allocations and view.escapes:
            self._refuse_lost(name, "used as a whole", view.escapes, "changed", "unseen")
        overwritten = stage.roles[name].find_overwritten(needed)
        if overwritten is not None:
            self._refuse_lost(name, "read", overwritten[0].place, "overwritten", overwritten[1].place)
        again = view.of("add") if name in self._steady else []
        if again and view.is_read:
            self._refuse_lost(name, "read", view.of("read")[0].place, "incremented", again[0].place)

    def check_whole(self, active: frozenset[str]) -> None:
        for stage in () if self.signature.trusts_engine else self.signature.firsts:
            for name in sorted(self._steady & self._find_needs(stage, active).values):
                self._refuse_run_again(stage, name, active)

    def _refuse_run_again(self, stage: Stage, name: str, active: frozenset[str]) -> None:
        """Refuse a store whose new value depends on the old one, in a loop that reads the value and is differentiated.

        In reverse the store runs once more. The loops of a kernel are reversed one by one, the last one first, so a
        read in a later loop still finds the right value.
        """
        needed = self._find_needs(stage, active).reads[name]
        loops: dict[str, list[Access]] = {}
        for access in stage.roles[name].accesses:
            loops.setdefault(access.loops[0].key if access.loops else "", []).append(access)
        for accesses in loops.values():
            reads = [access for access in accesses if access.kind == "read" and access.place in needed]
            changes = [access for access in accesses if access.kind != "read"]
            if reads and changes and accesses[0].kind != "write":
                self._refuse_lost(name, "read", reads[0].place, "incremented", changes[0].place)

    def _refuse_lost(self, name: str, read: str, at: str, changed: str, where: str) -> None:
        called = self._name_in_kernel(name)
        words = f"op `{self.signature.op}` overwrites a value of `{called}` that its gradient needs"
        remedy = f"Write each value to a new element (`{called}[t + 1]` from `{called}[t]`), or {self._advise()}."
        raise GradientError(refusal(words, [(read, at), (changed, where)], remedy))

    def _refuse_changed(self, active: frozenset[str], known: Mapping[str, int]) -> None:
        """Refuse a launch that overwrites what the reverse of an earlier launch reads. Name the first such reader."""
        change_after_read: tuple[Stage, str, tuple[Access, Access, Stage]] | None = None
        later: dict[str, LaterChanges] = {}
        for stage in reversed(self.signature.stages):
            own = {name: known.get(called, called) for name, called in stage.scalar_names.items()}
            values = {name: known[name] for name in stage.parameters if name in known} | own
            needs = self._find_needs(stage, active)
            for name in sorted(needs.values & later.keys() & set(stage.arrays), reverse=True):
                met = later[name].meeting(stage.roles[name], needs.reads[name], values)
                change_after_read = change_after_read if met is None else (stage, name, met)
            for name in stage.arrays:
                later.setdefault(name, LaterChanges()).add(stage.roles[name], values, stage)
        if change_after_read is not None:
            reader, name, (_, change, writer) = change_after_read
            op, called = self.signature.op, self._name_in_kernel(name)
            words = f"op `{op}` changes a value of `{called}` that its gradient needs, after `{reader.name}` read it"
            own = "a separate array to write to, in `scratch=`"
            own = f"a separate field to write to, or {self._advise()}" if self._instead else own
            rows = [(f"changed by `{writer.name}`", change.place)]
            raise GradientError(refusal(words, rows, f"Give each kernel {own}."))

    def _name_in_kernel(self, name: str) -> str:
        """Return the user's name of an array: `self.x` for a field that became the array `self_x`."""
        fields = (called for stage in self.signature.firsts for called in stage.links.fields)
        return next((called for called in fields if called.replace(".", "_") == name), name)

    def _advise(self) -> str:
        """Return advice for error messages that needs no change of the kernel, such as to write a backward kernel."""
        return self._instead() if self._instead else "give `backward=`"
