"""Rules about inner loops, whose iterations engines' reverse modes do not keep apart.

Where nothing but the inner loop stands in an iteration of the parallel one, Taichi reverses each iteration of the
inner loop on its own, and has all its values at hand. Beside a load of an array with a gradient, or an addition to
one, it runs the loop forwards first, and what it does not put on its stack is the last iteration's for all: results of
some functions, operands of min and max, bounds of loops inside. Seen by trying a hundred small kernels, held against
the exact gradient.

Decisions of branches are on its stack, but are read wrongly where Taichi does not optimize control flow: `if a < b` is
lowered to `c = True; if c: c = a < b; if c: ...`, and the reverse of the first branch asks for the `c` that this branch
has stored. Where it was false, one entry too many is left for the iteration before. With the optimization, the
gradient is right as long as the stack is deep enough, of which `and` and `or` take several entries per iteration, and
as long as no loop inside the branch uses a value that the branch has used before. Of 121 random kernels that only TS412
reports, Taichi's gradient was wrong or ended the process for 111 without the optimization, and for 28 with it. So
TS412 reports them all, however they are compiled.

Of a local that an inner loop uses both engines add up one iteration's gradient alone, seen on Taichi 1.7.4 and
Quadrants 1.3.3: what is computed once and used in a loop below becomes one value without memory, whose adjoint each
iteration begins again. A local that gets several values keeps memory, on Quadrants always, on Taichi if a branch or a
loop gives it one of them; but where it is stored as it is (`y[j] += r`) it is again read once. An element that is only
loaded is loaded again. Nests of loops with a `while`, a `break` or a `continue` are refused (TS202, TS203).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..._cache import cache_results
from ..._lazy import lazy
from ...engines import Engine, walk
from ...frontend import (
    Loop,
    Spot,
    callee_of,
    dynamic,
    engine_call,
    find_called_function,
    find_carried,
    find_saved_values,
    names_in,
    resolve_callee,
    root,
    runs_once,
)
from .._finding import Finding
from .._flow import find_calculated_names, find_index_names, find_names_passed_on, find_valued_names
from .._source_form import (
    Call,
    Expression,
    Node,
    Parameter,
    Statement,
    find_arrays,
    find_flowing_names,
    find_stored_names,
    get_array,
    get_body,
    get_call,
    get_index,
    get_jump,
    get_name,
    get_passed_on,
    get_steering,
    is_branch,
    is_expression,
    is_given_computed,
    is_loop,
    is_while,
)
from .._subject import ENGINES, Subject
from .._types import types_of
from .._unrun import element_of

_ROUNDING = frozenset({"ceil", "floor", "int", "i32", "i64", "round", "static", "u32", "u64"})
_INTEGERS = frozenset({"int", "i32", "i64", "u32", "u64"})


def results(subject: Subject) -> Iterator[Finding]:
    """Report functions in inner loops of whose results Taichi keeps only the last (TS404)."""
    for spot, node in _calls(subject):
        if _is_unkept(node, subject) and _mentions(node, _moving(spot.inner)):
            beside = _array_outside(spot, subject) or _local_outside(spot, subject)
            if beside:
                words = f"`{subject.text(node)}` in a loop, with {beside} outside it"
                more = ": Taichi's reverse mode takes the last iteration's value for all iterations"
                yield subject.finding("TS404", "warning", node, words + more, "", ("taichi",))


def operands(subject: Subject) -> Iterator[Finding]:
    """Report `min` and `max` in inner loops of whose operands Taichi keeps only the last (TS405)."""
    for spot, node in _calls(subject):
        if subject.resolve_builtin(node) not in ("min", "max"):
            continue
        text = subject.text(node)
        if _mentions(node, find_carried(spot.inner[-1]).keys() & subject.source.assigned_names):
            words = f"`{text}` of a local that each iteration updates: Taichi does not keep its earlier values"
            yield subject.finding("TS405", "warning", node, words, "", ("taichi",))
        elif _is_real(node, spot, subject) and (beside := _array_outside(spot, subject)):
            words = f"`{text}` in a loop, with {beside} outside it"
            more = ": Taichi's reverse mode takes the last iteration's operands for all iterations"
            yield subject.finding("TS405", "warning", node, words + more, "", ("taichi",))


def decisions(subject: Subject) -> Iterator[Finding]:
    """Report branches and loops in inner loops whose conditions Taichi may take from another iteration (TS412)."""
    for spot in subject.spots if subject.engine_name != "quadrants" else ():
        steer = get_steering(spot.statement)
        if not spot.inner or steer is None or names_in(steer).isdisjoint(_moving(spot.inner)):
            continue
        beside = _array_outside(spot, subject) if _has_floats(spot.statement, subject) else ""
        if beside:
            what = "if" if is_branch(spot.statement) else "a loop over"
            words = f"`{what} {subject.text(steer)}` in a loop, with {beside} outside it"
            more = ": Taichi's reverse mode may take another iteration's decision"
            remedy = (
                f"{subject.module_name}.select(..., ..., 0.0)  # in place of the branch; or load in a loop of its own"
            )
            yield subject.finding("TS412", "warning", steer, words + more, remedy, ("taichi",))


def _calls(subject: Subject) -> Iterator[tuple[Spot, Call]]:
    """Yield the calls in inner loops, with their statements; none if the kernel is written for Quadrants."""
    if subject.engine_name != "quadrants":
        yield from ((spot, node) for spot in subject.spots if spot.inner for node in spot.calls)


def _has_floats(statement: Statement, subject: Subject) -> bool:
    """Return True if a statement's body uses arrays that may have a gradient."""
    return any(names_in(one) & subject.floats for one in get_body(statement))


