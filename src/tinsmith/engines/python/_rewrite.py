"""Rewrites a kernel's tree so that Python runs it with the engine's arithmetic, on the lines of the user's file.

Operators, assignments, loops and calls become calls of an `Interpreter`; whatever else stands there stays. The
rewritten function has the user's file name and line numbers, so debuggers, coverage tools and tracebacks show the
user's lines.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from .._compiling import COMPILING
from .._parsing import parse_definition
from ._interpreter import UNSET, Interpreter

ENGINE = "__engine__"
"""What a rewritten function calls its interpreter."""
_MISSING = object()
_BINARY: dict[type[ast.operator], str] = {
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
_ATOMIC = {"add": "+", "sub": "-", "mul": "*", "min": "min", "max": "max", "and": "&", "or": "|", "xor": "^"}
"""Operators of the engines' `atomic_` functions."""
_ATOMIC_AUGMENTED: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
"""Augmented assignments whose operand becomes the target's type first."""
_CONCURRENT = ("stream_parallel", "graph_parallel_context", "graph_parallel")


class Definition(NamedTuple):
    """A function to rewrite: its tree, its file, and the Python function whose names it sees."""

    tree: ast.FunctionDef
    path: str
    function: Callable[..., Any]


def read_definition(function: Callable[..., Any]) -> Definition:
    """Return the definition of a Python function, on the lines of its file."""
    made = getattr(function, "tinsmith_source", None)
    if made is not None:
        return Definition(made.tree, made.path, made.function)
    tree = _TREES.get(function)
    if tree is None:
        tree = _TREES[function] = parse_definition(function)
    return Definition(tree, function.__code__.co_filename, function)


_TREES: WeakKeyDictionary[Callable[..., Any], ast.FunctionDef] = WeakKeyDictionary()
"""Trees of functions that were read."""


def rewrite(
    definition: Definition,
    run: Interpreter,
    *,
    arrays: frozenset[str] = frozenset(),
    names: Mapping[str, Any] | None = None,
    objects: Mapping[str, Any] | None = None,
    is_kernel: bool = False,
    is_method: bool = False,
) -> Callable[..., Any]:
    """Return the Python function of a kernel or of a function of the language.

    Args:
        definition: the function.
        run: the interpreter that it calls.
        arrays: parameters that are arrays.
        names: values of names that the function does not see by itself.
        objects: objects that parameters stand for, of which it calls functions.
        is_kernel: whether its caller gives the arguments their types.
        is_method: whether its first parameter is its object.
    """
    with COMPILING:
        writer = _Writer(definition, run, arrays, names or {}, objects or {})
        body = writer.body(definition.tree.body, is_kernel=is_kernel, is_method=is_method)
        made = _build(definition, run, body, names or {})
    if writer.references:
        vars(made)["references"] = writer.references
    annotation = getattr(definition.function, "__annotations__", {}).get("return")
    is_converted = run.dtype_name(annotation) is not None or isinstance(annotation, list | tuple)
    if is_kernel or not is_converted:
        return made

    def converted(*positional: Any, **named: Any) -> Any:
        return run.convert(made(*positional, **named), annotation)

    return converted


