"""Rewriting of a kernel's expressions to calls of an `Interpreter`."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

from .._annotations import read_annotations
from .._trees import walk
from ._definitions import ENGINE, MISSING, Definition, read_definition
from ._interpreter import Interpreter
from ._names import Names, find_references, find_returned_name, find_root

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.FloorDiv: "divide_down",
    ast.Mod: "remainder",
    ast.Pow: "power",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
    ast.BitAnd: "bit_and",
    ast.BitOr: "bit_or",
    ast.BitXor: "bit_xor",
    ast.MatMult: "matmul",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "negate", ast.Not: "reverse", ast.Invert: "invert"}
ATOMIC = {"add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "and": "&", "or": "|", "xor": "^"}
"""The operator of each `atomic_` function of the engines, by the rest of its name."""
_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])


class ExpressionWriter(Names):
    """Rewrites the expressions of one function."""

    def __init__(
        self,
        definition: Definition,
        run: Interpreter,
        arrays: frozenset[str],
        names: Mapping[str, Any],
        objects: Mapping[str, Any],
    ) -> None:
        super().__init__(definition, run, names, objects)
        self._arrays = arrays
        # Statements to insert before the current one, since engines evaluate calls before the operands around them.
        self._before: list[ast.stmt] | None = None
        self._count = 0
        self._is_static = self._is_sample = False
        comprehensions = (ast.ListComp, ast.DictComp, ast.GeneratorExp, ast.SetComp)
        self._writers: dict[type[ast.expr], Callable[[Any], ast.expr]] = {
            ast.Constant: self._keep,
            ast.Name: self._name,
            ast.Lambda: self._keep,
            ast.BinOp: self._binary,
            ast.UnaryOp: self._unary,
            ast.BoolOp: self._bool,
            ast.Compare: self._compare,
            ast.IfExp: self._choice,
            ast.Call: self._call,
            ast.Subscript: self._subscript,
            ast.Attribute: self._attribute,
            ast.NamedExpr: self._write_named,
            **dict.fromkeys(comprehensions, self._comprehension),
        }

    def _hoist(self, value: ast.expr) -> ast.expr:
        """Move a call to a new local before the statement, if hoisting is active, and return the local; else return
        the call.
        """
        if self._before is None:
            return value
        self._count += 1
        name = f"_{self._count}"
        self._before.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return ast.Name(name, ast.Load())

    def _store_name(self, name: str, value: ast.expr) -> ast.Assign:
        if not self._is_local(name):
            self._scopes[-1].add(name)
        return ast.Assign([ast.Name(name, ast.Store())], value)

    def _give_type(self, name: str, value: ast.expr) -> ast.expr:
        """Return the value that a local gets by an assignment, as a call: converted to its type if it
        exists already.
        """
        if self._is_local(name):
            return self._ask("assign", ast.Name(name, ast.Load()), value)
        return self._ask("let", value)

    def _expr(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression, and give the result its position."""
        return ast.copy_location(self._expression(node), node)

    def _expression(self, node: ast.expr) -> ast.expr:
        write = self._writers.get(type(node))
        return self._copy_parts(node) if write is None else write(node)

    def _keep(self, node: ast.expr) -> ast.expr:
        return node

    def _name(self, node: ast.Name) -> ast.expr:
        self._check_defined(node)
        return self._find_number(node) or node

    def _find_number(self, node: ast.expr) -> ast.expr | None:
        """Return a constant for a Python number from outside the function, as engines bake it into the kernel; else
        None.
        """
        value = self._find(node)
        if isinstance(value, bool | int | float):
            plain = value if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value)
            return ast.Constant(plain)
        return None

    def _binary(self, node: ast.BinOp) -> ast.expr:
        return self._ask(BINARY[type(node.op)], self._expr(node.left), self._expr(node.right))

    def _unary(self, node: ast.UnaryOp) -> ast.expr:
        match node.op, node.operand:
            case ast.USub(), ast.Constant(value=int() | float()):
                return node
            case ast.UAdd(), operand:
                return self._expr(operand)
        return self._ask(_UNARY[type(node.op)], self._expr(node.operand))

    def _bool(self, node: ast.BoolOp) -> ast.expr:
        return ast.BoolOp(node.op, [self._truth(one) for one in node.values])

    def _subscript(self, node: ast.Subscript) -> ast.expr:
        number = self._find_number(node)
        if number is not None:
            return number
        base, index = self._write_base(node.value), self._expr(node.slice)
        return self._ask("sample", base, index) if self._is_sample else ast.Subscript(base, index, ast.Load())

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        return self._find_number(node) or ast.Attribute(self._write_base(node.value), node.attr, ast.Load())

    def _write_named(self, node: ast.NamedExpr) -> ast.expr:
        name = node.target.id
        stored = self._store_name(name, self._give_type(name, self._expr(node.value)))
        if self._before is None:
            return ast.NamedExpr(ast.Name(name, ast.Store()), stored.value)
        self._before.append(stored)
        return ast.Name(name, ast.Load())

    def _copy_parts(self, node: Any) -> Any:
        """Copy a node with its child expressions rewritten."""
        made = type(node)()
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                value = [self._expr(one) if isinstance(one, ast.expr) else one for one in value]
            elif isinstance(value, ast.expr):
                value = self._expr(value)
            setattr(made, name, value)
        return ast.copy_location(made, node)

    def _comprehension(self, node: Any) -> ast.expr:
        names = {one.id for part in node.generators for one in walk(part.target) if isinstance(one, ast.Name)}
        self._scopes.append(names)
        first = self._expr(node.generators[0].iter)
        # Nothing can be hoisted out of an expression that is evaluated many times.
        outer, self._before = self._before, None
        try:
            iterables = [first, *(self._expr(one.iter) for one in node.generators[1:])]
            generators = [
                ast.comprehension(one.target, iterable, [self._expr(test) for test in one.ifs], 0)
                for one, iterable in zip(node.generators, iterables, strict=True)
            ]
            if isinstance(node, ast.DictComp):
                return ast.DictComp(self._expr(node.key), self._expr(node.value), generators)
            return type(node)(self._expr(node.elt), generators)
        finally:
            self._scopes.pop()
            self._before = outer

    def _truth(self, node: ast.expr) -> ast.expr:
        is_truth = isinstance(node, ast.Compare | ast.BoolOp) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        )
        return self._expr(node) if is_truth or self._is_static else self._ask("truth", self._expr(node))

    def _compare(self, node: ast.Compare) -> ast.expr:
        values = [node.left, *node.comparators]
        if not all(type(one) in _COMPARISONS for one in node.ops):
            return self._copy_parts(node)
        if len(node.ops) == 1:
            return self._ask(_COMPARISONS[type(node.ops[0])], *map(self._expr, values))
        names = ast.Tuple([ast.Constant(_COMPARISONS[type(one)]) for one in node.ops], ast.Load())
        return self._ask("compare", names, *map(self._expr, values))

    def _choice(self, node: ast.IfExp) -> ast.expr:
        then, otherwise = self._expr(node.body), self._expr(node.orelse)
        if self._is_static or self._is_static_call(node.test) or getattr(node, "has_one_type", False):
            return ast.IfExp(self._expr(node.test), then, otherwise)
        one = self._ask("in_common_type", then, self._sample(node.orelse))
        other = self._ask("in_common_type", otherwise, self._sample(node.body))
        return ast.IfExp(self._expr(node.test), one, other)

    def _sample(self, node: ast.expr) -> ast.expr:
        """Return syntax for a value that has the type of `node`, without reading memory.

        If that would require calling a user's function, return syntax for `unset`.
        """
        if isinstance(node, ast.Constant | ast.Name):
            return node
        if any(isinstance(one, ast.NamedExpr) or self._may_change(one) for one in walk(node)):
            return self._ask_value("unset")
        outer, self._is_sample = self._is_sample, True
        try:
            return self._ask("sample_of", ast.Lambda(_NO_ARGUMENTS, self._expr(node)))
        finally:
            self._is_sample = outer

    def _may_change(self, node: ast.AST) -> bool:
        """Return True if a node is a call that may have side effects."""
        if not isinstance(node, ast.Call) or self._find(node.func) in (int, float, bool, abs, min, max):
            return False
        name = self._name_of(node.func)
        return "atomic" in name or "random" in name or not name.startswith(("lang.ops.", "lang.matrix"))

    def _write_base(self, node: ast.expr) -> ast.expr:
        """Rewrite the expression that is indexed or whose attribute is read; convert Python's objects to values of the
        run.
        """
        is_own = isinstance(node, ast.Name) and (
            node.id in self._arrays or (self._is_local(node.id) and node.id not in self._parameters)
        )
        value = self._find(node) if isinstance(node, ast.Name | ast.Attribute) else MISSING
        is_part = isinstance(node, ast.Subscript | ast.Attribute) and find_root(node) in self._arrays
        if is_own or isinstance(value, ModuleType | type) or isinstance(node, ast.Call) or is_part:
            return self._expr(node)
        return self._ask("capture", self._expr(node), ast.Constant(ast.unparse(node)))

    def _write_owner(self, node: ast.expr) -> ast.expr:
        """Rewrite the object of an assignment's target, so that storing to its parts changes the memory."""
        match node:
            case ast.Subscript(value=owner, slice=index):
                return ast.copy_location(self._ask("place", self._write_owner(owner), self._expr(index)), node)
            case ast.Attribute(value=owner, attr=attr):
                inner = ast.Attribute(self._write_owner(owner), attr, ast.Load())
                name = ast.Constant(ast.unparse(node))
                return ast.copy_location(self._ask("capture", inner, name), node)
        return self._write_base(node)

    def _call(self, node: ast.Call) -> ast.expr:
        name = self._name_of(node.func)
        if name.startswith("lang.ops.atomic_") and name.removeprefix("lang.ops.atomic_") in ATOMIC:
            return self._atomic(ATOMIC[name.removeprefix("lang.ops.atomic_")], *node.args)
        value = self._find(node.func)
        outer, self._is_static = self._is_static, self._is_static or name.startswith("lang.impl.static")
        try:
            arguments = [self._expr(one) for one in node.args]
            keywords = [ast.keyword(one.arg, self._expr(one.value)) for one in node.keywords]
        finally:
            self._is_static = outer
        if _is_native(value, self._run):
            return ast.Call(self._expr(node.func), arguments, keywords)
        call = self._ask("call", self._expr(node.func), *arguments)
        assert isinstance(call, ast.Call)
        call.keywords = keywords
        written = None if value is MISSING else self._run.find_source_function(value)
        if written is not None and not self._run.engine.owns(written):
            self._run.rewrite_early(value, written)
        is_unknown = value is MISSING and isinstance(node.func, ast.Name | ast.Subscript)
        if not is_unknown and (written is None or self._run.engine.owns(written)):
            return call
        templates = () if written is None else self._find_templates(written)
        for place, name in enumerate(templates[-len(node.args) :] if node.args else ()):
            # The element itself, not a copy, so that the function can store to its parts.
            if name and isinstance(node.args[place], ast.Subscript):
                call.args[place + 1] = self._write_owner(node.args[place])
        return self._hoist_call(written, call, node)

    def _find_templates(self, written: Callable[..., Any]) -> tuple[bool, ...]:
        """Return, for each parameter of a function, whether it is passed by reference."""
        names = written.__code__.co_varnames[: written.__code__.co_argcount]
        annotations = read_annotations(written)
        return tuple(self._run.is_template(annotations.get(name)) for name in names)

    def _atomic(self, operator: str, place: ast.expr, value: ast.expr) -> ast.expr:
        """Rewrite a call such as `ti.atomic_add(x[i], v)`: it changes the place, and its value is the old one."""
        match place:
            case ast.Name(id=name):
                old = ast.Name(name, ast.Load())
                new = self._ask("change", ast.Constant(operator), old, self._expr(value))
                changed = ast.NamedExpr(ast.Name(name, ast.Store()), new)
                return self._hoist(self._ask("first", self._ask("let", old), changed))
            case ast.Subscript(value=owner, slice=index):
                parts = [self._write_owner(owner), self._expr(index)]
                return self._hoist(self._ask("change_element", *parts, ast.Constant(operator), self._expr(value)))
            case ast.Attribute(value=owner, attr=attr):
                parts = [self._write_owner(owner), ast.Constant(attr)]
                return self._hoist(self._ask("change_member", *parts, ast.Constant(operator), self._expr(value)))
        raise self._refuse(
            place,
            f"has an atomic operation on `{ast.unparse(place)}`",
            "Apply it to an element of an array or to a local variable.",
        )

    def _hoist_call(self, written: Callable[..., Any] | None, call: ast.Call, node: ast.Call) -> ast.expr:
        """Rewrite the call of an engine function: assign new values to the numbers that it changes by reference.

        Args:
            written: the function; None if it is not known before the run.
            call: the rewritten call.
            node: the original call.
        """
        names = None if written is None else find_references(read_definition(written), self._run)
        if names == ():
            return self._hoist(call)
        call.func = self._ask_value("call_with_references")
        self._count += 1
        result = f"_{self._count}"
        held = ast.Name(result, ast.Load())
        steps: list[ast.expr] = [ast.NamedExpr(ast.Name(result, ast.Store()), call)]
        for key, place in [*enumerate(node.args), *((one.arg, one.value) for one in node.keywords)]:
            new = self._ask("find_new_value", held, ast.Constant(key))
            match place:
                case ast.Name(id=name) if self._is_local(name):
                    kept = self._ask("find_new_value", held, ast.Constant(key), place)
                    steps.append(ast.NamedExpr(ast.Name(name, ast.Store()), kept))
                case ast.Subscript(value=owner, slice=index):
                    steps.append(self._ask("set_element", self._write_owner(owner), self._expr(index), new))
                case ast.Attribute(value=owner, attr=attr):
                    steps.append(self._ask("set_member", self._write_owner(owner), ast.Constant(attr), new))
        whole = ast.Subscript(ast.Tuple(steps, ast.Load()), ast.Constant(0), ast.Load())
        value = self._hoist(ast.Subscript(whole, ast.Constant(0), ast.Load()))
        if written is None or self._before is None:
            return value
        # A function that returns a parameter returns the caller's variable, not its current value.
        returned = find_returned_name(read_definition(written).tree)
        parameters = written.__code__.co_varnames[: written.__code__.co_argcount][-len(node.args) or None :]
        given = dict(zip(parameters, node.args, strict=False))
        is_variable = returned is not None and returned in (names or ()) and returned in given
        return self._expr(given[returned]) if is_variable and returned is not None else value

    def _ask_value(self, name: str) -> ast.expr:
        return ast.Attribute(ast.Name(ENGINE, ast.Load()), name, ast.Load())

    def _ask(self, name: str, *arguments: ast.expr) -> ast.expr:
        """Build a call of a method of the interpreter."""
        return ast.Call(self._ask_value(name), list(arguments), [])


def _is_native(value: Any, run: Interpreter) -> bool:
    """Return True if a call is left to Python: the function is not an engine's, and may inspect its caller's frame."""
    if value in (builtins.print, builtins.breakpoint):
        return True
    is_plain = isinstance(value, FunctionType | MethodType)
    return is_plain and not run.language.name_of(value) and run.language.function_of(value) is None
