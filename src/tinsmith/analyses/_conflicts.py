"""Conflicts: accesses by which iterations of a parallel loop race.

Two accesses conflict if different iterations may make them to one element, and what the loop computes depends on
which comes first: at least one of them changes the element, and they are neither the same atomic operation nor
stores of the same value. Everybody who asks about races asks here: the forward pass, the gradient, the linter,
`explain`, and the sanitizer's words.

Each pair is decided by an integer system (`_integer_systems`): bounds and conditions of both iterations, equal
indices, and different numbers of the iterations.

- It has no solution, whatever the sizes and arguments are: there is no conflict.
- It has one for each of several sizes and arguments, and nothing in it depends on data: the race is certain.
- It has one for some of them: the race is conditional, as sizes or arguments decide.
- An index or a condition depends on data: the race is possible.
- Otherwise (indices that are not affine) nothing is known, and nothing is said.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import analyses
from ..ir import AffineIndex, Operator, Type, each_moves_an_axis, nodes, number, types, walk
from ._access_walk import find_accesses
from ._accesses import Condition, LoopAccess, Origin, is_computable, step_of
from ._forms import Atom, IterationForms, is_private

if TYPE_CHECKING:
    from ._integer_systems import Variable


MOST_TRIED_VARIABLES, TRIED_NUMBERS = 3, 13
"""Variables of loops whose numbers are tried one by one where indices are not affine, and how many numbers of each."""
LARGEST_NUMBER = 2**31
"""Variables of loops, sizes and arguments are below it."""
MOST_PAIRS = 4000
"""Pairs of accesses of a loop beyond which no more are compared."""
_ADDITIONS = frozenset({"add", "sub"})


class Verdict(enum.Enum):
    """What is known of a conflict."""

    CERTAIN = "certain"
    POSSIBLE = "possible"
    CONDITIONAL = "conditional"


class Conflict(NamedTuple):
    """Two accesses to one element by which iterations of `loop` race. The first one changes the element."""

    verdict: Verdict
    loop: nodes.For
    change: LoopAccess
    other: LoopAccess

    @property
    def is_of_neighbors(self) -> bool:
        """Whether an iteration reads what another one changes under another index: `y[i - 1]` beside `y[i]`."""
        return self.other.is_load and self.change.index != self.other.index

    @property
    def array(self) -> str:
        """The array of the element."""
        return self.change.array


@dataclass(frozen=True)
class _Numbers:
    """Numbers in place of sizes and arguments, so that all products are affine."""

    sizes: tuple[int, ...]
    arguments: tuple[int, ...]

    def of(self, symbols: Sequence[nodes.Expr]) -> dict[nodes.Expr, int]:
        sizes, arguments = itertools.cycle(self.sizes), itertools.cycle(self.arguments)
        return {one: next(sizes if isinstance(one, nodes.Size) else arguments) for one in symbols}


_EXAMPLES = (
    *(_Numbers((12,), arguments) for arguments in ((2,), (3,), (5,), (12,), (3, 5), (5, 3))),
    *(_Numbers(sizes, (3,)) for sizes in ((12, 20, 16, 24), (24, 16, 20, 12), (12, 120), (120, 12))),
)
_SMALL_EXAMPLES = 6
_SMALL_ARGUMENTS = tuple(_Numbers((12,), (argument,)) for argument in (0, 1, -1))
"""Arguments that are tried too where there are any: a race that does not occur for one of them is conditional."""


def find_conflicts(
    kernel: nodes.Kernel,
    *,
    exempt: Callable[[nodes.For], Collection[str]] = lambda loop: (),
    unique: Collection[str] = (),
) -> list[Conflict]:
    """Return the conflicts of a kernel's parallel loops, one for each line that changes an array, certain ones first.

    Args:
        kernel: the kernel.
        exempt: returns arrays that are promised to have no element that two iterations of a loop use.
        unique: arrays whose numbers are promised to be all different.
    """
    conflicts: list[Conflict] = []
    for loop in kernel.body:
        if walk.is_parallel(loop):
            conflicts += find_conflicts_of_loop(kernel, loop, exempt, unique)
    return sorted(conflicts, key=lambda one: one.verdict is not Verdict.CERTAIN)


def find_disjoint_arrays(kernel: nodes.Kernel, loop: nodes.For) -> frozenset[str]:
    """Return the arrays that a parallel loop changes without conflicts: no iteration touches what another changes."""
    return frozenset(
        array
        for array, accesses in _accesses_by_array(kernel, loop).items()
        if all(
            _has_no_meeting(loop, one, two)
            for first, second in itertools.combinations_with_replacement(accesses, 2)
            if first.is_change or second.is_change
            for one, two in itertools.product(first.cases, second.cases)
        )
    )


def _accesses_by_array(kernel: nodes.Kernel, loop: nodes.For) -> dict[str, list[LoopAccess]]:
    """Return the accesses to arrays that a loop changes, each once.

    Memory that blocks of iterations have for themselves is left out.
    """
    changed = {name for name in walk.find_changed([loop]) if not kernel.arrays[name].is_of_blocks}
    by_array: dict[str, dict[object, LoopAccess]] = {}
    for one in find_accesses(kernel, loop):
        if one.array in changed:
            by_array.setdefault(one.array, {}).setdefault(one.key, one)
    return {name: [*accesses.values()] for name, accesses in by_array.items()}


def find_conflicts_of_loop(
    kernel: nodes.Kernel,
    loop: nodes.For,
    exempt: Callable[[nodes.For], Collection[str]],
    unique: Collection[str] = (),
) -> Iterator[Conflict]:
    """Yield the conflicts of one parallel loop; see `find_conflicts`."""
    promised: Collection[str] | None = None
    for array, accesses in _accesses_by_array(kernel, loop).items():
        # Not memory that iterations share: the engines keep such a local in a register.
        if array in kernel.cells and _is_overwritten_first(kernel, loop, array):
            continue
        for conflict in _find_conflicts_of_array(loop, accesses):
            # Promises are about data and arguments. They excuse what these decide, never a race that is certain.
            if conflict.verdict is not Verdict.CERTAIN and _is_excluded_by_unique(conflict, unique):
                continue
            if conflict.verdict is not Verdict.CERTAIN:
                promised = exempt(loop) if promised is None else promised
                if array in promised:
                    continue
            yield conflict


def _is_excluded_by_unique(conflict: Conflict, unique: Collection[str]) -> bool:
    """Return True if two accesses never use one element, given that no array of `unique` holds a number twice.

    With `unique = {"ids"}`, iterations i and j use different elements `y[ids[i]]` and `y[ids[j]]`.
    """
    loop, first, second = conflict.loop, conflict.change, conflict.other
    if not unique or len(loop.names) != 1:
        return False
    variable = nodes.Local(loop.names[0], Type.I32)
    loads = [one for one in walk.parts(*first.index, *second.index) if isinstance(one, nodes.Load)]
    chosen = [one for one in dict.fromkeys(loads) if one.array in unique and one.index == (variable,)]
    pair = _Pair(loop, first, second, None)
    return bool(chosen) and all(
        analyses.has_no_solution([*system, *different])
        for system in pair.systems()
        for different in itertools.product(*(pair.difference(one) for one in chosen))
    )


def _find_conflicts_of_array(loop: nodes.For, accesses: Sequence[LoopAccess]) -> list[Conflict]:
    """Return conflicts of accesses to one array, for each line that changes it a certain one, or else the first."""
    if _have_own_elements(loop, accesses):
        return []
    conflicts: dict[int, Conflict] = {}
    pairs = itertools.combinations_with_replacement(accesses, 2)
    # A store beside what another iteration reads says more than the store beside itself.
    for first, second in sorted(itertools.islice(pairs, MOST_PAIRS), key=lambda pair: pair[0] is pair[1]):
        change, other = (first, second) if first.is_change else (second, first)
        known = conflicts.get(change.line)
        # One certain conflict of a line is enough, and deciding takes long.
        is_settled = known is not None and known.verdict is Verdict.CERTAIN
        if is_settled or not _is_order_visible(first, second):
            continue
        verdict = _decide(loop, first, second)
        if verdict is Verdict.CERTAIN or (verdict is not None and known is None):
            conflicts[change.line] = Conflict(verdict, loop, change, other)
    return list(conflicts.values())


def _have_own_elements(loop: nodes.For, accesses: Sequence[LoopAccess]) -> bool:
    """Return True if each variable of the loop moves an axis of all indices alike: the common case, decided fast."""
    forms = IterationForms({}, {})
    indices = [[forms.form(part) for part in one.index] for one in accesses]
    if len({*map(len, indices)}) != 1:
        return False
    known = [[form for form in index if form is not None] for index in indices]
    if [*map(len, known)] != [*map(len, indices)]:
        return False
    pinned = frozenset.intersection(*(_find_pinned(loop, one) for one in accesses))
    variables = [forms.atom(nodes.Local(name, Type.I32)) for name in loop.names if name not in {n for n, _ in pinned}]
    return each_moves_an_axis(variables, known, lambda atom: not atom.is_private)


def _find_pinned(loop: nodes.For, access: LoopAccess) -> frozenset[tuple[str, nodes.Expr]]:
    """Return the loop variables whose value a condition fixes, given the other variables: `j` in `if group[i] == j`.

    For each `i`, at most one value of `j` reaches the access.
    """
    pinned: dict[str, nodes.Expr] = {}
    for one in access.conditions:
        match one.expr:
            case nodes.Binary(Operator.EQ, left, right) if one.holds:
                for variable, value in ((left, right), (right, left)):
                    if isinstance(variable, nodes.Local) and variable.name in loop.names:
                        pinned.setdefault(variable.name, value)
    others = {*loop.names} - pinned.keys()
    return frozenset((name, value) for name, value in pinned.items() if walk.locals_in([value]) <= others)


def _is_order_visible(first: LoopAccess, second: LoopAccess) -> bool:
    """Return True if the order of two accesses to one element matters, as far as their kinds tell."""
    if not (first.is_change or second.is_change) or first.entry != second.entry:
        return False
    # Atomics of one operator commute, and so do additions and subtractions.
    operators = {one.of.operator if isinstance(one.of, nodes.Atomic) else "" for one in (first, second)}
    return "" in operators or not (len(operators) == 1 or operators <= _ADDITIONS)


def _decide(loop: nodes.For, first: LoopAccess, second: LoopAccess) -> Verdict | None:
    """Return what is known of two accesses; None if nothing is, or no two iterations meet."""
    if len(first.index) != len(second.index):
        return None  # of a vector and of its numbers, in a sketch
    verdicts = {_decide_case(loop, one, two) for one, two in itertools.product(first.cases, second.cases)}
    return next((one for one in Verdict if one in verdicts), None)


def _decide_case(loop: nodes.For, first: LoopAccess, second: LoopAccess) -> Verdict | None:
    if _are_own_slots(first, second):
        return None
    # A proof for all sizes and arguments comes first; examples are tried where there is none.
    if _has_no_meeting(loop, first, second):
        return None
    # Under sufficient conditions a certain race is certain, but the absence of one says nothing, unless they are the
    # conditions themselves.
    if first.surest.is_exact and second.surest.is_exact:
        verdict = _try_examples(loop, first.surest, second.surest)
        if verdict is not None or (first.is_exact and second.is_exact):
            return verdict
    index_origins = first.index_origins | second.index_origins
    origins = index_origins or first.condition_origins | second.condition_origins
    # A warning needs data that decide. An index that is only not understood is no reason for one.
    if Origin.UNKNOWN in index_origins or not origins & {Origin.DATA, Origin.COUNTER}:
        return None
    return Verdict.POSSIBLE if any(_may_meet(loop, first, second, numbers) for numbers in _EXAMPLES) else None


def _try_examples(loop: nodes.For, first: LoopAccess, second: LoopAccess) -> Verdict | None:
    """Try several sets of sizes and arguments.

    Return CERTAIN if two iterations use one element for each set, CONDITIONAL if for some, None if for none.
    """
    # Where indices are not affine, only small numbers are tried.
    has_arguments = any(isinstance(one, nodes.Argument) for one in (*first.symbols, *second.symbols))
    examples = _EXAMPLES if _have_affine_indices(first, second) else _EXAMPLES[:_SMALL_EXAMPLES]
    examples += _SMALL_ARGUMENTS if has_arguments else ()
    meets = _may_meet(loop, first, second, examples[0])
    if any(_may_meet(loop, first, second, numbers) != meets for numbers in examples[1:]):
        return Verdict.CONDITIONAL
    return Verdict.CERTAIN if meets else None


def _have_affine_indices(*accesses: LoopAccess) -> bool:
    """Return True if all indices are affine in the loops' variables once sizes and arguments are numbers."""
    for one in walk.parts(*(part for access in accesses for part in access.index)):
        match one:
            case (
                nodes.Unary(Operator.ABS)
                | nodes.Select()
                | nodes.Binary(Operator.MIN | Operator.MAX | Operator.BIT_XOR | Operator.BIT_OR)
            ):
                return False
            case nodes.Cast(value) if types.is_float(value.type):
                return False
            case nodes.Binary(Operator.MUL, left, right) if is_private(left) and is_private(right):
                return False
    return True


