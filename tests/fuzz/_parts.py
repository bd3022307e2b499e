"""What a random kernel is put together from: functions, and what may be read at a place in it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Any

FACTOR, COUNT = 0.3, 3
"""Python's own values that kernels bake in."""

FUNCTIONS = """
@lang.func
def bent(a, b):
    c = lang.tanh(a) * 0.7
    if b > 0.2:
        c = c + lang.sin(b)
    return c


@lang.func
def twice(a, b):
    return bent(bent(a, b), a) * 0.6 + FACTOR


@lang.func
def turned(q, a):
    c, s = pair(a)
    return lang.Vector([q[0] * c - q[1] * s, q[0] * s + q[1] * c])


@lang.func
def pair(a):
    return lang.cos(a), lang.sin(a)


@lang.func
def formed(a, how: lang.template()):
    if lang.static(how == 0):
        return a * 0.5
    elif lang.static(how == 1):
        return lang.sin(a)
    return lang.tanh(a) + 0.1


@lang.func
def series(a, n):
    total = a * 0.2
    for r in range(n):
        if total > 2.0:
            break
        total = total * 0.4 + lang.cos(a + r)
    return total


@lang.func
def pushed(q: lang.template(), a):
    q = q * 0.5 + a


@lang.func
def fetched(array: lang.template(), i):
    return array[i] * 0.5 + lang.sin(array[array.shape[0] - 1 - i])


@lang.func
def three(a, b):
    c = lang.sin(a)
    d = c * b
    return c + b * 0.3, d, bent(d, a)


@lang.func
def ends(a, q, how: lang.template()):
    e = a * 0.4
    if lang.static(how > 1):
        return e, q * 0.5
    u = q * 1.0
    u[0] += e
    if lang.static(how == 1):
        return u.dot(q) * 0.3, u
    for r in range(3):
        if e > 0.5:
            break
        e += 0.2 * lang.cos(u[1] + r)
    return e, lang.Vector([e, u[0]])


@lang.func
def ordered(a, b):
    low, high = a, b
    if low > high:
        low, high = high, low
    return low, high


@lang.func
def halved(a):
    left = lang.abs(lang.tanh(a))
    count = 0
    while left > 0.15:
        left = left * 0.6
        count += 1
    return left, count


@lang.func
def put(array: lang.template(), i, a):
    array[i] = array[i] * 0.5 + a


@lang.real_func
def settled(a: lang.f64, b: lang.f64) -> lang.f64:
    c = lang.tanh(a)
    for r in range(3):
        if c > 0.5:
            return c * b
        c += 0.2 * b * b + 0.1
        if c < -0.6:
            return lang.sin(b)
    return c * 0.5 - b


@lang.func
def repeated(function: lang.template(), a, b, turns: lang.template()):
    total = a
    for turn in lang.static(range(turns)):
        total = function(total, b) * 0.8
    return total


@lang.func
def quaternion(a, b):
    return lang.Vector([1.0 + lang.tanh(a) * 0.5, 0.4 * b, lang.sin(a), 0.2]).normalized()


@lang.func
def multiplied(q, s):
    u = lang.Vector([q[1], q[2], q[3]])
    v = lang.Vector([s[1], s[2], s[3]])
    w = q[0] * v + s[0] * u + u.cross(v)
    return lang.Vector([q[0] * s[0] - u.dot(v), w[0], w[1], w[2]])


@lang.func
def rotated(q, v):
    u = lang.Vector([q[1], q[2], q[3]])
    return v + 2.0 * u.cross(u.cross(v) + q[0] * v)


@lang.func
def shear(a, b):
    c = lang.tanh(b)
    return lang.Matrix([[3.0 + lang.tanh(a), 0.4 * c], [0.3, 1.0 + 0.4 * lang.tanh(a * b)]])


@lang.func
def stretched(a, b):
    left, stretch, right = lang.svd(shear(a, b))
    return stretch[0, 0] - 0.5 * stretch[1, 1] + (left @ right.transpose())[0, 1]


@lang.func
def turned_by(a, b):
    turn, stretch = lang.polar_decompose(shear(a, b))
    return turn[0, 1] + stretch[1, 1] * 0.5 - stretch[0, 1]


@lang.dataclass
class Body:
    place: lang.types.vector(2, lang.f64)
    mass: lang.f64

    @lang.func
    def pull(self, a):
        return self.place * self.mass + a

    @lang.func
    def moved(self, q):
        return Body(place=self.place + q, mass=self.mass * 0.5)


@lang.data_oriented
class Model:
    def __init__(self):
        self.gain = 0.7
        self.turns = 2

    @lang.func
    def apply(self, a):
        total = a
        for turn in range(self.turns):
            total = total * self.gain + lang.sin(a)
        return total


model = Model()
"""
TREES: dict[str, ast.stmt] = {
    node.targets[0].id if isinstance(node, ast.Assign) else node.name: node  # type: ignore[attr-defined]
    for node in ast.parse(FUNCTIONS).body
}
"""Functions and classes by name."""


TABLE = (0.3, 0.5, -0.2, 0.1)
"""What is in the field `table`, which kernels name without a parameter."""

KERNELS = ("kernel", "second")
"""What the functions that are kernels may be called."""


def used_functions(text: str) -> str:
    """Return source of the functions and classes that a kernel uses, and of those that they use."""
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    while True:
        more = {
            node.id for name in names & TREES.keys() for node in ast.walk(TREES[name]) if isinstance(node, ast.Name)
        }
        if more <= names:
            return "\n\n\n".join(ast.unparse(TREES[name]) for name in TREES if name in names)
        names |= more


RANKS = {"x": "n", "w": "nm", "p": "nv", "k": "n", "y": "n", "z": "n", "s": "nm", "h": "nm", "v": "nv", "t": ""}
RANKS |= {"r": "nc", "o": "n22", "b": "", "e": "ni", "d": "nc", "c": "ni", "g": "n"}
RANKS |= {"u": "n"}
"""Dims of every array that a kernel may have: `n` and `m` are index dims, `v` is a vector's, `c` that of a vector of
three, `22` those of a matrix. An `i` marks rows of integers."""


@dataclass(frozen=True)
class Scope:
    """What may be read and written at a place.

    Attributes:
        anywhere: arrays that may be read at any index.
        own: arrays that may be read and written at this iteration's place: at `i`, or at `i, j` where `is_pair`.
        free: whether `own` may be used at any index: nothing else runs at the same time.
        scattered: arrays that any iteration may change, each by one kind of atomic; not read.
        floats, vectors, matrices, whole: locals; `whole` are integers that are not negative.
        constants: floats that are not to be assigned.
        fixed: integers that are not to be assigned.
    """

    anywhere: tuple[str, ...]
    own: tuple[str, ...]
    scattered: tuple[tuple[str, str], ...] = ()
    is_pair: bool = False
    free: bool = False
    floats: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    matrices: tuple[str, ...] = ()
    whole: tuple[str, ...] = ("i",)
    fixed: tuple[str, ...] = ("i",)
    indent: str = "        "
    depth: int = 0
    leave: tuple[str, ...] = ()

    def inner(self, **changes: Any) -> Scope:
        """Return what may be read in an inner block."""
        return replace(self, indent=self.indent + "    ", depth=self.depth + 1, **changes)

    def with_integer(self, *names: str, fixed: bool = True) -> dict[str, Any]:
        """Return the scope with changes that make integers known."""
        return {"whole": (*self.whole, *names), "fixed": (*self.fixed, *names) if fixed else self.fixed}
