"""Baked values: the Python values and fields that a kernel uses besides its arguments, as they are now.

An engine compiles them into a kernel. So a fingerprint of them is part of the key of a compiled kernel, and they are
read again before each call that may have changed them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from .. import frontend
from .._cache import BoundedDict
from .._errors import EngineError, GradientError, KernelError, refusal
from ..engines import Engine, module_name, one_at_a_time, remedy_for_lost_field
from ..frontend import Constants, FieldUse, Source, constants_of, find_unsupported
from ._linked_kernel import LinkedKernel
from ._structs import without_structs_of


class BakedValues:
    """The Python values and fields that one kernel uses.

    Args:
        linked: the kernel.
        engine: where it runs.
        may_write_fields: whether it may write fields: a layer's may.
        is_steady: whether the values never change, so that they are read once.
    """

    def __init__(self, linked: LinkedKernel, engine: Engine, *, may_write_fields: bool, is_steady: bool) -> None:
        self._linked = linked
        self._engine = engine
        self._may_write_fields = may_write_fields
        self._is_steady = is_steady
        self._constants: Constants | None = None
        # With the values that are read once, too: the kernel's IR follows from them.
        self._all_constants: Constants | None = None
        self._lacks_templates = False
        self._captured: str | None = None
        self._examined: set[Any] = set()
        # No cache: it says which fields a name stood for when a call's values were read.
        self._surveyed: BoundedDict[tuple[Any, ...], Constants] = BoundedDict()
        self._content: tuple[Constants, tuple[Any, ...], frontend.Content | None] | None = None
        self._stamps: dict[int, tuple[Any, Any]] = {}

    @property
    def varies(self) -> bool:
        """True if the kernel bakes in Python values that may change, or if this is not yet known."""
        constants = self._constants
        return constants is None or bool(constants.paths) or self._lacks_templates

    @property
    def bakes_numbers(self) -> bool:
        """True if the kernel bakes in values other than fields, or if this is not yet known."""
        constants = self._constants
        return constants is None or constants.has_numbers or self._lacks_templates

    def fingerprint(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return a hashable fingerprint of all Python values that the kernel bakes in. Equal fingerprints share a
        compiled kernel.
        """
        templates = self._linked.templates(values)
        constants = self._constants
        if constants is None or self._lacks_templates:
            constants = self.survey(templates)
        fingerprint = constants.fingerprint(templates)
        if not fingerprint:
            return fingerprint
        known = self._surveyed.get(fingerprint)
        if known is None:
            # Values that led elsewhere: it keeps what it finds.
            known = self.survey(templates)
            fingerprint = known.fingerprint(templates)
        # One name may refer to two fields in turn.
        self._constants = known
        return fingerprint

    def look_up(self, values: Mapping[str, Any]) -> Constants:
        """Return all Python values and fields that the kernel uses now. Raise KernelError if it writes a field.

        The kernel's source is surveyed only for values that it was not surveyed for before.
        """
        self.fingerprint(values)
        return self._constants or self.survey(self._linked.templates(values))

    @one_at_a_time
    def survey(self, templates: Mapping[str, Any]) -> Constants:
        """Find all Python values and fields that the kernel uses now. Raise KernelError if it writes a field."""
        self._constants = constants_of(
            self._linked.source, self._linked.home, templates, frozenset(self._linked.arrays)
        )
        self._all_constants = self._constants
        self._refuse_statements(self._constants.sources)
        if self._captured is None and self.knows_names:
            self._captured = self._constants.describe(self._linked.templates({}), only_captured=True)
        # Saves 2 us per value and call.
        if self._is_steady and self.knows_names:
            self._constants = replace(self._constants, paths=(), has_numbers=False)
        # The first call has the templates.
        self._lacks_templates = any(name not in templates for name in self._linked.open_templates)
        written = next((use for use in self._constants.uses if use.written_at), None)
        if written is not None and not self._may_write_fields:
            name = written.name
            words = (
                f"kernel `{self._linked.source.name}` writes to the field `{name}`, which is not an output of its op"
            )
            remedy = (
                f"Make `{name}` an array parameter and list it to the right of `->` in the "
                "spec; a gradient would run the write again."
            )
            raise KernelError(refusal(words, [("at", written.written_at)], remedy))
        for use in self._constants.uses:
            self._stamps.setdefault(id(use.field), (use.field, self._engine.runtime()))
        if self._constants.paths and not self._lacks_templates:
            # A call with these values needs no second survey, which takes seconds for a kernel that calls many
            # functions. Not before the refusal above, which comes at each call.
            self._surveyed.keep(self._constants.fingerprint(templates), self._constants)
        return self._constants

    def _refuse_statements(self, sources: Sequence[Source]) -> None:
        """Raise KernelError if one of the sources contains a statement that ops do not support."""
        for source in sources:
            if source.identity in self._examined:
                continue
            self._examined.add(source.identity)
            unsupported = find_unsupported(source)
            if unsupported is not None:
                name, statement = self._linked.source.name, unsupported.statement
                words = f"kernel `{name}` contains `{statement}`, which no op can run: {unsupported.why}"
                raise KernelError(refusal(words, [("at", unsupported.place)], unsupported.remedy))

    @property
    def knows_names(self) -> bool:
        """True if every name that the kernel uses had a value when the kernel was last surveyed."""
        return self._constants is not None and self._constants.is_complete

    @property
    def sources(self) -> tuple[Source, ...]:
        """The sources of the kernel and of the engine functions that it calls."""
        return self._constants.sources if self._constants else (self._linked.source,)

    def describe_captured(self) -> str:
        """Return the values of closures and objects at the time when the op was made, as text.

        They tell kernels with the same source apart. Other processes can compare the text with theirs.
        """
        return self._captured or ""

    def describe_values(self) -> str:
        """Return all Python values that the kernel bakes in now, as text that other processes can compare
        with theirs.
        """
        return self._constants.describe(self._linked.templates({})) if self._constants else ""

    def find_content(self, values: Mapping[str, Any]) -> frontend.Content | None:
        """Return what the kernel's IR follows from, besides its parameters and options; None if that has no text."""
        templates = self._linked.templates(values)
        constants = self.look_up(values)
        if self._is_steady and self._all_constants is not None:
            constants = self._all_constants
        known, fingerprint = self._content, constants.fingerprint(templates)
        if known is None or known[0] is not constants or known[1] != fingerprint:
            known = self._content = constants, fingerprint, frontend.describe_content(constants, templates)
        return known[2]

    def list_tensors(self, values: Mapping[str, Any]) -> list[str]:
        """Return the names of the tensors that the kernel and its functions use and do not get as arguments."""
        templates = self._linked.templates(values)
        return self._constants.list_instances(torch.Tensor, templates) if self._constants else []

    def list_fields(self) -> list[str]:
        """Return the names of all fields that the kernel and its functions use, including those that an op may not
        write.
        """
        linked = self._linked
        constants = constants_of(linked.source, linked.home, linked.templates({}), frozenset(linked.arrays))
        return list(dict.fromkeys(use.name for use in constants.uses))

    def list_uses_with_results(self, values: Mapping[str, Any]) -> Sequence[FieldUse]:
        """Return all uses of fields in the kernel as its author wrote it, including fields that only its `return`
        reads.
        """
        linked = self._linked
        if not linked.home.results(linked.kernel):
            return self.look_up(values).uses
        source, _ = without_structs_of(linked.kernel, linked.home, linked.home.parameters(linked.kernel, ()), ())
        source = source.with_owner(linked.owner)
        return constants_of(source, linked.home, linked.templates(values), frozenset(linked.arrays)).uses

    @property
    def has_state(self) -> bool:
        """True if the kernel uses fields or Python values that are not arguments of a call and may change."""
        return self.has_state_with({})

    def has_state_with(self, values: Mapping[str, Any]) -> bool:
        """Return True if the kernel uses fields or changeable Python values, or attributes of these template
        arguments.
        """
        return self._constants is not None and self._constants.has_state(self._linked.templates(values))

    @property
    def environment(self) -> tuple[Any, ...]:
        """The objects that the kernel's Python values come from: its owner, its globals and its closure's cells. Empty
        if it has no state.
        """
        if not (self.has_state or self.uses_fields):
            return ()
        function = self._linked.source.function
        return (self._linked.owner, function.__globals__, *(function.__closure__ or ()))

    @property
    def uses_fields(self) -> bool:
        """True if the kernel or a function that it calls uses fields."""
        return self._constants is not None and bool(self._constants.uses)

    def field_uses(self, fingerprint: tuple[Any, ...] = ()) -> Sequence[FieldUse]:
        """Return the uses of fields in the kernel and its functions.

        With a fingerprint, return those of the Python values that the fingerprint was made from.
        """
        survey = self._surveyed.get(fingerprint, self._constants)
        return () if survey is None else survey.uses

    @property
    def gradients(self) -> Collection[str]:
        """The gradients of fields, `x.grad`, that the kernel stores to."""
        return self._constants.gradients if self._constants else ()

    def check_fields(self, op: str) -> None:
        """Raise EngineError if the kernel uses a field whose engine was restarted since, which destroyed the field's
        memory.
        """
        for use in self.field_uses():
            _, runtime = self._stamps[id(use.field)]
            if runtime is not None and runtime is not self._engine.runtime():
                raise build_lost_field_error(op, use.name, self._engine)

    def refuse_ndarrays(self, values: Mapping[str, Any], op: str) -> None:
        """Raise KernelError if the kernel uses an engine's ndarray that is not an argument: the launch would read
        memory that nobody passed.
        """
        held = self._constants and self._constants.find_held(
            self._linked.home.lang.Ndarray, self._linked.templates(values)
        )
        if held:
            name, place = held
            words = (
                f"kernel `{self._linked.source.name}` of op `{op}` uses the ndarray `{name}`, which is not an argument"
            )
            own = name.rpartition(".")[2].partition("[")[0]
            lang = module_name(self._linked.home.name, self._linked.source.function)
            remedy = (
                f"Pass it as an argument: add the parameter `{own}: {lang}.types.ndarray()`, list it in the spec, and "
                "give a tensor."
            )
            raise KernelError(refusal(words, [("at", place)], remedy))

    def field_ranks(self) -> dict[str, int]:
        """Return the number of dims of each field whose indices are all allocated and start at 0, so that a loop over
        it equals loops over ranges.
        """
        ranks = {}
        for use in self.field_uses():
            if not any(leaf is use.field for _, leaf in self._linked.home.leaf_fields(use.field, use.name)):
                # A struct is not a field; its members are.
                continue
            facts = self._linked.home.field_facts(use.field, use.name)
            if facts.is_dense and not any(facts.offset):
                ranks[use.name] = len(facts.shape)
        return ranks


