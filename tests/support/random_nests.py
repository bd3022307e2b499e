"""Random kernels with nests of loops, carried scalars and vectors, `while`, `break`, functions and state.

Their source, and what it means when Python itself runs it on scalars that carry autograd. Values
stay small, every loop ends, and no iteration of a parallel loop relies on another.
"""

from __future__ import annotations

import ast
import copy
import random
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from support.random_kernels import PYTHON

HEADER = """
@lang.func
def bent(a, b):
    c = lang.tanh(a) * 0.7
    if b > 0.2:
        c = c + lang.sin(b)
    return c


@lang.func
def turned(p, a):
    return lang.Vector([p[0] * lang.cos(a) - p[1] * lang.sin(a), p[0] * lang.sin(a) + p[1] * lang.cos(a)])


def kernel(
    x: lang.types.ndarray(ndim=1), w: lang.types.ndarray(ndim=2), k: lang.types.ndarray(ndim=1),
    s: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1),
):
"""
SPEC = "x[n], w[n, m], k[n]: i32 -> s[n], y[n], z[n]"


@dataclass(frozen=True)
class Scope:
    """What may be read here: arrays at `i` and those anywhere; floats, vectors and integers that are locals."""

    own: tuple[str, ...]
    anywhere: tuple[str, ...]
    floats: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    whole: tuple[str, ...] = ("i",)
    indent: str = "        "
    depth: int = 0
    is_loop: bool = False
    fixed: tuple[str, ...] = field(default=("i",))

    def inner(self, **changes: Any) -> Scope:
        return replace(self, indent=self.indent + "    ", depth=self.depth + 1, **changes)


