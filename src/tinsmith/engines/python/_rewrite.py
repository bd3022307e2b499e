"""Rewriting of a kernel's tree, so that Python runs it with the engine's arithmetic.

Operators, assignments, loops and calls become calls of an `Interpreter`; everything else stays. The rewritten
function has the user's file name and line numbers, so debuggers, coverage tools and tracebacks show the user's lines.
"""

from __future__ import annotations

import ast
import builtins
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._annotations import read_annotations
from .._compiling import COMPILING
from .._trees import list_children, walk
from ._definitions import MISSING, Definition, build_function, give_place
from ._expressions import BINARY, ExpressionWriter
from ._interpreter import Interpreter
from ._names import find_references

_ATOMIC_AUGMENTED: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
"""Augmented assignments whose operand is converted to the target's type first."""
_PLAIN = (ast.Pass, ast.Break, ast.Continue, ast.Import, ast.ImportFrom, ast.Raise)
_CONCURRENT = ("stream_parallel", "graph_parallel_context", "graph_parallel")


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
    """Return the rewritten Python function of a kernel or of a `ti.func`.

    Args:
        definition: the function.
        run: the interpreter that it calls.
        arrays: parameters that are arrays.
        names: values of names that the function cannot look up itself.
        objects: values of parameters that are Python objects, whose functions the kernel calls.
        is_kernel: whether it is a kernel: its arguments have their types already.
        is_method: whether its first parameter is its object.
    """
    with COMPILING:
        writer = _Writer(definition, run, arrays, names or {}, objects or {})
        body = writer.body(definition.tree.body, is_kernel=is_kernel, is_method=is_method)
        made = build_function(definition, run, body, names or {})
    if writer.references:
        vars(made)["references"] = writer.references
    annotation = read_annotations(definition.function).get("return")
    annotation = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else annotation
    is_converted = run.dtype_name(annotation) is not None or isinstance(annotation, list | tuple)
    if is_kernel or not is_converted:
        return made

    def convert_result(*positional: Any, **named: Any) -> Any:
        return run.convert(made(*positional, **named), annotation)

    return convert_result