def _are_own_slots(first: LoopAccess, second: LoopAccess) -> bool:
    """Return True if an axis of both indices is a number that an atomic counter handed out to one iteration alone."""
    slot = nodes.Local("slot", Type.I32)
    steps = [step_of(one) for access in (first, second) for one in walk.parts(*access.index)]
    step = min((one for one in steps if one), default=0)

    def rename(expr: nodes.Expr) -> nodes.Expr:
        return slot if step_of(expr) else walk.rebuild(expr, rename)

    forms = IterationForms({}, {})
    for one, two in zip(map(rename, first.index), map(rename, second.index), strict=True):
        left, right = forms.form(one), forms.form(two)
        factor = 0 if left is None else abs(left.terms.get(forms.atom(slot), 0))
        gap = None if left is None or right is None else left.plus(right, -1).number
        # A counter that goes on by 2 hands out `k` and `k + 1`.
        if factor and gap is not None and abs(gap) < factor * step:
            return True
    return False


def _has_no_meeting(loop: nodes.For, first: LoopAccess, second: LoopAccess) -> bool:
    """Return True if different iterations certainly use different elements, whatever sizes and arguments are."""
    return all(analyses.has_no_solution(system) for system in _Pair(loop, first, second, None).systems())


def _may_meet(loop: nodes.For, first: LoopAccess, second: LoopAccess, numbers: _Numbers) -> bool:
    """Return True if, for these sizes and arguments, different iterations use one element."""
    pair = _Pair(loop, first, second, numbers)
    if not (first.index_origins or second.index_origins or _have_affine_indices(first, second)):
        meets = pair.meets_somewhere()
        if meets is not None:
            return meets
    return any(map(pair.confirms, filter(None, map(analyses.find_solution, pair.systems()))))


