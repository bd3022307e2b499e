"""Random expressions: numbers that stay small, vectors, matrices, integers that are not negative, truths.

Singular points and kinks that are met exactly are left out: what is right there is not for a fuzz to find. In a form,
`F`, `V`, `M`, `I` and `C` in angle brackets stand for another number, vector, matrix, integer or condition; `leaf` and
`row` for an element or a local, and for an index.
"""

from __future__ import annotations

import random
import re

from fuzz._parts import RANKS, Scope

ARITHMETIC = (
    "(<F> + <F>)",
    "(<F> - <F>)",
    "<F> * 0.5 * <F>",
    "(<F> / (2.0 + <leaf> ** 2))",
    "(<F> * 0.1 * <I>)",
    "(-<F>)",
    "(<F> * FACTOR + a)",
)
FUNCTIONS = (
    "lang.sin(<F> * <F>)",
    "lang.exp(0.3 * lang.cos(<F>))",
    "lang.sqrt(0.5 + <leaf> * <leaf> * 0.1 + lang.abs(<F>))",
    "lang.log(1.2 + lang.exp(lang.sin(<F>)))",
    "lang.atan2(<F>, 2.0 + <leaf> ** 2)",
    "lang.pow(2.0 + lang.tanh(<F>), 0.4 * lang.tanh(<F>))",
    "lang.tanh(<F>) ** 2",
    "lang.tanh(<F>) ** 3",
    "lang.rsqrt(1.7 + lang.sin(<F>))",
    "lang.asin(0.6 * lang.sin(<F>))",
    "lang.tan(0.8 * lang.tanh(<F>))",
    "(lang.floor(<F> * 3.0) * 0.1 + <F>)",
    "(<F> * 0.5 + lang.round(<F> * 2.0) * 0.1)",
    "bent(<F>, <F>)",
    "twice(<F>, <leaf>)",
    "formed(<F>, 0)",
    "formed(<F>, 1)",
    "formed(<F>, 2)",
    "series(<F>, <I> % 3)",
    "fetched(x, <I> % x.shape[0])",
    "lang.math.mix(<F>, <F>, 0.3)",
)
CHOICES = (
    "lang.min(<F>, <F>)",
    "lang.max(<F>, <F>, 0.15)",
    "lang.abs(<F>)",
    "(<F> if <C> else <F>)",
    "lang.select(<C>, <F>, <F>)",
    "lang.math.clamp(<F>, -0.4, 0.6)",
    "lang.cast(<C>, lang.i32) * 0.3",
)
PARTS = (
    "<V>[0]",
    "<V>[1]",
    "<V>.x",
    "<V>.y",
    "(lang.sin(<V>) + 2.5).norm()",
    "<V>.dot(<V>) * 0.5",
    "<V>.norm_sqr() * 0.3",
    "(<V> * <V>).sum()",
    "lang.tanh(<V>).max()",
)
PARTS_OF_MATRICES = ("<M>[0, 1]", "<M>[1, 0]", "<M>.determinant() * 0.2", "<M>.trace()")
VECTORS = (
    "turned(<V>, <leaf>)",
    "(<V> - <V>)",
    "(<V> * <leaf>)",
    "lang.sin(<V>)",
    "<V>.yx",
    "lang.max(<V>, <V> * 0.5)",
    "(lang.sin(<V>) + 2.5).normalized()",
    "lang.Vector([<F>, <F>])",
)
MATRICES = (
    "<M>.transpose()",
    "((<M> @ <M>) * 0.4)",
    "(<M> - <M> * <leaf>)",
    "lang.Matrix([[<F>, 0.3], [-0.2, <leaf>]])",
)
INTEGERS = (
    "(<I> * 3 % 5)",
    "k[<row>]",
    "(<I> // 2 + 1)",
    "(<I> ^ <I>)",
    "(<I> & 3)",
    "((<I> << 1) % 5)",
    "lang.max(<I>, <I>)",
    "(2 if <leaf> > 0.1 else <I>)",
    "lang.cast(lang.abs(<leaf>) * 2.0, lang.i32) % 4",
    "COUNT",
)
CONDITIONS = (
    "<F> > <leaf>",
    "<F> > <leaf>",
    "<F> < 0.3",
    "(<I> % 2 == 0)",
    "(<F> > <leaf> and <I> < <I>)",
    "(<F> > <leaf> or <I> < <I>)",
    "(not (<F> > <leaf>))",
    "(<leaf> < 0.5 and (<leaf> > -0.5 or <I> > 1))",
)
_HOLE = re.compile(r"<(\w+)>")


