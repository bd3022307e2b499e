"""The brief grammar: small programs with constructs of real code that the wide grammar lacks.

Structs and dataclasses, members of `data_oriented` classes, functions with functions as template parameters, early
returns, nested `while` loops, quaternions, decompositions of matrices, half precision.
"""

from __future__ import annotations

import ast
import functools
import math
import random
from dataclasses import replace

from fuzz._expressions import CHOICES, FUNCTIONS, PARTS
from fuzz._grammar import Program
from fuzz._parts import TREES, Scope
from fuzz._wide import NUMBERS, OUTPUTS, RANKS, SCRATCH, WideExpressions, WideStatements, WideTasks, chain_program

SIZES = ((0.75, 250), (0.97, 500), (1.0, math.inf))
"""The largest program of so many of all: a program takes as long as it is large, and small ones find as much."""
TRIES = 16
"""Kernels that are written for one that is small enough."""
LENGTHS = ("m + 1", "2 * m - 2", "n + m - 3", "(n + 8) // 3", "2 * (n - m) + 2")
"""Sums that are as large as `n`."""
_NUMBERS = (
    "settled(<F>, <leaf>)",
    "settled(<leaf>, <F>)",
    "repeated(bent, <F>, <leaf>, 2)",
    "repeated(settled, <leaf>, <F>, 1)",
    "rotated(quaternion(<F>, <leaf>), r[<row>]).y",
    "rotated(multiplied(quaternion(<F>, <leaf>), quaternion(<leaf>, 0.3)), r[<row>])[2]",
    "stretched(<F>, <leaf>)",
    "turned_by(<F>, <leaf>)",
    "Body(place=<V>, mass=<F>).pull(<leaf>).x",
    "Body(place=<V>, mass=<leaf>).moved(<V>).place[1]",
    "model.apply(<F>)",
    "(model.gain * <F>)",
    "(lang.floor(lang.cast(<F>, lang.f16) * 2.0) * 0.1)",
    "((o[<row>] @ shear(<F>, <leaf>)) @ <V>)[1]",
    "(table[<row>] * <F>)",
    "(table[<row>] * <leaf> + <F>)",
    "(u[<row>] * <F>)",
    "(u[<row>] * <leaf> - <F>)",
    "(lang.cast(u[<row>], lang.f64) * u[<row>])",
)


THEMES = (*_NUMBERS, *FUNCTIONS, *NUMBERS, *CHOICES, *PARTS)
"""Forms of numbers, of which each program has the next one: a hundred programs in a row have all of them."""


def write_brief(seed: int) -> Program:
    """Write the kernel of a seed; the same seed gives the same kernel."""
    dice = random.Random(f"brief {seed}")
    size = dice.random()
    most = next(most for share, most in SIZES if size < share)
    is_chain = dice.random() < 0.15
    updated = [name for name in OUTPUTS if name != "c" and dice.random() < 0.15]
    lengths = {name: dice.choice(LENGTHS) for name in OUTPUTS if RANKS[name] and dice.random() < 0.15}
    bodies, written = [], list[str]()
    for place in range(2 if is_chain else 1):
        tasks = _write_tasks(dice, most, written, seed + place)
        bodies.append("\n".join(tasks.words.lines))
        written = tasks.written
    return chain_program(seed, bodies, updated, lengths)


def _write_tasks(dice: random.Random, most: float, written: list[str], theme: int) -> _BriefTasks:
    """Write a kernel that reads the arrays `written` by others: the first of a few small enough, or the smallest."""
    smallest, size = None, math.inf
    for _ in range(TRIES):
        tasks = _BriefTasks(dice)
        tasks.written = list(written)
        tasks.words.theme, tasks.words.say.theme = theme, THEMES[theme % len(THEMES)]
        tasks.write()
        if tasks.words.theme is not None and dice.random() < 0.9:
            # The smallest kernels have no place for it.
            continue
        nodes = _count_nodes("\n".join(tasks.words.lines))
        if smallest is None or nodes < size:
            smallest, size = tasks, nodes
        if size <= most:
            break
    return smallest or tasks


def _count_nodes(body: str) -> int:
    """Return about how many nodes a kernel's tree has once functions stand in place of their calls.

    Loops count several times: a gradient runs them forward and backward, and a Hessian does so with each of these.
    """
    return _count(ast.parse(f"def kernel():\n{body}"))


def _count(node: ast.AST) -> int:
    total = 1 + sum(map(_count, ast.iter_child_nodes(node)))
    if isinstance(node, ast.For | ast.While):
        return 2 * total
    return total + _count_function(node.id) if isinstance(node, ast.Name) else total


@functools.cache
def _count_function(name: str) -> int:
    tree = TREES.get(name)
    return _count(tree) if isinstance(tree, ast.FunctionDef) else 0