def _is_real(node: Call, spot: Spot, subject: Subject) -> bool:
    """Return True if a `min` or `max` is of floats that change with the inner loop."""
    names = frozenset().union(*map(names_in, node.args)) & _moving(spot.inner)
    reads = any(get_array(one) in subject.floats for one in walk(node))
    return bool(names) and (reads or bool(names & subject.source.assigned_names - types_of(subject).integers))


_UNKEPT = frozenset({"exp", "tanh", "rsqrt"})


def _is_unkept(node: Call, subject: Subject) -> bool:
    """Return True for a call of `exp`, `tanh` or `rsqrt`, or of an engine function that calls one of them."""
    if subject.resolve_builtin(node):
        return subject.resolve_builtin(node) in _UNKEPT
    callee = callee_of(subject.source, node, subject.engine)
    return callee is not None and engine_call(callee.source, subject.engine, _UNKEPT) is not None


def _array_outside(spot: Spot, subject: Subject) -> str:
    """Describe a load or an addition in the outermost loop that stands outside an inner loop around a statement."""
    task = _parts(spot.loops[0])
    for loop in _inner(spot.inner[0]):
        outside = task - _parts(loop)
        for name in sorted(subject.floats & subject.roles.keys()):
            access = next((one for one in subject.roles[name].of("read", "add") if id(one.node) in outside), None)
            if access is not None:
                label = subject.label(name)
                return f"the load of `{label}`" if access.kind == "read" else f"the addition to `{label}`"
    return ""


def _local_outside(spot: Spot, subject: Subject) -> str:
    """Describe a local that is assigned in the outermost loop, but outside an inner loop around a statement."""
    task = [other for other in subject.spots if other.loops[:1] == spot.loops[:1]]
    for loop in _inner(spot.inner[0]):
        inside = _parts(loop)
        names = [name for other in task if id(other.statement) not in inside for name in _find_assigned_locals(other)]
        if names:
            return f"the local `{names[0]}`"
    return ""


@cache_results("inner loops", 64)
def _inner(loop: Loop) -> tuple[Loop, ...]:
    """Return a loop and the loops inside it, without those that `ti.static` unrolls."""
    return dynamic([one for one in walk(loop) if is_loop(one)])


@cache_results("parts of loops", 64)
def _parts(loop: Loop) -> frozenset[int]:
    """Return the ids of all syntax nodes of a loop."""
    return frozenset(map(id, walk(loop)))


def _find_assigned_locals(spot: Spot) -> list[str]:
    """Return the locals that a statement assigns."""
    return [root(target) for target, _ in spot.assignments if get_index(target) is None]


def _mentions(node: Call, names: Collection[str]) -> bool:
    return bool(names) and any(not names_in(one).isdisjoint(names) for one in node.args)


@cache_results("names that loops move", 64)
def _moving(loops: tuple[Loop, ...]) -> frozenset[str]:
    """Return the names that are assigned in inner loops, so that their values differ between iterations."""
    return frozenset().union(*(find_stored_names(walk(loop)) for loop in loops))


# Lost iterations ----------------------------------------------------------------------------------


def lost_iterations(subject: Subject) -> Iterator[Finding]:
    """Report values computed before an inner loop, if engines count the gradient of one iteration (TS411)."""
    lost = _LoopLocals(subject)
    seen: set[tuple[str, int]] = set()
    for place, spot in enumerate(subject.spots):
        for name in sorted(_flowing(spot, subject) & lost.candidates) if lost.is_in_nest(spot) else ():
            loop = lost.loop_of(name, spot, place)
            engines = lost.engines_wrong_about(name, spot)
            if loop is not None and engines and (name, id(loop)) not in seen:
                seen.add((name, id(loop)))
                who = " and ".join(map(str.capitalize, engines))
                words = f"uses `{name}`, which is computed before the loop of line {loop.lineno}: {who} "
                words += "count the gradient of only one of its iterations"
                remedy = f"{name} = ...  # inside that loop"
                severity = "warning" if lost.is_certainly_computed(name) else "info"
                words += "" if severity == "warning" else ", if a call gives it a value that is computed"
                yield subject.finding("TS411", severity, spot.statement, words, remedy, engines)


