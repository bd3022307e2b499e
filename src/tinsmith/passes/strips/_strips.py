"""Strips: a loop in pieces of 64 iterations, of which the exponentials are computed first, in a loop of their own.

    for s in range(a, b):                     for strip in range((b - a + 63) >> 6):
        e = exp(-density[r, s])                   first = a + (strip << 6); count = min(64, b - first)
        light += t * (1 - e)            ->        for lane in range(count):
        t *= e                                        ahead[lane] = exp(-density[r, first + lane])
                                                  for lane in range(count):
                                                      s = first + lane; e = ahead[lane]; light += ...; t *= e

The compilers of both engines vectorize the first of the inner loops: it carries nothing from one iteration to the next,
calls no library, and stores to memory that nothing else can point to (docs/about/decisions/vector-speed.md). The second
does the rest in its old order. This is for CPUs, and for float32.

A function moves where its value depends on nothing that the loop changes: on the index, on what was there before the
loop, on arrays that the loop does not change, and on locals made of these in each iteration. A loop that may be left
early or skip a part of an iteration is left alone: its test may be what keeps an index inside an array.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ... import passes
from ...analyses import find_private_loops
from ...codegen import VECTOR_FUNCTIONS
from ...ir import Names, Operator, Type, compare, integer, minus, nodes, number, walk
from ._elementwise import is_elementwise, strip_elementwise, strip_loop, use_whole_vectors
from ._engine_vectors import WIDTH
from ._parts import (
    FUNCTIONS,
    LENGTH,
    SHORTEST,
    assign,
    at_line,
    bounds_of_strip,
    moves,
    run_lanes,
    strips_between,
    with_powers,
    within_limits,
)

_LANES = 8
"""Iterations that arithmetic takes at a time: a machine vector. What is left of a strip calls the library."""


def strip_functions(
    kernel: nodes.Kernel,
    *,
    has_fast_vectors: bool = False,
    has_vectors: bool = False,
    aligned: Collection[str] = (),
) -> nodes.Kernel:
    """Return a kernel that computes functions and stored values ahead, for machine vectors.

    It is the same object if nothing can be computed ahead.

    It has `LocalArray`s and functions by arithmetic, which printing knows, and no other pass. With `has_vectors`, loops
    are printed in vectors of the engine where they gain; not where the kernel has vectors of its own, which it would
    then hold in another way. Where the engine's compiler `has_fast_vectors`, loops in lanes raise by arithmetic too,
    which is in float64, but stay loops. Of arrays that are `aligned`, vectors are used whole (`use_whole_vectors`).
    """
    has_vectors = has_vectors and not _has_own_vectors(kernel)
    if has_vectors and aligned:
        kernel = use_whole_vectors(kernel, aligned, is_whole=has_fast_vectors)
    names = Names.of_kernel(kernel)
    statements = walk.number_statements(kernel.body)
    writer = _Writer(kernel, names, find_private_loops(statements), has_vectors=has_vectors and not has_fast_vectors)
    body: list[nodes.Stmt] = []
    for one in statements:
        body += (
            _strip_elements(one, kernel, names, has_vectors=has_vectors, is_whole=has_fast_vectors)
            or _lanes(one, kernel, names, has_vectors=has_vectors, has_fast_vectors=has_fast_vectors)
            or [writer.task(one)]
        )
    return kernel if tuple(body) == kernel.body else replace(kernel, body=tuple(body), locals=names.types)


def runs_in_strips(kernel: nodes.Kernel) -> bool:
    """Return True if all parallel loops of a kernel go over elements, or all but some of their first and last ones."""
    kernel = passes.collapse_loops(kernel)
    loops = [one for one in kernel.body if walk.is_parallel(one)]
    return bool(loops) and all(_has_elementwise_middle(one, kernel) for one in loops)


def _has_elementwise_middle(loop: nodes.For, kernel: nodes.Kernel) -> bool:
    if is_elementwise(loop, kernel):
        return True
    parts = passes.split_edges(loop, kernel.locals)
    return parts is not None and is_elementwise(parts.middle, kernel)


def _strip_elements(
    task: nodes.Stmt, kernel: nodes.Kernel, names: Names, *, has_vectors: bool, is_whole: bool
) -> list[nodes.Stmt]:
    """Return a task whose middle is in strips, between its ends if it has any; nothing if that is impossible."""
    strips = strip_elementwise(task, kernel, names, has_vectors=has_vectors, is_whole=is_whole)
    if strips is not None or not isinstance(task, nodes.For):
        return [] if strips is None else [strips]
    parts = passes.split_edges(task, names.types)
    if parts is None:
        return []
    strips = strip_elementwise(parts.middle, kernel, names, has_vectors=has_vectors, is_whole=is_whole)
    return [] if strips is None else [*parts.before, strips, *parts.after]


def _lanes(
    task: nodes.Stmt, kernel: nodes.Kernel, names: Names, *, has_vectors: bool, has_fast_vectors: bool
) -> list[nodes.Stmt]:
    """Return a list of one statement, the task in lanes.

    The list is empty if the task has no loops of data-dependent length, or if lanes would be slower.
    """
    # Powers by arithmetic are in float64. On CPUs that LLVM 15 (Taichi 1.7.4) does not know, its vectors of 128 bits
    # hold two of them, and a march with powers took 1.2 of the time.
    task = with_powers(task) if has_fast_vectors else task
    lanes = passes.run_in_lanes(task, kernel, names, has_vectors=has_vectors and not has_fast_vectors)
    return [] if lanes is None else [lanes]


def _has_own_vectors(kernel: nodes.Kernel) -> bool:
    return any(array.element for array in kernel.arrays.values()) or any(
        isinstance(one, nodes.Decompose) for one in walk.statements(kernel.body)
    )


def has_vector_loops(kernel: nodes.Kernel) -> bool:
    """Return True if loops of a kernel are printed in vectors of the engine, which is then to keep them whole."""
    return any(isinstance(one, nodes.For) and one.vector_width for one in walk.statements(kernel.body))


@dataclass(frozen=True)
class _Plan:
    """What moves out of a loop: functions, and the locals that they need, in the order of the loop's text."""

    functions: tuple[nodes.Unary, ...]
    needed: Mapping[str, nodes.Expr]


