"""Random kernels: their source, and what it means when Python itself runs it on scalars that carry autograd."""

from __future__ import annotations

import ast
import copy
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

HEADER = """
def kernel(
    x: lang.types.ndarray(ndim=1), w: lang.types.ndarray(ndim=1), k: lang.types.ndarray(ndim=1),
    h: lang.types.ndarray(ndim=1), c: lang.types.ndarray(ndim=1),
    y: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1),
):
"""
SPEC = "x[n], w[n], k[n]: i32 -> y[n], z[n]"
SCRATCH = "h[n], c[n]: i32"


@dataclass
class Scope:
    """What an expression may read: `done` arrays anywhere, `own` ones at `i` alone, `locals`."""

    done: set[str]
    own: set[str] = field(default_factory=set)
    locals: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=lambda: ["i"])


class Writer:
    """Writes one random kernel. The same seed writes the same kernel."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def source(self) -> str:
        """Write the text of a kernel that writes y and z, and perhaps its scratch h and c."""
        done = {"x", "w"}
        if self.random.random() < 0.4:
            self.lines.append("    size = x.shape[0]")
        order = self.random.sample(["h", "y", "z"], 3)
        cuts = sorted(self.random.sample([1, 2, 3], self.random.randint(1, 3)))
        groups = [order[begin:end] for begin, end in zip([0, *cuts], [*cuts, 3], strict=True) if begin < end]
        for group in groups:
            again = {self.random.choice(sorted(done - {"x", "w"}))} if done > {"x", "w"} else set()
            again = again if self.random.random() < 0.15 else set()
            self._loop(Scope(done - again), {*group, *again})
            done |= set(group)
        return HEADER + "\n".join(self.lines) + "\n"

    def _loop(self, scope: Scope, targets: set[str]) -> None:
        header = self.random.choice(["range(x.shape[0])", "x", "lang.ndrange(x.shape[0])", "lang.grouped(x)"])
        is_vector = header.startswith("lang")
        self.lines.append(f"    for {'place' if is_vector else 'i'} in {header}:")
        if is_vector:
            self.lines.append("        i = place" if "ndrange" in header else "        i = place[0]")
        self._locals(scope, "        ")
        if self.random.random() < 0.4 and not any("c[i] =" in line for line in self.lines):
            self.lines.append(f"        c[i] = {self.random.choice(['k[i]', 'k[k[i]]', '(i * 2 + 1) % x.shape[0]'])}")
            scope.own.add("c")
        for name in sorted(targets):
            self._write(name, scope)

    def _locals(self, scope: Scope, indent: str) -> None:
        for _ in range(self.random.randint(0, 2)):
            self.count += 1
            name = f"v{self.count}"
            self.lines.append(f"{indent}{name} = {self.expression(scope)}")
            if self.random.random() < 0.5:
                self._inner_loop(name, scope, indent)
            elif self.random.random() < 0.4:
                self.lines.append(f"{indent}if {self.expression(scope, 1)} > {self.expression(scope, 0)}:")
                self.lines.append(f"{indent}    {name} = {name} * {self.expression(scope, 1)}")
            scope.locals.append(name)

    def _inner_loop(self, name: str, scope: Scope, indent: str) -> None:
        bound = self.random.choice(["3", "w.shape[0]", "lang.static(3)"])
        header = f"lang.static(range({bound[12:-1]}))" if bound.startswith("lang") else f"range({bound})"
        inner = Scope(scope.done, scope.own, [name], [*scope.variables, "j"])
        self.lines.append(f"{indent}for j in {header}:")
        how = self.random.choice(["{0} += {1}", "{0} = {0} * 0.5 + {1}", "{0} = {0} * {1}"])
        self.lines.append(f"{indent}    " + how.format(name, self.expression(inner, 1)))

    def _write(self, name: str, scope: Scope) -> None:
        value = self.expression(scope)
        kind = self.random.choice(["own", "own", "add", "scatter", "branch"])
        if kind == "own":
            self.lines.append(f"        {name}[i] = {value}")
            scope.own.add(name)
        elif kind == "branch":
            self.lines.append(f"        if {self.expression(scope, 1)} > 0.3:")
            self.lines.append(f"            {name}[i] += {value}")
        else:
            self.lines.append(f"        {name}[{'i' if kind == 'add' else 'k[i]'}] += {value}")
            scope.own.discard(name)

    def expression(self, scope: Scope, depth: int = 2) -> str:
        """Draw an expression whose values stay small."""
        if depth == 0 or self.random.random() < 0.15:
            return self._leaf(scope)
        one, two = (self.expression(scope, depth - 1) for _ in range(2))
        forms = [
            f"({one} + {two})",
            f"({one} - {two})",
            f"({one} * {two})",
            f"({one} * {two})",
            f"lang.sin({one})",
            f"lang.exp(0.3 * lang.cos({one}))",
            f"({one} / (2.0 + {two} * {two}))",
            f"lang.max({one}, {two})",
            f"lang.sqrt({one} * {one} + 0.5)",
            f"({one} if {two} > 0.2 else {two})",
            f"lang.select({one} > 0.1, {one}, {two})",
        ]
        return self.random.choice(forms)

    def _leaf(self, scope: Scope) -> str:
        variable = scope.variables[-1]
        i = self.random.choice([variable, "i", f"k[{variable}]", f"(x.shape[0] - 1 - {variable})"])
        own = "c[i]" if "c" in scope.own and self.random.random() < 0.5 else "i"
        leaves = [f"{name}[{i}]" for name in sorted(scope.done)]
        leaves += [f"{name}[i]" for name in sorted(scope.own - {"c"} - scope.done)]
        leaves += [f"x[{own}]", "0.7", "1.3", *scope.locals, *scope.locals]
        return self.random.choice(leaves)


class Array:
    """An array whose elements are scalars that carry autograd."""

    def __init__(self, values: Any) -> None:
        self.values = list(values)
        self.shape = (len(self.values),)

    def __getitem__(self, place: Any) -> Any:
        return self.values[int(place)]

    def __setitem__(self, place: Any, value: Any) -> None:
        self.values[int(place)] = value

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.values)))


def _tensor(value: Any) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)


PYTHON = SimpleNamespace(
    types=SimpleNamespace(ndarray=lambda **_: None),
    sin=lambda v: torch.sin(_tensor(v)),
    cos=lambda v: torch.cos(_tensor(v)),
    exp=lambda v: torch.exp(_tensor(v)),
    sqrt=lambda v: torch.sqrt(_tensor(v)),
    max=lambda a, b: torch.maximum(_tensor(a), _tensor(b)),
    select=lambda c, a, b: _tensor(a if c else b),
    static=lambda v: v,
    ndrange=range,
    grouped=lambda array: [(place,) for place in array],
)
"""What a kernel calls `lang` when Python runs it."""


class _Spelt(ast.NodeTransformer):
    """`a += b` as `a = a + b`: torch would add in place, to whatever else `a` is."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        old = copy.deepcopy(node.target)
        old.ctx = ast.Load()
        return ast.Assign([node.target], ast.BinOp(old, node.op, node.value))


def run_in_torch(source: str, x: torch.Tensor, w: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Run a kernel element by element in torch's float64 scalars."""
    scope: dict[str, Any] = {"lang": PYTHON, "math": math}
    tree = _Spelt().visit(ast.parse(source))
    exec(compile(ast.fix_missing_locations(tree), "<meaning>", "exec"), scope)
    zero = torch.zeros((), dtype=torch.float64)
    h, y, z = (Array([zero] * len(x)) for _ in range(3))
    scope["kernel"](Array(x), Array(w), Array(k.tolist()), h, Array([0] * len(x)), y, z)
    return torch.stack([_tensor(v) for v in y.values]), torch.stack([_tensor(v) for v in z.values])