class Expressions:
    """Writes expressions by the throw of dice."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice

    def number(self, scope: Scope, depth: int = 2) -> str:
        """Draw a float expression."""
        if depth <= 0 or self.dice.random() < 0.15:
            return self.leaf(scope)
        parts = PARTS + PARTS_OF_MATRICES if scope.matrices else PARTS
        return self._out_of(self.dice.choice([ARITHMETIC, ARITHMETIC, FUNCTIONS, CHOICES, parts]), scope, depth)

    def vector(self, scope: Scope, depth: int = 1) -> str:
        """Draw an expression of a 2-vector."""
        if depth <= 0 or self.dice.random() < 0.3:
            mine = [self.own_vector(name, scope) for name in scope.own if RANKS[name] == "nv" and not scope.is_pair]
            return self.dice.choice([f"p[{self.row(scope)}]", *mine, *scope.vectors, *scope.vectors])
        return self._out_of((*VECTORS, "(<M> @ <V>)") if scope.matrices else VECTORS, scope, depth)

    def matrix(self, scope: Scope, depth: int = 1) -> str:
        """Draw an expression of a 2 x 2 matrix."""
        if scope.matrices and (depth <= 0 or self.dice.random() < 0.4):
            return self.dice.choice(scope.matrices)
        return self._out_of(MATRICES if scope.matrices else MATRICES[-1:], scope, depth)

    def integer(self, scope: Scope, depth: int = 1) -> str:
        """Draw an expression of a small integer that is not negative."""
        if depth <= 0 or self.dice.random() < 0.4:
            return self.dice.choice(scope.whole)
        return self._out_of(INTEGERS, scope, depth)

    def condition(self, scope: Scope, depth: int = 2) -> str:
        """Draw a condition."""
        return self._out_of(CONDITIONS, scope, depth)

    def _out_of(self, forms: tuple[str, ...], scope: Scope, depth: int) -> str:
        """Draw one of some forms, and fill its holes."""
        fill = {
            "F": lambda: self.number(scope, depth - 1),
            "V": lambda: self.vector(scope, depth - 1),
            "M": lambda: self.matrix(scope, depth - 1),
            "I": lambda: self.integer(scope, depth - 1),
            "C": lambda: self.condition(scope, depth - 1),
            "leaf": lambda: self.leaf(scope),
            "row": lambda: self.row(scope),
        }
        return _HOLE.sub(lambda hole: fill[hole[1]](), self.dice.choice(forms))

    def leaf(self, scope: Scope) -> str:
        """Draw a number that exists: an array's element, a local or a constant."""
        leaves = [text for name in scope.own if (text := self.own_element(name, scope))]
        leaves += [self.element(name, scope) for name in scope.anywhere]
        leaves += [*scope.floats, *scope.floats, *scope.constants, "0.7", "a"]
        return self.dice.choice(leaves)

    def own_element(self, name: str, scope: Scope) -> str:
        """Draw an entry of an array that belongs to this iteration; "" if none does."""
        if RANKS[name] == "nv" and not scope.is_pair:
            return f"{self.own_vector(name, scope)}.x"
        if scope.free:
            return self.element(name, scope)
        if scope.is_pair:
            return f"{name}[i, j]" if RANKS[name] == "nm" else ""
        return {"n": f"{name}[i]", "nm": f"{name}[i, {self.column(scope)}]", "": ""}[RANKS[name]]

    def own_vector(self, name: str, scope: Scope) -> str:
        """Draw a vector of an array that is written here too: always whole.

        Both engines give the old value for a number (`v[i].x`) that was read before, too, where a whole vector was
        written in between, and the other way round (Taichi 1.7.4, Quadrants 1.3.3).
        """
        return f"({name}[{self.row(scope) if scope.free else 'i'}] * 1.0)"

    def element(self, name: str, scope: Scope) -> str:
        """Draw an element of an array at any index."""
        row, column = self.row(scope), self.column(scope)
        place = {"n": row, "nm": f"{row}, {column}", "nv": row, "": "None"}
        return f"{name}[{place[RANKS[name]]}]" + (f"[{self.dice.choice('01')}]" if "v" in RANKS[name] else "")

    def row(self, scope: Scope) -> str:
        """Draw an index of the first dim."""
        name = self.dice.choice(scope.whole)
        return self.dice.choice(["i", f"({name} % x.shape[0])", "k[i]", f"(x.shape[0] - 1 - {name} % x.shape[0])"])

    def column(self, scope: Scope) -> str:
        """Draw an index of the second dim."""
        return f"{self.dice.choice(scope.whole)} % w.shape[1]"