def plan_strips(loop: nodes.For, outside: frozenset[str]) -> _Plan:
    """Find the functions that can be computed before the rest of a loop. `outside` are arrays never to load ahead."""
    if not _is_plain(loop):
        return _Plan((), {})
    # `known` are locals that an iteration computes from nothing that the loop changes, so that they can be ahead too.
    changed = outside | walk.find_changed(loop.body)
    given = Counter(name for one in walk.statements(loop.body) for name in walk.find_assigned(one))
    known: dict[str, nodes.Expr] = {}

    def is_ahead(expr: nodes.Expr) -> bool:
        names = walk.locals_in([expr])
        return names.isdisjoint(given.keys() - known.keys()) and walk.arrays_in([expr]).isdisjoint(changed)

    functions: dict[nodes.Unary, None] = {}
    # Functions of values from the iteration before. The same text may come again behind an assignment, and mean
    # another value: `exp(a)`, `a = ...`, `exp(a)`. Neither is computed ahead then.
    handed_on = set[nodes.Unary]()
    for one in loop.body:
        for expr in walk.expressions(one):
            functions |= dict.fromkeys(part for part in _functions_in(expr) if is_ahead(part.value))
        inside = (expr for part in walk.statements([one]) for expr in walk.expressions(part))
        handed_on |= {part for expr in inside for part in _functions_in(expr) if not is_ahead(part.value)}
        if isinstance(one, nodes.Assign) and given[one.name] == 1 and is_ahead(one.value):
            known[one.name] = one.value
    functions = {one: None for one in functions if one not in handed_on}
    return _Plan(tuple(functions), _select_needed(functions, known))


def _select_needed(functions: Mapping[nodes.Unary, None], known: Mapping[str, nodes.Expr]) -> Mapping[str, nodes.Expr]:
    names = walk.locals_in([*functions])
    # From the last one on, since a local needs none that comes after it.
    for name in reversed([*known]):
        if name in names:
            names |= walk.locals_in([known[name]])
    return {name: value for name, value in known.items() if name in names}


def _is_plain(loop: nodes.For) -> bool:
    """Return True if a loop is an innermost one that runs all its iterations, and is not known to be short."""
    inner = (nodes.For, nodes.While, nodes.Break, nodes.Continue)
    if loop.is_parallel or len(loop.names) > 1 or any(isinstance(one, inner) for one in walk.statements(loop.body)):
        return False
    length = _known_length(loop)
    return length is None or length >= SHORTEST


def _known_length(loop: nodes.For) -> float | None:
    match loop.bounds[0]:
        case (nodes.Const(first), nodes.Const(end)):
            return end - first
        case _:
            return None


def _functions_in(expr: nodes.Expr) -> Iterator[nodes.Unary]:
    return (one for one in walk.parts(expr) if isinstance(one, nodes.Unary) and moves(one))


