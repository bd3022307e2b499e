"""Stage: one kernel of an op, what it does with its arrays, and its compiled variants.

A variant is the kernel rewritten and compiled for one set of dtypes, ranks, batched arrays and gradients. Variants
never depend on sizes: a new shape compiles nothing. `_linked_kernel` rewrites the kernel in the op's terms,
`_baked_values` reads the Python values that it uses, and `_compilation` compiles a variant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .. import analyses, passes
from .._cache import Cache
from .._errors import KernelError, refusal
from .._lazy import lazy
from ..analyses import Conflict, Verdict, find_conflicts
from ..engines import (
    COMPILING,
    NAMES,
    Compiled,
    Engine,
    Language,
    Parameter,
    array_text,
    module_name,
    name_place,
    one_at_a_time,
    runner_of,
)
from ..frontend import Roles, Source, find_changed_loop_variable, multiplies_atomically, roles_of, runs_in_blocks
from ..frontend.lowering import LoweredKernel, lower
from ..frontend.tree import annotate, drop_gradient_stores, drop_stores, loop_over_ranges, serialize_loops
from ..ir import NotCovered, Type, nodes, types
from ..passes import BATCH, FORWARD, PassOptions, adjoint, run_pipeline
from ..spec import DimSizes
from ._baked_values import BakedValues, build_changed_value_error
from ._linked_kernel import NO_NAMES, Links, link_kernel
from ._remember import keeps_results, remember
from ._variant import Alignment, ArrayType, Variant

NO_DIMS: Mapping[str, DimSizes] = {}
"""The dims of arrays if no sizes are known."""
NO_PROMISES: Mapping[str, adjoint.Promise] = {}
"""Promises of a spec that has none."""


class _Lowering(NamedTuple):
    """A kernel as IR, for one variant, and facts that were found on the way.

    Attributes:
        kernel: the IR, with the fields that it uses.
        conflicts: the conflicts of its parallel loops.
        has_misread_divisions: whether the engine would round a division of constants differently than at run time.
        loops_in_order: two conflicting accesses as text, by the line of a loop that runs in order because of them.
    """

    kernel: LoweredKernel
    conflicts: tuple[Conflict, ...] = ()
    has_misread_divisions: bool = False
    loops_in_order: Mapping[int, str] = {}


class Stage:
    """One kernel, ready to be rewritten and compiled for any variant.

    Attributes:
        engine: the engine that runs it; `home` is the engine that it was written for.
        source, owner, is_method, parameters, arrays, results, begins: those of the `LinkedKernel`.
        drops_results: whether it is run as a kernel that returns nothing.
        roles: how it uses each array.
        baked_values: the Python values and fields that it uses.
        inputs_used_whole: arrays that it must not write, and uses in a way that its source alone does not explain.
        texts: the source that the engine got, by variant.
        compiled: the compiled variants (`_compilation.ensure_compiled`).
        objects: array parameters of a layer's kernel that are given an engine's ndarray.
        allows_races: whether no warning of races is given, and no loop is run in order because of one.
        given_warnings: the engine's warnings about it so far, which its other variants would repeat.

    If `is_steady`, its Python values never change, so they are read once.
    """

    def __init__(
        self,
        kernel: Any,
        arrays: Iterable[str],
        engine: str | None = None,
        *,
        links: Links | None = None,
        results: Sequence[str] = (),
        updated: Mapping[str, str] = NO_NAMES,
        begins: Collection[str] = (),
        splits_gradients: bool = False,
        may_write_fields: bool = False,
        objects: Collection[str] = (),
        is_simd: bool = False,
        is_steady: bool = False,
        is_checked: bool = False,
        allows_races: bool = False,
        dims: Mapping[str, DimSizes] = NO_DIMS,
        promises: Mapping[str, adjoint.Promise] = NO_PROMISES,
    ) -> None:
        self.links = links or Links({}, {})
        # A layer does not use the results of its kernels.
        self.drops_results = may_write_fields or links is not None
        self._linked = linked = link_kernel(
            kernel,
            frozenset(arrays),
            self.links,
            results=results,
            updated=updated,
            begins=begins,
            splits_gradients=splits_gradients,
            drops_results=self.drops_results,
            # The kernels of a layer get objects whose fields are known, also in an op that is made of them.
            objects=objects if may_write_fields else None if links is None else links.objects,
            dims=dims,
        )
        self.kernel, self.home = kernel, linked.home
        self.engine: Engine = runner_of(self.home, engine)
        self.source: Source = linked.source
        self.owner, self.is_method = linked.owner, linked.is_method
        self.parameters: dict[str, Parameter] = linked.parameters
        self.arrays, self.results, self.begins = linked.arrays, linked.results, linked.begins
        self.objects = objects
        self.is_simd = is_simd and not is_checked
        self.is_checked = is_checked
        self.may_write_fields = may_write_fields
        self.allows_races = allows_races
        self._dims = dims
        self._promises = promises
        self._ranks = {name: self.parameters[name].ndim for name in self.arrays}
        self.roles: dict[str, Roles] = roles_of(self.source, self.arrays, self.home, self._ranks)
        self.baked_values = BakedValues(linked, self.engine, may_write_fields=may_write_fields, is_steady=is_steady)
        self.inputs_used_whole: frozenset[str] = frozenset()
        self.texts: Cache[Variant, str] = Cache("texts of kernels")
        self.given_warnings: set[tuple[str, str, int]] = set()
        self.compiled: Cache[Variant, Compiled] = Cache("compiled kernels")
        self._lowered: Cache[tuple[Variant, types.Defaults, bool], _Lowering] = Cache("kernels as IR")
        self._in_blocks: Cache[tuple[Variant, types.Defaults, bool], LoweredKernel] = Cache("kernels with blocks as IR")
        self._loops_in_order: dict[int, str] = {}
        self._batch_refusals: Cache[Variant, str] = Cache("refused batches")

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def module_name(self) -> str:
        """The engine's module in the kernel's file: `ti`, `qd`."""
        return module_name(self.home.name, self.source.function)

    @property
    def first(self) -> Stage:
        """The earlier stage that this one launches again: itself, unless it is a `Relaunch`."""
        return self

    @property
    def scalar_names(self) -> Mapping[str, str]:
        """The op's names of scalar arguments, by their names in `first`, if they differ."""
        return {}

    @lazy
    def uses_blocks(self) -> bool:
        """Return True if the kernel runs in blocks of threads that share memory or wait for each other."""
        return runs_in_blocks(self.source, self.home) is not None

    @property
    def runs_as_written(self) -> bool:
        """True if the engine gets the user's own source: the kernel was neither moved to another engine nor are its
        bounds checked.
        """
        return self.engine is self.home and not self.is_checked

    @property
    def open_templates(self) -> tuple[str, ...]:
        """The names of the parameters that take Python objects in a call."""
        return self._linked.open_templates

    def templates(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the template arguments by name, including `self`."""
        return self._linked.templates(values)

    def find_name(self, own: str) -> str:
        """Return the op's name of a parameter, given the kernel's own name for it."""
        return self._linked.names.get(own, own)

    def dims_of(self, array: str) -> tuple[str, ...]:
        """Return the names and sizes of an array's dims in the spec, as texts; () if the spec has none."""
        return tuple("_" if one is None else str(one) for one in self._dims.get(array, ()))

    def check_object(self, op: str) -> None:
        """Raise KernelError if the kernel is a method and is not bound to an object."""
        if self.is_method and self.owner is None:
            words = f"kernel `{self.name}` of op `{op}` is a method that was taken from its class, not from an object"
            remedy = (
                f"Decorate its class with @{self.module_name}.data_oriented, and take the method from an object of it."
            )
            raise KernelError(refusal(words, [("kernel", self.source.place())], remedy))

    def check_values(self, variant: Variant, values: Mapping[str, Any], op: str = "") -> None:
        """Raise GradientError if the Python values that a variant is made for have changed: it would be compiled with
        the new ones.
        """
        now = self.baked_values.fingerprint(values)
        if variant.fingerprint != now:
            raise build_changed_value_error(f"op `{op}`" if op else f"kernel `{self.name}`", variant.fingerprint, now)

    def find_compiled(self, variant: Variant) -> Compiled | None:
        """Return the compiled form of a variant, or None if there is none since the engine was started."""
        compiled = self.compiled.get(variant)
        # After `ti.init()` or `ti.reset()` what an earlier runtime compiled points to freed memory.
        return compiled if compiled is not None and compiled.runtime is self.engine.runtime() else None

    @lazy
    def changed_loop_variable(self) -> str | None:
        """Return the place where the kernel first assigns to a loop variable, or None. Engines ignore such an
        assignment.
        """
        return find_changed_loop_variable(self.source, self.home)

    def has_misread_divisions(self, variant: Variant, values: Mapping[str, Any]) -> bool:
        """Return True if the engine would round a division of integer constants differently than at run time.

        Also return False if the IR does not cover the kernel: the engine compiles it as it is then, and lint names the
        line.
        """
        forward = replace(variant, adjoint=False, stack=0)
        try:
            return self._find_lowering(forward, values).has_misread_divisions
        except NotCovered:
            return False

    def find_conflicts(self, variant: Variant, values: Mapping[str, Any]) -> tuple[Conflict, ...]:
        """Return the conflicts of the kernel's parallel loops. Raise NotCovered if the IR does not cover the kernel."""
        return self._find_lowering(variant.parallel, values).conflicts

    def find_loop_in_order(self, variant: Variant, values: Mapping[str, Any]) -> str:
        """Return the place of the first loop that runs in order because its iterations may race; "" if there is none.

        Also return "" if the IR does not cover the kernel.
        """
        if self.engine.device_type() != "cpu" or self.allows_races:
            return ""
        try:
            conflicts = self.find_conflicts(variant, values)
        except NotCovered:
            return ""
        return next((name_place(self.source.path, one.loop.line) for one in conflicts), "")

    @property
    def loops_in_order(self) -> dict[int, str]:
        """The loops that run in order because their iterations may race: two conflicting accesses as text, by the
        loop's line.
        """
        return dict(self._loops_in_order)

    @property
    def _defaults(self) -> types.Defaults:
        return types.Defaults(*Language(self.engine).default_types)  # type: ignore[arg-type]

    def lower_variant(self, variant: Variant, values: Mapping[str, Any], *, in_blocks: bool = False) -> LoweredKernel:
        """Return a variant of the kernel as IR; if `in_blocks`, with its blocks of threads as they were written.

        Raises NotCovered.
        """
        if in_blocks and self.uses_blocks:
            return self._find_in_blocks(variant, values)
        return self._find_lowering(variant, values).kernel

    def _find_lowering(self, variant: Variant, values: Mapping[str, Any]) -> _Lowering:
        key = (replace(variant, alignment=Alignment.NONE), self._defaults, self.engine.is_debugging())
        with COMPILING:
            lowering = self._lowered.get(key)
            if lowering is None:
                if variant.fingerprint:
                    self.check_values(variant, values)
                lowering = self._lowered.keep(key, self._read_or_lower(variant, values))
                self._loops_in_order |= lowering.loops_in_order
            return lowering

    def _read_or_lower(self, variant: Variant, values: Mapping[str, Any]) -> _Lowering:
        """Return the IR of a variant from the disk cache; lower the kernel and cache its IR if there is none."""
        content = self.baked_values.find_content(values) if keeps_results() else None
        if content is None:
            return self._lower(variant, values)
        places = {key: place for place, key in enumerate(content.fields)}

        def lower() -> tuple[Any, ...]:
            (kernel, fields), *facts = self._lower(variant, values)
            keys = {name: self.home.field_facts(one, name).key for name, one in fields.items()}
            return kernel, {name: places[key] for name, key in keys.items()}, *facts

        def list_parts() -> tuple[object, ...]:
            options = (self.allows_races, self.may_write_fields, self.is_checked, self.engine.is_debugging())
            return (
                content.text,
                repr(
                    (
                        replace(variant, fingerprint=(), alignment=Alignment.NONE),
                        self._defaults,
                        self._dims,
                        self._promises,
                    )
                ),
                repr(self.parameters),
                *options,
                self.engine.device_type(),
            )

        kernel, numbers, *facts = remember(self.engine, "lowering", list_parts, lower)
        fields = list(content.fields.values())
        return _Lowering(LoweredKernel(kernel, {name: fields[place] for name, place in numbers.items()}), *facts)

    def _lower(self, variant: Variant, values: Mapping[str, Any]) -> _Lowering:
        if variant.batched_arrays or self._is_serialized(variant):
            one = self._find_lowering(replace(variant.single, is_serial=False), values)
            kernel, fields = one.kernel
            # A local that parallel iterations share needs no memory on one thread: the source is lowered with it.
            if variant.batched_arrays or not kernel.cells:
                kernel = run_pipeline(BATCH, kernel, self.make_batch_options(variant))
                return one._replace(kernel=LoweredKernel(kernel, fields), conflicts=())
        lowered = self._find_in_blocks(variant, values)
        conflicts: list[Conflict] = []
        divisions: list[Variant] = []
        loops_in_order: dict[int, str] = {}
        options = PassOptions(
            find_racing_loops=lambda kernel: self._find_racing_loops(kernel, variant, conflicts, loops_in_order),
            note_divisions=lambda: divisions.append(variant),
        )
        kernel = lowered._replace(kernel=run_pipeline(FORWARD, lowered.kernel, options))
        return _Lowering(kernel, tuple(conflicts), bool(divisions), loops_in_order)

    def make_batch_options(self, variant: Variant) -> PassOptions:
        """Return the options of the passes for a variant that runs a batch, or on one thread."""
        return PassOptions(
            batched=variant.batched_arrays,
            is_serial=self._is_serialized(variant),
            keeps_order=self.allows_races and not variant.batched_arrays,
        )

    def _is_serialized(self, variant: Variant) -> bool:
        """Return True if a variant runs the parallel loops of the source in order."""
        # An engine's reverse mode differentiates the loops that the user wrote. The atomic products that remain are in
        # parallel loops: in serial loops, both engines end the process on them.
        return variant.is_serial and not (variant.adjoint or multiplies_atomically(self.source, self.home))

    def _find_racing_loops(
        self, kernel: nodes.Kernel, variant: Variant, conflicts: list[Conflict], loops_in_order: dict[int, str]
    ) -> list[nodes.For]:
        """Return the loops that must run in order because their iterations may race. Append their conflicts to
        `conflicts`, and texts of them to `loops_in_order`.
        """
        if not (self.allows_races or variant.adjoint or variant.is_serial):
            conflicts += self._find_conflicts(kernel)
        if self.engine.device_type() != "cpu":
            return []
        racing = [one for one in conflicts if one.verdict is not Verdict.CERTAIN]
        loops_in_order |= {one.loop.line: analyses.describe_conflict(one, kernel) for one in racing}
        return [one.loop for one in racing]

    def _find_conflicts(self, kernel: nodes.Kernel) -> list[Conflict]:
        """Return the conflicts of a kernel's parallel loops, read from disk or found."""

        def find() -> tuple[tuple[int, Conflict], ...]:
            conflicts = find_conflicts(kernel, exempt=self._build_exemption(kernel), unique=self._unique)
            places = {id(one): place for place, one in enumerate(kernel.body)}
            return tuple([(places[id(one.loop)], one) for one in conflicts])

        numbered = remember(self.engine, "conflicts", lambda: (kernel, self._promises), find)
        # Passes find the loops by identity, and an entry has copies.
        loops = [(kernel.body[place], one) for place, one in numbered]
        return [one._replace(loop=loop) for loop, one in loops if isinstance(loop, nodes.For)]

    @property
    def _unique(self) -> frozenset[str]:
        return frozenset(name for name, promise in self._promises.items() if promise.kind == "unique")

    def _build_exemption(self, kernel: nodes.Kernel) -> Callable[[nodes.For], frozenset[str]]:
        return lambda loop: adjoint.find_promised(kernel, loop, self._promises) if self._promises else frozenset()

    def _find_in_blocks(self, variant: Variant, values: Mapping[str, Any]) -> LoweredKernel:
        """Return the kernel's IR before any pass, with its blocks of threads. Lower a kernel with blocks once."""
        if not self.uses_blocks:
            return self._lower_in_blocks(variant, values)
        key = (variant, self._defaults, self.engine.is_debugging())
        with COMPILING:
            known = self._in_blocks.get(key)
            if known is None:
                if variant.fingerprint:
                    self.check_values(variant, values)
                known = self._in_blocks.keep(key, self._lower_in_blocks(variant, values))
            return known

    def _lower_in_blocks(self, variant: Variant, values: Mapping[str, Any]) -> LoweredKernel:
        """Return the kernel's IR before any pass, with its blocks of threads."""
        defaults = self._defaults
        given = dict(variant.arrays)
        arrays = {
            name: nodes.Array(
                name,
                Type(NAMES[one.dtype]),
                one.rank,
                one.element,
                dims=self._dims.get(name, ())[: one.rank],
                is_clamped=self.parameters[name].boundary == "clamp",
            )
            for name, one in given.items()
        }
        arguments = {
            name: (_type_of(parameter, defaults), parameter.element)
            for name, parameter in self.parameters.items()
            if parameter.kind in ("scalar", "matrix") and name not in given
        }
        others = {name: values[name] for name in self.open_templates}
        # Rewritten trees refer to the engine's module by this name.
        others["_lang"] = self.home.lang
        source = self.rewrite_source(variant)
        lowered = lower(
            source,
            self.home,
            arrays,
            arguments=arguments,
            templates=others,
            defaults=defaults,
            keeps_assertions=self.engine.is_debugging(),
        )
        held = next((one for one in lowered.fields.values() if self.home.is_ndarray(one)), None)
        # `BakedValues.refuse_ndarrays` says so to the user.
        if held is not None and not self.may_write_fields:
            raise NotCovered("an ndarray that is not an argument", source.tree.lineno, source.path)
        return lowered

    @one_at_a_time
    def explain_batch_refusal(self, variant: Variant, values: Mapping[str, Any]) -> str:
        """Return why this variant cannot run a batch in one launch, or "" if it can."""
        if variant.adjoint:
            return (
                f"{self.engine.name}'s reverse mode differentiates only the kernel as it "
                "was written, which takes one sample"
            )
        if self.uses_blocks and self.engine.device_type() != "cpu":
            return "the kernel uses blocks of threads, and a block works on one sample"
        reason_text = self._batch_refusals.get(variant)
        if reason_text is None:
            try:
                self.lower_variant(variant, values)
                reason_text = ""
            except NotCovered as reason:
                reason_text = f"tinsmith cannot analyze {reason.construct}, at {reason.place}"
            except passes.NotBatchable as reason:
                reason_text = str(reason)
            self._batch_refusals.keep(variant, reason_text)
        return reason_text

    def prepare_for_reverse(self, arrays: frozenset[str]) -> tuple[Source, dict[str, Roles]]:
        """Return the kernel to differentiate, without stores to `arrays`, which have no adjoint; and the roles of its
        arrays.

        Atomics whose result is used stay in the source, but not in the roles.
        """
        if not any(name in arrays and role.is_written for name, role in self.roles.items()):
            return self.source, self.roles
        source = replace(self.source, tree=drop_stores(self.source.tree, arrays, keep_returns=True))
        bare = replace(self.source, tree=drop_stores(self.source.tree, arrays))
        return source, roles_of(bare, self.arrays, self.home, self._ranks)

    def rewrite_source(self, variant: Variant) -> Source:
        """Return the kernel's source as the engine gets it for a variant that is not printed from the IR."""
        arrays = dict(variant.arrays)
        # An engine's reverse kernel runs stores whose target has no adjoint once more, and would count statistics
        # twice.
        idle = [n for n, a in arrays.items() if variant.adjoint and not a.has_gradient and self.roles[n].is_written]
        bare = drop_stores(self.source.tree, idle) if idle else self.source.tree
        rewritten = annotate(bare, self.annotations(arrays))
        ranks = {name: array.rank for name, array in arrays.items()}
        # An engine's reverse mode differentiates the loops that the user wrote.
        if variant.adjoint:
            return replace(self.source, tree=drop_gradient_stores(rewritten, self.baked_values.gradients))
        rewritten = loop_over_ranges(rewritten, self.baked_values.field_ranks() | ranks)
        return replace(self.source, tree=serialize_loops(rewritten) if self._is_serialized(variant) else rewritten)

    def annotations(self, arrays: Mapping[str, ArrayType]) -> dict[str, str]:
        texts = {self.source.parameters[0]: "_lang.template()"} if self.is_method else {}
        for name, parameter in self.parameters.items():
            if name in arrays:
                array = arrays[name]
                rank = array.rank + array.is_batched
                texts[name] = array_text(array.dtype, rank, array.element, parameter.boundary, array.has_gradient)
            else:
                texts[name] = parameter.text
        return texts

    def is_aliased(self, variant: Variant) -> bool:
        """Return True if the kernel changes an array under several indices."""
        return any(one.is_aliased(in_reverse=variant.adjoint) for one in self.roles.values())

    def is_careful(self, variant: Variant) -> bool:
        """Return True if the kernel reads and changes one array, or uses an array of vectors outside of loops."""
        vectors = [self.roles[name] for name, array in variant.arrays if array.element]
        is_at_top = any(not one.loops for role in vectors for one in role.accesses)
        return is_at_top or any(role.is_read and role.is_written for role in self.roles.values())


def _type_of(parameter: Parameter, defaults: types.Defaults) -> Type:
    """Return the type of a scalar, or of a vector's entries, from its annotation. `float` is the engine's
    default type.
    """
    kind = parameter.text.rpartition("_lang.")[2].rpartition(", ")[2].rstrip(")")
    of_python = {"float": defaults.fp, "int": defaults.ip, "bool": Type.U1}
    return of_python[kind] if kind in of_python else Type(kind)
