"""Where an index points, in letters: enough to tell whether two uses of an array may meet in one element.

An index such as `t + 1` is kept as a sum of atoms with whole factors: {"t@12": 1} and 1, where
`t@12` is the variable of the loop on line 12. What is no such sum (`idx[i]`, `t % 2`) is an
atom of its own, equal only to itself, and only while everything in it stands still.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ._definitions import definitions
from ._loops import iterated
from ._nodes import called, names_in, root
from ._walk import walk

MOVING = "~"
"""Marks an atom that may hold another value each time it is looked at."""
_NAME = re.compile(r"[A-Za-z_]\w*(?:@[\w:.]+)?")


@dataclass(frozen=True)
class Loop:
    """A loop around a use of an array.

    Attributes:
        key: tells it from other loops.
        variables: atoms of its variables.
        is_ascending: whether its only variable goes up, one by one.
        is_parallel: whether its iterations run in any order, or at once.
        is_single: whether it is written to run once.
        is_task: whether it is a whole task of the kernel, in series: no engine reverses the order of its iterations.
        extent: the least and largest value of its only variable, where these are plain numbers.
    """

    key: str
    variables: tuple[str, ...]
    is_ascending: bool = False
    is_parallel: bool = False
    is_single: bool = False
    extent: tuple[int, int] | None = None
    is_task: bool = False


@dataclass(frozen=True)
class Form:
    """`constant` plus each atom times its factor.

    `wide` are atoms that it was made of and that may be vectors: then it spans as many axes as they have entries.
    """

    atoms: Mapping[str, int] = field(default_factory=dict)
    constant: int = 0
    wide: frozenset[str] = field(default=frozenset(), compare=False)

    def plus(self, other: Form, sign: int = 1) -> Form:
        atoms = dict(self.atoms)
        for atom, factor in other.atoms.items():
            atoms[atom] = atoms.get(atom, 0) + sign * factor
        left = {atom: factor for atom, factor in atoms.items() if factor}
        return Form(left, self.constant + sign * other.constant, self.wide | other.wide)

    def times(self, factor: int) -> Form:
        atoms = {a: f * factor for a, f in self.atoms.items()} if factor else {}
        return Form(atoms, self.constant * factor, self.wide)

    def bound(self, values: Mapping[str, int | str]) -> Form:
        """The form for one launch: arguments replaced by their values, or by names of that launch's own."""
        if not values or not self.atoms:
            return self
        found = Form(constant=self.constant, wide=frozenset(_bound_atom(atom, values) for atom in self.wide))
        for atom, factor in self.atoms.items():
            value = values.get(atom)
            is_number = isinstance(value, int)
            one = Form(constant=value) if is_number else Form({_bound_atom(atom, values): 1})
            found = found.plus(one.times(factor))
        return found

    @property
    def number(self) -> int | None:
        """Its value, where that is known and one axis is all it spans."""
        return None if self.atoms or self.wide else self.constant


def _bound_atom(atom: str, values: Mapping[str, int | str]) -> str:
    """An atom with names in it replaced. One that holds a name holds its value's text: equal values, equal atoms."""
    return _NAME.sub(lambda found: str(values.get(found[0], found[0])), atom)


