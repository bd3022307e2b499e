"""Trace: what `forward` and `backward` of a Function do with tensors, followed through helpers of the file.

Statements are read in order, branches one after the other. What is not understood is an `Object`, or a tensor of which
nothing is known; no failure is seen in those.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .._source_form import get_integer
from ._reader import Module
from ._tensors import Allocation, Group, Launch, Object, ShapeOf, Size, Tensor

_SAME_OR_COPY = frozenset({"bfloat16", "contiguous", "cpu", "cuda", "double", "float", "half", "to", "type", "type_as"})
_VIEWS = frozenset(
    {"expand", "expand_as", "flatten", "movedim", "narrow", "permute", "ravel", "reshape", "reshape_as", "select"}
    | {"split", "squeeze", "swapaxes", "t", "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as"}
)
_FACTORIES = frozenset({"empty", "full", "ones", "rand", "randn", "tensor", "zeros"})
_DTYPES = {"int32": "i32", "int": "i32", "int64": "i64", "long": "i64", "int16": "i16", "int8": "i8", "uint8": "u8"}
_NOT_KERNELS = ("torch.", "jax.", "functorch.", "autograd.", "numpy.")
_DEEPEST = 8


@dataclass
class Trace:
    """What was seen in the methods of one Function.

    Attributes:
        launches: calls of kernels in `forward`.
        gradients: calls of `kernel.grad`.
        returned: what `forward`, and what `backward` returns.
        cleared: steps at which `.grad` of a tensor is replaced or cleared, by tensor.
        pointers: calls of `data_ptr` on a tensor that nothing keeps.
        fields: texts of fields whose `.grad` is set or read, and those that are cleared.
    """

    launches: list[Launch] = field(default_factory=list)
    gradients: list[Launch] = field(default_factory=list)
    forward_result: Any = None
    backward_result: Any = None
    backward_return: ast.stmt | None = None
    inputs: list[Tensor] = field(default_factory=list)
    saved: set[str] = field(default_factory=set)
    cleared: list[tuple[int, Tensor]] = field(default_factory=list)
    pointers: list[ast.Call] = field(default_factory=list)
    field_gradients: set[str] = field(default_factory=set)
    cleared_fields: set[str] = field(default_factory=set)
    read_fields: set[str] = field(default_factory=set)
    uploaded_fields: set[str] = field(default_factory=set)
    unknown_calls: list[str] = field(default_factory=list)


class Tracer:
    """Follows the methods of one Function."""

    def __init__(self, module: Module, node: ast.ClassDef, is_kernel: Callable[[str], bool]) -> None:
        self.module = module
        self.is_kernel = is_kernel
        self.methods = module.methods(node)
        self.trace = Trace()
        self.context = Object("ctx")
        self._step = 0
        self._depth = 0
        self.is_backward = False
        self._class = node
        self._objects: dict[str, Object] = {}

    def run(self) -> Trace:
        """Follow `forward`, `setup_context` and `backward`."""
        forward, setup, backward = (self.methods.get(name) for name in ("forward", "setup_context", "backward"))
        if forward is not None:
            names = [one.arg for one in forward.args.args]
            inputs = names if setup is not None else names[1:]
            self.trace.inputs = [Tensor("input", name, requires_grad=True) for name in inputs]
            bound = dict(zip(inputs, self.trace.inputs, strict=True))
            env: dict[str, Any] = bound if setup is not None else {names[0]: self.context, **bound} if names else {}
            if forward.args.vararg is not None:
                name = forward.args.vararg.arg  # how many there are is not known: one stands for them
                env[name] = Group((Tensor("input", name, requires_grad=True),))
            self.trace.forward_result = self._body(forward, env)
        if setup is not None:
            values = [self.context, Group(tuple(self.trace.inputs)), self.trace.forward_result]
            self._body(setup, dict(zip((one.arg for one in setup.args.args), values, strict=False)))
        for tensor in tensors_in(self.trace.forward_result):
            if tensor.origin == "made" and tensor.is_original:
                tensor.requires_grad = True  # autograd marks what `apply` returns
        if backward is not None:
            self.is_backward = True
            first, *rest = [one.arg for one in backward.args.args] or ["ctx"]
            env = {first: self.context, **{name: Tensor("incoming", name, requires_grad=False) for name in rest}}
            if backward.args.vararg is not None:
                incoming = Tensor("incoming", backward.args.vararg.arg, requires_grad=False)
                env[backward.args.vararg.arg] = Group((incoming, incoming, incoming, incoming))
            self.trace.backward_result = self._body(backward, env)
        differentiated = {one.kernel for one in self.trace.gradients}
        self.trace.launches = [
            one
            for one in self.trace.launches
            if one.kernel in differentiated or self.is_kernel(one.kernel.rpartition(".")[2])
        ]
        return self.trace

    def _body(self, function: ast.FunctionDef, env: dict[str, Any]) -> Any:
        inner = _Frame(self, env)
        inner.block(function.body)
        if self.is_backward and self._depth == 0:
            self.trace.backward_return = inner.return_node
        return inner.returned

    def next_step(self) -> int:
        self._step += 1
        return self._step

    def call(self, function: ast.FunctionDef, positional: list[Any], named: Mapping[str, Any]) -> Any:
        """Follow a call of a function of the file."""
        if self._depth >= _DEEPEST:
            return Object(function.name)
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
        env = {**dict(zip(names, positional, strict=False)), **named}
        defaults = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        env |= {name: _Frame(self, {}).value(node) for name, node in defaults.items() if name not in env}
        if function.args.vararg is not None:
            env[function.args.vararg.arg] = Group(tuple(positional[len(names) :]))
        self._depth += 1
        try:
            return self._body(function, env)
        finally:
            self._depth -= 1

    def find_global(self, name: str) -> Object:
        """Return what a name of the file stands for; `backward = kernel.grad` is the gradient of a kernel."""
        kernel = self.module.gradients.get(name)
        return self.find_object(name) if kernel is None else Object(f"{kernel}.grad")

    def find_object(self, text: str) -> Object:
        """Return the object that stands for an unknown text: the same object each time."""
        return self._objects.setdefault(text, Object(text))

    def is_own(self, text: str) -> bool:
        """Return True if a name is the class itself, `self` or `cls`."""
        return text in (self._class.name, "self", "cls")


class _Frame:
    """One call of a function: its locals."""

    def __init__(self, tracer: Tracer, env: dict[str, Any]) -> None:
        self.tracer, self.trace, self.env = tracer, tracer.trace, env
        self.returned: Any = None
        self.return_node: ast.stmt | None = None

    # Statements -------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Return(value=value):
                self.returned = None if value is None else self.value(value)
                self.return_node = node
            case ast.Assign(targets=targets, value=value):
                result = self.value(value)
                for target in targets:
                    self._assign(target, result, node)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self.value(value), node)
            case ast.AugAssign(target=ast.Name(name), value=value):
                self.value(value)
                self.env[name] = self._fresh(self.env.get(name), name)
            case ast.Expr(value=value):
                self.value(value)
            case ast.For(target=target, iter=iterable, body=body, orelse=orelse):
                for item in self._items(self.value(iterable)):
                    self._assign(target, item, node)
                    self.block(body)
                self.block(orelse)
            case ast.FunctionDef() | ast.ClassDef():
                self.env.pop(node.name, None)
            case _:
                self._compound(node)

    def _compound(self, node: ast.stmt) -> None:
        """Follow `if`, `while`, `with` and `try`: all of their blocks, in order."""
        for part in walk_expressions(getattr(node, "test", None), getattr(node, "items", None)):
            self.value(part)
        for name in ("body", "orelse", "finalbody"):
            self.block(getattr(node, name, None) or [])

    def _assign(self, target: ast.expr, value: Any, node: ast.stmt) -> None:
        match target:
            case ast.Name(name):
                self.env[name] = value
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                parts = self._parts(value, len(targets))
                for one, part in zip(targets, parts, strict=True):
                    self._assign(one, part, node)
            case ast.Starred(value=inner):
                self._assign(inner, Object(ast.unparse(inner)), node)
            case ast.Attribute(value=owner, attr=name):
                self._assign_attribute(self.value(owner), name, value, node)

    def _assign_attribute(self, owner: Any, name: str, value: Any, node: ast.stmt) -> None:
        if isinstance(owner, Tensor) and name == "grad":
            owner.adjoint = value if isinstance(value, Tensor) else None
            if isinstance(value, Tensor) and value.origin == "made" and value.taken_from is None:
                value.taken_from = owner
            owner.adjoint_line = getattr(node, "lineno", 0)
            self.trace.cleared.append((self.tracer.next_step(), owner))
        elif isinstance(owner, Tensor) and name == "requires_grad":
            owner.requires_grad = True if value == 1 else None
        elif isinstance(owner, Object) and name == "grad" and isinstance(value, Tensor):
            tensor = owner.as_tensor()
            tensor.adjoint, tensor.adjoint_line = value, getattr(node, "lineno", 0)
        elif isinstance(owner, Object):
            owner.attributes[name] = value
            for tensor in tensors_in(value):
                tensor.kept_on_context = tensor.kept_on_context or owner is self.tracer.context

    def _parts(self, value: Any, count: int) -> list[Any]:
        if isinstance(value, Group) and len(value.items) == count:
            return list(value.items)
        if isinstance(value, ShapeOf):
            return [Size("dim", (value.tensor, axis, count)) for axis in range(count)]
        text = getattr(value, "text", "") or getattr(value, "name", "")
        return [Object(f"{text}[{place}]") for place in range(count)]

    def _items(self, value: Any) -> tuple[Any, ...]:
        return value.items if isinstance(value, Group) else (Object("item"),)

    # Expressions ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=constant):
                return Size("number", (constant,)) if type(constant) is int else constant
            case ast.Name(name):
                return self.env[name] if name in self.env else self.tracer.find_global(name)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript(value=inner, slice=index):
                return self._item(self.value(inner), index, node)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return Group(tuple(self._expand(items)))
            case ast.ListComp(elt=entry, generators=[one]) | ast.GeneratorExp(elt=entry, generators=[one]):
                return Group(tuple(self._comprehension(entry, one)))
            case ast.IfExp(body=body, orelse=orelse):
                first, second = self.value(body), self.value(orelse)
                return first if isinstance(first, Tensor) or first is not None else second
            case ast.BinOp(left=left, op=op, right=right):
                return self._operation(self.value(left), op, self.value(right), node)
            case ast.Call():
                return self._call(node)
            case ast.NamedExpr(target=target, value=inner):
                result = self.value(inner)
                self.env[target.id] = result
                return result
        for part in walk_expressions(*ast.iter_child_nodes(node)):
            self.value(part)
        return Object(ast.unparse(node))

    def _expand(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value)
                values += inner.items if isinstance(inner, Group) else [inner]
            else:
                values.append(self.value(node))
        return values

    def _comprehension(self, entry: ast.expr, one: ast.comprehension) -> list[Any]:
        results = []
        for item in self._items(self.value(one.iter)):
            inner = _Frame(self.tracer, dict(self.env))
            inner._assign(one.target, item, ast.Pass())
            results.append(inner.value(entry))
        return results

    def _operation(self, left: Any, op: ast.operator, right: Any, node: ast.expr) -> Any:
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return Tensor("made", ast.unparse(node), requires_grad=False)
        if isinstance(left, Group) and isinstance(right, Group) and isinstance(op, ast.Add):
            return Group((*left.items, *right.items))
        signs = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//"}
        return Size(signs[type(op)], (left, right)) if type(op) in signs else Object(ast.unparse(node))

    def _attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, Tensor):
            if node.attr == "grad":
                if owner.adjoint is not None:
                    return owner.adjoint
                return Tensor("made", f"{owner.name}.grad", taken_from=owner)
            if node.attr == "data":
                return owner.derive(requires_grad=False)
            if node.attr == "shape":
                return ShapeOf(owner)
            if node.attr in ("T", "mT", "H", "real"):
                return owner.derive(requires_grad=False)
            return Object(ast.unparse(node))
        if isinstance(owner, Object):
            if node.attr in owner.attributes:
                return owner.attributes[node.attr]
            if owner is self.tracer.context:
                return Object(f"ctx.{node.attr}")
            return self.tracer.find_object(f"{owner.text}.{node.attr}")
        return Object(ast.unparse(node))

    def _item(self, whole: Any, index: ast.expr, node: ast.expr) -> Any:
        place = self.value(index) if not isinstance(index, ast.Slice) else None
        number = get_integer(index) if isinstance(index, ast.UnaryOp) else _constant(place)
        if isinstance(whole, Group):
            if isinstance(number, int) and -len(whole.items) <= number < len(whole.items):
                return whole.items[number]
            if isinstance(index, ast.Slice):
                bounds = [get_integer(one) for one in (index.lower, index.upper)]
                return Group(whole.items[slice(*bounds)])
        if isinstance(whole, ShapeOf):
            if isinstance(number, int):
                return Size("dim", (whole.tensor, number, None))
            if isinstance(index, ast.Slice):
                return Size("dims", (whole.tensor, get_integer(index.lower), get_integer(index.upper)))
        if isinstance(whole, Tensor):
            return whole.derive(requires_grad=False)
        return Object(ast.unparse(node))

    # Calls ------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        positional = self._expand(node.args)
        named = {word.arg: self.value(word.value) for word in node.keywords if word.arg}
        dotted = self.tracer.module.resolve(node.func)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            text = _text(owner, node.func.value)
            if isinstance(owner, Tensor) and node.func.attr != "grad":  # `ctx.kernel.grad(...)` of an argument
                return self._tensor_method(owner, node, positional, named)
            if node.func.attr == "grad" and not dotted.startswith(_NOT_KERNELS):
                return self._launch(self.trace.gradients, text, node, positional, named)
            if owner is self.tracer.context and node.func.attr not in self.tracer.context.attributes:
                return self._context_method(node.func.attr, positional)
            if text.endswith((".grad", ".grad.data")):
                return self._field_method(text.partition(".grad")[0], node.func.attr)
            if node.func.attr == "from_torch":
                self.trace.uploaded_fields |= {text} if self.tracer.is_backward else set()
        if dotted.startswith("torch."):
            return self._torch(dotted.removeprefix("torch."), node, positional, named)
        called = self.value(node.func) if isinstance(node.func, ast.Name | ast.Attribute) else Object("")
        text = _text(called, node.func)
        if text.endswith(".grad") and not isinstance(node.func, ast.Attribute):  # `gradient = kernel.grad`
            return self._launch(self.trace.gradients, text.removesuffix(".grad"), node, positional, named)
        return self._other(node, text, positional, named)

    def _other(self, node: ast.Call, text: str, positional: list[Any], named: dict[str, Any]) -> Any:
        """Evaluate a call of a kernel, of a function or method of the file, or of anything else."""
        owner, _, name = text.rpartition(".")
        if self.tracer.is_kernel(name):
            return self._launch(self.trace.launches, text, node, positional, named)
        function = self.tracer.module.functions.get(text)
        if function is None and self.tracer.is_own(owner):
            function = self.tracer.methods.get(name)
            is_static = function is not None and any(
                isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list
            )
            positional = positional if is_static else [Object(owner), *positional]
        if function is not None:
            return self.tracer.call(function, positional, named)
        if text == "len" and positional and isinstance(positional[0], Tensor):
            return Size("dim", (positional[0], 0, None))
        if text in ("tuple", "list") and positional and isinstance(positional[0], Group):
            return positional[0]
        if text == "int" and positional:
            return positional[0]
        if text == "zip" and all(isinstance(one, Group) for one in positional):
            return Group(tuple(Group(items) for items in zip(*(one.items for one in positional), strict=False)))
        if self.tracer.is_backward:
            self.trace.unknown_calls.append(text)
        else:
            self._launch(self.trace.launches, text, node, positional, named)
        return Object(ast.unparse(node.func) + "()")

    def _launch(
        self, launches: list[Launch], text: str, node: ast.Call, positional: list[Any], named: dict[str, Any]
    ) -> Any:
        if text.startswith("ctx."):
            text = _text(self.tracer.context.attributes.get(text.removeprefix("ctx.")), node.func)
        is_known = self.tracer.is_kernel(text.rpartition(".")[2])
        positional = [self._to_tensor(one, is_known=is_known) for one in positional]
        texts = tuple(ast.unparse(one) for one in node.args)
        launches.append(Launch(text, node, tuple(positional), named, texts, self.tracer.next_step()))
        return Object(f"{text}()")

    def _to_tensor(self, value: Any, *, is_known: bool) -> Any:
        """Return a kernel's argument as a tensor if it is known to be one; any other value unchanged."""
        if not isinstance(value, Object):
            return value
        return value.as_tensor() if is_known or value.tensor is not None else value

    def _context_method(self, name: str, positional: list[Any]) -> Any:
        if name == "save_for_backward":
            saved = Group(tuple(one.as_tensor() if isinstance(one, Object) else one for one in positional))
            self.tracer.context.attributes |= {"saved_tensors": saved, "saved_variables": saved}
            self.trace.saved |= {one.name for one in positional if isinstance(one, Tensor)}
        return Object(f"ctx.{name}()")

    def _field_method(self, text: str, name: str) -> Any:
        if name in ("from_torch", "from_numpy", "copy_from"):
            self.trace.field_gradients.add(text)
            self.trace.cleared_fields.add(text)
        elif name == "fill":
            self.trace.cleared_fields.add(text)
        elif name in ("to_torch", "to_numpy"):
            self.trace.read_fields.add(text)
            return Tensor("made", f"{text}.grad")
        return Object(f"{text}.grad.{name}()")

    def _tensor_method(self, owner: Tensor, node: ast.Call, positional: list[Any], named: dict[str, Any]) -> Any:
        assert isinstance(node.func, ast.Attribute)
        name, of = node.func.attr, node.func.value
        if name in ("zero_", "fill_", "copy_") and isinstance(of, ast.Attribute) and of.attr == "grad":
            holder = self.value(of.value)
            if isinstance(holder, Tensor):
                self.trace.cleared.append((self.tracer.next_step(), holder))
        if name == "detach" or name in _VIEWS:
            return owner.derive(requires_grad=False)
        if name in ("requires_grad_", "detach_"):
            is_on = name == "requires_grad_" and False not in (*positional, *named.values())
            owner.requires_grad = is_on
        if name in _SAME_OR_COPY:
            return replace(owner, is_maybe_copy=True)
        if name == "data_ptr":
            self.trace.pointers += [node] if isinstance(of, ast.Call) else []
            return Object("pointer")
        if name == "size":
            return Size("dim", (owner, _constant(positional[0]), None)) if positional else ShapeOf(owner)
        if name.startswith("new_"):
            return self._allocate(name.removeprefix("new_"), node, positional, named)
        if name in ("dim", "numel", "backward", "item", "tolist"):
            return Object(ast.unparse(node))
        return owner if name.endswith("_") else self._fresh(owner, ast.unparse(node))

    def _fresh(self, source: Any, text: str) -> Tensor:
        """Return a tensor with its own memory. If it copies a gradient, it is still known to be that gradient."""
        taken = source.taken_from if isinstance(source, Tensor) else None
        made = Allocation(source, None) if isinstance(source, Tensor) else None
        return Tensor("made", text, requires_grad=False, allocation=made, taken_from=taken)

    def _torch(self, name: str, node: ast.Call, positional: list[Any], named: dict[str, Any]) -> Any:
        last = name.rpartition(".")[2]
        if last in _FACTORIES or last.removesuffix("_like") in _FACTORIES:
            return self._allocate(last, node, positional, named)
        first = positional[0] if positional else None
        if isinstance(first, Tensor) and last in ("clone", "detach", "reshape", "flatten", "squeeze", "unsqueeze"):
            return self._fresh(first, ast.unparse(node)) if last == "clone" else first.derive(requires_grad=False)
        if last == "Size" and isinstance(first, Group):
            return first
        return Tensor("made", ast.unparse(node)) if any(isinstance(one, Tensor) for one in positional) else Object(name)

    def _allocate(self, name: str, node: ast.Call, positional: list[Any], named: dict[str, Any]) -> Tensor:
        """Return the tensor that a factory function of torch allocates."""
        flag = named.get("requires_grad", False)
        requires_grad = flag if isinstance(flag, bool) else None
        dtype = _DTYPES.get(_text(named.get("dtype"), node.func).rpartition(".")[2], "")
        tensor = Tensor("made", ast.unparse(node), requires_grad=requires_grad)
        if name.endswith("_like") and positional and isinstance(positional[0], Tensor):
            tensor.allocation = Allocation(positional[0], None, dtype)
        elif name != "tensor":
            given = [named["size"]] if "size" in named else positional[:1] if name == "full" else positional
            first = given[0] if len(given) == 1 else None
            if isinstance(first, ShapeOf):
                tensor.allocation = Allocation(first.tensor, None, dtype)
            else:
                tensor.allocation = Allocation(None, first.items if isinstance(first, Group) else tuple(given), dtype)
        return tensor


def _text(value: Any, node: ast.expr) -> str:
    if isinstance(value, Tensor):  # a kernel that `forward` is given
        return value.name
    return value.text if isinstance(value, Object) else ast.unparse(node)


def _constant(value: Any) -> int | None:
    return value.operands[0] if isinstance(value, Size) and value.operator == "number" else None


def tensors_in(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, Object):
        return [] if value.tensor is None else [value.tensor]
    return [tensor for one in value.items for tensor in tensors_in(one)] if isinstance(value, Group) else []


def walk_expressions(*nodes: Any) -> list[ast.expr]:
    """Return the expressions among nodes and lists of nodes, and the expressions of `with` items."""
    flat = [one for node in nodes for one in (node if isinstance(node, list) else [node])]
    return [one for one in (getattr(node, "context_expr", node) for node in flat) if isinstance(one, ast.expr)]