class _BriefExpressions(WideExpressions):
    """Expressions that call more kinds of functions. The first number has the form `theme`."""

    theme = ""

    def number(self, scope: Scope, depth: int = 2) -> str:
        if self.theme and depth > 0:
            form, self.theme = self.theme, ""
            return self._out_of((form,), scope, 1)
        chance = self.dice.random()
        if depth > 0 and chance < 0.45:
            # Functions are frequent, so that a wrong derivative of one is found by few programs.
            return self._out_of(_NUMBERS if chance < 0.3 else FUNCTIONS, scope, min(depth, 1))
        return super().number(scope, min(depth, 1) if self.dice.random() < 0.8 else depth)

    def row(self, scope: Scope) -> str:
        # Calculated indices make most of a wide program's text.
        return self.dice.choice(["i", "i", "k[i]"]) if self.dice.random() < 0.6 else super().row(scope)


class _BriefStatements(WideStatements):
    """One statement or two a block. The first block begins as `theme` says."""

    theme: int | None = None

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice)
        self.say: _BriefExpressions = _BriefExpressions(dice)

    def body(self, scope: Scope) -> Scope:
        if self.theme is not None:
            forms = (None, None, None, None, self._struct, self._nested_whiles, self._until, self._for)
            form, self.theme = forms[self.theme % len(forms)], None
            scope = self._store_number(scope)
            if form is not None:
                return form(scope)
            if self.dice.random() < 0.4:
                return scope
        for _ in range(self.dice.choice([1, 1, 2] if scope.depth < 3 else [1])):
            scope = self.statement(scope)
        return scope

    def _store_number(self, scope: Scope) -> Scope:
        """Write a number and add it to an element if the iteration has one to itself."""
        name = self.name("v")
        self.line(scope, f"{name} = {self.say.number(scope)}")
        own = [self.say.own_element(one, scope) for one in scope.own if RANKS[one] in ("n", "nm")]
        if any(own):
            self.line(scope, f"{self.dice.choice([*filter(None, own)])} += {name}")
        return replace(scope, floats=(*scope.floats, name))

    def statement(self, scope: Scope) -> Scope:
        chance = self.dice.random()
        if chance < 0.1:
            return self._struct(scope)
        return self._nested_whiles(scope) if chance < 0.2 else super().statement(scope)

    def _struct(self, scope: Scope) -> Scope:
        """Write a struct whose members change, and read it."""
        name, other, result = self.name("b"), self.name("b"), self.name("v")
        vector, number = self.say.vector(scope), self.say.number(scope, 1)
        self.line(scope, f"{name} = Body(place={vector}, mass={number})")
        changes = (
            f"{name}.mass += {self.say.number(scope, 1)}",
            f"{name}.mass *= {self.say.leaf(scope)}",
            f"{name}.place = {self.say.vector(scope)}",
            f"{name}.place.x = {self.say.number(scope, 1)}",
            f"{name}.place[1] -= {self.say.leaf(scope)}",
            f"{name} = {name}.moved({self.say.vector(scope)})",
        )
        if self.dice.random() < 0.4:
            self.line(scope, f"if {self.say.condition(scope)}:")
            self.line(scope.inner(), self.dice.choice(changes))
        self.line(scope, f"{other} = {name}")
        self.line(scope, self.dice.choice(changes))
        read = (f"{other}.mass * {name}.mass", f"{name}.pull({other}.mass).y", f"{other}.place.dot({name}.place)")
        self.line(scope, f"{result} = {self.dice.choice(read)} * 0.5")
        return replace(scope, floats=(*scope.floats, result))

    def _nested_whiles(self, scope: Scope) -> Scope:
        """Write a loop with a data-dependent end in another one."""
        outer, inner, total = self.name("u"), self.name("u"), self.name("v")
        self.line(scope, f"{outer} = 0.3 + lang.abs(lang.tanh({self.say.number(scope, 1)}))")
        self.line(scope, f"{total} = {self.say.leaf(scope)}")
        known = replace(scope, floats=(*scope.floats, total))
        body = known.inner(constants=(*scope.constants, outer))
        deep = body.inner(constants=(*body.constants, inner))
        self.line(scope, f"while {outer} > 0.25:")
        self.line(body, f"{inner} = {outer} * 0.9")
        self.line(body, f"while {inner} > 0.2:")
        self.line(deep, f"{inner} *= 0.5")
        if self.dice.random() < 0.3:
            self._leave(replace(deep, leave=("break",)))
        self.line(deep, f"{total} = {total} * 0.6 + {inner} * {self.say.number(deep, 1)}")
        self.line(body, f"{outer} = {outer} * 0.6 {self.dice.choice(['', '- 0.02 * ' + inner])}")
        return known


class _BriefTasks(WideTasks):
    """One loop."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice)
        self.words: _BriefStatements = _BriefStatements(dice)

    def write(self) -> None:
        """Write one loop, with the statements before it."""
        self.dice.choice(self.forms())()
        if not [name for name in self.written if name not in (*SCRATCH, "c")]:
            self._rows(("y",))
