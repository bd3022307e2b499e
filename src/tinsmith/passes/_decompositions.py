"""Derivatives of matrix decompositions, as formulas in their results: so these have derivatives in turn.

    u, s, v = svd(a)      ->      u, s, v = svd(a)
                                  p = u^T a_dot v
                                  s_dot = diag(p)
                                  u_dot = u @ turn_u, v_dot = v @ turn_v  (antisymmetric turns, made of p and s)

With O an antisymmetric matrix, a rotation U moves by dU = U O. Each formula solves for O, and never divides by what is
0 to rounding: there O is 0 instead, in the entries that are not determined. A difference of singular values stands
below the sum of the turns of U and V only, a sum of them below the difference: U V^T has its derivative where singular
values are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from ..analyses import slopes
from ..ir import (
    Names,
    Operator,
    Type,
    compare,
    constant,
    minus,
    negate,
    nodes,
    over,
    parts_of,
    plus,
    side_of,
    times,
    walk,
)

Rows = list[list[nodes.Expr]]
Parts = dict[str, Rows]
"""By the name of `parts_of`, the entries of each part; of a vector, one row."""
Moved = Sequence[nodes.Expr]
_EPS = {Type.F32: 2.0**-23, Type.F64: 2.0**-52}


def tangent_of(one: nodes.Decompose, moved: Moved, names: Names) -> tuple[list[nodes.Stmt], list[nodes.Expr]]:
    """Return statements that differentiate a matrix decomposition in forward mode, and the results' tangents.

    Args:
        one: the decomposition.
        moved: the tangents of the matrix's entries, row by row, of the matrix's type.
        names: gives names to locals.
    """
    work = _Work(one, names)
    tangents = _TANGENTS[one.function](work, work.parts, work.square(moved))
    return work.steps, [entry for part in parts_of(one) for row in tangents[part.name] for entry in row]


def adjoint_of(one: nodes.Decompose, seeds: Moved, names: Names) -> tuple[list[nodes.Stmt], list[nodes.Expr]]:
    """Return statements that differentiate a matrix decomposition in reverse mode, and the matrix's adjoint.

    The statements compute it, row by row, from `seeds`, the adjoints of the results' entries. The results' tangents are
    linear in the matrix's, so the adjoint is the transpose: the statements of `tangent_of`, in reverse order.
    """
    moved = [names.local("moved", one.type) for _ in one.matrix]
    steps, tangents = tangent_of(one, moved, names)
    adjoints: dict[str, nodes.Expr] = {local.name: constant(0, one.type) for local in moved}

    def is_linear(expr: nodes.Expr) -> bool:
        return not adjoints.keys().isdisjoint(walk.locals_in([expr]))

    # Steps that no tangent reaches run forward, before the transpose: it needs their values, not their adjoints.
    work, linear = _Work(one, names), list[nodes.Assign]()
    for step in steps:
        if isinstance(step, nodes.Assign) and is_linear(step.value):
            adjoints[step.name] = constant(0, one.type)
            linear.append(step)
        else:
            work.steps.append(step)

    def add(expr: nodes.Expr, seed: nodes.Expr) -> None:
        if isinstance(expr, nodes.Local):
            adjoints[expr.name] = plus(adjoints[expr.name], seed)
        elif isinstance(expr, nodes.Unary | nodes.Binary):
            # A step is linear in the tangents, so at most one factor of a product has some.
            for slope in slopes(expr, expr):
                if is_linear(slope.operand):
                    add(slope.operand, slope.of(seed))

    for tangent, seed in zip(tangents, seeds, strict=True):
        add(tangent, seed)
    for step in reversed(linear):
        add(step.value, work.bind(adjoints[step.name]))
    return work.steps, [adjoints[local.name] for local in moved]


@dataclass
class _Work:
    """Writes the statements of one formula: matrices whose entries are locals, or known to be 0."""

    one: nodes.Decompose
    names: Names
    steps: list[nodes.Stmt] = field(default_factory=list)

    @property
    def parts(self) -> Parts:
        return self.split([nodes.Local(name, self.one.type) for name in self.one.results])

    def split(self, entries: Moved) -> Parts:
        """Split entries, which come in the order of the results, into parts."""
        rest, parts = iter(entries), Parts()
        for part in parts_of(self.one):
            rows, width = (part.shape[0] if len(part.shape) == 2 else 1), part.shape[-1]
            parts[part.name] = [[next(rest) for _ in range(width)] for _ in range(rows)]
        return parts

    def square(self, entries: Moved) -> Rows:
        side = side_of(self.one)
        return [[*entries[k * side : (k + 1) * side]] for k in range(side)]

    def number(self, value: float) -> nodes.Const:
        return constant(value, self.one.type)

    def bind(self, expr: nodes.Expr, wish: str = "part") -> nodes.Expr:
        """Put an expression that is used more than once into a local."""
        if isinstance(expr, nodes.Const | nodes.Local):
            return expr
        local = self.names.local(wish, expr.type)
        self.steps.append(nodes.Assign(local.name, expr, self.one.line))
        return local

    def product(self, left: Rows, right: Rows) -> Rows:
        columns = _transpose(right)
        return [[self.bind(_sum(map(times, row, column), self.one.type)) for column in columns] for row in left]

    def reciprocal(self, value: nodes.Expr, limit: nodes.Expr) -> nodes.Expr:
        """Return `1 / value`, or 0 where the size of `value` is not greater than a limit."""
        value = self.bind(value)
        # Engines compute both sides of a selection, and the derivative of 1 / 0 is not a number even where it is not
        # chosen (`0 * inf`). So the divisor is selected too.
        is_far = self.bind(compare(Operator.GT, nodes.Unary(Operator.ABS, value, value.type), limit), "is_far")
        divisor = self.bind(nodes.Select(is_far, value, self.number(1), value.type), "divisor")
        return self.bind(nodes.Select(is_far, over(self.number(1), divisor), self.number(0), value.type), "inverse")

    def rounding(self, values: Sequence[nodes.Expr]) -> nodes.Expr:
        """Return how large a difference of some values may be by rounding alone."""
        sizes = [nodes.Unary(Operator.ABS, value, value.type) for value in values]
        largest = reduce(lambda one, other: nodes.Binary(Operator.MAX, one, other, one.type), sizes[1:], sizes[0])
        return self.bind(times(self.number(4 * _EPS[self.one.type]), largest), "limit")

    def antisymmetric(self, entry: Callable[[int, int], nodes.Expr]) -> Rows:
        """Return the antisymmetric matrix with these entries above the diagonal."""
        side = side_of(self.one)
        matrix: Rows = [[self.number(0)] * side for _ in range(side)]
        for i, j in _pairs(side):
            matrix[i][j] = self.bind(entry(i, j), "turn")
            matrix[j][i] = negate(matrix[i][j])
        return matrix


def _pairs(side: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for j in range(side) for i in range(j))


def _transpose(rows: Rows) -> Rows:
    return [list(column) for column in zip(*rows, strict=True)]


def _sum(terms: Iterator[nodes.Expr], kind: Type) -> nodes.Expr:
    return reduce(plus, terms, constant(0, kind))


def _skew(rows: Rows, i: int, j: int) -> nodes.Expr:
    return minus(rows[i][j], rows[j][i])


# A = U S V^T ------------------------------------------------------------------------------------


def _svd_tangent(work: _Work, known: Parts, moved: Rows) -> Parts:
    u, (s,), v = known["u"], known["s"], known["v"]
    inner, limit, half = work.product(work.product(_transpose(u), moved), v), work.rounding(s), work.number(0.5)
    # Of the turns of U and V. Where two singular values are equal, the sum is set to 0 and the difference is exact.
    sums, differences = {}, {}
    for i, j in _pairs(len(s)):
        sums[i, j] = times(plus(inner[i][j], inner[j][i]), work.reciprocal(minus(s[j], s[i]), limit))
        differences[i, j] = times(_skew(inner, i, j), work.reciprocal(plus(s[i], s[j]), limit))
    turn_u = work.antisymmetric(lambda i, j: times(half, plus(sums[i, j], differences[i, j])))
    turn_v = work.antisymmetric(lambda i, j: times(half, minus(sums[i, j], differences[i, j])))
    return {"u": work.product(u, turn_u), "s": [[inner[i][i] for i in range(len(s))]], "v": work.product(v, turn_v)}


# A = Q W Q^T ------------------------------------------------------------------------------------


def _eigen_tangent(work: _Work, known: Parts, moved: Rows) -> Parts:
    (w,), q = known["w"], known["q"]
    inner, limit, half = work.product(work.product(_transpose(q), moved), q), work.rounding(w), work.number(0.5)

    def turn(i: int, j: int) -> nodes.Expr:
        both = times(half, plus(inner[i][j], inner[j][i]))
        return times(both, work.reciprocal(minus(w[j], w[i]), limit))

    return {"w": [[inner[i][i] for i in range(len(w))]], "q": work.product(q, work.antisymmetric(turn))}


# M = Q max(W, 0) Q^T ----------------------------------------------------------------------------


def _positive_tangent(work: _Work, _known: Parts, moved: Rows) -> Parts:
    """Differentiate by divided differences of max(w, 0), written as a quotient of sums, which needs no difference.

    With f(w) = max(w, 0):   (f(a) - f(b)) / (a - b) = (f(a) + f(b)) / (|a| + |b|)
    """
    # The statement's own result is the matrix alone, so its eigenvectors are computed here once more.
    one, side, half = work.one, len(moved), work.number(0.5)
    names = tuple(work.names.fresh(wish, one.type) for wish in ["w"] * side + ["q"] * side**2)
    eigen = nodes.Decompose("sym_eig", one.matrix, names, one.type, line=one.line)
    work.steps.append(eigen)
    w, entries = ([nodes.Local(name, one.type) for name in some] for some in (names[:side], names[side:]))
    q = work.square(entries)
    sizes = [work.bind(nodes.Unary(Operator.ABS, value, value.type)) for value in w]
    kept = [work.bind(nodes.Binary(Operator.MAX, value, work.number(0), value.type)) for value in w]
    inner, limit = work.product(work.product(_transpose(q), moved), q), work.rounding(w)
    scaled: Rows = [[work.number(0)] * side for _ in range(side)]
    for i, j in [*_pairs(side), *((k, k) for k in range(side))]:
        share = times(plus(kept[i], kept[j]), work.reciprocal(plus(sizes[i], sizes[j]), limit))
        scaled[i][j] = scaled[j][i] = work.bind(times(times(half, plus(inner[i][j], inner[j][i])), share))
    return {"m": work.product(work.product(q, scaled), _transpose(q))}


# A = R P ----------------------------------------------------------------------------------------

_AXES = {2: ((1, 0),), 3: ((2, 1), (0, 2), (1, 0))}
"""The entries that an antisymmetric matrix has as a vector, the one of its axis."""


def _polar_tangent(work: _Work, known: Parts, moved: Rows) -> Parts:
    r, p = known["r"], known["p"]
    inner = work.product(_transpose(r), moved)
    turn = _solve_antisymmetric(work, p, [_skew(inner, i, j) for i, j in _AXES[len(p)]])
    bent = work.product(turn, p)
    return {"r": work.product(r, turn), "p": [[*map(minus, *rows)] for rows in zip(inner, bent, strict=True)]}


def _solve_antisymmetric(work: _Work, p: Rows, axis: list[nodes.Expr]) -> Rows:
    """Return the antisymmetric O that solves O P + P O = X, where X is antisymmetric and has this `axis`.

    The axis of X is that of O times tr(P) I - P, whose eigenvalues are sums of two singular values, no differences.
    """
    side = len(p)
    # Scaled by 1 / tr(P), so that one limit of the determinant serves matrices of every magnitude. In two dims
    # O P + P O is tr(P) O, and nothing else is to be solved.
    inverse = work.reciprocal(_sum((p[i][i] for i in range(side)), work.one.type), work.number(0))
    axis = [work.bind(times(entry, inverse)) for entry in axis]
    if side == 3:
        scaled: Rows = [[times(p[i][j], inverse) for j in range(side)] for i in range(side)]
        ones = [[work.number(i == j) for j in range(side)] for i in range(side)]
        lower: Rows = [[work.bind(minus(ones[i][j], scaled[i][j])) for j in range(side)] for i in range(side)]
        cofactors: Rows = [[work.bind(_cofactor(lower, i, j)) for j in range(side)] for i in range(side)]
        determinant = _sum(map(times, lower[0], cofactors[0]), work.one.type)
        whole = work.reciprocal(determinant, work.number(4 * _EPS[work.one.type]))
        axis = [work.bind(times(whole, entry)) for (entry,) in work.product(cofactors, [[entry] for entry in axis])]
    solution: Rows = [[work.number(0)] * side for _ in range(side)]
    for (i, j), entry in zip(_AXES[side], axis, strict=True):
        solution[i][j], solution[j][i] = entry, negate(entry)
    return solution


def _cofactor(rows: Rows, i: int, j: int) -> nodes.Expr:
    """Return a cofactor of a symmetric 3 x 3 matrix, where it is an entry of the adjugate too."""
    (a, b), (c, d) = (((k + 1) % 3, (k + 2) % 3) for k in (i, j))
    return minus(times(rows[a][c], rows[b][d]), times(rows[a][d], rows[b][c]))


_TANGENTS: dict[str, Callable[[_Work, Parts, Rows], Parts]] = {
    "svd": _svd_tangent,
    "sym_eig": _eigen_tangent,
    "make_spd": _positive_tangent,
    "polar_decompose": _polar_tangent,
}
"""By the engines' name."""