class Writer:
    """Writes one random kernel. The same dice write the same kernel."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lines: list[str] = []
        self.count = 0

    def source(self) -> str:
        """Write the text of a kernel that writes s, y and z."""
        done = ["x"]
        for name in self.dice.sample(["s", "y", "z"], 3):
            if self.dice.random() < 0.3:
                self._state(name, tuple(done))
            else:
                self._parallel(name, tuple(done))
            done.append(name)
        return HEADER + "\n".join(self.lines) + "\n"

    def _state(self, name: str, done: tuple[str, ...]) -> None:
        """Write a serial loop in which each element builds on the one before."""
        self._line("    ", "lang.loop_config(serialize=True)")
        self._line("    ", "for i in range(1, x.shape[0]):")
        scope = self._body(Scope(done, done))
        how = ["{0}[i - 1] * 0.5 + {1}", "lang.tanh({0}[i - 1] * {1}) + 0.1", "lang.max({0}[i - 1], {1})"]
        self._line(scope.indent, f"{name}[i] = " + self.dice.choice(how).format(name, self.number(scope)))
        if self.dice.random() < 0.5:
            self._line(scope.indent, f"{name}[i] = {name}[i] * {self.number(scope, 1)} + {name}[k[i]]")

    def _parallel(self, name: str, done: tuple[str, ...]) -> None:
        self._line("    ", f"for i in {self.dice.choice(['range(x.shape[0])', 'x', 'lang.ndrange(x.shape[0])'])}:")
        scope = self._body(Scope(done, done))
        how = self.dice.choice(["{0}[i] = {1}", "{0}[i] += {1}", "{0}[k[i]] += {1}", "lang.atomic_sub({0}[i], {1})"])
        self._line(scope.indent, f"value = {self.number(scope)}")
        self._line(scope.indent, how.format(name, "value"))

    def _body(self, scope: Scope) -> Scope:
        for _ in range(self.dice.randint(1, 4)):
            scope = self._statement(scope)
        return scope

    def _statement(self, scope: Scope) -> Scope:
        """Write a statement; gives what may be read after it."""
        forms = [self._float, self._float, self._vector, self._integer]
        if scope.floats:
            forms += [self._change, self._change, self._branch]
        if scope.depth < 3 and scope.floats:
            forms += [self._for, self._for, self._while]
        if scope.is_loop and scope.floats:
            forms += [self._leave]
        return self.dice.choice(forms)(scope)

    def _float(self, scope: Scope) -> Scope:
        name = self._name("v")
        self._line(scope.indent, f"{name} = {self.number(scope)}")
        return replace(scope, floats=(*scope.floats, name))

    def _vector(self, scope: Scope) -> Scope:
        name = self._name("p")
        self._line(scope.indent, f"{name} = {self.vector(scope)}")
        return replace(scope, vectors=(*scope.vectors, name))

    def _integer(self, scope: Scope) -> Scope:
        name = self._name("c")
        self._line(scope.indent, f"{name} = {self.integer(scope)}")
        return replace(scope, whole=(*scope.whole, name))

    def _change(self, scope: Scope) -> Scope:
        free = [name for name in scope.whole if name not in scope.fixed]
        if scope.vectors and self.dice.random() < 0.3:
            name = self.dice.choice(scope.vectors)
            how = self.dice.choice(["{0} = {0} * 0.5 + {1}", "{0} += 0.3 * {1}", "{0} = {1}"])
            self._line(scope.indent, how.format(name, self.vector(scope)))
        elif free and self.dice.random() < 0.3:
            name = self.dice.choice(free)
            self._line(scope.indent, f"{name} = ({name} + {self.integer(scope)}) % 11")
        else:
            name = self.dice.choice(scope.floats)
            forms = [
                "{0} = {0} * 0.5 + {1}",
                "{0} += 0.3 * {1}",
                "{0} = lang.max({0}, {1})",
                "{0} = lang.tanh({0} * {1})",
            ]
            self._line(scope.indent, self.dice.choice(forms).format(name, self.number(scope, 1)))
        return scope

    def _branch(self, scope: Scope) -> Scope:
        self._line(scope.indent, f"if {self.condition(scope)}:")
        self._change(scope.inner())
        if self.dice.random() < 0.3:
            self._line(scope.indent, f"elif {self.condition(scope)}:")
            self._change(scope.inner())
        if self.dice.random() < 0.5:
            self._line(scope.indent, "else:")
            self._change(scope.inner())
        return scope

    def _for(self, scope: Scope) -> Scope:
        name = self._name("j")
        bound = self.dice.choice(["3", "w.shape[1]", "k[i] % 4", "2, 4", "static"])
        header = "lang.static(range(2))" if bound == "static" else f"range({bound})"
        self._line(scope.indent, f"for {name} in {header}:")
        names = {"whole": (*scope.whole, name), "fixed": (*scope.fixed, name)}
        inner = self._body(scope.inner(is_loop=bound != "static", **names))
        self._change(inner)
        return scope

    def _while(self, scope: Scope) -> Scope:
        name = self._name("t")
        self._line(scope.indent, f"{name} = 0")
        self._line(scope.indent, f"while {name} < 4 and ({self.condition(scope)}):")
        self._line(scope.indent + "    ", f"{name} += 1")
        names = {"whole": (*scope.whole, name), "fixed": (*scope.fixed, name)}
        self._change(self._body(scope.inner(is_loop=True, **names)))
        return replace(scope, **names)

    def _leave(self, scope: Scope) -> Scope:
        self._line(scope.indent, f"if {self.condition(scope)}:")
        self._line(scope.indent + "    ", self.dice.choice(["break", "continue"]))
        return scope

    # Expressions --------------------------------------------------------------------------------

    def number(self, scope: Scope, depth: int = 2) -> str:
        """Draw a float expression."""
        if depth == 0 or self.dice.random() < 0.1:
            return self._leaf(scope)
        one, two = (self.number(scope, depth - 1) for _ in range(2))
        forms = [
            f"({one} + {two})",
            f"({one} - {two})",
            f"lang.sin({one} * {two})",
            f"lang.exp(0.3 * lang.cos({one}))",
            f"({one} / (2.0 + {two} * {two}))",
            f"lang.min({one}, {two})",
            f"lang.sqrt({one} * {one} + 0.5)",
            f"lang.abs({one})",
            f"({one} if {two} > 0.2 else {two})",
            f"lang.select({one} > 0.1, {one}, {two})",
            f"bent({one}, {two})",
            f"({one} * 0.1 * {self.integer(scope)})",
            f"lang.tanh({one}) ** {self.dice.choice(['2', '3'])}",
            f"{self.vector(scope, 1)}[{self.dice.choice('01')}]",
            f"({self.vector(scope, 1)} + 2.0).norm()",
        ]
        return self.dice.choice(forms)

    def vector(self, scope: Scope, depth: int = 1) -> str:
        """Draw an expression of a 2-vector."""
        if scope.vectors and (depth == 0 or self.dice.random() < 0.5):
            name = self.dice.choice(scope.vectors)
            other = self.dice.choice(scope.vectors)
            factor = self.number(scope, 0)
            return self.dice.choice([name, f"turned({name}, {factor})", f"({name} - {other})", f"({name} * {factor})"])
        return f"lang.Vector([{self._leaf(scope)}, {self.number(scope, max(depth - 1, 0))}])"

    def integer(self, scope: Scope) -> str:
        """Draw an expression of a small integer that is not negative."""
        name = self.dice.choice(scope.whole)
        return self.dice.choice([name, f"({name} * 3 % 5)", f"k[{self._index(scope)}]", f"({name} // 2 + 1)", "2"])

    def condition(self, scope: Scope) -> str:
        """Draw a condition."""
        first = f"{self.number(scope, 1)} > {self.number(scope, 0)}"
        if self.dice.random() < 0.3:
            first += self.dice.choice([" and ", " or "]) + f"{self.integer(scope)} < {self.integer(scope)}"
        return first

    def _leaf(self, scope: Scope) -> str:
        leaves = [f"{name}[i]" for name in scope.own]
        leaves += [f"{name}[{self._index(scope)}]" for name in scope.anywhere]
        leaves += [f"w[{self._index(scope)}, {self.dice.choice(scope.whole)} % w.shape[1]]", "0.7"]
        return self.dice.choice([*leaves, *scope.floats, *scope.floats])

    def _index(self, scope: Scope) -> str:
        name = self.dice.choice(scope.whole)
        return self.dice.choice(["i", f"({name} % x.shape[0])", "k[i]", f"(x.shape[0] - 1 - {name} % x.shape[0])"])

    def _name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _line(self, indent: str, text: str) -> None:
        self.lines.append(indent + text)


# What it means ----------------------------------------------------------------------------------


class Cells:
    """An array whose elements are numbers that carry autograd."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.shape = tuple(tensor.shape)
        flat = tensor.reshape(-1)
        self.cells = list(flat.unbind()) if tensor.is_floating_point() else flat.tolist()

    def _at(self, place: Any) -> int:
        places = place if isinstance(place, tuple) else (place,)
        flat = 0
        for one, size in zip(places, self.shape, strict=True):
            assert 0 <= one < size
            flat = flat * size + one
        return flat

    def __getitem__(self, place: Any) -> Any:
        return self.cells[self._at(place)]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.cells[self._at(place)] = torch.as_tensor(value, dtype=torch.float64)

    def __iter__(self) -> Any:
        return iter(range(len(self.cells)))