def _build(definition: Definition, run: Interpreter, body: list[ast.stmt], names: Mapping[str, Any]) -> FunctionType:
    """A function of a rewritten body, which finds its names where the old one does."""
    tree, old = definition.tree, definition.function
    code: CodeType | None = getattr(old, "__code__", None)
    cells = dict(zip(code.co_freevars, getattr(old, "__closure__", None) or (), strict=True)) if code else {}
    cells |= {name: CellType(value) for name, value in names.items()}
    cells[ENGINE] = CellType(run)
    arguments = ast.arguments(
        tree.args.posonlyargs,
        [ast.copy_location(ast.arg(one.arg), one) for one in tree.args.args],
        None if tree.args.vararg is None else ast.copy_location(ast.arg(tree.args.vararg.arg), tree.args.vararg),
        [ast.copy_location(ast.arg(one.arg), one) for one in tree.args.kwonlyargs],
        [None] * len(tree.args.kwonlyargs),
        None if tree.args.kwarg is None else ast.copy_location(ast.arg(tree.args.kwarg.arg), tree.args.kwarg),
        [],
    )
    made = ast.copy_location(ast.FunctionDef(tree.name, arguments, body, []), tree)
    inputs = ast.arguments([], [ast.arg(name) for name in cells], None, [], [], None, [])
    around = ast.copy_location(ast.FunctionDef("around", inputs, [made], []), tree)
    for one in (made, around):
        if "type_params" in ast.FunctionDef._fields:
            one.type_params = []  # type: ignore[attr-defined]
    module = ast.fix_missing_locations(ast.Module([around], []))
    for node in ast.walk(module):
        # Statements that were written into the kernel have lines of their own.
        line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", None)
        if end is not None and end < line:
            node.end_lineno, node.end_col_offset = line, node.col_offset  # type: ignore[attr-defined]
    outer = _code(compile(module, definition.path, "exec", dont_inherit=True), "around")
    inner = _code(outer, tree.name)
    if hasattr(inner, "co_qualname"):
        qualified: Any = {"co_qualname": getattr(old, "__qualname__", tree.name)}
        inner = inner.replace(**qualified)
    scope = getattr(old, "__globals__", {"__builtins__": builtins})
    closure = tuple(cells[name] for name in inner.co_freevars)
    function = FunctionType(inner, scope, tree.name, getattr(old, "__defaults__", None), closure)
    function.__kwdefaults__ = getattr(old, "__kwdefaults__", None)
    return function


def _code(outer: CodeType, name: str) -> CodeType:
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)


