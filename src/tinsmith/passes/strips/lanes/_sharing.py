"""Sharing: what all lanes of a block have together, and what each has for itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ....ir import Names, Operator, Type, compare, nodes, number, walk
from ...polish import is_atomic_addition
from ._loops import is_for_lanes, with_places


class Sharing:
    """What lanes share in the body of a parallel loop.

    Attributes:
        body: the loop's, with loops that run backwards by their places.
        descending: names of those places.
        stored: names of the arrays that it changes.
        definitions: how often each local is given a value in the text.
        agreed: locals that blocks in lanes agree on, with their places in the body.
        varying: locals that differ between lanes.
        own_places: locals from 0 to before a size of the loop, with that size and what they are by the loop's names.
    """

    def __init__(self, task: nodes.For, names: Names) -> None:
        self.loop = task
        self.types = names.types
        self.body, self.descending = with_places(task.body, names)
        self.stored = walk.find_changed(self.body)
        whole = [replace(task, body=self.body)]
        self.definitions = Counter(name for one in walk.statements(whole) for name in walk.find_assigned(one))
        self.own_places = self._find_places()
        self.agreed = self._find_agreed()
        self.varying = self._find_varying()

    def _find_agreed(self) -> dict[str, int]:
        """Return the locals that are loaded from memory and bound inner loops, and their position in the iteration."""
        loops = [one for one in walk.statements(self.body) if isinstance(one, nodes.For)]
        bounds = {name for one in loops for name in walk.locals_read(one)}
        bounds |= {name for one in loops for name in self._find_first(one)}
        places: dict[str, int] = {}
        for place, one in enumerate(self.body):
            # Ends at the first statement that is no assignment, or that needs what lanes have not agreed on yet.
            if not isinstance(one, nodes.Assign) or walk.locals_in([one.value]) & places.keys():
                break
            is_bound = one.name in bounds and self.definitions[one.name] == 1 and self.types[one.name] == Type.I32
            if is_bound and any(map(self._may_agree, walk.loads([one]))):
                places[one.name] = place
        return places

    def _find_first(self, loop: nodes.For) -> set[str]:
        """Return the first place of a list that a loop goes through backwards: `k = first + at`, with `at` its name."""
        match loop.body[:1]:
            case (nodes.Assign(_, nodes.Binary(Operator.ADD, nodes.Local(first), nodes.Local(at))),) if (
                at in self.descending
            ):
                return {first}
            case _:
                return set()

    def _may_agree(self, load: nodes.Load) -> bool:
        """Return True if iterations may read one element: not if each has a place of its own."""
        return not any(map(self._is_own_place, load.index))

    def _is_own_place(self, index: nodes.Expr) -> bool:
        """Return True if no other iteration has this index: a loop variable, or a flat index made of all of them."""
        match index:
            case nodes.Local(name):
                return name in self.own_places
            case nodes.Binary(Operator.ADD, nodes.Binary(Operator.MUL, outer, nodes.Size()), nodes.Local(name)):
                return name in self.own_places and (self._is_own_place(outer))
            case _:
                return False

    def _find_varying(self) -> set[str]:
        """Return the locals whose values may differ between lanes."""
        # A local that is computed from a varying one varies too, also in a loop above it: so until nothing is new.
        varying = set(self.loop.names)
        while True:
            before = len(varying)
            for one in walk.statements(self.body):
                match one:
                    case nodes.For():
                        varying |= set() if self.is_shared_loop(one, varying) else {*one.names}
                    case nodes.Assign():
                        # With two definitions, lanes may be behind different ones: a branch gives it one in some alone.
                        is_shared = self.definitions[one.name] == 1 and self.is_shared(one.value, varying)
                        varying |= set() if is_shared or one.name in self.agreed else {one.name}
                    case _:
                        varying |= {*walk.find_assigned(one)}
            if len(varying) == before:
                return varying

    def is_shared(self, expr: nodes.Expr, varying: set[str] | None = None) -> bool:
        """Return True if an expression has the same value in all lanes."""
        # Not if it reads what the body stores: lanes run side by side, and one may have changed it already.
        names = self.varying if varying is None else varying
        return walk.locals_in([expr]).isdisjoint(names) and walk.arrays_in([expr]).isdisjoint(self.stored)

    def is_shared_loop(self, loop: nodes.For, varying: set[str] | None = None) -> bool:
        """Return True if all lanes run a loop by one index, from one first value on; ends may differ."""
        bounds = walk.expressions(loop)
        wanted = bounds if len(loop.names) > 1 else bounds[:1]
        is_single = all(self.definitions[name] == 1 for name in loop.names)
        return is_single and all(self.is_shared(bound, varying) for bound in wanted)

    def is_shared_index(self, one: nodes.Load | nodes.Store | nodes.Atomic) -> bool:
        """Return True if all lanes read or change one element."""
        return all(map(self.is_shared, one.index))

    def is_shared_sum(self, one: nodes.Store | nodes.Atomic) -> bool:
        """Return True if all lanes add to one element."""
        return is_atomic_addition(one) and self.is_shared_index(one) and not any(map(walk.reads_memory, one.index))

    def has_vectors(self, expr: nodes.Expr) -> bool:
        """Return True if machines have vectors for an expression, apart from parts that lanes share."""
        return self.is_shared(expr) or (is_for_lanes(expr) and all(map(self.has_vectors, walk.operands(expr))))

    def has_loop_vectors(self, loop: nodes.For | nodes.While) -> bool:
        """Return True if machines have vectors for all that lanes do on their own in a loop."""
        if any(
            isinstance(one, nodes.For) and len(one.names) > 1 and not self.is_shared_loop(one)
            for one in walk.statements([loop])
        ):
            return False
        return all(self.has_vectors(expr) for one in walk.statements([loop]) for expr in walk.expressions(one))

    def _find_places(self) -> dict[str, tuple[nodes.Expr, nodes.Expr]]:
        """Return locals from 0 to before a size of the loop, with that size and what they are by the loop's names."""
        bounds = zip(self.loop.names, self.loop.bounds, strict=True)
        ranges: dict[str, tuple[nodes.Expr, nodes.Expr]] = {
            name: (end, nodes.Local(name, Type.I32)) for name, (begin, end) in bounds if begin == number(0)
        }
        # `end - 1 - back`: gradients of loops go through their iterations backwards.
        for one in self.body:
            match one:
                case nodes.Assign(
                    name, nodes.Binary(Operator.SUB, nodes.Binary(Operator.SUB, end, nodes.Const(1)), nodes.Local(back))
                ):
                    if self.definitions[name] == 1 and back in self.loop.names and ranges.get(back, (None,))[0] == end:
                        ranges[name] = (end, one.value)
                case _:
                    pass
        return ranges

    def bounds_of(self, load: nodes.Load) -> list[nodes.Expr] | None:
        """Return what must hold for all iterations to read within an array; None if that cannot be known.

        It can where an index is made of an iteration's own places: then an inactive lane may read there too.
        """
        tests: list[nodes.Expr] = []
        for axis, part in enumerate(load.index):
            size = nodes.Size(load.array, axis)
            match part:
                case nodes.Local(name) if name in self.own_places:
                    tests.append(compare(Operator.GE, size, self.own_places[name][0]))
                case nodes.Const(value) if value >= 0:
                    tests.append(compare(Operator.GT, size, part))
                case _:
                    return None
        return tests