class _Pair:
    """Two accesses in two iterations; with numbers in place of sizes and arguments, or for whatever these are."""

    def __init__(self, loop: nodes.For, first: LoopAccess, second: LoopAccess, numbers: _Numbers | None) -> None:
        symbols = [*dict.fromkeys(one for access in (first, second) for one in access.symbols)]
        known = {} if numbers is None else numbers.of(symbols)
        self.loop, self.first, self.second = loop, first, second
        shared: dict[nodes.Expr, Atom] = {}
        self.mine, self.theirs = IterationForms(known, shared), IterationForms(known, shared)

    def systems(self) -> Iterator[list[analyses.Constraint]]:
        """Yield systems of integer constraints: one is solvable if two accesses conflict in different iterations."""
        common: list[analyses.Constraint] = []
        for one, two in zip(self.first.index, self.second.index, strict=True):
            # An axis that is not affine is left out. The system then has more solutions, so a proof that it has none
            # still holds.
            left, right = self.mine.form(one), self.theirs.form(two)
            if left is not None and right is not None:
                common.append(analyses.Constraint(left.plus(right, -1), is_equation=True))
        leaves = _same_value(self.first, self.second)
        # Stores of one value to one element do not conflict: for a conflict, some part of the value must differ.
        values = [()] if leaves is None else [(one,) for leaf in leaves for one in self.difference(leaf)]
        choices = itertools.product(
            self.mine.alternatives(self.first.conditions),
            self.theirs.alternatives(self.second.conditions),
            [one for name in self.loop.names for one in self.difference(nodes.Local(name, Type.I32))],
            values,
        )
        for one, two, difference, value in choices:
            # Last: the forms above added what is known of quotients.
            yield [*common, *one, *two, difference, *value, *self.mine.facts, *self.theirs.facts]

    def difference(self, leaf: nodes.Expr) -> Iterator[analyses.Constraint]:
        """Yield the constraints that a local's value is greater, or less, in one iteration than in the other."""
        one, two = self.mine.atom(leaf), self.theirs.atom(leaf)
        for factor in (1, -1):
            yield analyses.Constraint(AffineIndex({one: factor, two: -factor}, -1))

    def confirms(self, solution: Mapping[Variable, int]) -> bool:
        """Return True if a solution holds for the indices and conditions themselves, as far as these are exact.

        The forms leave out what is not affine.
        """
        # No i32 has such a value.
        if not all(-LARGEST_NUMBER <= number < LARGEST_NUMBER for number in solution.values()):
            return False
        numbers = {variable: np.array([number]) for variable, number in solution.items()}
        for one, two in zip(self.first.index, self.second.index, strict=True):
            left, right = self.mine.evaluate(one, numbers), self.theirs.evaluate(two, numbers)
            if left is None or right is None:
                continue
            if not (left.is_defined & right.is_defined & (left.numbers == right.numbers)).all():
                return False
        sides = ((self.mine, self.first), (self.theirs, self.second))
        return all(bool(forms.confirms(access, numbers).all()) for forms, access in sides)

    def meets_somewhere(self) -> bool | None:
        """Return whether two iterations meet whose loops' variables are all small; None if these are too many."""
        sides = self._find_touched(self.mine, self.first), self._find_touched(self.theirs, self.second)
        if sides[0] is None or sides[1] is None:
            return None
        elements: dict[tuple[int, ...], tuple[int, ...]] = {}
        # Elements that more than one iteration of the first access uses: any iteration of the second one meets another
        # one there.
        several: set[tuple[int, ...]] = set()
        for element, iteration in sides[0]:
            if elements.setdefault(element, iteration) != iteration:
                several.add(element)
        return any(
            element in several or elements.get(element, iteration) != iteration for element, iteration in sides[1]
        )

    def _find_touched(
        self, forms: IterationForms, access: LoopAccess
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]] | None:
        """Return elements that an access uses, each with the numbers of the iteration; None if there are too many."""
        parallel = [nodes.Local(name, Type.I32) for name in self.loop.names]
        parts = walk.parts(*access.index, *(one.expr for one in access.conditions if is_computable(one.expr)))
        leaves = [*dict.fromkeys([*parallel, *(one for one in parts if isinstance(one, nodes.Local))])]
        if len(leaves) > MOST_TRIED_VARIABLES:
            return None
        starts = [[_find_start(forms, access, leaf)] for leaf in leaves]
        grid = np.indices((TRIED_NUMBERS,) * len(leaves)).reshape(len(leaves), -1) + np.array(starts, np.int64)
        atoms: list[Variable] = [forms.atom(leaf) for leaf in leaves]
        solutions = dict(zip(atoms, grid, strict=True))
        index = [forms.evaluate(one, solutions) for one in access.index]
        known = [one for one in index if one is not None]
        if len(known) < len(index):
            return None
        is_touched = np.broadcast_to(forms.confirms(access, solutions), grid.shape[1:])
        for one in known:
            is_touched = is_touched & one.is_defined
        rows = [np.broadcast_to(one.numbers, grid.shape[1:])[is_touched].tolist() for one in known]
        iterations = zip(*(numbers[is_touched].tolist() for numbers in grid[: len(parallel)]), strict=True)
        elements = zip(*rows, strict=True) if rows else itertools.repeat((), int(is_touched.sum()))
        return zip(elements, iterations, strict=True)