def build_lost_field_error(op: str, name: str, engine: Engine) -> EngineError:
    """Build the error for a field whose memory was destroyed when its engine was restarted."""
    words = f"op `{op}` reads the field `{name}`, whose memory was freed when the engine was started again"
    remedy = remedy_for_lost_field(engine, f"Create `{name}` again after the last call of ts.init().")
    return EngineError(refusal(words, remedy=remedy))


def build_changed_error(op: str, kind: str, change: frontend.Change, remedy: str) -> GradientError:
    """Build the error for a value that changed between an op's forward and its backward pass.

    Args:
        op: the op, as a message calls it: "op `conv`".
        kind: what changed, "Python value" or "field".
        change: its name, and what it was and is.
        remedy: what to do besides changing it later.
    """
    words = f"the {kind} `{change.name}` that {op} reads changed between its forward and its backward pass"
    rows = [("in the forward pass", change.before or "no longer known"), ("now", change.now)]
    return GradientError(refusal(words, rows, f"Change it after the backward pass, or {remedy}."))


def build_changed_value_error(op: str, before: tuple[Any, ...] | None, now: tuple[Any, ...]) -> GradientError:
    """Build the error for a Python value that changed between two fingerprints: `before` of the forward pass, None if
    unknown, and `now`.
    """
    return build_changed_error(
        op, "Python value", frontend.find_changed_value(before, now), "make it an argument of the kernel"
    )
