"""The adjoint generated from the kernels' source, as a source of gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from ..._cache import Cache
from ..._errors import GradientError, refusal
from ..._lazy import lazy
from ...compiling import check_races, ensure_compiled, fix_order, remember
from ...engines import COMPILING, Language
from ...frontend.lowering import LoweredKernel
from ...ir import NotCovered, Race, nodes, walk
from ...passes import clean_up_adjoint, generate_adjoint
from ...passes.adjoint import (
    AdjointOptions,
    AdjointProgram,
    CleanUpOptions,
    Fresh,
    Promise,
    Run,
    Unchanged,
    WithResults,
    find_unchanged_after,
)
from .._key import CallKey
from .._lowering import KernelLaunches, find_length, lower_launches
from .._routine import Make, Routine
from .._signature import Signature
from ._generated_kernel import GeneratedKernel
from ._generated_routines import backward_routine, forward_routine_with_results
from ._reverse import ForwardWithResults, Reverse, ReverseAt, Wish

Kernels = Callable[[CallKey], list[LoweredKernel]]
"""Lowers an op's kernels to IR, for calls of one kind."""
RACE = "its result depends on the order of the iterations of a parallel loop"
"""The reason why a kernel whose iterations race has no gradient."""
MOST_GROUPS = 8
"""The maximum number of sets of outputs for which an adjoint is generated. For a further set, the gradients from each
output by itself are added."""


class SourceReverse(Reverse):
    """The generated adjoint of an op, or of a core derived from one.

    `kernels` lowers the kernels; the default is to lower those of the signature.
    """

    name = "source"

    def __init__(self, signature: Signature, kernels: Kernels | None = None) -> None:
        self.signature = signature
        self._kernels = lower_launches if kernels is None else lambda key: _launch_each_once(kernels(key))
        self._at: Cache[Any, SourceAt] = Cache("gradients")

    @property
    def specializations(self) -> tuple[SourceAt, ...]:
        """The sources for all kinds of calls so far."""
        return tuple(self._at.values())

    def specialize(self, key: CallKey) -> SourceAt:
        defaults = tuple(Language(stage.engine).default_types for stage in self.signature.firsts)
        kernels = (key.variants, key.is_looped, defaults)
        source = self._at.get(kernels) or self._make_at(kernels, key)
        if not key.launch_numbers:
            return source
        unchanged = source.find_unchanged(key.launch_numbers)
        known = (kernels, unchanged)
        return self._at.get(known) or self._make_at(known, key, unchanged)

    def _make_at(self, kernels: Any, key: CallKey, unchanged: frozenset[Unchanged] | None = None) -> SourceAt:
        """Make the source of gradients for calls with these kernels.

        Without `unchanged` it is valid for any integer arguments of the launches.
        """
        plain = replace(key, batched=frozenset(), launch_numbers={} if unchanged is None else key.launch_numbers)
        with COMPILING:
            source = self._at.get(kernels)
            if source is None:
                single = self.specialize(plain) if key.batched else None
                source = self._at.keep(kernels, SourceAt(key, self._kernels, single, unchanged or frozenset()))
            return source


def check_compiles(key: CallKey) -> None:
    """Compile the forward kernels, so that one that does not compile at all raises its own error first."""
    for stage, variant in zip(key.signature.stages, key.variants, strict=True):
        ensure_compiled(stage, variant, key.templates, key.signature.op)


def _launch_each_once(kernels: Sequence[LoweredKernel]) -> KernelLaunches:
    return KernelLaunches(kernels, range(len(kernels)))


