"""A stage: one kernel of an op, its source, what it does with its arrays, and its compiled variants.

A variant is the kernel rewritten and compiled for one set of dtypes, ranks, batched arrays
and gradients. Variants never depend on sizes: a new shape compiles nothing.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .._errors import EngineError, GradientError, KernelError, TinsmithError, refusal
from .._lazy import lazy
from ..engines import COMPILING, NAMES, Compiled, Engine, Language, Parameter, array_text, get, of_kernel, one_at_a_time
from ..source import (
    Constants,
    Roles,
    Source,
    build,
    constants_of,
    divides,
    has_plain_loop,
    lent_names,
    may_end_early,
    multiplies_atomically,
    roles_of,
    runs_in_blocks,
    subscript_arity,
    takes_functions,
)
from ..source.ir import Lowered, NotCovered, lower, nodes, types
from ..transforms import (
    NotBatchable,
    NotRewritable,
    annotate,
    begin_with_copies,
    drop_gradient_stores,
    drop_results,
    drop_stores,
    lift_scalars,
    loop_over_ranges,
    pass_fields,
    rename_parameters,
    run_blocks_in_order,
    serialize_loops,
    simplify_tree,
    split_gradients,
    store_results,
    strip_functions,
    write_out_divisions,
    write_out_products,
)
from ._from_ir import (
    compile_batched,
    compile_divisions,
    compile_moved,
    compile_products,
    compile_strips,
    misread_reverse,
    over_samples,
)
from ._guarded import compile_guarded
from ._links import Links
from ._structs import without_structs_of
from ._uncompiled import misfitting_loop, place_warnings, places_of, remedy_of, reverse_remedy, telling
from ._variant import ArrayType, Variant

NO_NAMES: Mapping[str, str] = {}


class FieldUse(NamedTuple):
    """A field that a kernel or one of its functions uses; one that is not followed counts as written and read.

    `is_replaced` says that it is written otherwise than by adding to it; `function` is who uses it, at `place`.
    """

    name: str
    field: Any
    is_written: bool
    is_read: bool
    is_followed: bool
    is_replaced: bool
    function: str
    place: str


class Stage:
    """One kernel, ready to be rewritten and compiled for any variant.

    Attributes:
        engine: where it runs; `home` is the engine that it was written for.
        parameters: its parameters by name, in order, without `self`; last those that stand for what it returns.
        results: what it returns, by name, as far as it is an output.
        drops_results: whether it is run as a kernel that returns nothing.
        begins: arrays that it fills with copies before anything else, with the names of what is copied.
        roles: how it uses each array.

    One that `is_steady` was made with Python values that nobody changes, so they are not looked at again.
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
        is_simd: bool = False,
        is_steady: bool = False,
        is_checked: bool = False,
    ) -> None:
        self.kernel = kernel
        self.is_simd = is_simd and not is_checked
        self.is_checked = is_checked
        self._is_steady = is_steady
        self.links = links or Links({}, {})
        self.drops_results = may_write_fields or links is not None  # a layer's, which has no use for them
        self._may_write_fields = may_write_fields
        self.home = of_kernel(kernel)
        self.engine: Engine = get(engine) if engine else self.home
        self.source: Source = without_structs_of(kernel, self.home)
        self.source = replace(self.source, tree=drop_gradient_stores(self.source.tree, self.links.gradients))
        self.owner = self.home.owner_of(kernel)
        self.is_method = self.home.is_method(kernel)
        self.source = replace(self.source, tree=rename_parameters(self.source.tree, self.links.names))
        self.results = tuple(zip(results, self.home.results(kernel), strict=False))
        self.source = replace(self.source, tree=rename_parameters(self.source.tree, updated))
        self.source = replace(self.source, tree=self._with_results(results))
        keys = self.links.keys(self.home)
        if keys:
            self.source = pass_fields(self.source, self.home, self._objects(), keys)
        linked = [self._linked(parameter) for parameter in self.home.parameters(kernel)]
        linked += [array.parameter() for array in self.links.fields.values()]
        linked += [replace(one, name=name, kind="array", ndim=0) for name, one in self.results]
        linked = self._with_gradients(linked) if splits_gradients else linked
        linked = [replace(one, name=updated.get(one.name, one.name)) for one in linked]
        self.begins = {updated[name]: name for name in begins}
        ranks = {one.name: self._index_count(one) for one in linked if one.name in self.begins}
        self.source = replace(self.source, tree=begin_with_copies(self.source.tree, self.begins, ranks))
        linked = [new for one in linked for new in self._with_source(one)]
        self.parameters: dict[str, Parameter] = {parameter.name: parameter for parameter in linked}
        self.arrays = tuple(name for name in self.parameters if name in set(arrays))
        values = [name for name in self.arrays if self.parameters[name].kind in ("scalar", "matrix")]
        self._lent = lent_names(self.source, self.home, self.owner)
        plain = simplify_tree(self.source.tree, [name for name in self.arrays if name not in values], self._lent)
        self.source = replace(self.source, tree=lift_scalars(plain, values))
        if self.drops_results:
            self.source = replace(self.source, tree=drop_results(self.source.tree))
        self._ranks = {name: self.parameters[name].ndim for name in self.arrays}
        self.roles: dict[str, Roles] = roles_of(self.source, self.arrays, self.home, self.owner, self._ranks)
        self.texts: dict[Variant, str] = {}
        self._compiled: dict[Variant, Compiled] = {}
        self._lowered: dict[tuple[Variant, types.Defaults], Lowered] = {}
        self._misread: set[Variant] = set()
        self._batch_refusals: dict[Variant, str] = {}
        self._constants: Constants | None = None
        self._knows_names = False
        self._warnings: set[tuple[str, str, int]] = set()
        self._captured: str | None = None
        self._surveyed: dict[tuple[Any, ...], Constants] = {}
        self._stamps: dict[int, tuple[Any, Any]] = {}

    def _with_results(self, names: Sequence[str]) -> ast.FunctionDef:
        """The kernel with what it returns stored to arrays."""
        try:
            return store_results(self.source.tree, names)
        except NotRewritable as refused:
            words = f"what kernel `{self.source.name}` returns cannot become an output: {refused.reason}"
            remedy = refused.remedy or (
                "Return once, at the end of the kernel, each of the values by itself; branches of `if static(...)` may "
                "return, too."
            )
            raise KernelError(refusal(words, [("at", self.source.place(refused.node))], remedy)) from None

    def _with_gradients(self, parameters: list[Parameter]) -> list[Parameter]:
        """Parameters with gradients, `grad_x`, which the kernel calls `x.grad`."""
        try:
            tree, used = split_gradients(self.source.tree, [one.name for one in parameters])
        except NotRewritable as reason:
            words = f"kernel `{self.source.name}` uses a name that its gradients have: {reason}"
            remedy = "Call it something else."
            raise KernelError(refusal(words, [("at", self.source.place(self.source.tree))], remedy)) from None
        self.source = replace(self.source, tree=tree)
        groups = [[one, replace(one, name=f"grad_{one.name}")] if one.name in used else [one] for one in parameters]
        return [one for group in groups for one in group]

    def _index_count(self, parameter: Parameter) -> int | None:
        """How many indices an element of an array has, as far as its annotation or its uses say."""
        return subscript_arity(self.source, parameter.name) if parameter.ndim is None else parameter.ndim

    def _with_source(self, parameter: Parameter) -> list[Parameter]:
        """A parameter, after the array that it begins as a copy of."""
        source = self.begins.get(parameter.name)
        return [parameter] if source is None else [replace(parameter, name=source), parameter]

    def _linked(self, parameter: Parameter) -> Parameter:
        """A parameter by its name in the op, with the element dims that are known of it."""
        name = self.links.names.get(parameter.name, parameter.name)
        is_open = parameter.dtypes is None and parameter.kind in ("template", "array")
        known = self.links.elements.get(name, ()) if is_open else ()
        return replace(parameter, name=name, element=known or parameter.element)

    def _objects(self) -> dict[str, Any]:
        """What parameters stand for, by their names in the op."""
        found = {self.links.names.get(name, name): value for name, value in self.links.objects.items()}
        return found | ({self.source.parameters[0]: self.owner} if self.is_method else {})

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def first(self) -> Stage:
        """The stage that this one launches again: itself, unless it is a `Relaunch`."""
        return self

    @property
    def renamed(self) -> Mapping[str, str]:
        """Names of scalar arguments in the op, by those that `first` has for them, where they differ."""
        return {}

    @property
    def varies(self) -> bool:
        """Whether the kernel bakes in Python values that may change; True until that is known."""
        constants = self._constants
        return constants is None or bool(constants.paths) or not constants.is_complete

    @property
    def bakes_numbers(self) -> bool:
        """Whether the kernel bakes in values other than fields; True until that is known."""
        constants = self._constants
        return constants is None or constants.has_numbers or not constants.is_complete

    @lazy
    def uses_blocks(self) -> bool:
        """Whether the kernel runs in blocks of threads that share memory or wait for each other."""
        return runs_in_blocks(self.source, self.home, self.owner) is not None

    @property
    def runs_as_written(self) -> bool:
        """Whether the engine gets the user's own source: not where the kernel was moved, or its bounds are checked."""
        return self.engine is self.home and not self.is_checked

    @lazy
    def open_templates(self) -> tuple[str, ...]:
        """Parameters that a call gives Python objects to."""
        return tuple(n for n, one in self.parameters.items() if one.kind == "template" and n not in self.arrays)

    def templates(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Template arguments by name, `self` among them."""
        mine = {name: values[name] for name in self.open_templates if name in values}
        return mine | ({self.source.parameters[0]: self.owner} if self.is_method else {})

    def fingerprint(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """A picture of every Python value that the kernel bakes in; equal pictures share a compiled kernel."""
        templates = self.templates(values)
        constants = self._constants
        if constants is None or not constants.is_complete:
            constants = self.survey(templates)
        picture = constants.fingerprint(templates)
        if not picture:
            return picture
        known = self._surveyed.get(picture)
        if known is None:
            known = self.survey(templates)
            picture = known.fingerprint(templates)
            self._surveyed[picture] = known
        self._constants = known  # two fields may stand under one name in turn
        return picture

    @one_at_a_time
    def survey(self, templates: Mapping[str, Any]) -> Constants:
        """Look at every Python value that the kernel uses now. Raises KernelError if it writes a field."""
        self._constants = constants_of(self.source, self.home, templates, frozenset(self.arrays))
        self._knows_names = self._constants.is_complete
        if self._captured is None and self._knows_names:
            self._captured = self._constants.describe(self.templates({}), only_captured=True)
        if self._is_steady:  # 2 us a value and call are spared
            self._constants = replace(self._constants, paths=())
        if any(name not in templates for name in self.open_templates):
            self._constants = replace(self._constants, is_complete=False)  # the first call brings the templates
        for name, place in () if self._may_write_fields else self._constants.written:
            words = f"kernel `{self.name}` writes the field `{name}`, which is no output of its op"
            remedy = (
                f"Make `{name}` an array parameter and name it right of `->`; a gradient would run the write again."
            )
            raise KernelError(refusal(words, [("at", place)], remedy))
        for _, field in self._constants.fields:
            self._stamps.setdefault(id(field), (field, self.engine.runtime()))
        return self._constants

    @property
    def knows_names(self) -> bool:
        """Whether every name that the kernel uses had a value when it was last looked at."""
        return self._knows_names

    @property
    def sources(self) -> tuple[Source, ...]:
        """The kernel, and the engine functions that it calls."""
        return self._constants.sources if self._constants else (self.source,)

    def describe_captured(self) -> str:
        """The values of closures and objects when the op was made, in which kernels of one text differ.

        It is text that other processes can compare with theirs.
        """
        return self._captured or ""

    def describe_values(self) -> str:
        """All Python values that the kernel bakes in now besides its arguments, as text for other processes."""
        return self._constants.describe(self.templates({})) if self._constants else ""

    @property
    def has_state(self) -> bool:
        """Whether the kernel uses fields or Python values that are no arguments of a call, and may change."""
        return self._constants is not None and self._constants.has_state(self.templates({}))

    @property
    def environment(self) -> tuple[Any, ...]:
        """The objects from which Python values come that no description tells apart; none where there are none."""
        if not (self.has_state or self.uses_fields):
            return ()
        function = self.source.function
        return (self.owner, function.__globals__, *(function.__closure__ or ()))

    def check_object(self, op: str) -> None:
        """Refuse a method of which nobody said whose."""
        if self.is_method and self.owner is None:
            words = f"kernel `{self.name}` of op `{op}` is a method, and has no object"
            remedy = "Decorate its class with @ti.data_oriented, and take the method from an object of it."
            raise KernelError(refusal(words, [("kernel", self.source.place(self.source.tree))], remedy))

    def check_fields(self, op: str) -> None:
        """Refuse fields of an engine that has been started anew since: their memory is gone."""
        for name, field in self._constants.fields if self._constants else ():
            _, runtime = self._stamps[id(field)]
            if runtime is not None and runtime is not self.engine.runtime():
                raise field_is_gone(op, name)

    def compiled(self, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
        """The compiled variant. Raises KernelError or GradientError with the engine's own words."""
        found = self._ready(variant)
        if found is not None:
            return found
        with COMPILING:
            found = self._ready(variant)
            if found is not None:
                return found
            self.engine.require_ready(op)
            self.check_fields(op)
            if variant.fingerprint != self.fingerprint(values):
                raise changed_between(op)
            self._check_blocks(op)
            by_ir = self._from_ir(variant, values, op)
            found = by_ir(self, variant, values, op) if by_ir else self._compile_source(variant, values, op)
            self._compiled[variant] = found
        return found

    def _check_blocks(self, op: str) -> None:
        """Refuse to let an engine compile blocks of threads where it has none: Taichi ends the process on some."""
        where = runs_in_blocks(self.source, self.home, self.owner) if self.uses_blocks else None
        if where is not None and (self.engine.device_type() == "cpu" or not self.runs_as_written):
            words = f"kernel `{self.name}` of op `{op}` uses blocks of threads, which {self.engine.name} lacks here"
            remedy = (
                "Start the engine that it was written for on a GPU; or leave out `backward=`: of the op's own kernel "
                "a gradient is generated."
            )
            raise KernelError(refusal(words, [("at", where)], remedy))

    def _from_ir(
        self, variant: Variant, values: Mapping[str, Any], op: str
    ) -> Callable[[Stage, Variant, Mapping[str, Any], str], Compiled] | None:
        """What compiles a variant from its IR; None where the engine gets the user's own source."""
        if self.is_checked and not variant.adjoint:
            return compile_guarded
        if self.uses_blocks and self.runs_as_written:
            return None  # a GPU has blocks; elsewhere `derived.BlockedCore` launches what was made of the IR
        is_moved = self.engine is not self.home
        is_misread = (variant.adjoint or not is_moved) and self._is_misread(variant, values)
        if variant.adjoint and is_misread:
            raise misread_reverse(self, op)
        if is_moved:
            return compile_moved
        if variant.batched:
            return compile_batched
        if not variant.adjoint and multiplies_atomically(self.source, self.home):
            return compile_products
        if is_misread:
            return compile_divisions
        return compile_strips if not variant.adjoint and self._has_strips(variant, values) else None

    def _has_strips(self, variant: Variant, values: Mapping[str, Any]) -> bool:
        """Whether loops of the kernel can run in strips or in lanes, which CPUs are faster with.

        False too where the IR does not cover the kernel: the engine compiles it as it is then.
        """
        is_cpu = self.engine.device_type() == "cpu"
        if not is_cpu or variant.is_simd:
            return False
        may_gain = takes_functions(self.source, self.home) or may_end_early(self.source, self.home)
        if not (may_gain or has_plain_loop(self.source)):
            return False
        try:
            kernel = self.lowered(variant, values).kernel
        except NotCovered:
            return False
        return strip_functions(kernel) is not kernel

    def _compile_source(self, variant: Variant, values: Mapping[str, Any], op: str) -> Compiled:
        function = self._function(variant)
        path = function.__code__.co_filename
        try:
            with place_warnings(self.source, self._tree(variant), self.texts[variant], path, self._warnings):
                return self.engine.compile(
                    function,
                    self.templates(values),
                    adjoint=variant.adjoint,
                    stack=variant.stack,
                    is_careful=self.is_careful(variant),
                    is_aliased=self.is_aliased(variant),
                    is_simd=variant.is_simd,
                )
        except TinsmithError:
            raise
        except Exception as cause:
            raise self._refusal(variant, cause, op) from cause

    def _is_misread(self, variant: Variant, values: Mapping[str, Any]) -> bool:
        """Whether the engine would work out a division of integers that it knows by another rule than at run time.

        False too where the IR does not cover the kernel: the engine compiles it as it is then, and lint names the line.
        """
        if not divides(self.source, self.home):
            return False
        forward = replace(variant, adjoint=False, stack=0)
        try:
            self.lowered(forward, values)
        except NotCovered:
            return False
        return forward in self._misread

    def _ready(self, variant: Variant) -> Compiled | None:
        """What was compiled for a variant, where the engine has not been started anew since."""
        found = self._compiled.get(variant)
        return found if found is not None and found.runtime is self.engine.runtime() else None

    def lowered(self, variant: Variant, values: Mapping[str, Any], *, in_blocks: bool = False) -> Lowered:
        """The kernel as IR, for a variant; with blocks of threads still in it where that is asked for.

        Raises NotCovered.
        """
        defaults = types.Defaults(*Language(self.engine).default_types)  # type: ignore[arg-type]
        if in_blocks and self.uses_blocks:
            return self._lower_in_blocks(variant, values, defaults)
        key = (variant, defaults)
        with COMPILING:
            if key not in self._lowered:
                self._lowered[key] = self._lower(variant, values, defaults)
            return self._lowered[key]

    def _lower(self, variant: Variant, values: Mapping[str, Any], defaults: types.Defaults) -> Lowered:
        if variant.batched:
            one, fields = self.lowered(replace(variant.single, is_serial=False), values)
            return Lowered(over_samples(one, variant), fields)
        found = self._lower_in_blocks(variant, values, defaults)
        plain = run_blocks_in_order(found.kernel)
        exact = write_out_divisions(plain)
        if exact is not plain:
            self._misread.add(variant)
        return found._replace(kernel=write_out_products(exact))

    def _lower_in_blocks(self, variant: Variant, values: Mapping[str, Any], defaults: types.Defaults) -> Lowered:
        """The kernel as it was written."""
        given = dict(variant.arrays)
        arrays = {n: nodes.Array(n, NAMES[a.dtype], a.rank, a.element) for n, a in given.items()}
        arguments = {
            name: (_type_of(parameter, defaults), parameter.element)
            for name, parameter in self.parameters.items()
            if parameter.kind in ("scalar", "matrix") and name not in given
        }
        others = {name: values[name] for name in self.open_templates}
        others["_lang"] = self.home.lang  # what rewritten trees call it
        source = replace(self.source, tree=self._tree(variant))
        return lower(
            source, self.home, arrays, arguments=arguments, templates=others, owner=self.owner, defaults=defaults
        )

    @one_at_a_time
    def batch_refusal(self, variant: Variant, values: Mapping[str, Any]) -> str:
        """Why this variant cannot run a batch in one launch; "" where it can."""
        if variant.adjoint:
            return f"{self.engine.name}'s reverse mode differentiates the kernel as it was written"
        if self.uses_blocks and self.engine.device_type() != "cpu":
            return "the threads of a block work on one sample"
        found = self._batch_refusals.get(variant)
        if found is None:
            try:
                self.lowered(variant, values)
                found = ""
            except NotCovered as reason:
                found = f"tinsmith cannot follow {reason.construct}, at {reason.place}"
            except NotBatchable as reason:
                found = str(reason)
            self._batch_refusals[variant] = found
        return found

    def reversed_view(self, arrays: frozenset[str]) -> tuple[Source, dict[str, Roles]]:
        """The kernel that is differentiated, without stores to `arrays`, which have no adjoint; and its roles.

        What atomics return is still in the source, and no longer in the roles.
        """
        if not any(name in arrays and role.is_written for name, role in self.roles.items()):
            return self.source, self.roles
        source = replace(self.source, tree=drop_stores(self.source.tree, arrays, keep_returns=True))
        bare = replace(self.source, tree=drop_stores(self.source.tree, arrays))
        return source, roles_of(bare, self.arrays, self.home, self.owner, self._ranks)

    def _function(self, variant: Variant) -> Callable[..., Any]:
        label = f"{self.name} of {os.path.basename(self.source.path)}"  # what an engine's warnings name
        function, text = build(self._tree(variant), self.source.namespace() | {"_lang": self.engine.lang}, label)
        self.texts[variant] = text
        return function

    def _tree(self, variant: Variant) -> Any:
        arrays = dict(variant.arrays)
        idle = [n for n, a in arrays.items() if variant.adjoint and not a.has_gradient and self.roles[n].is_written]
        tree = annotate(drop_stores(self.source.tree, idle), self.annotations(arrays))
        ranks = {name: array.rank for name, array in arrays.items()}
        if variant.adjoint:  # an engine's reverse mode differentiates the loops that the user wrote
            return drop_gradient_stores(tree, self._constants.gradients if self._constants else ())
        tree = loop_over_ranges(tree, self._field_ranks() | ranks)
        # what stays an atomic product is one in a parallel loop: in order, both engines end the process on it
        is_serial = variant.is_serial and not multiplies_atomically(self.source, self.home)
        return serialize_loops(tree) if is_serial else tree

    def _field_ranks(self) -> dict[str, int]:
        """Dims of the fields that a loop may run over as over a range: every element is there, from 0 on."""
        ranks = {}
        for name, field in self._constants.fields if self._constants else ():
            if not any(leaf is field for _, leaf in self.home.leaf_fields(field, name)):
                continue  # structs: their members are fields
            facts = self.home.field_facts(field, name)
            if facts.is_dense and not any(facts.offset):
                ranks[name] = len(facts.shape)
        return ranks

    @property
    def uses_fields(self) -> bool:
        """Whether the kernel or a function of it uses fields."""
        return self._constants is not None and bool(self._constants.fields)

    def field_uses(self, picture: tuple[Any, ...] = ()) -> list[FieldUse]:
        """Fields that the kernel and its functions use; with a picture, where they bake in what it shows."""
        found = self._surveyed.get(picture, self._constants)
        if found is None:
            return []
        written = {name for name, _ in found.written} | found.whole
        read, replaced = found.read | found.whole, found.replaced | found.whole
        return [
            FieldUse(n, field, n in written, n in read, n not in found.whole, n in replaced, *found.places[n])
            for n, field in found.fields
        ]

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
        """Whether the kernel changes an array under several indices."""
        return any(one.is_aliased(in_reverse=variant.adjoint) for one in self.roles.values())

    def is_careful(self, variant: Variant) -> bool:
        """Whether the kernel reads and changes one array, or uses vectors of one outside of loops."""
        vectors = [self.roles[name] for name, array in variant.arrays if array.element]
        is_at_top = any(not one.loops for role in vectors for one in role.accesses)
        return is_at_top or any(role.is_read and role.is_written for role in self.roles.values())

    def _refusal(self, variant: Variant, cause: Exception, op: str) -> TinsmithError:
        place = self.source.place(self.source.tree)
        places = places_of(cause, self.source, self._tree(variant), self.texts[variant])
        rows = [("kernel", f"{self.name} at {place}"), *places, (self.engine.name, telling(cause))]
        if not variant.adjoint:
            ranks = {name: array.rank for name, array in variant.arrays}
            misfit = misfitting_loop(self.source, ranks)
            words, remedy = f"the kernel of op `{op}` does not compile", remedy_of(cause)
            if misfit is not None:
                rows, remedy = [*rows, misfit.row], f"{misfit.remedy} {remedy}"
            return KernelError(refusal(words, rows, remedy))
        return GradientError(
            refusal(
                f"{self.engine.name} cannot differentiate the kernel of op `{op}`",
                rows,
                reverse_remedy(self.engine, is_op=not self._may_write_fields),
            )
        )


def _type_of(parameter: Parameter, defaults: types.Defaults) -> str:
    """The type of a scalar, or of a vector's numbers, by its annotation: `float` is the engine's default."""
    kind = parameter.text.rpartition("_lang.")[2].rpartition(", ")[2].rstrip(")")
    return {"float": defaults.fp, "int": defaults.ip, "bool": "u1"}.get(kind, kind)


def field_is_gone(op: str, name: str) -> EngineError:
    """What an op gets that reads a field of an engine that has been started anew since."""
    words = f"op `{op}` reads the field `{name}`, whose memory went when the engine was started anew"
    return EngineError(refusal(words, remedy=f"Make `{name}` again after the last ts.init()."))


def changed_between(op: str) -> GradientError:
    """What a backward pass gets whose forward pass used other Python values."""
    words = f"a Python value that op `{op}` uses changed between its forward and its backward pass"
    return GradientError(refusal(words, remedy="Change it after the backward pass."))