class _Writer:
    """Rewrites one function. `scopes` are the names that are locals so far, block by block."""

    def __init__(
        self,
        definition: Definition,
        run: Interpreter,
        arrays: frozenset[str],
        names: Mapping[str, Any],
        objects: Mapping[str, Any],
    ) -> None:
        self._definition, self._run, self._arrays, self._names = definition, run, arrays, names
        self._objects = objects
        self._aliases: dict[str, Any] = {}
        # Statements that come before the present one, since engines run calls before they read what is around them.
        self._before: list[ast.stmt] | None = None
        self._count = 0
        arguments = definition.tree.args
        self._parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        self._scopes: list[set[str]] = [set(self._parameters)]
        self._stored = _find_stored(definition.tree)
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
            ast.NamedExpr: self._named,
            **dict.fromkeys(comprehensions, self._comprehension),
        }
        self.references: tuple[str, ...] = ()

    def body(self, statements: list[ast.stmt], *, is_kernel: bool, is_method: bool) -> list[ast.stmt]:
        """Rewrite a function's body; copies of its arguments come first."""
        first: list[ast.stmt] = []
        if not is_kernel:
            annotations = getattr(self._definition.function, "__annotations__", {})
            templates = [n for n in self._parameters if self._run.is_template(annotations.get(n))]
            self.references = find_references(self._definition, self._run)
            owner = [name for name in self._parameters[:1] if is_method and name not in annotations]
            first = [self._copy_argument(n, annotations.get(n)) for n in self._parameters if n not in templates + owner]
        written = [*first, *self._block(statements)]
        if self.references:
            written.append(ast.copy_location(ast.Return(self._references(ast.Constant(None))), statements[-1]))
        return written or [ast.copy_location(ast.Pass(), self._definition.tree)]

    def _copy_argument(self, name: str, annotation: Any) -> ast.stmt:
        kind = self._run.dtype_name(annotation)
        method = "let" if name in self._stored else "argument"
        value: ast.expr = self._ask(method, ast.Name(name, ast.Load()))
        if kind is not None:
            value = self._ask("argument_of", ast.Name(name, ast.Load()), ast.Constant(kind))
        return self._at(self._definition.tree, ast.Assign([ast.Name(name, ast.Store())], value))

    def _references(self, value: ast.expr) -> ast.expr:
        return ast.Tuple([value, *(ast.Name(name, ast.Load()) for name in self.references)], ast.Load())

    # Names ---------------------------------------------------------------------------------------

    def _is_local(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _find(self, node: ast.expr) -> Any:
        """The Python value of a name or attribute that is none of the function's own; `_MISSING` for others."""
        if isinstance(node, ast.Name):
            if node.id in self._names:
                return self._names[node.id]
            if node.id in self._objects and node.id not in self._stored:
                return self._objects[node.id]
            if node.id in self._stored or node.id in self._parameters:
                return self._aliases.get(node.id, _MISSING)
            return _look_up(self._definition.function, node.id)
        if isinstance(node, ast.Attribute):
            value = self._find(node.value)
            if value is not _MISSING:
                return getattr(value, node.attr, _MISSING)
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            value = self._find(node.value)
            if isinstance(value, list | tuple | dict):
                return value[node.slice.value]
        return _MISSING

    def _name_of(self, node: ast.expr) -> str:
        """What the engine calls a function of its own; "" for others."""
        value = self._find(node) if isinstance(node, ast.Name | ast.Attribute) else _MISSING
        return "" if value is _MISSING else self._run.language.name_of(value)

    def _is_static_call(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._name_of(node.func) == "lang.impl.static"

    # Statements ----------------------------------------------------------------------------------

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Statements of one block."""
        return [new for one in statements for new in self._statement(one)]

    def _inside(self, statements: list[ast.stmt], names: set[str] | None = None) -> list[ast.stmt]:
        """Statements of an inner block, whose locals end with it."""
        self._scopes.append(names or set())
        try:
            return self._block(statements)
        finally:
            self._scopes.pop()

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.For | ast.While) or not self._has_effects(node):
            return self._write(node)
        outer, self._before = self._before, []
        try:
            written = self._write(node)
            return [*(self._at(node, one) for one in self._before), *written]
        finally:
            self._before = outer

    def _has_effects(self, node: ast.stmt) -> bool:
        """Whether an expression of a statement itself changes a local or memory: engines do so before anything else."""
        expressions = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        inner = [one for expression in expressions for one in ast.walk(expression)]
        return any(
            isinstance(one, ast.NamedExpr)
            or (isinstance(one, ast.Call) and one is not getattr(node, "value", None) and self.changes(one))
            for one in inner
        )

    def changes(self, node: ast.Call) -> bool:
        """Return whether a call changes what its caller sees."""
        if self._name_of(node.func).startswith("lang.ops.atomic_"):
            return True
        value = self._find(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else _MISSING
        written = None if value is _MISSING else self._run.find_written(value)
        return written is not None and not self._run.engine.owns(written) and _changes_anything(written, self._run)

    def _hoist(self, value: ast.expr) -> ast.expr:
        """Put a call before the statement, where its statement needs that; the value is then a local."""
        if self._before is None:
            return value
        self._count += 1
        name = f"_{self._count}"
        self._before.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return ast.Name(name, ast.Load())

    def _write(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Assign():
                return [self._at(node, one) for one in self._assign(node)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                typed = self._ask("let_as", self._expr(value), self._expr(node.annotation))
                return [self._at(node, self._store_name(name, typed))]
            case ast.AugAssign():
                return [self._at(node, self._augment(node))]
            case ast.If():
                return self._branch(node)
            case ast.For():
                return [self._at(node, self._loop(node))]
            case ast.While():
                test = self._expr(node.test)
                return [self._at(node, ast.While(test, self._inside(node.body), []))]
            case ast.Return():
                value = ast.Constant(None) if node.value is None else self._expr(node.value)
                return [self._at(node, ast.Return(self._references(value) if self.references else value))]
            case ast.Expr(value=value):
                return [self._at(node, ast.Expr(self._expr(value)))]
            case ast.Assert():
                message = None if node.msg is None else self._expr(node.msg)
                return [self._at(node, ast.Assert(self._expr(node.test), message))]
            case ast.With() if all(self._is_concurrent(item.context_expr) for item in node.items):
                return self._block(node.body)
        return [node]

    def _is_concurrent(self, node: ast.expr) -> bool:
        function = node.func if isinstance(node, ast.Call) else node
        return isinstance(function, ast.Attribute) and function.attr in _CONCURRENT

    def _assign(self, node: ast.Assign) -> Iterator[ast.stmt]:
        is_static = self._is_static_call(node.value)
        value = self._expr(node.value)
        if len(node.targets) > 1:
            self._scopes[-1].add("_value")
            yield ast.Assign([ast.Name("_value", ast.Store())], value)
            value = ast.Name("_value", ast.Load())
        for target in node.targets:
            if is_static:
                self._declare(target)
                self._note_alias(target, node.value)
                yield ast.Assign([target], value)
            else:
                yield self._assign_one(target, value)

    def _note_alias(self, target: ast.expr, value: ast.expr) -> None:
        """Remember which function a local stands for, `f = ti.static(g)`."""
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and len(value.args) == 1:
            self._aliases[target.id] = self._find(value.args[0])

    def _declare(self, target: ast.expr) -> None:
        names = (one for one in ast.walk(target) if isinstance(one, ast.Name))
        self._scopes[-1] |= {one.id for one in names if isinstance(one.ctx, ast.Store)}

    def _assign_one(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        match target:
            case ast.Name(id=name):
                return self._store_name(name, self._typed(name, value))
            case ast.Subscript():
                place = ast.Subscript(self._owner(target.value), self._index(target.slice), ast.Store())
                return ast.Assign([ast.copy_location(place, target)], value)
            case ast.Attribute(value=owner, attr=attr):
                return ast.Expr(self._ask("set_member", self._owner(owner), ast.Constant(attr), value))
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                return self._assign_several(targets, value)
        raise SyntaxError(f"an assignment to `{ast.unparse(target)}`")

    def _assign_several(self, targets: list[ast.expr], value: ast.expr) -> ast.stmt:
        olds: list[ast.expr] = []
        places: list[ast.expr] = []
        for target in targets:
            if isinstance(target, ast.Name):
                is_old = self._is_local(target.id)
                olds.append(ast.Name(target.id, ast.Load()) if is_old else self._ask_value("unset"))
                places.append(ast.Name(target.id, ast.Store()))
            else:
                olds.append(ast.Constant(None))
                if isinstance(target, ast.Subscript):
                    places.append(ast.Subscript(self._owner(target.value), self._index(target.slice), ast.Store()))
                elif isinstance(target, ast.Attribute):
                    owner = self._ask("members_of", self._owner(target.value))
                    places.append(ast.Subscript(owner, ast.Constant(target.attr), ast.Store()))
                else:
                    raise SyntaxError(f"an assignment to `{ast.unparse(target)}`")
        self._scopes[-1] |= {one.id for one in targets if isinstance(one, ast.Name) and not self._is_local(one.id)}
        items = self._ask("unpack", value, ast.Tuple(olds, ast.Load()))
        return ast.Assign([ast.Tuple(places, ast.Store())], items)

    def _typed(self, name: str, value: ast.expr) -> ast.expr:
        """What a local is after an assignment."""
        if self._is_local(name):
            return self._ask("keep", ast.Name(name, ast.Load()), value)
        return self._ask("let", value)

    def _store_name(self, name: str, value: ast.expr) -> ast.Assign:
        if not self._is_local(name):
            self._scopes[-1].add(name)
        return ast.Assign([ast.Name(name, ast.Store())], value)

    def _augment(self, node: ast.AugAssign) -> ast.stmt:
        operator = _ATOMIC_AUGMENTED.get(type(node.op))
        value = self._expr(node.value)
        match node.target:
            case ast.Name(id=name):
                old = ast.Name(name, ast.Load())
                if operator is not None:
                    new = self._ask("change", ast.Constant(operator), old, value)
                else:
                    new = self._ask("keep", old, self._ask(_BINARY[type(node.op)], old, value))
                return ast.Assign([ast.Name(name, ast.Store())], new)
            case ast.Subscript(value=owner, slice=index):
                place = [self._owner(owner), self._index(index)]
                method = "change_element" if operator is not None else "replace_element"
            case ast.Attribute(value=owner, attr=attr):
                place = [self._owner(owner), ast.Constant(attr)]
                method = "change_member" if operator is not None else "replace_member"
        return ast.Expr(self._ask(method, *place, ast.Constant(operator or _BINARY[type(node.op)]), value))

    def _branch(self, node: ast.If) -> list[ast.stmt]:
        is_static = self._is_static_call(node.test) or (
            isinstance(node.test, ast.UnaryOp) and self._is_static_call(node.test.operand)
        )
        test = self._expr(node.test)
        if not is_static:
            return [self._at(node, ast.If(test, self._inside(node.body), self._inside(node.orelse)))]
        # The branch that is chosen belongs to the block around it.
        before = set(self._scopes[-1])
        body = self._block(node.body)
        after_body = self._scopes[-1]
        self._scopes[-1] = set(before)
        orelse = self._block(node.orelse)
        new = (self._scopes[-1] | after_body) - before
        self._scopes[-1] = before | new
        unset = [
            self._at(node, ast.Assign([ast.Name(name, ast.Store())], self._ask_value("unset"))) for name in sorted(new)
        ]
        return [*unset, self._at(node, ast.If(test, body, orelse))]

    def _loop(self, node: ast.For) -> ast.stmt:
        names = {one.id for one in ast.walk(node.target) if isinstance(one, ast.Name)}
        if self._is_static_call(node.iter):
            over = self._expr(node.iter)
        elif self._is_range(node.iter):
            assert isinstance(node.iter, ast.Call)
            over = self._ask("range", *map(self._expr, node.iter.args))
        else:
            over = self._ask("iterate", self._expr(node.iter))
        return ast.For(node.target, over, self._inside(node.body, names), [])

    def _is_range(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._find(node.func) is builtins.range

    # Expressions ---------------------------------------------------------------------------------

    def _expr(self, node: ast.expr) -> ast.expr:
        """An expression, rewritten."""
        return ast.copy_location(self._expression(node), node)

    def _expression(self, node: ast.expr) -> ast.expr:
        write = self._writers.get(type(node))
        return self._parts(node) if write is None else write(node)

    def _keep(self, node: ast.expr) -> ast.expr:
        return node

    def _name(self, node: ast.Name) -> ast.expr:
        return self._find_number(node) or node

    def _find_number(self, node: ast.expr) -> ast.expr | None:
        """A Python number that is not the function's own, as it is now: engines write it into the kernel."""
        value = self._find(node)
        if isinstance(value, bool | int | float):
            plain = value if isinstance(value, bool) else int(value) if isinstance(value, int) else float(value)
            return ast.Constant(plain)
        return None

    def _binary(self, node: ast.BinOp) -> ast.expr:
        return self._ask(_BINARY[type(node.op)], self._expr(node.left), self._expr(node.right))

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
        base, index = self._base(node.value), self._index(node.slice)
        return self._ask("sample", base, index) if self._is_sample else ast.Subscript(base, index, ast.Load())

    def _attribute(self, node: ast.Attribute) -> ast.expr:
        return self._find_number(node) or ast.Attribute(self._base(node.value), node.attr, ast.Load())

    def _named(self, node: ast.NamedExpr) -> ast.expr:
        name = node.target.id
        stored = self._store_name(name, self._typed(name, self._expr(node.value)))
        if self._before is None:
            return ast.NamedExpr(ast.Name(name, ast.Store()), stored.value)
        self._before.append(stored)
        return ast.Name(name, ast.Load())

    def _parts(self, node: Any) -> Any:
        """A node with its own expressions rewritten."""
        made = type(node)()
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                value = [self._expr(one) if isinstance(one, ast.expr) else one for one in value]
            elif isinstance(value, ast.expr):
                value = self._expr(value)
            setattr(made, name, value)
        return ast.copy_location(made, node)

    def _comprehension(self, node: Any) -> ast.expr:
        names = {one.id for part in node.generators for one in ast.walk(part.target) if isinstance(one, ast.Name)}
        self._scopes.append(names)
        # Nothing can be put before what is evaluated many times.
        outer, self._before = self._before, None
        try:
            generators = [
                ast.comprehension(one.target, self._expr(one.iter), [self._expr(test) for test in one.ifs], 0)
                for one in node.generators
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
            return self._parts(node)
        if len(node.ops) == 1:
            return self._ask(_COMPARISONS[type(node.ops[0])], *map(self._expr, values))
        names = ast.Tuple([ast.Constant(_COMPARISONS[type(one)]) for one in node.ops], ast.Load())
        return self._ask("compare", names, *map(self._expr, values))

    def _choice(self, node: ast.IfExp) -> ast.expr:
        then, otherwise = self._expr(node.body), self._expr(node.orelse)
        if self._is_static or self._is_static_call(node.test):
            return ast.IfExp(self._expr(node.test), then, otherwise)
        one = self._ask("in_common_type", then, self._sample(node.orelse))
        other = self._ask("in_common_type", otherwise, self._sample(node.body))
        return ast.IfExp(self._expr(node.test), one, other)

    def _sample(self, node: ast.expr) -> ast.expr:
        """A value of an expression's type, computed without reading memory; `unset` where that takes a user's call."""
        if isinstance(node, ast.Constant | ast.Name):
            return node
        if any(isinstance(one, ast.NamedExpr) or self._may_change(one) for one in ast.walk(node)):
            return self._ask_value("unset")
        outer, self._is_sample = self._is_sample, True
        try:
            return self._ask("sample_of", ast.Lambda(_NO_ARGUMENTS, self._expr(node)))
        finally:
            self._is_sample = outer

    def _may_change(self, node: ast.AST) -> bool:
        """Whether a node is a call that may do more than give a value."""
        if not isinstance(node, ast.Call) or self._find(node.func) in (int, float, bool, abs, min, max):
            return False
        name = self._name_of(node.func)
        return "atomic" in name or "random" in name or not name.startswith(("lang.ops.", "lang.matrix"))

    def _index(self, node: ast.expr) -> ast.expr:
        return self._expr(node)

    def _base(self, node: ast.expr) -> ast.expr:
        """What is indexed, or has the attribute."""
        is_own = isinstance(node, ast.Name) and (
            node.id in self._arrays or (self._is_local(node.id) and node.id not in self._parameters)
        )
        value = self._find(node) if isinstance(node, ast.Name | ast.Attribute) else _MISSING
        is_element = isinstance(node, ast.Call) or (
            isinstance(node, ast.Subscript) and _find_root(node) in self._arrays
        )
        if is_own or isinstance(value, ModuleType | type) or is_element:
            return self._expr(node)
        return self._ask("captured", self._expr(node), ast.Constant(ast.unparse(node)))

    def _owner(self, node: ast.expr) -> ast.expr:
        """What holds a part that is stored to."""
        match node:
            case ast.Subscript(value=owner, slice=index):
                return ast.copy_location(self._ask("place", self._owner(owner), self._index(index)), node)
            case ast.Attribute(value=owner, attr=attr):
                inner = ast.Attribute(self._owner(owner), attr, ast.Load())
                name = ast.Constant(ast.unparse(node))
                return ast.copy_location(self._ask("captured", inner, name), node)
        return self._base(node)

    def _call(self, node: ast.Call) -> ast.expr:
        name = self._name_of(node.func)
        if name.startswith("lang.ops.atomic_") and name.removeprefix("lang.ops.atomic_") in _ATOMIC:
            return self._atomic(_ATOMIC[name.removeprefix("lang.ops.atomic_")], *node.args)
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
        written = None if value is _MISSING else self._run.find_written(value)
        if written is not None and not self._run.engine.owns(written):
            self._run.read_early(value, written)
        is_unknown = value is _MISSING and isinstance(node.func, ast.Name | ast.Subscript)
        if not is_unknown and (written is None or self._run.engine.owns(written)):
            return call
        templates = () if written is None else self._find_templates(written)
        for place, name in enumerate(templates[-len(node.args) :] if node.args else ()):
            # The very element, so that the function can store to its parts.
            if name and isinstance(node.args[place], ast.Subscript):
                call.args[place + 1] = self._owner(node.args[place])
        return self._hoist_call(written, call, node)

    def _find_templates(self, written: Callable[..., Any]) -> tuple[bool, ...]:
        """Which parameters of a function stand for the very thing that they are given."""
        names = written.__code__.co_varnames[: written.__code__.co_argcount]
        return tuple(self._run.is_template(written.__annotations__.get(name)) for name in names)

    def _atomic(self, operator: str, place: ast.expr, value: ast.expr) -> ast.expr:
        """An atomic function: the place is changed, and what it held is the value."""
        match place:
            case ast.Name(id=name):
                old = ast.Name(name, ast.Load())
                new = self._ask("change", ast.Constant(operator), old, self._expr(value))
                changed = ast.NamedExpr(ast.Name(name, ast.Store()), new)
                return self._hoist(self._ask("first", self._ask("let", old), changed))
            case ast.Subscript(value=owner, slice=index):
                parts = [self._owner(owner), self._index(index)]
                return self._hoist(self._ask("change_element", *parts, ast.Constant(operator), self._expr(value)))
            case ast.Attribute(value=owner, attr=attr):
                parts = [self._owner(owner), ast.Constant(attr)]
                return self._hoist(self._ask("change_member", *parts, ast.Constant(operator), self._expr(value)))
        raise SyntaxError(f"an atomic operation on `{ast.unparse(place)}`")

    def _hoist_call(self, written: Callable[..., Any] | None, call: ast.Call, node: ast.Call) -> ast.expr:
        """A call of a function of the language, which may change numbers of the caller's: they get their new values.

        Args:
            written: the function; None where the call does not tell.
            call: the rewritten call.
            node: the call as it was.
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
            new = self._ask("changed_to", held, ast.Constant(key))
            match place:
                case ast.Name(id=name) if self._is_local(name):
                    kept = self._ask("changed_to", held, ast.Constant(key), place)
                    steps.append(ast.NamedExpr(ast.Name(name, ast.Store()), kept))
                case ast.Subscript(value=owner, slice=index):
                    steps.append(self._ask("set_element", self._owner(owner), self._index(index), new))
                case ast.Attribute(value=owner, attr=attr):
                    steps.append(self._ask("set_member", self._owner(owner), ast.Constant(attr), new))
        whole = ast.Subscript(ast.Tuple(steps, ast.Load()), ast.Constant(0), ast.Load())
        value = self._hoist(ast.Subscript(whole, ast.Constant(0), ast.Load()))
        if written is None or self._before is None:
            return value
        # A function that returns what it was given returns that variable, not its value of now.
        returned = _find_returned_name(read_definition(written).tree)
        parameters = written.__code__.co_varnames[: written.__code__.co_argcount][-len(node.args) or None :]
        given = dict(zip(parameters, node.args, strict=False))
        is_variable = returned is not None and returned in (names or ()) and returned in given
        return self._expr(given[returned]) if is_variable and returned is not None else value

    # Making nodes --------------------------------------------------------------------------------

    def _ask_value(self, name: str) -> ast.expr:
        return ast.Attribute(ast.Name(ENGINE, ast.Load()), name, ast.Load())

    def _ask(self, name: str, *arguments: ast.expr) -> ast.expr:
        """A call of the interpreter."""
        return ast.Call(self._ask_value(name), list(arguments), [])

    def _at(self, node: ast.AST, made: ast.stmt) -> ast.stmt:
        """A statement at the place of the one that it stands for."""
        ast.copy_location(made, node)
        for child in ast.iter_child_nodes(made):
            _place(child, made)
        return made


def _place(node: ast.AST, around: ast.AST) -> None:
    """Give nodes without a place that of the node around them; of one on several lines, its first line.

    Python takes the last line of a method call for the line of its method: a debugger would stop there first.
    """
    if "lineno" in node._attributes and not hasattr(node, "lineno"):
        ast.copy_location(node, around)
        if getattr(node, "end_lineno", None) != node.lineno:  # type: ignore[attr-defined]
            node.end_lineno, node.end_col_offset = node.lineno, node.col_offset  # type: ignore[attr-defined]
    for child in ast.iter_child_nodes(node):
        _place(child, node if hasattr(node, "lineno") else around)


_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])


def _is_native(value: Any, run: Interpreter) -> bool:
    """Whether a call is left to Python: a stranger's function, which may look at the frame that called it."""
    if value in (builtins.print, builtins.breakpoint):
        return True
    is_plain = isinstance(value, FunctionType | MethodType)
    return is_plain and not run.language.name_of(value) and run.language.function_of(value) is None


def find_references(definition: Definition, run: Interpreter) -> tuple[str, ...]:
    """Return the template parameters that a function may give new values: in its body, or by a call of another one."""
    known = _REFERENCES.get(definition.tree)
    if known is None:
        annotations = getattr(definition.function, "__annotations__", {})
        calls = [one for one in ast.walk(definition.tree) if isinstance(one, ast.Call)]
        passed = {one.id for call in calls for one in call.args if isinstance(one, ast.Name)}
        passed |= {one.value.id for call in calls for one in call.keywords if isinstance(one.value, ast.Name)}
        given = _find_assigned(definition.tree) | passed
        names = [one.arg for one in definition.tree.args.args]
        known = tuple(name for name in names if name in given and run.language.is_template(annotations.get(name)))
        _REFERENCES[definition.tree] = known
    return known


_REFERENCES: WeakKeyDictionary[ast.FunctionDef, tuple[str, ...]] = WeakKeyDictionary()


def _find_returned_name(tree: ast.FunctionDef) -> str | None:
    """The name that a function returns in its last statement."""
    match tree.body[-1]:
        case ast.Return(value=ast.Name(id=name)):
            return name
    return None


_CHANGING: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()
"""Whether functions of the language change what their callers see."""


def _changes_anything(function: Callable[..., Any], run: Interpreter) -> bool:
    """Whether a function of the language changes memory, or a variable of its caller's."""
    known = _CHANGING.get(function)
    if known is not None:
        return known
    # A recursive call tells nothing new.
    _CHANGING[function] = False
    definition = read_definition(function)
    annotations = function.__annotations__
    parameters = [one.arg for one in definition.tree.args.args]
    copies = {name for name in parameters if not run.is_template(annotations.get(name))}
    own = (_find_stored(definition.tree) - set(parameters)) | copies
    looking = _Writer(definition, run, frozenset(), {}, {})
    nodes = list(ast.walk(definition.tree))
    stored = [one for one in nodes if isinstance(one, ast.Name | ast.Subscript | ast.Attribute)]
    _CHANGING[function] = any(isinstance(one.ctx, ast.Store) and _find_root(one) not in own for one in stored) or any(
        isinstance(one, ast.Call) and looking.changes(one) for one in nodes
    )
    return _CHANGING[function]


def _find_root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _look_up(function: Callable[..., Any], name: str) -> Any:
    """The value of a name that a function sees."""
    code: CodeType | None = getattr(function, "__code__", None)
    if code is not None and name in code.co_freevars:
        cell = (getattr(function, "__closure__", None) or ())[code.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:
            return _MISSING
    scope = getattr(function, "__globals__", {})
    return scope[name] if name in scope else getattr(builtins, name, _MISSING)


def _find_stored(tree: ast.FunctionDef) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))


def _find_assigned(tree: ast.FunctionDef) -> frozenset[str]:
    """Names that are given values themselves, not parts of what they hold; by an atomic function too."""
    atomics = (
        one.args[0]
        for one in ast.walk(tree)
        if isinstance(one, ast.Call)
        and isinstance(one.func, ast.Name | ast.Attribute)
        and (one.func.id if isinstance(one.func, ast.Name) else one.func.attr).startswith("atomic_")
        and one.args
    )
    return _find_stored(tree) | {one.id for one in atomics if isinstance(one, ast.Name)}


__all__ = ["Definition", "UNSET", "read_definition", "rewrite"]