class _Writer(ExpressionWriter):
    """Rewrites the statements of one function."""

    references: tuple[str, ...] = ()
    _is_kernel = False
    _depth = 0
    """The number of blocks around the current statement, not counting static ones."""

    def body(self, statements: list[ast.stmt], *, is_kernel: bool, is_method: bool) -> list[ast.stmt]:
        """Rewrite a function's body, preceded by copies of its arguments."""
        self._is_kernel = is_kernel
        first: list[ast.stmt] = []
        if not is_kernel:
            annotations = read_annotations(self._definition.function)
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
        method = "let" if name in self._stored else "copy_argument"
        value: ast.expr = self._ask(method, ast.Name(name, ast.Load()))
        if kind is not None:
            value = self._ask("convert_argument", ast.Name(name, ast.Load()), ast.Constant(kind))
        return self._put_at(self._definition.tree, ast.Assign([ast.Name(name, ast.Store())], value))

    def _references(self, value: ast.expr) -> ast.expr:
        return ast.Tuple([value, *(ast.Name(name, ast.Load()) for name in self.references)], ast.Load())

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        """Rewrite the statements of one block."""
        return [new for one in statements for new in self._statement(one)]

    def _inner_block(
        self, statements: list[ast.stmt], names: set[str] | None = None, *, is_static: bool = False
    ) -> list[ast.stmt]:
        """Rewrite the statements of an inner block, whose locals end with it."""
        self._scopes.append(names or set())
        self._depth += not is_static
        try:
            return self._block(statements)
        finally:
            self._scopes.pop()
            self._depth -= not is_static

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.For | ast.While) or not self._has_effects(node):
            return self._write(node)
        outer, self._before = self._before, []
        try:
            written = self._write(node)
            return [*(self._put_at(node, one) for one in self._before), *written]
        finally:
            self._before = outer

    def _has_effects(self, node: ast.stmt) -> bool:
        """Return True if an expression in a statement changes a local or memory.

        Engines apply that before anything else.
        """
        expressions = [one for one in list_children(node) if isinstance(one, ast.expr)]
        inner = [one for expression in expressions for one in walk(expression)]
        # Python does not allow an assignment in the iterable of a comprehension.
        iterables = [one.iter for one in inner if isinstance(one, ast.comprehension)]
        if any(isinstance(one, ast.Call) for iterable in iterables for one in walk(iterable)):
            return True
        return any(
            isinstance(one, ast.NamedExpr)
            or (isinstance(one, ast.Call) and one is not getattr(node, "value", None) and self.changes(one))
            for one in inner
        )

    def _write(self, node: ast.stmt) -> list[ast.stmt]:
        self._check_compound(node)
        match node:
            case ast.Assign():
                return [self._put_at(node, one) for one in self._assign(node)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                typed = self._ask("let_typed", self._expr(value), self._expr(node.annotation))
                return [self._put_at(node, self._store_name(name, typed))]
            case ast.AugAssign():
                return [self._put_at(node, self._augment(node))]
            case ast.If():
                return self._branch(node)
            case ast.For():
                return [self._put_at(node, self._loop(node))]
            case ast.While():
                test = self._expr(node.test)
                return [self._put_at(node, ast.While(test, self._inner_block(node.body), []))]
            case ast.Return():
                value = ast.Constant(None) if node.value is None else self._expr(node.value)
                return [self._put_at(node, ast.Return(self._references(value) if self.references else value))]
            case ast.Expr(value=value):
                return [self._put_at(node, ast.Expr(self._expr(value)))]
            case ast.Assert():
                message = None if node.msg is None else self._expr(node.msg)
                return [self._put_at(node, ast.Assert(self._expr(node.test), message))]
            case ast.With() if all(self._is_concurrent(item.context_expr) for item in node.items):
                return self._block(node.body)
        return [self._check_plain(node)]

    def _check_compound(self, node: ast.stmt) -> None:
        """Raise KernelError for a loop with an `else` clause, and for `return` inside an `if` or a loop of a kernel."""
        if isinstance(node, ast.For | ast.While) and node.orelse:
            raise self._refuse(node, "has a loop with `else`")
        if isinstance(node, ast.Return) and self._is_kernel and self._depth:
            remedy = "Move the statements that follow into the other branch of the `if`."
            raise self._refuse(node, "has a `return` inside an `if` or a loop, which a kernel must not have", remedy)

    def _check_plain(self, node: ast.stmt) -> ast.stmt:
        """Return a statement unchanged. Raise KernelError for a kind of statement that compiled engines refuse.

        Imports and `raise` are allowed for debugging: `import pdb; pdb.set_trace()`.
        """
        if not isinstance(node, _PLAIN):
            raise self._refuse(node, f"contains `{ast.unparse(node).split(maxsplit=1)[0]}`, which no engine supports")
        return node

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
                yield ast.Assign([target], self._ask("alias", value))
            else:
                yield self._assign_one(target, value)

    def _note_alias(self, target: ast.expr, value: ast.expr) -> None:
        """Note which function a local stands for after `f = ti.static(g)`."""
        if isinstance(target, ast.Name) and isinstance(value, ast.Call) and len(value.args) == 1:
            function = self._find(value.args[0])
            is_only_one = callable(function) and target.id not in self._aliases
            self._aliases[target.id] = function if is_only_one else MISSING

    def _declare(self, target: ast.expr) -> None:
        names = (one for one in walk(target) if isinstance(one, ast.Name))
        self._scopes[-1] |= {one.id for one in names if isinstance(one.ctx, ast.Store)}

    def _assign_one(self, target: ast.expr, value: ast.expr) -> ast.stmt:
        match target:
            case ast.Name(id=name):
                return self._store_name(name, self._give_type(name, value))
            case ast.Subscript():
                place = ast.Subscript(self._write_owner(target.value), self._expr(target.slice), ast.Store())
                return ast.Assign([ast.copy_location(place, target)], value)
            case ast.Attribute(value=owner, attr=attr):
                return ast.Expr(self._ask("set_member", self._write_owner(owner), ast.Constant(attr), value))
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                return self._assign_several(targets, value)
        raise self._refuse(target, f"assigns to `{ast.unparse(target)}`")

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
                    places.append(ast.Subscript(self._write_owner(target.value), self._expr(target.slice), ast.Store()))
                elif isinstance(target, ast.Attribute):
                    owner = self._ask("members_of", self._write_owner(target.value))
                    places.append(ast.Subscript(owner, ast.Constant(target.attr), ast.Store()))
                else:
                    raise self._refuse(target, f"assigns to `{ast.unparse(target)}`")
        self._scopes[-1] |= {one.id for one in targets if isinstance(one, ast.Name) and not self._is_local(one.id)}
        items = self._ask("unpack", value, ast.Tuple(olds, ast.Load()))
        return ast.Assign([ast.Tuple(places, ast.Store())], items)

    def _augment(self, node: ast.AugAssign) -> ast.stmt:
        operator = _ATOMIC_AUGMENTED.get(type(node.op))
        value = self._expr(node.value)
        match node.target:
            case ast.Name(id=name):
                old = ast.Name(name, ast.Load())
                if operator is not None:
                    new = self._ask("change", ast.Constant(operator), old, value)
                else:
                    new = self._ask("assign", old, self._ask(BINARY[type(node.op)], old, value))
                return ast.Assign([ast.Name(name, ast.Store())], new)
            case ast.Subscript(value=owner, slice=index):
                place = [self._write_owner(owner), self._expr(index)]
                method = "change_element" if operator is not None else "replace_element"
            case ast.Attribute(value=owner, attr=attr):
                place = [self._write_owner(owner), ast.Constant(attr)]
                method = "change_member" if operator is not None else "replace_member"
        return ast.Expr(self._ask(method, *place, ast.Constant(operator or BINARY[type(node.op)]), value))

    def _branch(self, node: ast.If) -> list[ast.stmt]:
        is_static = self._is_static_call(node.test) or (
            isinstance(node.test, ast.UnaryOp) and self._is_static_call(node.test.operand)
        )
        test = self._expr(node.test)
        if not is_static:
            return [self._put_at(node, ast.If(test, self._inner_block(node.body), self._inner_block(node.orelse)))]
        # The chosen branch belongs to the block around it.
        before = set(self._scopes[-1])
        body = self._block(node.body)
        after_body = self._scopes[-1]
        self._scopes[-1] = set(before)
        orelse = self._block(node.orelse)
        new = (self._scopes[-1] | after_body) - before
        self._scopes[-1] = before | new
        unset = [
            self._put_at(node, ast.Assign([ast.Name(name, ast.Store())], self._ask_value("unset")))
            for name in sorted(new)
        ]
        return [*unset, self._put_at(node, ast.If(test, body, orelse))]

    def _loop(self, node: ast.For) -> ast.stmt:
        names = {one.id for one in walk(node.target) if isinstance(one, ast.Name)}
        is_static = self._is_static_call(node.iter)
        if is_static:
            over = self._expr(node.iter)
        elif self._is_range(node.iter):
            assert isinstance(node.iter, ast.Call)
            over = self._ask("range", *map(self._expr, node.iter.args))
        else:
            over = self._ask("iterate", self._expr(node.iter))
        return ast.For(node.target, over, self._inner_block(node.body, names, is_static=is_static), [])

    def _is_range(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._find(node.func) is builtins.range

    def _put_at(self, node: ast.AST, made: ast.stmt) -> ast.stmt:
        """Give a statement and its nodes the position of the original statement, and return it."""
        ast.copy_location(made, node)
        for child in list_children(made):
            give_place(child, made)
        return made