class Names:
    """What a function's names stand for in an index.

    Args:
        tree: the function.
        given: forms of its parameters, where a caller's are known.
        prefix: tells this call's names from others of the same function.
    """

    def __init__(self, tree: ast.FunctionDef, given: Mapping[str, Form], prefix: str = "") -> None:
        self._given = given
        self.prefix = prefix
        self._parameters = {argument.arg for argument in tree.args.args}
        self._scalars = {
            one.arg for one in tree.args.args if one.annotation is not None and _is_integer(one.annotation)
        }
        self._single, self._locals = definitions(tree)
        self._loops: list[tuple[str, str]] = []
        self._wide_loops: set[str] = set()
        self._busy: set[str] = set()

    def enter(self, loop: ast.For | ast.While) -> tuple[str, ...]:
        """The atoms of a loop's variables, which its names stand for until `leave`."""
        names = sorted(names_in(loop.target)) if isinstance(loop, ast.For) else []
        atoms = tuple(f"{name}@{self.key(loop)}" for name in names)
        self._loops.extend(zip(names, atoms, strict=True))
        if isinstance(loop, ast.For) and not _gives_numbers(loop):
            self._wide_loops |= set(atoms)
        return atoms

    def leave(self, loop: ast.For | ast.While) -> None:
        count = len(names_in(loop.target)) if isinstance(loop, ast.For) else 0
        del self._loops[len(self._loops) - count :]

    def key(self, loop: ast.For | ast.While) -> str:
        return f"{self.prefix}{loop.lineno}:{loop.col_offset}"

    def forms(self, index: ast.expr) -> tuple[Form, ...]:
        """One form for each part of what stands in brackets."""
        return tuple(self.form(part) for part in (index.elts if isinstance(index, ast.Tuple) else [index]))

    def form(self, node: ast.expr) -> Form:
        """An expression as a sum."""
        match node:
            case ast.Constant(value=int() as value):
                return Form(constant=int(value))
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.form(operand).times(-1)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.form(left).plus(self.form(right))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.form(left).plus(self.form(right), -1)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                first, second = self.form(left), self.form(right)
                if not first.atoms:
                    return second.times(first.constant)
                if not second.atoms:
                    return first.times(second.constant)
            case ast.Call(args=[inner]) if _is_cast(node):
                return self.form(inner)
        return self._whole(node)

    def _name(self, name: str) -> Form:
        for known, atom in reversed(self._loops):
            if known == name:
                return Form({atom: 1}, wide=frozenset({atom} & self._wide_loops))
        if name in self._given:
            return self._given[name]
        if name in self._single and name not in self._busy:
            self._busy.add(name)
            found = self.form(self._single[name])
            self._busy.discard(name)
            return found
        is_steady = name not in self._locals and not (self.prefix and name in self._parameters)
        atom = name if is_steady else f"{MOVING}{self.prefix}{name}"
        return Form({atom: 1}, wide=frozenset() if name in self._scalars else frozenset({atom}))

    def _whole(self, node: ast.expr) -> Form:
        """An expression that is no sum: an atom, which holds the atoms of all names in it."""
        inside = sorted({atom for name in names_in(node) for atom in self._name(name).atoms})
        calls = [child for child in walk(node) if isinstance(child, ast.Call)]
        mark = MOVING if any(not _is_cast(call) and called(call) not in _STEADY_CALLS for call in calls) else ""
        atom = f"{mark}<{ast.unparse(node)}|{' '.join(inside)}>"
        return Form({atom: 1}, wide=frozenset() if self._is_number(node) else frozenset({atom}))

    def _is_number(self, node: ast.expr) -> bool:
        """Whether an expression is certainly no vector: operations on numbers alone, or a size."""
        match node:
            case ast.Constant():
                return True
            case ast.Name():
                return not self.form(node).wide
            case ast.UnaryOp(operand=operand):
                return self._is_number(operand)
            case ast.BinOp(left=left, right=right):
                return self._is_number(left) and self._is_number(right)
            case ast.Call(args=arguments) if _is_cast(node) or called(node) in ("min", "max", "abs"):
                return all(self._is_number(one) for one in arguments)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return True
        return False


_STEADY_CALLS = frozenset({"min", "max", "abs", "floor", "ceil", "Vector", "ivec2", "ivec3", "vec2", "vec3", "static"})


@dataclass(frozen=True)
class Moment:
    """How far two moments of a run are known to agree.

    The loops of `same` are in the same iteration, `moved` in a later one (by at least one step),
    everything else anywhere. `changing` are arrays whose elements may differ between the two;
    `extents` are the least and largest values of loop variables.
    """

    same: tuple[Loop, ...]
    moved: Loop | None
    changing: frozenset[str]
    extents: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def is_fixed(self, atom: str) -> bool:
        """Whether an atom has one value at both moments."""
        if MOVING in atom:
            return False
        still = {variable for loop in self.same for variable in loop.variables}
        names = _NAME.findall(atom)
        return not any(("@" in name and name not in still) or name in self.changing for name in names)


def apart(later: tuple[Form, ...], earlier: tuple[Form, ...], moment: Moment) -> bool:
    """Whether two indices at two moments are certainly different elements."""
    gaps = [_gap(first, second, moment) for first, second in _aligned(later, earlier)]
    known = [gap for gap in gaps if gap is not None]
    if any(gap.never_closes(moment) for gap in known):
        return True
    variables = moment.moved.variables if moment.moved else ()
    pinned = {next(iter(gap.steps)) for gap in known if len(gap.steps) == 1 and (gap.least, gap.most) == (0, 0)}
    return bool(variables) and pinned >= set(variables)