class _Spelt(ast.NodeTransformer):
    """`a += b` as `a = a + b`, since torch would add in place, and `atomic_sub(a, b)` as `a = a - b`."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        return self._changed(node.target, node.op, node.value)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "lang.atomic_sub":
            return self._changed(node.value.args[0], ast.Sub(), node.value.args[1])
        return node

    def _changed(self, target: ast.expr, change: ast.operator, value: ast.expr) -> ast.Assign:
        old, new = copy.deepcopy(target), copy.deepcopy(target)
        old.ctx, new.ctx = ast.Load(), ast.Store()  # type: ignore[attr-defined]
        return ast.Assign([new], ast.BinOp(old, change, value))


MEANS = SimpleNamespace(
    **vars(PYTHON),
    func=lambda function: function,
    loop_config=lambda **_: None,
    tanh=lambda v: torch.tanh(torch.as_tensor(v, dtype=torch.float64)),
    abs=lambda v: torch.abs(torch.as_tensor(v, dtype=torch.float64)),
    min=lambda a, b: torch.minimum(*(torch.as_tensor(v, dtype=torch.float64) for v in (a, b))),
    Vector=lambda entries: torch.stack([torch.as_tensor(v, dtype=torch.float64) for v in entries]),
)
"""What a kernel calls `lang` when Python runs it."""


def run_in_torch(source: str, x: torch.Tensor, w: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Run a kernel iteration by iteration in torch's float64 scalars."""
    scope: dict[str, Any] = {"lang": MEANS}
    tree = ast.fix_missing_locations(_Spelt().visit(ast.parse(source)))
    exec(compile(tree, "<meaning>", "exec"), scope)
    arrays = [Cells(t) for t in (x, w, k, *(torch.zeros(len(x), dtype=torch.float64) for _ in range(3)))]
    scope["kernel"](*arrays)
    return tuple(torch.stack(array.cells) for array in arrays[3:])
