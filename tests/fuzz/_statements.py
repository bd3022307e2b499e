"""Random statements: locals, loops, branches, and what is written to arrays."""

from __future__ import annotations

import random
from dataclasses import replace

from fuzz._expressions import Expressions
from fuzz._parts import RANKS, Scope

DEEPEST = 3


class Statements:
    """Writes statements, line by line. Every loop ends, and no iteration of a parallel loop relies on another."""

    def __init__(self, dice: random.Random, is_single: bool) -> None:
        self.dice = dice
        self.is_single = is_single
        self.say = Expressions(dice)
        self.lines: list[str] = []
        self.count = 0

    def body(self, scope: Scope) -> Scope:
        """Write a few statements; return what may be read after them."""
        for _ in range(self.dice.randint(1, 4 if scope.depth < 2 else 2)):
            scope = self.statement(scope)
        return scope

    def statement(self, scope: Scope) -> Scope:
        """Write one statement; return what may be read after it."""
        forms = [self._float, self._float, self._vector, self._integer, self._store]
        if scope.floats:
            forms += [self.change, self.change, self._branch, self._two]
        if scope.depth < DEEPEST and scope.floats:
            forms += [self._for, self._for, self._while, self._static]
        if scope.leave and scope.floats:
            forms += [self._leave]
        if scope.scattered:
            forms += [self._scatter]
        if not scope.matrices and self.dice.random() < 0.3:
            forms += [self._matrix]
        if [name for name in scope.own if RANKS[name] == "nm"] and not scope.is_pair and scope.depth < 2:
            forms += [self._row]
        return self.dice.choice(forms)(scope)

    # Locals -------------------------------------------------------------------------------------

    def _float(self, scope: Scope) -> Scope:
        name, value = self.name("v"), self.say.number(scope)
        if self.is_single and self.dice.random() < 0.5:
            value = f"lang.cast({value}, lang.f32)"
        self.line(scope, f"{name} = {value}")
        return replace(scope, floats=(*scope.floats, name))

    def _vector(self, scope: Scope) -> Scope:
        name = self.name("q")
        self.line(scope, f"{name} = {self.say.vector(scope)}")
        return replace(scope, vectors=(*scope.vectors, name))

    def _matrix(self, scope: Scope) -> Scope:
        name = self.name("m")
        self.line(scope, f"{name} = {self.say.matrix(scope)}")
        return replace(scope, matrices=(*scope.matrices, name))

    def _integer(self, scope: Scope) -> Scope:
        name, value = self.name("c"), self.say.integer(scope)
        if self.dice.random() < 0.25:
            value = f"lang.cast({value}, lang.i64)"
        self.line(scope, f"{name} = {value}")
        return replace(scope, **scope.with_integer(name, fixed=False))

    def _two(self, scope: Scope) -> Scope:
        """Write two locals at once: new ones from a function, or old ones swapped."""
        if len(scope.floats) > 1 and self.dice.random() < 0.6:
            one, two = self.dice.sample(scope.floats, 2)
            self.line(scope, f"{one}, {two} = {two} * 0.7, {one} * 0.5 + {self.say.number(scope, 1)}")
            return scope
        one, two = self.name("v"), self.name("v")
        self.line(scope, f"{one}, {two} = pair({self.say.number(scope, 1)})")
        return replace(scope, floats=(*scope.floats, one, two))

    def change(self, scope: Scope) -> Scope:
        """Write a statement that assigns a new value to a local."""
        free = [name for name in scope.whole if name not in scope.fixed]
        kinds = [self._change_float] * 5 + [self._change_vector] * 3 * bool(scope.vectors)
        kinds += [self._change_integer] * bool(free) + [self._change_matrix] * bool(scope.matrices)
        self.line(scope, self.dice.choice(kinds)(scope))
        return scope

    def _change_float(self, scope: Scope) -> str:
        forms = [
            "{0} = {0} * 0.5 + {1}",
            "{0} += 0.3 * {1}",
            "{0} -= 0.2 * {1}",
            "{0} *= lang.tanh({1})",
            "{0} /= 1.5 + {1} * {1}",
            "{0} = lang.max({0}, {1})",
            "{0} = lang.tanh({0} * {1})",
            "{0} = lang.exp(0.2 * lang.sin({0})) * {1} * 0.5",
            "{0} = lang.sqrt(0.3 + {0} * {0} * 0.5 + {1} * {1})",
            "{0} = {1}",
        ]
        return self.dice.choice(forms).format(self.dice.choice(scope.floats), self.say.number(scope, 1))

    def _change_vector(self, scope: Scope) -> str:
        name = self.dice.choice(scope.vectors)
        forms = [
            f"{name} = {name} * 0.5 + {self.say.vector(scope)}",
            f"{name} += 0.3 * {self.say.vector(scope)}",
            f"{name} = {self.say.vector(scope)}",
            f"{name}[{self.dice.choice('01')}] = {self.say.number(scope, 1)}",
            f"{name}.{self.dice.choice('xy')} += 0.4 * {self.say.number(scope, 1)}",
            *[f"pushed({name}, {self.say.number(scope, 1)})"] * 2,
            f"{name} = {name}.normalized(1e-3) * 0.5 + {self.say.vector(scope)}",
        ]
        return self.dice.choice(forms)

    def _change_integer(self, scope: Scope) -> str:
        name = self.dice.choice([name for name in scope.whole if name not in scope.fixed])
        return self.dice.choice(["{0} = ({0} + {1}) % 11", "{0} += 1", "{0} ^= {1}"]).format(
            name, self.say.integer(scope)
        )

    def _change_matrix(self, scope: Scope) -> str:
        name = self.dice.choice(scope.matrices)
        return f"{name} = {name} * 0.5 + {self.say.matrix(scope)}"

    # Control ------------------------------------------------------------------------------------

    def _branch(self, scope: Scope) -> Scope:
        self.line(scope, f"if {self.say.condition(scope)}:")
        self._block(scope.inner())
        if self.dice.random() < 0.3:
            self.line(scope, f"elif {self.say.condition(scope)}:")
            self._block(scope.inner())
        if self.dice.random() < 0.5:
            self.line(scope, "else:")
            self._block(scope.inner())
        return scope

    def _block(self, scope: Scope) -> None:
        """Write the body of a branch."""
        if scope.depth <= DEEPEST and self.dice.random() < 0.4:
            scope = self.statement(scope)
        self.change(scope)

    def _for(self, scope: Scope) -> Scope:
        name = self.name("j")
        if self.dice.random() < 0.15:
            other = self.name("j")
            self.line(scope, f"for {name}, {other} in lang.ndrange(2, {self.dice.choice(['2', 'w.shape[1]'])}):")
            known = scope.with_integer(name, other)
        else:
            bounds = ["3", "w.shape[1]", f"{self.say.integer(scope)} % 4", "2, 4", "1, w.shape[1]", "COUNT"]
            self.line(scope, f"for {name} in range({self.dice.choice(bounds)}):")
            known = scope.with_integer(name)
        self.change(self.body(scope.inner(leave=("break", "continue"), **known)))
        return scope

    def _static(self, scope: Scope) -> Scope:
        """Write a loop or a branch that is evaluated when the kernel is compiled."""
        if self.dice.random() < 0.3:
            self.line(scope, f"if lang.static(COUNT {self.dice.choice('><')} 2):")
            self.change(scope.inner())
            return scope
        name = self.name("j")
        bounds = self.dice.choice(["range(2)", "range(COUNT)", "range(2, -1, -1)", "lang.ndrange(2, 1)"])
        known = scope.with_integer(name)
        if "ndrange" in bounds:
            self.line(scope, f"for {name}, {name}b in lang.static({bounds}):")
        else:
            self.line(scope, f"for {name} in lang.static({bounds}):")
        inner = scope.inner(leave=(), **known)
        self.change(self.statement(inner) if scope.depth < DEEPEST - 1 else inner)
        return scope

    def _while(self, scope: Scope) -> Scope:
        name = self.name("t")
        self.line(scope, f"{name} = 0")
        known = scope.with_integer(name)
        inner = scope.inner(leave=("break", "continue"), **known)
        if self.dice.random() < 0.3:
            self.line(scope, "while True:")
            self.line(inner, f"{name} += 1")
            self.line(inner, f"if {name} > 3 or {self.say.condition(inner)}:")
            self.line(inner.inner(), "break")
        else:
            self.line(scope, f"while {name} < 4 and {self.say.condition(scope)}:")
            self.line(inner, f"{name} += 1")
        self.change(self.body(inner))
        return replace(scope, **known)

    def _leave(self, scope: Scope) -> Scope:
        self.line(scope, f"if {self.say.condition(scope)}:")
        if self.dice.random() < 0.3:
            self.change(scope.inner())
        self.line(scope.inner(), self.dice.choice(scope.leave))
        return scope

    # Arrays -------------------------------------------------------------------------------------

    def _store(self, scope: Scope) -> Scope:
        """Write a change of an element of this iteration's own."""
        if not scope.own:
            return self._float(scope)
        self.store(scope, self.dice.choice(scope.own))
        return scope

    def store(self, scope: Scope, name: str) -> None:
        """Write a change of an element of `name` that belongs to this iteration.

        By an atomic only where all of the array that the loop uses is that element: where two elements may be one,
        `a = y[i]; y[k[i]] += 1.0; b = y[i]` gives `b` the old value in a serial loop (both engines: Taichi 1.7.4,
        Quadrants 1.3.3), with our serial twin too.
        """
        forms = ["{0} = {1}", "{0} = {0} * 0.5 + {1}", "{0} = {0} + {1}"]
        if not RANKS[name] or (RANKS[name] in ("n", "nv") and not scope.free):
            forms += ["{0} += {1}"]
        if RANKS[name] == "nv":
            place = self.say.row(scope) if scope.free else "i"
            self.line(scope, self.dice.choice(forms).format(f"{name}[{place}]", self.say.vector(scope)))
            return
        forms += ["{0} = lang.sin({0} * {1})"]
        if RANKS[name] == "n" and not scope.free:
            forms += ["lang.atomic_sub({0}, {1})"]
        self.line(scope, self.dice.choice(forms).format(self.say.own_element(name, scope), self.say.number(scope)))

    def _scatter(self, scope: Scope) -> Scope:
        self.scatter(scope, *self.dice.choice(scope.scattered))
        return scope

    def scatter(self, scope: Scope, name: str, how: str) -> None:
        """Write an atomic change of any element."""
        value = self.say.number(scope)
        if "v" in RANKS[name]:
            self.line(scope, f"{name}[{self.say.row(scope)}] += {self.say.vector(scope)}")
        elif how == "add":
            target = self.say.element(name, scope)
            self.line(scope, self.dice.choice([f"{target} += {value}", f"lang.atomic_sub({target}, {value})"]))
        else:
            self.line(scope, f"lang.atomic_{how}({self.say.element(name, scope)}, {value})")

    def _row(self, scope: Scope) -> Scope:
        """Write a running average along a row, or a state that each column builds on."""
        array = self.dice.choice([name for name in scope.own if RANKS[name] == "nm"])
        name = self.name("j")
        self.line(scope, f"for {name} in range(1, w.shape[1]):")
        inner = scope.inner(leave=("break", "continue"), **scope.with_integer(name))
        before, now = f"{array}[i, {name} - 1]", f"{array}[i, {name}]"
        if self.dice.random() < 0.5:
            inner = self.statement(inner)
        forms = [
            f"{now} = {before} * 0.8 + 0.2 * {{}}",
            f"{now} = {before} * 0.7 + 0.3 * {now}",
            f"{now} = lang.tanh({before} * {{}}) + 0.5 * {now}",
            f"{now} = lang.max({before}, {{}})",
            f"{now} = {now} + {before} * {{}} * 0.5",
        ]
        self.line(inner, self.dice.choice(forms).format(self.say.number(inner, 1)))
        return scope

    # Words --------------------------------------------------------------------------------------

    def name(self, letter: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, scope: Scope, text: str) -> None:
        """Write a line."""
        self.lines.append(scope.indent + text)