class _Writer:
    """Writes the strips of one kernel, with locals of new `names`.

    `private` are the numbers of loops whose locals are read neither outside nor by another iteration.
    """

    def __init__(self, kernel: nodes.Kernel, names: Names, private: frozenset[int], *, has_vectors: bool) -> None:
        self.kernel = kernel
        self.names = names
        self.private = private
        self.has_vectors = has_vectors
        self._declared: list[nodes.Stmt] = []
        self._is_serial = False

    def task(self, one: nodes.Stmt) -> nodes.Stmt:
        """Rewrite a loop at the top level of a kernel into strips; return any other statement unchanged."""
        # Arrays are declared inside a loop: at the top level engines would put them into memory that threads share.
        if not isinstance(one, nodes.For):
            return one
        self._is_serial = not one.is_parallel
        before: list[nodes.Stmt] = []
        body: list[nodes.Stmt] = []
        for part in one.body:
            self._declared = []
            rewritten = walk.rewrite([part], self.statement)
            # A loop that became strips has a whole version beside them for short lengths, which needs no array.
            if isinstance(part, nodes.For) and len(rewritten) > 1:
                body += _with_arrays(rewritten, self._declared)
            else:
                # Declared once an iteration. In the inner loop the engines would fill it with zeros at each start.
                before += self._declared
                body += rewritten
        return replace(one, body=(*before, *body))

    def statement(self, one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if not isinstance(one, nodes.For):
            return [one]
        elements = self.elements(one)
        if elements:
            return elements
        loads, loop = self.hoist_loads(one)
        plan = plan_strips(loop, frozenset(self.kernel.cells))
        return self.strips(loop, plan, loads, one) if plan.functions else [one]

    def elements(self, loop: nodes.For) -> Sequence[nodes.Stmt]:
        """Return an elementwise loop inside another one in strips between its ends; nothing if it is not elementwise.

            low, high = between the ends, or both the end where too little lies there
            for part in range(2):
                for i in range(begin if part == 0 else high, low if part == 0 else end): ...  # as it was written
                if part == 0 and low < high: strips from low to high

        So the loop's own text is there once, for both ends and for short loops: each copy of it takes time to compile.
        Loops over one array are left alone. Compilers vectorize them by themselves, since nothing else can overlap the
        array, and strips took 1.4 of the time.
        """
        if loop.number not in self.private or len(loop.names) > 1 or len(walk.find_touched(loop.body)) < 2:
            return []
        # An elementwise loop has no atomics; in code that runs in order an addition needs none.
        if self._is_serial:
            loop = replace(loop, body=walk.rewrite(loop.body, lambda one: (passes.write_out_addition(one),)))
        parts = passes.split_edges(loop, self.names.types)
        middle = loop if parts is None else parts.middle
        if not is_elementwise(middle, self.kernel):
            return []
        # Of a known length that is not short, and without ends: all of the loop is in strips.
        if parts is None and _known_length(loop) is not None:
            arrays, strips = strip_loop(loop, self.kernel, self.names)
            self._declared += arrays
            return [strips]
        (begin, end), (first, last) = loop.bounds[0], middle.bounds[0]
        low, high = (self.names.local(f"strip_{word}", Type.I32) for word in ("low", "high"))
        arrays, strips = strip_loop(replace(middle, bounds=((low, high),)), self.kernel, self.names)
        self._declared += arrays
        is_long = compare(Operator.GE, minus(last, first), number(SHORTEST))
        bounds = [assign(low, _choose(is_long, first, end)), assign(high, _choose(is_long, last, end))]
        has_strips = compare(Operator.LT, low, high)
        if parts is None or not parts.after:
            ends = replace(loop, bounds=((begin, low),))
            return [*bounds, ends, nodes.If(has_strips, (strips,), line=loop.line)]
        part = self.names.local("part", Type.I32)
        is_first = compare(Operator.EQ, part, number(0))
        ends = replace(loop, bounds=((_choose(is_first, begin, high), _choose(is_first, low, end)),))
        between = nodes.If(nodes.Binary(Operator.AND, is_first, has_strips, Type.U1), (strips,), line=loop.line)
        return [*bounds, run_lanes(part, number(0), number(2), [ends, between])]

    def hoist_loads(self, loop: nodes.For) -> tuple[list[nodes.Stmt], nodes.For]:
        """Hoist loop-invariant loads: return them as assignments to locals, and the loop that reads these locals.

        Compilers would load such an element again in each iteration, and its address too, which a store may have
        changed. Only loads that every iteration executes are moved: a test may be what keeps an index inside an array.
        """
        given, changed = walk.find_defined([loop]), walk.find_changed(loop.body).union(self.kernel.cells)
        moved: dict[nodes.Load, nodes.Local] = {}

        def move(expr: nodes.Expr) -> nodes.Expr:
            match expr:
                case nodes.Load(array) if (
                    array in self.kernel.arrays and changed.isdisjoint(walk.arrays_in([expr]))
                ) and given.isdisjoint(walk.locals_in([expr])):
                    if expr not in moved:
                        moved[expr] = self.names.local(f"{array}_at", expr.type)
                    return moved[expr]
                case nodes.Select() | nodes.Binary(Operator.AND | Operator.OR):
                    return expr
            return walk.rebuild(expr, move)

        if not _is_plain(loop) or any(map(walk.may_fail, loop.body)):
            return [], loop
        body = tuple(walk.with_expressions(one, move) for one in loop.body)
        return [assign(local, load) for load, local in moved.items()], replace(loop, body=body)

    def strips(
        self, loop: nodes.For, plan: _Plan, loads: Sequence[nodes.Stmt], short: nodes.For
    ) -> Sequence[nodes.Stmt]:
        """Return a loop in strips: for each its first index and length, then its loops. A short loop stays whole.

        `loads` come before the strips, and `short` is the loop with them.
        """
        begin, end, strip = (self.names.local(f"strip_{word}", Type.I32) for word in ("begin", "end", "of"))
        first, size = self.names.local("strip_first", Type.I32), self.names.local("strip_size", Type.I32)
        arrays = {function: self.array(function) for function in plan.functions}
        body = (
            *bounds_of_strip(strip, begin, end, first, size),
            *self.ahead(loop, plan, arrays, first, size),
            self.rest(loop, arrays, first, size),
        )
        low, high = loop.bounds[0]
        strips: list[nodes.Stmt] = [*loads, run_lanes(strip, number(0), strips_between(begin, end), body)]
        if _known_length(loop) is None:
            is_short = compare(Operator.LT, integer(Operator.SUB, end, begin), number(SHORTEST))
            strips = [nodes.If(is_short, (replace(short, bounds=((begin, end),)),), tuple(strips))]
        statements = [assign(begin, low), assign(end, high), *strips]
        return at_line(statements, loop.line)

    def ahead(
        self, loop: nodes.For, plan: _Plan, arrays: Mapping[nodes.Unary, str], first: nodes.Local, size: nodes.Local
    ) -> Sequence[nodes.Stmt]:
        """Return loops that compute the functions: whole vectors by arithmetic, and what is left by the library.

        With arithmetic for what is left, loops of 9 to 15 iterations took up to 1.25 of the plain loop's time.
        """
        known, begin = _known_length(loop), number(0)
        values: list[nodes.Stmt] = []
        if self.has_vectors and all(FUNCTIONS[one.operator] in VECTOR_FUNCTIONS for one in plan.functions):
            begin = self.names.local("strip_in_vectors", Type.I32)
            # One vector alone would wait for the arguments, which were stored as shorter ones: 1.2 of the time.
            has_two = compare(Operator.GE, size, number(2 * WIDTH))
            most = nodes.Select(has_two, integer(Operator.BIT_AND, size, number(-WIDTH)), number(0), Type.I32)
            arguments = self.fill_arrays(loop, plan, arrays, first, (number(0), begin), None)
            values = [assign(begin, most), arguments, self.replace_arguments(arrays, begin)]
        # All strips are full, so vectors of the engine leave nothing.
        if values and known is not None and known % LENGTH == 0:
            return values
        if known is not None and known % _LANES == 0:
            lanes = self.fill_arrays(loop, plan, arrays, first, (begin, size), FUNCTIONS)
            return [*values, *within_limits(lanes, self.names)]
        whole = self.names.local("strip_whole", Type.I32)
        return [
            *values,
            assign(whole, integer(Operator.BIT_AND, size, number(-_LANES))),
            *within_limits(self.fill_arrays(loop, plan, arrays, first, (begin, whole), FUNCTIONS), self.names),
            self.fill_arrays(loop, plan, arrays, first, (whole, size), {}),
        ]

    def replace_arguments(self, arrays: Mapping[nodes.Unary, str], end: nodes.Expr) -> nodes.For:
        """Return a loop in vectors of the engine that replaces the arguments in each array by the function's values.

        It has no index of an array of several axes: those do not tell the compilers that elements lie side by side.
        """
        part, base, lane = (self.names.local(wish, Type.I32) for wish in ("part", "base", "lane"))
        place = (integer(Operator.ADD, base, lane),)
        functions = {one: replace(one, operator=FUNCTIONS[one.operator]) for one in arrays}
        stores = [
            nodes.Store(array, place, (), replace(functions[one], value=nodes.Load(array, place, (), one.type)))
            for one, array in arrays.items()
        ]
        vectors = replace(run_lanes(lane, number(0), number(WIDTH), stores), vector_width=WIDTH)
        # A mask, so that a sum of the index and 15 is known not to overflow.
        start = integer(Operator.BIT_AND, integer(Operator.MUL, part, number(WIDTH)), number(LENGTH - 1))
        count = integer(Operator.SHIFT_RIGHT, end, number(WIDTH.bit_length() - 1))
        return run_lanes(part, number(0), count, (assign(base, start), vectors))

    def fill_arrays(
        self,
        loop: nodes.For,
        plan: _Plan,
        arrays: Mapping[nodes.Unary, str],
        first: nodes.Local,
        lanes: tuple[nodes.Expr, nodes.Expr],
        instead: Mapping[str, str] | None,
    ) -> nodes.For:
        """Return a loop that fills the arrays, with locals of its own.

        Args:
            loop: the loop whose functions are computed ahead.
            plan: what moves out of it.
            arrays: the array for each function's values.
            first: the first index of the strip.
            lanes: where the new loop begins and ends, counted from `first`.
            instead: operators to use instead of others. If None, the arrays get the functions' arguments.
        """
        lane, index = self.names.local("lane", Type.I32), loop.names[0]
        fresh: dict[str, nodes.Expr] = {index: self.names.local(index, Type.I32)}
        fresh |= {name: self.names.local(name, self.names.types[name]) for name in plan.needed}
        others = FUNCTIONS if instead is None else instead

        def rename(expr: nodes.Expr) -> nodes.Expr:
            if isinstance(expr, nodes.Local):
                return fresh.get(expr.name, expr)
            if isinstance(expr, nodes.Unary) and moves(expr):
                return replace(expr, operator=others.get(expr.operator, expr.operator), value=rename(expr.value))
            return walk.rebuild(expr, rename)

        places = [assign(fresh[index], integer(Operator.ADD, first, lane))]
        values = [assign(fresh[name], rename(value)) for name, value in plan.needed.items()]
        results = {array: function.value if instead is None else function for function, array in arrays.items()}
        stores = [nodes.Store(array, (lane,), (), rename(result)) for array, result in results.items()]
        return run_lanes(lane, *lanes, (*places, *values, *stores))

    def rest(
        self, loop: nodes.For, arrays: Mapping[nodes.Unary, str], first: nodes.Local, size: nodes.Local
    ) -> nodes.For:
        """Return the loop of everything else, which loads the functions' values from the arrays."""
        lane = self.names.local("lane", Type.I32)
        self.names.types[loop.names[0]] = Type.I32

        def replace_functions(expr: nodes.Expr) -> nodes.Expr:
            array = arrays.get(expr) if isinstance(expr, nodes.Unary) else None
            return walk.rebuild(expr, replace_functions) if array is None else nodes.Load(array, (lane,), (), expr.type)

        index = assign(nodes.Local(loop.names[0], Type.I32), integer(Operator.ADD, first, lane))
        return run_lanes(lane, number(0), size, (index, *(walk.transform(one, replace_functions) for one in loop.body)))

    def array(self, function: nodes.Unary) -> str:
        name = self.names.local(f"{function.operator}_ahead", function.type).name
        self._declared.append(nodes.LocalArray(name, function.type, LENGTH))
        return name


def _choose(condition: nodes.Expr, then: nodes.Expr, otherwise: nodes.Expr) -> nodes.Expr:
    return then if then == otherwise else nodes.Select(condition, then, otherwise, Type.I32)


def _with_arrays(strips: Sequence[nodes.Stmt], arrays: Sequence[nodes.Stmt]) -> list[nodes.Stmt]:
    """Return the statements of a loop in strips, with its arrays declared only where it is not short.

    A declaration fills an array with zeros, which a short loop would wait for.
    """
    *bounds, last = strips
    match last:
        case nodes.If(orelse=()):
            return [*bounds, replace(last, body=(*arrays, *last.body))]
        case nodes.If():
            return [*bounds, replace(last, orelse=(*arrays, *last.orelse))]
        case _:
            return [*bounds, *arrays, last]
