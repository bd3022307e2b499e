"""Pass the fields that engine functions use as arguments of their calls.

    def scaled(v):                      def scaled(s_: _lang.template(), v):
        return v * s[None]      ->          return v * s_[None]

    y[i] = scaled(x[i])                 y[i] = scaled_(s, x[i])

Analyses follow a kernel's arrays into the functions that get them as arguments. So a function that uses a field by
name, `s` or `self.s`, is rebuilt with a parameter for it, and so are the functions between it and the kernel. Objects
that a function belongs to, or gets as arguments, become names that it captures: it reads other attributes of them as
before.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import CellType, CodeType, FunctionType
from typing import Any, NamedTuple

from ..codegen import keep_file, write_file
from ..engines import Engine, copy_node, parse_expression, parse_statement
from ._calls import EngineFacts
from ._fingerprints import MISSING, Same, is_plain_object
from ._read import Source, read


class FieldPasser(ABC):
    """What `pass_fields_as_arrays` has to know of fields and functions."""

    engine: EngineFacts

    @abstractmethod
    def array(self, source: Source, node: ast.expr) -> str:
        """Return the kernel's name of the array for the field that an expression means; "" if it means no field."""

    def members(self, source: Source, node: ast.expr) -> Sequence[str]:
        """Return the kernel's names of the arrays for the members of a field of structs; () for other expressions."""
        return ()

    @abstractmethod
    def is_object(self, value: Any) -> bool:
        """Return True if a value is an object that may hold fields or functions."""

    def is_removed(self, value: Any) -> bool:
        """Return True if the rewritten kernel does not have a value any more, so that it cannot pass it on."""
        return False

    @abstractmethod
    def source_of(self, callee: Any) -> Source | None:
        """Return the source of an engine function that can be rebuilt; None for other values."""

    @abstractmethod
    def rebuild(self, source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Any:
        """Build an engine function from a changed tree.

        `names` are the values of further names that it sees. A value that is a cell belongs to a function that calls
        itself: the name means what the cell will hold.
        """


class LiveFieldPasser(FieldPasser):
    """A `FieldPasser` for live fields and functions, which the engine knows."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Engine = engine  # pyright: ignore[reportIncompatibleVariableOverride]  # it is only read
        self._read = cache(read)

    def is_object(self, value: Any) -> bool:
        return is_plain_object(value, self.engine) and not self.engine.is_field(value)

    def source_of(self, callee: Any) -> Source | None:
        function = self.engine.inner_function(callee)
        return None if function is None else self._read(function)

    def rebuild(self, source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Any:
        """Build an engine function whose new parameters are templates."""
        lang: Any = self.engine.lang
        function = rebuild_function(source, tree, names)
        added = [one.arg for one in tree.args.args if one.arg not in source.parameters]
        function.__annotations__.update({name: lang.template() for name in added})
        return lang.func(function)


class KernelWithFields(NamedTuple):
    """A kernel that passes fields to its functions as arguments.

    `names` are the functions that were rebuilt, by the names that it has for them. `texts` are the source's text for
    each of them, and the arrays that it gets.
    """

    tree: ast.FunctionDef
    names: Mapping[str, Any]
    texts: Mapping[str, tuple[str, tuple[str, ...]]]


class _Callee(NamedTuple):
    """A called function.

    `objects` are what parameters stand for, where that is an object or a field: these parameters are dropped. `first`
    is 1 for a bound method, whose first parameter is not among the arguments of a call, else 0.
    """

    source: Source
    objects: Mapping[str, Any]
    first: int

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.source.identity, *((name, Same(self.objects[name])) for name in sorted(self.objects)))


def pass_fields_as_arrays(source: Source, hands: FieldPasser) -> KernelWithFields:
    """Replace the fields in a kernel by arrays, and pass them to the functions that use them.

    Args:
        source: the kernel. It knows the Python objects that its parameters stand for.
        hands: which fields become arrays, and which functions can be rebuilt.
    """
    return _Hander(hands).rewrite(source, None)


class _Hander:
    def __init__(self, hands: FieldPasser) -> None:
        self.hands = hands
        self._used: dict[tuple[Any, ...], tuple[str, ...]] = {}
        self._functions: dict[tuple[Any, ...], Any] = {}
        # Keys hold the `id` of callees, which Python would reuse for other objects once a callee is gone.
        self._callees: list[_Callee] = []

    def rewrite(self, source: Source, own: Mapping[str, str] | None) -> KernelWithFields:
        """Replace the fields in one function. `own` are its names for arrays; None if they keep the kernel's names."""
        tree = copy_node(source.tree)
        hand = _Hand(self, source, own)
        tree.body = [hand.visit(statement) for statement in tree.body]
        return KernelWithFields(tree, hand.names, hand.texts)

    def callee(self, caller: Source, call: ast.Call) -> _Callee | None:
        """Return the function that a call calls; None if it cannot be rebuilt."""
        value = caller.value(call.func)
        source = None if value is MISSING else self.hands.source_of(value)
        if source is None:
            return None
        is_bound = self.hands.engine.is_bound(value) and isinstance(call.func, ast.Attribute)
        objects: dict[str, Any] = {}
        if is_bound and isinstance(call.func, ast.Attribute) and source.parameters:
            objects[source.parameters[0]] = caller.value(call.func.value)
        objects |= dict(self._find_passed_fields(caller, source, call, int(is_bound)))
        return _Callee(source.with_objects(objects), objects, int(is_bound))

    def _find_passed_fields(
        self, caller: Source, source: Source, call: ast.Call, first: int
    ) -> Iterator[tuple[str, Any]]:
        """Yield the parameters that get fields or Python objects, with these: the rebuilt function captures them.

        An engine takes a field for a parameter that is not a template, but not an array.
        """
        # Not parameters with defaults: a rebuilt function has the defaults of the old one, which belong to its last
        # parameters.
        names = source.parameters[first : len(source.parameters) - len(source.tree.args.defaults)]
        known = [*zip(names, call.args, strict=False)]
        known += [(word.arg, word.value) for word in call.keywords if word.arg in names]
        # Which parameters `*args` fills is not known.
        if any(isinstance(argument, ast.Starred) for argument in call.args):
            return
        for name, argument in known:
            value = caller.value(argument)
            if source.is_constant(name) and (self.hands.is_object(value) or self.hands.array(caller, argument)):
                yield name, value

    def find_used_arrays(self, callee: _Callee) -> tuple[str, ...]:
        """Return the arrays for the fields that a function uses, itself or through one that it calls."""
        key = callee.key
        if key not in self._used:
            self._callees.append(callee)
            self._used[key] = tuple(dict.fromkeys(self._uses(callee.source, {key})))
        return self._used[key]

    def _uses(self, source: Source, seen: set[tuple[Any, ...]]) -> Iterator[str]:
        """Yield the arrays for the fields that a function uses. Functions with keys in `seen` are not entered again."""
        for node in source.nodes:
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and (array := self.hands.array(source, node)):
                yield array
            if isinstance(node, ast.Attribute) and (member := _member_of_element(node)) is not None:
                array = self.hands.array(source, member)
                yield from [array] if array else []
            if isinstance(node, ast.For):
                # `_Hand.visit_For` makes the loop one over the first member.
                yield from self.hands.members(source, node.iter)[:1]
            # Each function once: one may call itself, and end while the kernel is compiled.
            callee = self.callee(source, node) if isinstance(node, ast.Call) else None
            if callee is not None and callee.key not in seen:
                self._callees.append(callee)
                seen.add(callee.key)
                yield from self._uses(callee.source, seen)

    def specialize(self, callee: _Callee) -> Any:
        """Rebuild a function with a parameter for each array, before its own. Return it, or within itself its cell."""
        if callee.key not in self._functions:
            # The cell is there before the function: a call of itself in its body finds the cell.
            cell = self._functions[callee.key] = CellType()
            source, taken = callee.source, callee.source.all_names()
            own = {array: free(array, taken) for array in self.find_used_arrays(callee)}
            rewritten = self.rewrite(source, own)
            tree = rewritten.tree
            mine = [argument for argument in tree.args.args if argument.arg not in callee.objects]
            # In front, since a parameter without a default cannot follow one that has a default.
            tree.args.args = [*(ast.arg(name, parse_expression("_lang.template()")) for name in own.values()), *mine]
            names = {**rewritten.names, **callee.objects}
            function = self.hands.rebuild(source, ast.fix_missing_locations(tree), names)
            self._functions[callee.key] = cell.cell_contents = function
        return self._functions[callee.key]


class _Hand(ast.NodeTransformer):
    """Replaces fields by arrays, and calls of functions by calls of the rebuilt ones."""

    def __init__(self, hander: _Hander, source: Source, own: Mapping[str, str] | None) -> None:
        self.hander = hander
        self.source = source
        self.own = own
        self.names: dict[str, Any] = {}
        self.texts: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._called: dict[tuple[Any, ...], str] = {}
        self._taken = source.all_names() | set((own or {}).values())

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._field(node) or node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self._field(node) or self._member(node) or self.generic_visit(node)  # type: ignore[return-value]

    def visit_For(self, node: ast.For) -> ast.stmt:
        """Replace a loop over a field of structs by one over a member of it."""
        members = self.hander.hands.members(self.source, node.iter)
        if members:
            node.iter = ast.copy_location(ast.Name(self._name(members[0]), ast.Load()), node.iter)
        return self.generic_visit(node)  # type: ignore[return-value]  # a statement

    def _member(self, node: ast.Attribute) -> ast.expr | None:
        """Replace `p[i].a` of a field of structs by the element `[i]` of the array for `p.a`."""
        member = _member_of_element(node)
        array = "" if member is None else self.hander.hands.array(self.source, member)
        if not array:
            return None
        element = node.value
        while isinstance(element, ast.Attribute):
            element = element.value
        assert isinstance(element, ast.Subscript)
        name = ast.copy_location(ast.Name(self._name(array), ast.Load()), node)
        return ast.copy_location(ast.Subscript(name, self.visit(element.slice), node.ctx), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self._field(node) or self.generic_visit(node)  # type: ignore[return-value]  # an expression

    def _field(self, node: ast.Name | ast.Attribute | ast.Subscript) -> ast.expr | None:
        array = self.hander.hands.array(self.source, node)
        return ast.copy_location(ast.Name(self._name(array), node.ctx), node) if array else None

    def visit_Call(self, node: ast.Call) -> ast.expr:
        callee = self.hander.callee(self.source, node)
        arrays = self.hander.find_used_arrays(callee) if callee is not None else ()
        is_removed = callee is not None and any(map(self.hander.hands.is_removed, callee.objects.values()))
        if callee is None or not (arrays or is_removed):
            return self.generic_visit(node)  # type: ignore[return-value]  # an expression
        dropped = callee.objects
        parameters = callee.source.parameters[callee.first :]
        # The rebuilt function captures what dropped parameters stand for.
        given = [a for place, a in enumerate(node.args) if place >= len(parameters) or parameters[place] not in dropped]
        name = self._name_of(callee, node.func, arrays)
        first = [ast.copy_location(ast.Name(self._name(array), ast.Load()), node) for array in arrays]
        words = [ast.keyword(word.arg, self.visit(word.value)) for word in node.keywords if word.arg not in dropped]
        function = ast.copy_location(ast.Name(name, ast.Load()), node.func)
        return ast.copy_location(ast.Call(function, [*first, *(self.visit(one) for one in given)], words), node)

    def _name(self, array: str) -> str:
        return array if self.own is None else self.own[array]

    def _name_of(self, callee: _Callee, node: ast.expr, arrays: tuple[str, ...]) -> str:
        if callee.key not in self._called:
            name = self._called[callee.key] = free(callee.source.name, self._taken)
            self.names[name] = self.hander.specialize(callee)
            self.texts[name] = ast.unparse(node), tuple(map(self._name, arrays))
        return self._called[callee.key]


def _member_of_element(node: ast.Attribute) -> ast.expr | None:
    """Return `p.a.b` for `p[i].a.b`; None for anything else."""
    names = [node.attr]
    inner = node.value
    while isinstance(inner, ast.Attribute):
        names.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Subscript):
        return None
    member: ast.expr = inner.value
    for name in reversed(names):
        member = ast.Attribute(member, name, ast.Load())
    return member


def free(wish: str, taken: set[str]) -> str:
    """Return a name like `wish` that is not in `taken`, and add it there."""
    name = wish
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def rebuild_function(source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Build a function from a changed tree that looks names up where the old one does, at the time of use.

    Args:
        source: the old one.
        tree: the changed tree, with the lines of the user's file. `read` of the new function returns it.
        names: the values of further names. A value that is a cell is used as it is.
    """
    old = source.function
    cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
    cells |= {name: value if isinstance(value, CellType) else CellType(value) for name, value in names.items()}
    # Its parameters make captured names free variables of the function inside, whose code is taken and given the
    # cells. `around` itself is never called.
    around = parse_statement(f"def around({', '.join(sorted(cells))}): pass")
    assert isinstance(around, ast.FunctionDef)
    around.body = [tree]
    text, path = write_file(around, source.name)
    # Without `dont_inherit` the `from __future__` of this file would apply to the user's function.
    module = compile(text, path, "exec", dont_inherit=True)
    code = _code(_code(module, "around"), source.name)
    made = FunctionType(code, old.__globals__, source.name, old.__defaults__, tuple(cells[n] for n in code.co_freevars))
    made.__kwdefaults__ = old.__kwdefaults__
    # A copy: `LiveFieldPasser.rebuild` adds to it.
    made.__annotations__ = dict(old.__annotations__)
    keep_file(made, path, text)
    vars(made)["tinsmith_source"] = Source(made, tree, source.path, source_names=source.source_names)
    return made


def _code(outer: CodeType, name: str) -> CodeType:
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)