def _aligned(first: Sequence[Form], second: Sequence[Form]) -> list[tuple[Form, Form]]:
    """Pairs of parts of two indices that stand for the same axes: `g[f, base + offset]` and `g[f, i, j]` share `f`."""
    shorter = min(len(first), len(second))
    left = next((k for k in range(shorter) if not _same_width(first[k], second[k])), shorter)
    rest = shorter - left
    right = next((k for k in range(rest) if not _same_width(first[-1 - k], second[-1 - k])), rest)
    pairs = [*zip(first[:left], second[:left], strict=True)]
    pairs += [(first[-1 - k], second[-1 - k]) for k in range(right)]
    if len(first) == len(second) == left + right + 1:
        pairs.append((first[left], second[left]))  # all the axes that the others leave
    return pairs


def _same_width(one: Form, other: Form) -> bool:
    """Whether two parts span equally many axes, as far as is known."""
    return one.wide == other.wide


@dataclass(frozen=True)
class _Gap:
    """A difference of two indices: a number from `least` to `most`, and whole steps of the loop that moved."""

    least: int
    most: int
    steps: Mapping[str, int]

    def never_closes(self, moment: Moment) -> bool:
        if not self.steps:
            return self.least > 0 or self.most < 0
        if len(self.steps) > 1 or moment.moved is None:
            return False
        step = next(iter(self.steps.values()))
        if self.least == self.most:
            if self.least % step:
                return True
            count = -self.least // step  # of steps after which the two meet
            return count < 1 if moment.moved.is_ascending else count == 0
        return moment.moved.is_ascending and (self.least + step > 0 if step > 0 else self.most + step < 0)


def _gap(first: Form, second: Form, moment: Moment) -> _Gap | None:
    """`first` at the later moment less `second` at the earlier one; None where nothing is known of it."""
    moving = moment.moved.variables if moment.moved else ()
    steps = {v: first.atoms[v] for v in moving if v in first.atoms and first.atoms[v] == second.atoms.get(v)}
    least = most = first.constant - second.constant
    for atom in {*first.atoms, *second.atoms} - steps.keys():
        one, two = first.atoms.get(atom, 0), second.atoms.get(atom, 0)
        if moment.is_fixed(atom) and one == two:
            continue
        if atom not in moment.extents:
            return None
        low, high = moment.extents[atom]
        ends = [factor * end for factor, end in ((one, low), (one, high))], [-two * low, -two * high]
        least += min(ends[0]) + min(ends[1])
        most += max(ends[0]) + max(ends[1])
    return _Gap(least, most, steps)


def surely_one(first: tuple[Form, ...], second: tuple[Form, ...], changing: frozenset[str]) -> bool:
    """Whether two indices are the same element in every iteration of every loop."""
    anywhere = Moment((), None, changing)
    pairs = zip(first, second, strict=False)
    return len(first) == len(second) and all(
        one == two and all(anywhere.is_fixed(atom) for atom in one.atoms) for one, two in pairs
    )


def changed_arrays(tree: ast.FunctionDef, arrays: Iterable[str]) -> frozenset[str]:
    """Arrays that a function may write: stored into, given to an atomic, or handed to another function."""
    known, found = set(arrays), set()
    for node in walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found |= {root(node)}
        elif isinstance(node, ast.Call) and called(node) not in ("grouped", "static", "cast", "int"):
            found |= {root(argument) for argument in node.args if "shape" not in ast.unparse(argument)}
    return frozenset(found & known)


def _gives_numbers(loop: ast.For) -> bool:
    """Whether each variable of a loop is a number: not so of `ti.grouped(...)`, or of one name for a whole index."""
    counted = iterated(loop)
    name = called(counted) if isinstance(counted, ast.Call) else ""
    return name == "range" or (name != "grouped" and isinstance(loop.target, ast.Tuple))


def _is_integer(annotation: ast.expr | None) -> bool:
    """Whether a parameter is annotated as an integer: `ti.i32`, `int`."""
    name = annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", "")
    return name in ("int", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")


def _is_cast(call: ast.Call) -> bool:
    return called(call) in ("int", "i32", "i64", "u32", "static") and len(call.args) == 1