def _find_start(forms: IterationForms, access: LoopAccess, variable: nodes.Expr) -> int:
    """Return the first number of a loop's variable to try: 0, or a known negative one from which 0 is tried too."""
    for one in access.conditions:
        match one:
            case Condition(nodes.Binary(Operator.GE, left, first), is_bound=True) if left == variable:
                known = forms.evaluate(first, {})
                return 0 if known is None else max(min(int(known.numbers[0]), 0), -(TRIED_NUMBERS // 2))
    return 0


def _same_value(first: LoopAccess, second: LoopAccess) -> tuple[nodes.Expr, ...] | None:
    """Return the locals whose equality in two iterations makes two stored values equal; None if these have different
    expressions.

    If both stores have the same indices, locals that occur only in parts of the value which equal an index are left
    out: where two accesses meet in an element, their indices are equal.
    """
    if not isinstance(first.of, nodes.Store) or not isinstance(second.of, nodes.Store):
        return None
    if first.value is None or first.value != second.value or first.index != second.index:
        return None if first.value is None or first.value != second.value else _leaves(first.value)
    indices = {*first.index}

    def replace(expr: nodes.Expr) -> nodes.Expr:
        return number(0) if expr in indices else walk.rebuild(expr, replace)

    return _leaves(replace(first.value))


def _leaves(value: nodes.Expr) -> tuple[nodes.Expr, ...]:
    return tuple(dict.fromkeys(one for one in walk.parts(value) if isinstance(one, nodes.Local)))


def _is_overwritten_first(kernel: nodes.Kernel, loop: nodes.For, cell: str) -> bool:
    """Return True if each iteration gives a local of the kernel a value before it reads it, and nobody reads the last.

    The engines then keep the value in a register of the iteration.
    """
    # A value that is read after the loop is that of whichever iteration stored last.
    later = itertools.dropwhile(lambda one: one is not loop, kernel.body)
    if any(cell in walk.find_loaded([one]) for one in itertools.islice(later, 1, None)):
        return False
    return _is_assigned_before_use(loop.body, cell)


def _is_assigned_before_use(body: Sequence[nodes.Stmt], cell: str) -> bool:
    for one in body:
        if cell in walk.arrays_in(walk.expressions(one)) or (isinstance(one, nodes.Atomic) and one.array == cell):
            return False
        if isinstance(one, nodes.Store) and one.array == cell:
            return True
        if cell in walk.find_touched([one]):
            return False
    return True
