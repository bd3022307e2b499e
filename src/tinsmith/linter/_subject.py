"""Subject: one kernel or engine function that rules examine, given as an object or as the text of a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from .._lazy import lazy
from ..engines import Engine, count_column, module_name, preferred_name
from ..frontend import (
    MISSING,
    EngineFacts,
    Roles,
    SavedValues,
    Source,
    Spot,
    find_called_function,
    find_saved_values,
    names_in,
    resolve_callee,
    roles_of,
    spots,
)
from ..spec import Item, Spec
from ._finding import Edit, Finding, Severity
from ._members import restore_members
from ._source_form import (
    Call,
    Expression,
    Function,
    Node,
    find_list_names,
    find_names,
    find_subscripted_names,
    get_attribute,
    get_name,
    get_start,
    is_call,
    is_same_expression,
    unparse,
)
from ._unrun import EngineName, UnrunSource, element_of

Fact = TypeVar("Fact")
ENGINES = ("taichi", "quadrants")
BOTH = "Taichi and Quadrants"


@dataclass(frozen=True)
class ParameterFacts:
    """What is known of a parameter, or of a member of one.

    An "object" is `self`, a "struct" what a class's annotations describe, "" an unknown dtype, and a vector a scalar
    with dims. An index outside of an array that `is_clamped` means the nearest element. `member` reads the facts of a
    struct's member.
    """

    kind: Literal["array", "scalar", "template", "object", "struct", "any"]
    dtype: str = ""
    rank: int | None = None
    element: tuple[int, ...] = ()
    is_clamped: bool = False
    member: Callable[[str], ParameterFacts] | None = None


@dataclass(frozen=True, eq=False)
class Subject:
    """A kernel's tree and what is known of it.

    Attributes:
        source: its source; `tree` is the one that rules walk, in which `self.x` is one name.
        engine: what follows calls.
        kind: "kernel", or "func" for what kernels call.
        engine_name: "taichi", "quadrants", or "" where that is open.
        declared: its parameters.
        spec: of the op that it belongs to.
        lines: the file.
        find_doubtful: finds the arrays that nothing shows to hold floats.
        default_fp: what a float literal is.
        labels: what the source calls those texts of the tree that are none there.
        handed: fields that its functions name themselves, and that its tree hands to them.
        written_before: arrays that earlier kernels of its op write.
        memory: fields and arrays that its file makes, by name, and as `.x` those of its object, with what their numbers
            are: "int", "float", or "" where that is not known.
        known_facts: what `keep_with_subject` keeps.
    """

    source: Source
    engine: EngineFacts
    kind: str
    engine_name: str
    declared: Mapping[str, ParameterFacts]
    spec: Spec | None
    lines: tuple[str, ...]
    find_doubtful: Callable[[Subject], frozenset[str]]
    default_fp: str = "f32"
    labels: Mapping[str, str] = field(default_factory=dict)
    handed: frozenset[str] = frozenset()
    written_before: frozenset[str] = frozenset()
    memory: Mapping[str, Literal["int", "float", ""]] = field(default_factory=dict)
    known_facts: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    # What it is made of -----------------------------------------------------------------------

    @property
    def tree(self) -> Function:
        return self.source.tree

    @property
    def is_kernel(self) -> bool:
        return self.kind == "kernel"

    @lazy
    def module_name(self) -> str:
        """Return the name that the file uses for its engine's module: `ti`, `qd`."""
        if not isinstance(self.source, UnrunSource):
            return module_name(self.engine_name, self.source.function)
        module = EngineName(self.engine_name)
        names = [name for name, one in self.source.names.items() if isinstance(one, EngineName) and one == module]
        return preferred_name(self.engine_name, names, names_in(self.tree))

    @property
    def objects(self) -> dict[str, Any]:
        """The Python objects that parameters stand for, such as `self`, by the names of the parameters."""
        return {name: self.source.given.get(name) for name, one in self.declared.items() if one.kind == "object"}

    @lazy
    def spots(self) -> tuple[Spot, ...]:
        """Return all statements in the order of the text, with the loops and conditions around them."""
        return tuple(spots(self.tree.body))

    @lazy
    def arrays(self) -> frozenset[str]:
        """Return the parameters, fields and captured arrays whose elements are used."""
        arrays = {name for name, one in self.declared.items() if one.kind == "array"} | self.handed
        objects = {name for name, one in self.declared.items() if one.kind in ("scalar", "any", "object", "struct")}
        named = find_subscripted_names(self.source.nodes) | arrays
        lists = {name for name in find_list_names(self.source.nodes) if not self._is_declared_array(name)}
        return frozenset(named - (self.source.assigned_names | objects | self._captured_names | lists))

    def _is_declared_array(self, name: str) -> bool:
        facts = self.find_facts(self.label(name))
        return facts is not None and facts.kind == "array"

    @lazy
    def _captured_names(self) -> set[str]:
        """Return the captured names of Python containers and of values of the engine's module: they are not arrays."""
        captured = set()
        for name, node in find_names(self.source.nodes).items():
            if name not in self.declared:
                value = find_called_function(self.source, node)
                is_field = isinstance(self.engine, Engine) and self.engine.is_field(value)
                if isinstance(value, list | tuple | dict | str) or (self.engine.owns(value) and not is_field):
                    captured.add(name)
        return captured

    @lazy
    def roles(self) -> dict[str, Roles]:
        """Return how the kernel reads, writes and adds to each of its arrays."""
        return roles_of(self.source, sorted(self.arrays), self.engine)

    @lazy
    def needs(self) -> SavedValues:
        """Return which values the reverse pass of the kernel reads."""
        return find_saved_values(self.source, self.roles, self.floats, self.engine)

    @lazy
    def integers(self) -> frozenset[str]:
        """Return the arrays that are known to hold integers."""
        elements = {name for name in self.arrays if self.find_declared_element(name) == "int"}
        return frozenset(elements | self.find_declared(lambda dtype: dtype[:1] in ("i", "u")))

    @lazy
    def floats(self) -> frozenset[str]:
        """Return the arrays that may have a gradient."""
        return self.arrays - self.integers - self.doubtful

    @lazy
    def doubtful(self) -> frozenset[str]:
        """Return the arrays for which nothing shows that they hold floats, so that no gradient is assumed."""
        return self.find_doubtful(self)

    def is_of_others(self, array: str) -> bool:
        """Return True if an array is a member of a struct, or of an object that another object holds."""
        first, *path = self.label(array).split(".")
        return len(path) > (first in self.objects)

    @property
    def inputs(self) -> frozenset[str]:
        """Arrays that the op takes and leaves as they are."""
        items = self.spec.inputs if self.spec else ()
        return frozenset(item.name for item in items if not item.is_updated)

    @property
    def outputs(self) -> frozenset[str]:
        return frozenset(item.name for item in self.spec.outputs) if self.spec else frozenset()

    @property
    def spec_items(self) -> Sequence[Item]:
        """Return the items of the spec; none without a spec."""
        return self.spec.items if self.spec else ()

    def find_declared(self, is_wanted: Callable[[str], bool]) -> set[str]:
        """Return the names whose dtype in the signature or the spec is wanted."""
        declared = {name for name, one in self.declared.items() if is_wanted(one.dtype)}
        return declared | {item.name for item in self.spec_items if is_wanted(item.dtype or "")}

    def find_declared_element(self, array: str) -> Literal["int", "float", ""] | None:
        """Return the kind of numbers that an array is declared with: "" for any kind, None if it is not declared."""
        first, *path = self.label(array).split(".")
        if first in self.objects:
            return self.memory.get("." + ".".join(path))
        if first not in self.declared:
            return self.memory.get(self.label(array))
        facts = self.find_facts(self.label(array))
        return None if facts is None else element_of(facts.dtype)

    def find_facts(self, text: str) -> ParameterFacts | None:
        """Return what is known of `info.links.pos`, from the annotation of `info` on; None if nothing is."""
        first, *path = text.split(".")
        facts = self.declared.get(first)
        for name in path:
            facts = None if facts is None or facts.member is None else facts.member(name)
        return facts

    @lazy
    def used_names(self) -> frozenset[str]:
        """Return the names in the body as the author wrote it, `info` for `info.x`."""
        return self.source.used_names | {text.split(".")[0] for text in self.labels.values()}

    def label(self, name: str) -> str:
        """Return the text by which the source refers to an array."""
        return self.labels.get(name, name)

    # Questions --------------------------------------------------------------------------------

    def resolve_builtin(self, node: Node) -> str:
        """Return the name of the engine's or Python's function that a call calls; "" for other functions."""
        if not is_call(node):
            return ""
        known = self._builtins.get(node)
        if known is None:
            known = self._builtins[node] = self._find_builtin(node)
        return known

    @lazy
    def _builtins(self) -> dict[Node, str]:
        """Return the cache of `resolve_builtin`."""
        return {}

    def _find_builtin(self, node: Call) -> str:
        name = get_name(node.func)
        if name in _BUILTINS and name not in self.source.assigned_names:
            return name
        value = find_called_function(self.source, node.func)
        if value is None or not self.engine.owns(value):
            return ""
        callee = resolve_callee(node)
        # `ti.length(node, index)` counts the entries of a dynamic node; with one argument it is a norm.
        return "node_length" if callee == "length" and len(node.args) == 2 else callee

    def is_atomic(self, node: Call) -> bool:
        """Return True if a call is of an atomic operation."""
        return self.resolve_builtin(node).startswith("atomic_")

    def is_unread(self, node: Expression) -> bool:
        """Return True if a function's source is not available: it is imported, or a method of an object."""
        objects, start = self.objects, get_start(node)
        attribute = get_attribute(node)
        is_own = start in self.source.assigned_names or (start in self.declared and start not in objects)
        if not start or is_own or start in _PYTHONS or (attribute is not None and attribute[1] in _OF_FIELDS):
            return False
        value = self.source.value(node)
        return value is None or (value is MISSING and attribute is not None)

    def text(self, node: Node) -> str:
        """Return a node's source text on one line."""
        text = unparse(restore_members(node))
        for name, label in self.labels.items():
            text = text.replace(name, label)
        return text

    def finding(
        self,
        rule: str,
        severity: Severity,
        node: Node,
        message: str,
        remedy: str = "",
        engines: tuple[str, ...] = (),
        fix: Edit | None = None,
    ) -> Finding:
        """Make a finding at a node. `engines` names the engines of whose own reverse mode the finding warns, if any."""
        line, offset = getattr(node, "lineno", self.tree.lineno), getattr(node, "col_offset", None)
        column = 0 if offset is None else count_column("".join(self.lines[line - 1 : line]), offset)
        return Finding(rule, severity, self.source.path, line, column, message, remedy, engines=engines, fix=fix)

    @lazy
    def bound_module_name(self) -> str:
        """Return the name of the engine's module if the kernel's text uses it, so that it is bound; "" otherwise."""
        return self.module_name if self.module_name in names_in(self.tree) else ""

    def replace_node(self, node: Node | None, replacement: str) -> Edit | None:
        """Return the edit that replaces a node's text; None if the node is not on one line of the file as it stands.

        The fields of an object have names of their own in the tree, so the text is compared.
        """
        line, start, end = (getattr(node, name, None) for name in ("lineno", "col_offset", "end_col_offset"))
        if node is None or line is None or start is None or end is None or getattr(node, "end_lineno", None) != line:
            return None
        whole = "".join(self.lines[line - 1 : line])
        first, last = count_column(whole, start), count_column(whole, end)
        if not is_same_expression(whole[first - 1 : last - 1], self.text(node)):
            return None
        return Edit((line, first), (line, last), replacement)


_PYTHONS = frozenset({"math", "np", "numpy"})
_OF_FIELDS = frozenset({"append", "deactivate", "is_active", "length", "parent"})
"""What a field's own methods are called."""


_BUILTINS = frozenset({"abs", "bool", "float", "int", "max", "min", "pow", "range", "round"})


def keep_with_subject(compute: Callable[[Subject], Fact]) -> Callable[[Subject], Fact]:
    """Let a fact about a kernel be computed once, for the rules that ask for it. A decorator.

    It goes with the subject: a cache of this module's own would keep the kernel, and all that its closures hold.
    """

    @functools.wraps(compute)
    def look_up(subject: Subject) -> Fact:
        if compute not in subject.known_facts:
            subject.known_facts[compute] = compute(subject)
        return subject.known_facts[compute]

    return look_up