class _LoopLocals:
    """What is known of the locals of one kernel or function."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.depth = 1 if subject.is_kernel else 0  # of a kernel the outermost loop is the one that threads share
        self.given: dict[str, list[tuple[int, Spot, Expression]]] = {}
        for place, spot in enumerate(subject.spots):
            for target, value in spot.assignments:
                self.given.setdefault(root(target), []).append((place, spot, value))

    def is_in_nest(self, spot: Spot) -> bool:
        """Return True if a statement stands in a nest of loops that engines differentiate, inside its outermost one."""
        loops = dynamic(spot.loops)
        return len(loops) > self.depth and not _ends_early(loops[0])

    @lazy
    def parameters(self) -> frozenset[str]:
        """Return those of an engine function that are given by value.

        A function whose loops threads share is called at a kernel's top level, with numbers that have no gradient.
        """
        is_at_top = self.subject.is_kernel or any(
            (call := get_call(spot.statement)) is not None and resolve_callee(call) == "loop_config"
            for spot in self.subject.spots
        )
        arguments = () if is_at_top else self.subject.tree.args.args
        return frozenset(one.arg for one in arguments if _is_by_value(one, self.subject))

    def is_certainly_computed(self, name: str) -> bool:
        """Return True for a local, and for a parameter to which a call in the file gives a computed value."""
        if name not in self.parameters or name in self.given:
            return True
        names = [one.arg for one in self.subject.tree.args.args]
        place = names.index(name) - (names[0] in self.subject.objects)
        return is_given_computed(self.subject.lines, self.subject.tree.name, name, place)

    @lazy
    def active(self) -> frozenset[str]:
        """Return the locals that depend on an array or a parameter with a gradient."""
        if self.subject.is_kernel:
            return self.subject.needs.active
        arguments = {one.arg for one in self.subject.tree.args.args if _may_be_memory(one, self.subject)}
        varying = self.subject.floats | self.parameters | arguments
        return find_saved_values(self.subject.source, self.subject.roles, varying, self.subject.engine).active

    @lazy
    def candidates(self) -> frozenset[str]:
        """Return the parameters, and the locals with a gradient that are computed and not only loaded."""
        worked_out = {name for name in self.active & self.given.keys() if not self._is_loaded(name)}
        others = types_of(self.subject).integers | find_index_names(self.subject)
        return frozenset({one for one in worked_out if not self._is_rounded(one)} | self.parameters) - others

    def _is_rounded(self, name: str) -> bool:
        """Return True if a local only ever holds whole numbers that functions make, or what is known at compilation."""

        def is_end(node: Node) -> bool:
            return self.subject.resolve_builtin(node) in _ROUNDING

        flowing = {one for _, _, value in self.given[name] for one in find_flowing_names(value, is_end)}
        return flowing.isdisjoint(self.active | self.subject.floats | self.parameters)

    def _is_loaded(self, name: str, *before: str) -> bool:
        """Return True if a local is a shared array, or only holds array elements as they were read.

        It may also be assigned other such locals, and values without a gradient. `before` are the locals that this
        recursion came through: a cycle returns False.
        """
        values = [value for _, _, value in self.given[name]]
        if any(resolve_callee(value) == "SharedArray" for value in values):
            return True
        return name not in before and all(self._is_plain(value, name, *before) for value in values)

    def _is_plain(self, value: Expression, *before: str) -> bool:
        name = get_name(value)
        if name in self.active:
            return name in self.given and self._is_loaded(name, *before)
        is_element = not name and root(value) in self.subject.arrays
        return is_element or names_in(value).isdisjoint(self.active | self.subject.floats | self.parameters)

    def loop_of(self, name: str, spot: Spot, place: int) -> Loop | None:
        """Return the outermost loop around a use that the local's value was computed outside of; None without one."""
        loops = dynamic(spot.loops)
        around = [dynamic(other.loops) for _, other, _ in self.given.get(name, ())] or [()]
        common = max(_count_shared_loops(loops, other) for other in around)
        if max(common, self.depth) >= len(loops):
            return None
        loop = loops[max(common, self.depth)]
        is_later = any(other > place and not _is_inside(loop, at) for other, at, _ in self.given.get(name, ()))
        return None if is_later or runs_once(loop) else loop

    @lazy
    def _carried_locals(self) -> frozenset[str]:
        """Return the locals that a loop passes from one iteration to the next."""
        loops = {loop for spot in self.subject.spots for loop in dynamic(spot.loops)[self.depth :]}
        return frozenset(name for loop in loops for name in find_carried(loop))

    def engines_wrong_about(self, name: str, spot: Spot) -> tuple[str, ...]:
        """Return the engines that lose a local's gradient at a use; a local that a loop carries has memory in both."""
        if name in self._carried_locals:
            return ()
        values = self._find_values(name, spot)
        if len(values) + (name in self.parameters) < 2 or self._is_used_alone(name, spot):
            return ENGINES
        is_straight = all(_find_block(one) == _find_block(values[0]) for one in values)
        return ("taichi",) if is_straight and self.subject.engine_name != "quadrants" else ()

    def _find_values(self, name: str, use: Spot) -> list[Spot]:
        """Return the statements that give a value to the local that a use of its name means."""
        types = types_of(self.subject)
        first = types.at(use.statement).find_first(name)
        given = [spot for _, spot, _ in self.given.get(name, ())]
        return [spot for spot in given if types.at(spot.statement).find_first(name) is first]

    def _is_used_alone(self, name: str, spot: Spot) -> bool:
        """Return True if a statement gives memory this local as it is, which all iterations do alike."""
        is_stored = any(root(target) in self.subject.arrays for target, _ in spot.assignments)
        return is_stored and any(get_name(part) == name for part in get_passed_on(spot.statement))


