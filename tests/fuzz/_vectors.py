"""Random kernels that CPUs can run in machine vectors: elementwise loops, inner loops with functions, loops left early.

Numbers alone, no vectors or matrices, which such forms do not take. A function is often written again in the same
words, before and after what it is of has changed: passes that move it must tell the two apart.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from fuzz._grammar import Program
from fuzz._wide import wide_program

_NUMBERS = (
    "(<F> + <F>)",
    "(<F> - <F>)",
    "<F> * 0.5 * <F>",
    "<F> / (2.0 + <square>)",
    "(<F> * 0.1 * <I>)",
    "lang.min(<F>, <F>)",
    "lang.max(<F>, 0.15)",
    "lang.abs(<F>)",
    "lang.sqrt(0.4 + <square>)",
    "lang.select(<C>, <F>, <F>)",
    "(<F> if <C> else <F>)",
    "lang.floor(<F> * 3.0) * 0.1",
)
_FUNCTIONS = (
    "lang.exp(-<square>)",
    "lang.exp(0.5 * <name>)",
    "lang.exp(<name>)",
    "lang.tanh(<name>)",
    "lang.tanh(<F>)",
    "lang.sin(<name>)",
    "lang.sin(<F>)",
    "lang.cos(<F>)",
    "lang.log(1.5 + <square>)",
)
_NO_LANES = ("lang.sin", "lang.cos", "%", "floor", "<I>")
"""What loops that end by data are not put into lanes with: most of these loops have none of it."""
_CONDITIONS = ("<F> > 0.2", "<leaf> < <leaf>", "<I> % 2 == 0", "<F> > 0.1 and <leaf> < 0.6", "not <leaf> > 0.3")


@dataclass(frozen=True)
class _Scope:
    """What may be read and written at a place.

    Attributes:
        floats: locals.
        whole: integers that are not negative.
        read: arrays that nothing changes here.
        own: arrays that only this iteration touches, with the elements of it that are its own.
        added: arrays that any iteration adds to.
        leave: how a loop may be left here.
    """

    read: tuple[str, ...]
    own: tuple[tuple[str, str], ...]
    added: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    whole: tuple[str, ...] = ("i",)
    leave: tuple[str, ...] = ()
    has_branches: bool = True
    indent: str = "        "
    depth: int = 0

    def inner(self, **changes: Any) -> _Scope:
        return replace(self, indent=f"{self.indent}    ", depth=self.depth + 1, **changes)


def write_vectors(seed: int) -> Program:
    """Write the kernel of a seed; the same seed gives the same kernel."""
    writer = _Writer(random.Random(f"vectors {seed}"))
    writer.write()
    return wide_program(seed, "\n".join(writer.lines))


class _Writer:
    """Writes one kernel, line by line. Every loop ends, and no iteration of a parallel loop relies on another."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lines: list[str] = []
        self.written: list[str] = []
        self.said: list[tuple[str, frozenset[str]]] = []
        self.count = 0
        self.left_out: tuple[str, ...] = ()

    def write(self) -> None:
        """Write one to three loops of the top level."""
        for _ in range(self.dice.choice([1, 1, 2])):
            self.said, self.left_out = [], ()
            self.dice.choice([self.elementwise, self.rows, self.rows, self.left_early, self.left_early])()

    # Loops of the top level ---------------------------------------------------------------------

    def elementwise(self) -> None:
        """Write a loop that computes and stores numbers."""
        self.left_out = ("%",)
        is_pair = self.dice.random() < 0.4
        scope = replace(self.scope(is_pair=is_pair, adds=False), has_branches=False, depth=3)
        rows = self.dice.choice(["x", "range(x.shape[0])", "range(1, x.shape[0])"])
        pairs = self.dice.choice(["w", "lang.ndrange(w.shape[0], w.shape[1])", "lang.ndrange(x.shape[0], (1, 3))"])
        self.begin(f"for i, j in {pairs}:" if is_pair else f"for i in {rows}:")
        self.body(scope, ends=True)

    def rows(self) -> None:
        """Write inner loops that run to their end."""
        self.begin(f"for i in {self.dice.choice(['x', 'range(x.shape[0])'])}:")
        scope = self.float(self.scope())
        if self.dice.random() < 0.5:
            scope = self.statement(scope)
        for _ in range(self.dice.choice([1, 1, 2])):
            self.inner_for(scope, leave=())
        self.body(scope, ends=True)

    def left_early(self) -> None:
        """Write inner loops that end by data."""
        self.left_out = _NO_LANES if self.dice.random() < 0.75 else ()
        self.begin(f"for i in {self.dice.choice(['x', 'range(x.shape[0])', 'range(1, x.shape[0])'])}:")
        scope = self.float(self.scope())
        for _ in range(self.dice.choice([0, 1, 2])):
            scope = self.statement(scope)
        for _ in range(self.dice.choice([1, 1, 2])):
            self.dice.choice([self.until, self.inner_for])(scope)
        self.body(scope, ends=True)

    def begin(self, header: str) -> None:
        if self.dice.random() < 0.2:
            self.lines.append("    lang.loop_config(serialize=True)")
        self.lines.append(f"    {header}")

    def scope(self, *, is_pair: bool = False, adds: bool = True) -> _Scope:
        names = ["s"] if is_pair else self.dice.sample(["y", "z", "s"], self.dice.choice([1, 1, 2]))
        free = [name for name in ("t", "z", "y") if name not in names]
        added = tuple(self.dice.sample(free, self.dice.choice([0, 0, 1]) * adds))
        read = ("x", "w", *(name for name in self.written if name not in (*names, *added)))
        self.written += [name for name in (*names, *added) if name not in self.written]
        own = tuple((name, ("s[i, j]" if is_pair else "s[i, 1]") if name == "s" else f"{name}[i]") for name in names)
        return _Scope(read, own, added, whole=("i", "j") if is_pair else ("i",))

    # Statements ---------------------------------------------------------------------------------

    def body(self, scope: _Scope, *, ends: bool = False) -> _Scope:
        """Write a few statements; if it `ends`, assign a value to each element of the iteration's own."""
        for _ in range(self.dice.choice([1, 2, 3])):
            scope = self.statement(scope)
        for _, place in scope.own if ends else ():
            self.line(scope, f"{place} {self.dice.choice(['=', '+='])} {self.number(scope)}")
        for name in scope.added if ends else ():
            self.add(replace(scope, added=(name,)))
        return scope

    def statement(self, scope: _Scope) -> _Scope:
        forms = [self.float, self.float, self.store]
        forms += [self.change] * 4 * bool(scope.floats) + [self.add] * bool(scope.added)
        if scope.has_branches and scope.floats and scope.depth < 3:
            forms += [self.branch]
            forms += [self.leave] * 2 * bool(scope.leave)
            forms += [self.inner_for, self.until] * (scope.depth < 2)
        return self.dice.choice(forms)(scope)

    def float(self, scope: _Scope) -> _Scope:
        name, value = self.name("v"), self.number(scope)
        self.line(scope, f"{name} = {value}")
        return replace(scope, floats=(*scope.floats, name))

    def change(self, scope: _Scope) -> _Scope:
        forms = ("{0} = {0} * 0.6 + {1}", "{0} += 0.3 * {1}", "{0} -= {1} * 0.2", "{0} *= lang.tanh({1})", "{0} = {1}")
        form = self.dice.choice([*forms, "{0} = lang.exp(-{0} * {0}) + {1}", "{0} = lang.max({0}, {1})"])
        self.line(scope, form.format(self.dice.choice(scope.floats), self.number(scope, 1)))
        return scope

    def store(self, scope: _Scope) -> _Scope:
        name, place = self.dice.choice(scope.own)
        if name == "s" and "j" in scope.whole:
            place = "s[i, j]"
        form = self.dice.choice(["{0} = {1}", "{0} += {1}", "{0} = {0} * 0.5 + {1}"])
        self.line(scope, form.format(place, self.number(scope, 1)))
        return scope

    def add(self, scope: _Scope) -> _Scope:
        name = self.dice.choice(scope.added)
        place = "t[None]" if name == "t" else f"{name}[{self.row(scope)}]"
        self.line(scope, f"{place} += {self.number(scope, 1)}")
        return scope

    def branch(self, scope: _Scope) -> _Scope:
        self.line(scope, f"if {self.condition(scope)}:")
        self.body(scope.inner())
        if self.dice.random() < 0.4:
            self.line(scope, "else:")
            self.body(scope.inner())
        return scope

    def leave(self, scope: _Scope) -> _Scope:
        self.line(scope, f"if {self.condition(scope)}:")
        inner = scope.inner()
        if self.dice.random() < 0.3:
            self.change(inner)
        self.line(inner, self.dice.choice(scope.leave))
        return scope

    def inner_for(self, scope: _Scope, leave: tuple[str, ...] = ("break", "break", "continue")) -> _Scope:
        name = "j" if "j" not in scope.whole else self.name("c")
        ends = ["w.shape[1]", "w.shape[1]", "3"]
        if name != "j":
            ends += [f"k[{self.row(scope)}]", "x.shape[0]", "i + 1"]
        begin = self.dice.choice(["", "", "1, "])
        self.line(scope, f"for {name} in range({begin}{self.dice.choice(ends)}):")
        inner = scope.inner(whole=(*scope.whole, name), leave=leave, has_branches=bool(leave) or scope.has_branches)
        for _ in range(self.dice.choice([1, 2, 2, 3])):
            inner = self.statement(inner)
        if self.dice.random() < 0.5:
            self.renew(inner, self.dice.choice(scope.floats))
        if inner.leave and self.dice.random() < 0.8:
            self.leave(inner)
        else:
            self.change(replace(inner, floats=scope.floats))
        return scope

    def renew(self, scope: _Scope, name: str) -> None:
        """Write a local that iterations carry, its new value, and one function of both."""
        function = self.one_of(_FUNCTIONS[1:7]).replace("<name>", name).replace("<F>", name)
        uses = [f"{place} += 0.2 * {function}" for _, place in scope.own]
        uses += [f"{one} = {one} * 0.5 + {function}" for one in scope.floats if one != name]
        if self.dice.random() < 0.8:
            self.line(scope, self.dice.choice(uses))
        self.line(scope, f"{name} = {self.filled(self.one_of(_NUMBERS[:5]), replace(scope, floats=(), own=()), 0)}")
        if self.dice.random() < 0.8:
            self.line(scope, self.dice.choice(uses))

    def until(self, scope: _Scope) -> _Scope:
        """Write a loop that ends when a number has become small."""
        name = self.name("u")
        self.line(scope, f"{name} = lang.tanh({self.number(scope, 1)})")
        self.line(scope, f"while lang.abs({name}) > 0.1:")
        inner = scope.inner(leave=("break",))
        self.line(inner, f"{name} *= {self.dice.choice(['0.5', '-0.6'])}")
        inner = self.body(inner)
        self.change(replace(inner, floats=scope.floats))
        return replace(scope, floats=(*scope.floats, name)) if self.dice.random() < 0.3 else scope

    # Expressions --------------------------------------------------------------------------------

    def number(self, scope: _Scope, depth: int = 2) -> str:
        if depth <= 0 or self.dice.random() < 0.25:
            return self.leaf(scope)
        if self.dice.random() < 0.45:
            return self.function(scope, depth)
        return self.filled(self.one_of(_NUMBERS), scope, depth - 1)

    def function(self, scope: _Scope, depth: int) -> str:
        """Draw a function call, often of arguments that occurred before."""
        known = {*scope.floats, *scope.whole, *scope.read}
        again = [text for text, names in self.said if names <= known]
        if again and self.dice.random() < 0.5:
            return self.dice.choice(again)
        text = self.filled(self.one_of(_FUNCTIONS), scope, depth - 1)
        own = {name for name, _ in scope.own}
        names = frozenset(name for name in (*scope.floats, *scope.whole, *scope.read) if name in text)
        if not any(f"{name}[" in text for name in own):
            self.said.append((text, names))
        return text

    def filled(self, form: str, scope: _Scope, depth: int) -> str:
        """Fill in the parts of a form."""
        fillers = {
            "<F>": lambda: self.number(scope, depth),
            "<leaf>": lambda: self.leaf(scope),
            "<square>": lambda: self.square(scope),
            "<name>": lambda: self.dice.choice(scope.floats) if scope.floats else self.leaf(scope),
            "<I>": lambda: self.dice.choice(scope.whole),
            "<C>": lambda: self.condition(scope),
        }
        for mark, filler in fillers.items():
            while mark in form:
                form = form.replace(mark, filler(), 1)
        return form

    def condition(self, scope: _Scope) -> str:
        return self.filled(self.one_of(_CONDITIONS), scope, 1)

    def leaf(self, scope: _Scope) -> str:
        elements = [self.element(name, scope) for name in scope.read]
        own = [place for _, place in scope.own]
        return self.dice.choice([*elements, *own, *scope.floats * 3, "a", "0.7"])

    def square(self, scope: _Scope) -> str:
        """Draw a number that is not negative: logarithms of negative numbers are NaN, which would hide errors."""
        leaf = self.leaf(scope)
        return f"{leaf} * {leaf}"

    def element(self, name: str, scope: _Scope) -> str:
        if name == "t":
            return "t[None]"
        column = "j" if "j" in scope.whole else self.dice.choice("012")
        place = "i" if self.dice.random() < 0.6 else self.row(scope)
        return f"{name}[{place}, {column}]" if name in ("w", "s") else f"{name}[{place}]"

    def row(self, scope: _Scope) -> str:
        name = self.dice.choice(scope.whole)
        return self.one_of((f"k[{name} % x.shape[0]]", f"({name} + 1) % x.shape[0]", "i"))

    def one_of(self, forms: tuple[str, ...]) -> str:
        return self.dice.choice([form for form in forms if not any(part in form for part in self.left_out)])

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, scope: _Scope, text: str) -> None:
        self.lines.append(f"{scope.indent}{text}")