class SourceAt(ReverseAt):
    """The generated adjoint for calls of one kind.

    Attributes:
        key: of the calls.
        programs: the generated programs, by the inputs that want a gradient and whether the program has checkpoints.

    `unchanged` are the elements that later launches certainly do not change, derived from their integer arguments.
    """

    def __init__(
        self,
        key: CallKey,
        kernels: Callable[[CallKey], KernelLaunches],
        single: SourceAt | None,
        unchanged: frozenset[Unchanged],
    ) -> None:
        self._unchanged = unchanged
        self._last_numbers: tuple[Mapping[str, int], frozenset[Unchanged]] = ({}, frozenset())
        self.key = key
        self._single = single
        # A batch whose samples run one by one has the gradient of a single call.
        self._twin = single if key.is_looped else None
        self._lower = kernels
        self.programs: dict[tuple[frozenset[str], bool], AdjointProgram] = {}
        self._partial: dict[tuple[frozenset[str], frozenset[str], bool], AdjointProgram | None] = {}
        self._launches: KernelLaunches | None = None
        self._refused: dict[frozenset[str], NotCovered] = {}
        self._emitted: dict[nodes.Kernel, GeneratedKernel] = {}
        self._whole: dict[tuple[Any, ...], AdjointProgram] = {}

    @property
    def kernel_launches(self) -> KernelLaunches:
        """The op's kernels as IR, each once, and their launches."""
        launches = self._launches
        if launches is not None:
            return launches
        with COMPILING:
            launches = self._launches = self._launches or self._lower(self.key)
        return launches

    @property
    def kernels(self) -> Sequence[LoweredKernel]:
        """The op's kernels as IR, each once."""
        return self.kernel_launches.kernels

    def find_unchanged(self, numbers: Mapping[str, int]) -> frozenset[Unchanged]:
        """Return the parts of arrays that later launches certainly do not change, given integer arguments by name.

        It is empty if a kernel cannot be lowered.
        """
        last, known = self._last_numbers
        if numbers == last:
            return known
        try:
            kernels = [one.kernel for one in self.kernels]
        except NotCovered:
            return frozenset()
        launch_numbers = []
        for stage in self.key.signature.stages:
            names = ((name, stage.scalar_names.get(name, name)) for name in stage.first.parameters)
            launch_numbers.append({name: numbers[called] for name, called in names if called in numbers})
        unchanged = find_unchanged_after(kernels, self.kernel_launches.launches, launch_numbers)
        self._last_numbers = numbers, unchanged
        return unchanged

    def program(self, active: frozenset[str], *, has_checkpoints: bool = False) -> AdjointProgram:
        """Generate the backward pass for these inputs, once.

        Raises:
            NotCovered: it cannot be generated.
        """
        if self._twin is not None:
            return self._twin.program(active, has_checkpoints=has_checkpoints)
        key = active, has_checkpoints
        if key in self.programs:
            return self.programs[key]
        with COMPILING:
            if key not in self.programs:
                whole = frozenset(self.key.signature.differentiable_outputs)
                program = self.programs[key] = self._generate_adjoint(active, whole, has_checkpoints=has_checkpoints)
                # A call saves what the program without checkpoints reads.
                assert not has_checkpoints or program.reads <= self.program(active).reads, sorted(program.reads)
            return self.programs[key]

    def group_outputs(self, active: frozenset[str], given: frozenset[str]) -> tuple[frozenset[str] | None, ...]:
        if self._twin is not None:
            return self._twin.group_outputs(active, given)
        known = {outputs for inputs, outputs, _ in self._partial if inputs == active}
        if given not in known and len(known) >= MOST_GROUPS and len(given) > 1:
            return tuple(group for name in sorted(given) for group in self.group_outputs(active, frozenset({name})))
        return (given,) if self._find_part(active, given) is not None else (None,)

    def _find_part(
        self, active: frozenset[str], given: frozenset[str], *, has_checkpoints: bool = False
    ) -> AdjointProgram | None:
        """Generate the backward pass from the `given` outputs alone; None if it reads more than a call saves."""
        if self._twin is not None:
            return self._twin._find_part(active, given, has_checkpoints=has_checkpoints)
        key = active, given, has_checkpoints
        if key in self._partial:
            return self._partial[key]
        with COMPILING:
            program = self._generate_adjoint(active, given, has_checkpoints=has_checkpoints)
            self._partial[key] = program if program.reads <= self.program(active).reads else None
            return self._partial[key]

    def _generate_adjoint(
        self, active: frozenset[str], given: frozenset[str], *, has_checkpoints: bool
    ) -> AdjointProgram:
        kernels, options = self._list_parts(active, given, has_checkpoints=has_checkpoints)
        engine = self.key.signature.firsts[0].engine
        return remember(engine, "adjoint", lambda: (kernels, options), lambda: generate_adjoint(kernels, options))

    def _list_parts(
        self, active: frozenset[str], given: frozenset[str], *, has_checkpoints: bool
    ) -> tuple[list[nodes.Kernel], AdjointOptions]:
        """Return the kernels and options that determine a generated adjoint."""
        signature = self.key.signature
        is_on_cpu = signature.firsts[0].engine.device_type() == "cpu"
        options = AdjointOptions(
            active=active,
            outputs=given,
            allocations=signature.allocations,
            detached=signature.detached,
            private=self.own,
            launches=self.kernel_launches.launches,
            unchanged=self._unchanged,
            promises=self._promises,
            has_checkpoints=has_checkpoints,
            # Where iterations run at once in any case, there is a gradient only if they certainly do not race.
            refuses_possible_races=not is_on_cpu and not any(stage.allows_races for stage in signature.firsts),
            keeps_results=self._may_keep_results,
            # GPUs have units for functions, and wait for memory.
            keeps_functions=is_on_cpu,
        )
        return [one.kernel for one in self.kernels], options

    @property
    def _promises(self) -> dict[str, Promise]:
        """What the spec promises about the numbers in inputs, by input."""
        items = (item for item in self.key.signature.spec.inputs if item.promise)
        return {item.name: Promise(item.promise, is_by_sample=item.name in self.key.batched) for item in items}

    @property
    def arrays(self) -> dict[str, nodes.Array]:
        """The type and rank of every array that the kernels are given, by name."""
        kernels = [one.kernel for one in self.kernels]
        return {n: one for kernel in kernels for n, one in kernel.arrays.items() if n not in kernel.cells}

    @property
    def own(self) -> frozenset[str]:
        """Arrays that belong to a pass alone: no call gives them and no caller gets them. They start at zero."""
        known = self.key.signature.all_arrays
        return frozenset(name for name, array in self.arrays.items() if name not in known and not array.label)

    @lazy
    def forward(self) -> AdjointProgram:
        """Return a forward pass by the generated kernels alone."""
        arrays = self.arrays
        launches = ((place, self.kernels[number].kernel) for place, number in enumerate(self.kernel_launches.launches))
        runs = [Run(one, place, {}) for place, one in launches if any(True for _ in walk.stores(one.body))]
        actions = (*(Fresh(name, name) for name in sorted(self.own)), *runs)
        return AdjointProgram(actions, arrays, {}, frozenset(arrays) - self.own, frozenset(), ())

    def refusal(self, active: frozenset[str]) -> NotCovered | None:
        """Return why no adjoint can be generated for these inputs; None if one can."""
        if active not in self._refused:
            try:
                self.program(active)
            except NotCovered as reason:
                self._refused[active] = reason
        return self._refused.get(active)

    @property
    def requests(self) -> tuple[tuple[frozenset[str], bool], ...]:
        """The (active inputs, has checkpoints) of each adjoint that was generated or refused so far."""
        return (*self.programs, *((active, False) for active in self._refused))

    def emit(self, run: Run) -> GeneratedKernel:
        """Return the kernel of a launch, ready for the engine. It is made once."""
        if self._twin is not None:
            return self._twin.emit(run)
        emitted = self._emitted.get(run.kernel)
        if emitted is not None:
            return emitted
        with COMPILING:
            stage = self.key.signature.stages[run.source]
            fields = self.kernels[self.kernel_launches.launches[run.source]].fields
            signature = self.key.signature
            kernel = fix_order(run.kernel, stage, signature.op) if signature.is_deterministic else run.kernel
            emitted = self._emitted[run.kernel] = GeneratedKernel(kernel, stage, fields, signature.op)
        return emitted

    def check(self, active: frozenset[str]) -> None:
        reason = self.refusal(active)
        if reason is None:
            return
        if reason.race is not None:
            # The kernel itself is refused first, unless races are allowed.
            for stage, variant in zip(self.key.signature.stages, self.key.variants, strict=True):
                check_races(stage, variant, self.key.templates, f"op `{self.key.signature.op}`")
            module = self.key.signature.stages[0].module_name
            raise refuse_race(f"op `{self.key.signature.op}`", reason, reason.race, module)
        if self._lower is lower_launches:
            check_compiles(self.key)
        words = f"op `{self.key.signature.op}` uses a construct for which no adjoint can be generated"
        rows = [("construct", reason.construct), ("at", reason.place)]
        own = "" if self.key.signature.stages[0].engine.runs_source else ", or try `adjoint='engine'`"
        raise GradientError(refusal(words, rows, f"{reason.remedy}, or give `backward=`{own}."))

    def find_reads(self, active: frozenset[str]) -> frozenset[str]:
        signature = self.key.signature
        read = self.program(active).reads & {*signature.all_arrays}
        # A batch of backward passes of one call gets the values that this call saved.
        if self._single is not None:
            read |= self._single.find_reads(active)
        # A second derivative computes again, from the inputs, what the first one reads as the forward pass left it.
        return read if read <= set(signature.arrays) else read | frozenset(signature.arrays)

    def results(self, active: frozenset[str]) -> WithResults | None:
        """Return the two passes that keep and read values of loops; None if that saves nothing or is not possible."""
        if not self._may_keep_results or self.refusal(active):
            return None
        return self.program(active).results

    @property
    def _may_keep_results(self) -> bool:
        # Values of loops are not kept in three cases: a checked kernel names its own lines if an index is out of
        # bounds, samples that run one by one have no memory of their own, and Python runs the user's own lines.
        stage = self.key.signature.stages[0]
        return not (self.key.is_looped or stage.is_checked or stage.engine.runs_source)

    def forward_with_results(
        self, key: CallKey, active: frozenset[str], makes: Sequence[Make]
    ) -> ForwardWithResults | None:
        kept = self.results(active)
        if kept is None:
            return None
        routine = forward_routine_with_results(self.key, self.emit, kept, makes)
        return ForwardWithResults(routine, kept.names)

    def backward(self, key: CallKey, wish: Wish) -> Routine:
        active, given, _, adds, has_checkpoints, has_results = wish
        self.check(active)
        # Samples that run one by one add to the gradient of an input that they share.
        alone = active & key.batched_arrays if self.key.is_looped else active
        alone = frozenset[str]() if adds else alone & {*self.key.signature.arrays}
        kept = self.results(active) if has_results else None
        program = self.prepare_program(active, given, alone, has_checkpoints=has_checkpoints, kept=kept)
        names = kept.names if kept else ()
        return backward_routine(key, self.emit, program, active, names)

    def prepare_program(
        self,
        active: frozenset[str],
        given: frozenset[str] | None,
        alone: frozenset[str],
        *,
        has_checkpoints: bool = False,
        kept: WithResults | None = None,
    ) -> AdjointProgram:
        """Return the backward pass, cleaned up for launching.

        Args:
            active: the inputs that want a gradient.
            given: the outputs that have a cotangent, None for all.
            alone: the inputs whose gradients are computed by one run of the pass, without adding to earlier values.
            has_checkpoints: whether its tapes are short, at the price of more work.
            kept: the passes that keep and read values of loops, if the backward one of these is wanted.
        """
        part = None if given is None else self._find_part(active, given, has_checkpoints=has_checkpoints)
        program = self.program(active, has_checkpoints=has_checkpoints) if part is None else part
        program = program if kept is None else kept.backward
        key = active, None if part is None else given, alone, has_checkpoints, kept is not None
        if key not in self._whole:
            signature = self.key.signature
            # Adjoints of arrays that get no cotangent belong to this pass alone.
            own = frozenset[str]() if self.key.is_looped else signature.auxiliary.union(signature.scratch)
            options = CleanUpOptions(
                alone=alone | own,
                extent=self._extent,
                outputs=None if self.key.is_looped else signature.differentiable_outputs,
                has_vectors=signature.firsts[0].engine.device_type() == "cpu",
            )
            outputs = signature.differentiable_outputs if part is None or given is None else given
            self._whole[key] = remember(
                signature.firsts[0].engine,
                "clean-up",
                lambda: (
                    # What determines the program stands for it, since the program is longer.
                    *(self._twin or self)._list_parts(active, frozenset(outputs), has_checkpoints=has_checkpoints),
                    kept is not None,
                    # Functions have no text; `_lengths` stands for `_extent`.
                    {one.name: getattr(options, one.name) for one in fields(options) if one.name != "extent"},
                    self._lengths,
                ),
                lambda: clean_up_adjoint(program, options),
                program.kernels,
            )
        return self._whole[key]

    @property
    def _lengths(self) -> tuple[object, ...]:
        """The facts that determine `_extent`."""
        items = self.key.signature.kernel_items.values()
        dims = tuple((item.name, item.has_rest, repr(item.dims)) for item in items)
        return dims, self.key.batched, self.key.is_looped

    def _extent(self, array: str, axis: int) -> object:
        """Return a value that is equal for axes that the spec says are equally long; None if it says nothing."""
        axis -= array in self.key.batched and not self.key.is_looped
        return "the batch" if axis < 0 else find_length(self.key.signature, nodes.Size(array, axis))


def refuse_race(owner: str, reason: NotCovered, race: Race, module: str) -> GradientError:
    """Build the error for a gradient whose kernel depends on the order of a parallel loop's iterations.

    `module` is the name of the engine's module in the kernel's file.
    """
    words = f"{owner} has no gradient: {RACE}"
    rows = [
        ("an iteration changes", f"`{race.change}`, in line {race.change_line}"),
        (
            f"another one {'reads' if race.is_read else 'changes'}",
            f"`{race.other}`, in line {race.other_line}",
        ),
        ("at", reason.place),
    ]
    remedy = (
        f"Put `{module}.loop_config(serialize=True)` above the loop, or an outer loop over one index around it: "
        "`for _ in range(1):`. Its iterations then run in order."
    )
    if race.change == race.other:
        remedy = f"For a sum, write `{race.change} += ...`, which is atomic. Otherwise: {remedy}"
    return GradientError(refusal(words, rows, remedy))