def _find_block(spot: Spot) -> tuple[tuple[Loop, ...], tuple[Expression, ...]]:
    """Return the loops and conditions that decide whether a statement runs."""
    return dynamic(spot.loops), spot.guards


@cache_results("loops that end early", 64)
def _ends_early(nest: Loop) -> bool:
    """Return True if a nest of loops has one that engines refuse to differentiate."""
    return any(is_while(one) or bool(get_jump(one)) for one in walk(nest))


def _flowing(spot: Spot, subject: Subject) -> frozenset[str]:
    """Return the names whose values a statement passes on, not those in an index, a condition or a cast to integers.

    None of a statement whose own value has no gradient: an integer, or a local that only decides what is run.
    """
    targets = {root(target) for target, _ in spot.assignments}
    without_gradient = types_of(subject).integers | subject.integers | subject.doubtful | find_index_names(subject)
    without_gradient |= types_of(subject).names - find_valued_names(subject)
    if targets and targets <= without_gradient:
        return frozenset()

    def is_cast(node: Node) -> bool:
        return subject.resolve_builtin(node) in _INTEGERS

    parts = [get_call(spot.statement)] if is_expression(spot.statement) else get_passed_on(spot.statement)
    return frozenset(name for part in filter(None, parts) for name in find_names_passed_on(subject, part, is_cast))


def _count_shared_loops(left: tuple[Loop, ...], right: tuple[Loop, ...]) -> int:
    """Return how many loops two statements have in common."""
    return sum(one is other for one, other in zip(left, right, strict=False))


def _is_inside(loop: Loop, spot: Spot) -> bool:
    return any(one is loop for one in spot.loops)


def _is_by_value(parameter: Parameter, subject: Subject) -> bool:
    """Return True if a function gets a float: as its annotation says, or what it calculates with if it has none."""
    if parameter.annotation is None:
        is_number = parameter.arg in find_calculated_names(subject) - find_arrays(subject.source.nodes)
        return parameter.arg not in subject.objects and is_number
    facts = subject.declared.get(parameter.arg)
    if isinstance(subject.engine, Engine):
        text, value = subject.text(parameter.annotation), find_called_function(subject.source, parameter.annotation)
        is_class = isinstance(value, type) and value is not float
        return not is_class and not any(word in text for word in _NO_FLOATS)
    return facts is not None and facts.kind == "scalar" and element_of(facts.dtype) == "float"


def _may_be_memory(parameter: Parameter, subject: Subject) -> bool:
    """Return True if a function may get an array of floats, or an element of one by reference."""
    if parameter.annotation is None:
        return parameter.arg not in subject.objects and parameter.arg not in find_index_names(subject)
    if parameter.arg not in subject.arrays:
        return False
    text = subject.text(parameter.annotation)
    return any(word in text for word in ("template", "ndarray")) and parameter.arg not in subject.doubtful


_NO_FLOATS = ("template", "ndarray", "Tensor", "int", "i32", "i64", "u32", "bool")
"""Words in annotations of what is no float that is given by value."""
