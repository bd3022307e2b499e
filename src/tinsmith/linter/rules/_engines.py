"""Rules about statements, functions and locals that engines' reverse modes cannot follow, or get wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...engines import parse_expression, walk
from ...frontend import (
    Spot,
    assignments,
    carrying_nests,
    changed_loop_variables,
    changes_of,
    dynamic,
    find_carried,
    index_parts,
    names_in,
    root,
    sources,
)
from .._finding import Edit, Finding
from .._source_form import (
    Expression,
    Node,
    Statement,
    find_attributes,
    get_arguments,
    get_array,
    get_attribute,
    get_index,
    get_jump,
    get_name,
    get_returned,
    get_static_branches,
    is_call,
    is_expression,
    is_for,
    is_loop,
    is_while,
)
from .._subject import BOTH, ENGINES, Subject
from .._types import types_of

_VECTORS = frozenset({"Vector", "Matrix", "vec2", "vec3", "vec4", "mat2", "mat3", "mat4"})
STACK = 32
"""Entries of Taichi's gradient stack where it does not know the trip count."""


def mixed_top_level(subject: Subject) -> Iterator[Finding]:
    """Report statements beside loops at a kernel's top level, which engines do not differentiate (TS201)."""
    if not subject.is_kernel:
        return
    statements = [*_find_top_level(subject.tree.body)]
    loops = [branches for one, branches in statements if is_loop(one)]
    for one, branches in statements:
        if _does_work(one, subject) and any(_are_compiled_together(branches, other) for other in loops):
            words = f"a statement beside loops at the kernel's top level: {BOTH} do not differentiate such a kernel"
            remedy = "for _ in range(1):  # around it, or a kernel of its own"
            yield subject.finding("TS201", "warning", one, words, remedy, ENGINES)


_Branches = dict[Statement, bool]
"""Which sides of `if ti.static(...)` a statement stands on."""


def _find_top_level(
    body: Sequence[Statement], branches: _Branches | None = None
) -> Iterator[tuple[Statement, _Branches]]:
    """Yield the statements at a kernel's top level, each with the static branches that it is in.

    The statements inside `if ti.static(...)` count as top level: the condition is evaluated at compile time.
    """
    around = branches or {}
    for one in body:
        sides = get_static_branches(one)
        if sides is None:
            yield one, around
        else:
            for is_taken, side in zip((True, False), sides, strict=True):
                yield from _find_top_level(side, {**around, one: is_taken})


def _are_compiled_together(first: _Branches, second: _Branches) -> bool:
    return all(second.get(one, side) == side for one, side in first.items())


def _does_work(one: Statement, subject: Subject) -> bool:
    """Return True if a statement, other than a loop or a `return`, uses elements of arrays."""
    return not (is_loop(one) or get_returned(one)) and any(get_array(node) in subject.arrays for node in walk(one))


def early_ends(subject: Subject) -> Iterator[Finding]:
    """Report `while` loops (TS202), and `break` and `continue` in loops of the run (TS203)."""
    for spot in subject.spots:
        one, jump = spot.statement, get_jump(spot.statement)
        if is_while(one):
            words = f"a `while` loop: {BOTH} refuse to differentiate it"
            remedy = "for _ in range(most):  # with the condition in an `if`"
            yield subject.finding("TS202", "warning", one, words, remedy, ENGINES)
        elif jump and dynamic(spot.loops[-1:]):
            words = f"`{jump}`: {BOTH} refuse to differentiate a loop with `{jump}`"
            yield subject.finding("TS203", "warning", one, words, "if ...:  # around what it skips", ENGINES)


def deep_loops(subject: Subject) -> Iterator[Finding]:
    """Report loops for which Taichi's gradient stack of 32 entries may be too small (TS204)."""
    if not subject.is_kernel or subject.engine_name == "quadrants":
        return
    nests = carrying_nests(subject.source, subject.needs.locals)
    seen: set[int] = set()
    for nest in nests:
        depth, loop = nest.depth({}, {}), next(iter(reversed(max(map(dynamic, nest.sites), key=len))), None)
        if loop is None or is_while(loop):
            continue  # unrolled; refused in any case
        if nest.is_aside and not _has_gradient(nest.local, subject):
            continue
        around = {id(one) for site in nest.sites for one in site} if nest.is_aside else {id(loop)}
        if (depth is None or depth > STACK) and not around & seen:
            seen.add(id(loop))
            count = (
                "as many values as the loop has iterations, and nothing says how many"
                if depth is None
                else f"{depth} values"
            )
            verb = "is used" if nest.is_aside else "changes"
            words = f"`{nest.local}` {verb} in this loop: Taichi's reverse mode keeps {count}; "
            more = f"its stack has {STACK} entries by default, and the process crashes when it needs more"
            remedy = f"{subject.module_name}.init(ad_stack_size=...)  # or Quadrants"
            yield subject.finding("TS204", "warning", loop, words + more, remedy, ("taichi",))


def changed_variables(subject: Subject) -> Iterator[Finding]:
    """Report loop variables that the body changes, where engines and ops differ (TS205)."""
    for name, change in changed_loop_variables(subject.source, subject.engine):
        words = f"`{name}` is the variable of a loop, whose body changes it: {BOTH} ignore the change, refuse the "
        words += "kernel, or end the process"
        given = (value for target, value in assignments(change) if root(target) == name)
        value = next(map(subject.text, given), name)
        remedy = f"own_{name} = {value}  # and use it from there on"
        yield subject.finding("TS205", "warning", change, words, remedy)


def _has_gradient(local: str, subject: Subject) -> bool:
    """Return True if a local is computed from elements of arrays of floats: Taichi's stack keeps no other locals.

    Measured with 100 iterations (Taichi 1.7.4): right for numbers, loop indices, and what is made of integer arrays.
    """
    names = sources(subject.tree, parse_expression(local))
    values = (value for spot in subject.spots for target, value in spot.assignments if root(target) in names)
    return any(_reads_floats(node, subject) for value in values for node in walk(value))


def _reads_floats(node: Node, subject: Subject) -> bool:
    return get_array(node) in subject.floats or any(get_name(one) in subject.floats for one in get_arguments(node))


def atomics(subject: Subject) -> Iterator[Finding]:
    """Report atomics that reverse mode treats as additions (TS401), and uses of an atomic's result (TS402)."""
    without_gradient = subject.integers | subject.doubtful
    for spot in subject.spots:
        for node in spot.expressions:
            name = subject.resolve_builtin(node)
            changes = changes_of(node) if name.startswith("atomic_") else []
            if not changes:
                continue
            array = root(changes[0].target)
            if name in ("atomic_min", "atomic_max") and array not in without_gradient:
                words = f"`{name}`: {BOTH} give every candidate the whole gradient, not the one that won"
                yield subject.finding("TS401", "warning", node, words, "", ENGINES)
            elif name == "atomic_mul" and array not in without_gradient:
                words = "`atomic_mul` on floats: both engines end the process when they compile it"
                yield subject.finding("TS401", "error", node, words, "a product in a local, in a serial loop")
            is_used = not is_expression(spot.statement) and dynamic(spot.loops)
            if is_used and not _is_of_one_iteration(changes[0].target, spot):
                # Integers of the forward pass are kept for a generated gradient; floats have none, and it says so.
                engines = ENGINES if array in without_gradient else ()
                words = f"uses what `{name}` returned, which in a parallel loop depends on the order of the iterations"
                remedy = "slot[i] = ...  # in integers, used in a later loop"
                yield subject.finding("TS402", "warning", node, words, remedy, engines)


def _is_of_one_iteration(target: Expression, spot: Spot) -> bool:
    """Return True if an element belongs to one iteration of the outermost loop, whose variables are all indices of it.

    A counter of each environment, `atomic_add(count[i_b], 1)`, counts in the order of that iteration's statements.
    """
    loop, index = dynamic(spot.loops)[0], get_index(target)
    variables = names_in(loop.target) if is_for(loop) else frozenset[str]()
    parts = [get_name(one) for one in index_parts(index)] if index is not None else []
    return bool(variables) and variables <= {*parts}


def randoms(subject: Subject) -> Iterator[Finding]:
    """Report random numbers in kernels with arrays of floats (TS403)."""
    for node in subject.source.nodes:
        if subject.resolve_builtin(node) in ("random", "randn") and subject.floats:
            words = f"`{subject.text(node)}`: {BOTH} refuse to differentiate a kernel that draws random numbers"
            yield subject.finding("TS403", "warning", node, words, "noise[i]  # an input, drawn by torch", ENGINES)


def carried_vectors(subject: Subject) -> Iterator[Finding]:
    """Report vectors that a loop computes from their own previous values (TS406)."""
    if subject.engine_name == "quadrants":
        return
    vectors = {
        get_name(target)
        for spot in subject.spots
        for target, value in spot.assignments
        if any(subject.resolve_builtin(node) in _VECTORS for node in walk(value))
    }
    vectors -= types_of(subject).integers | {""}  # they have no gradient
    seen: set[str] = set()
    for spot in subject.spots:
        if not (is_loop(spot.statement) and dynamic([spot.statement]) and dynamic(spot.loops)):
            continue
        for name, change in find_carried(spot.statement).items():
            if name in vectors - seen:
                seen.add(name)
                words = (
                    f"`{name}` is a vector computed from its own previous value: Taichi's reverse mode gets it wrong"
                )
                remedy = "a scalar local for each number of it"
                yield subject.finding("TS406", "warning", change, words, remedy, ("taichi",))


def without_rule(subject: Subject) -> Iterator[Finding]:
    """Report `tan`, which Taichi cannot differentiate (TS407)."""
    for node in subject.source.nodes:
        if subject.resolve_builtin(node) == "tan" and subject.engine_name != "quadrants":
            remedy = subject.text(node).replace("tan(", "sin(") + " / " + subject.text(node).replace("tan(", "cos(")
            words = "Taichi has no derivative of `tan`, and refuses it"
            fix = _divide_sine(subject, node)
            yield subject.finding("TS407", "warning", node, words, remedy, ("taichi",), fix)


def _divide_sine(subject: Subject, node: Node) -> Edit | None:
    """Return the edit of `ti.tan(a)` to the sine by the cosine; None if `a` may not be computed twice."""
    function = get_attribute(node.func) if is_call(node) else None
    arguments = get_arguments(node)
    if function is None or len(arguments) != 1 or any(map(is_call, walk(arguments[0]))):
        return None
    module, argument = subject.text(function[0]), subject.text(arguments[0])
    return subject.replace_node(node, f"({module}.sin({argument}) / {module}.cos({argument}))")


def find_returned_values(subject: Subject) -> Iterator[Finding]:
    """Report kernels that return a value, which has no gradient (TS408)."""
    known = {argument.arg for argument in subject.tree.args.args}
    is_output = subject.spec is not None and any(one.name not in known for one in subject.spec.outputs)
    for node in subject.source.nodes if subject.is_kernel and not is_output else ():
        if get_returned(node) is not None:
            words = "the kernel returns a value: a call gives a Python number, which has no gradient"
            yield subject.finding("TS408", "warning", node, words, '@ts.op("... -> out[]")  # the value is `out`')


def scalars(subject: Subject) -> Iterator[Finding]:
    """Report parameters that are floats and not part of the spec, so that they get no gradient (TS410)."""
    items = {item.name for item in subject.spec.items} if subject.spec else set()
    for argument in subject.tree.args.args if subject.is_kernel else ():
        one = subject.declared.get(argument.arg)
        if (
            one is not None
            and one.kind == "scalar"
            and one.dtype in ("f16", "f32", "f64")
            and argument.arg not in items
        ):
            what, method = ("holds numbers", "tolist") if one.element else ("is a number", "item")
            words = f"`{argument.arg}` {what}: it gets no gradient, and `.{method}()` of a tensor drops the tensor's"
            item = f"{argument.arg}[{', '.join(map(str, one.element))}]"
            yield subject.finding("TS410", "info", argument, words, f"{item} -> ...  # in the spec of `ts.op`")


def baked_in(subject: Subject) -> Iterator[Finding]:
    """Report attributes that are read as Python numbers, `self.scale`, and compiled into the kernel (TS409)."""
    seen: set[str] = set()
    for node in find_attributes(subject.source.nodes):
        if root(node) in subject.objects and subject.text(node) not in seen:
            seen.add(subject.text(node))
            words = f"`{subject.text(node)}` is a Python number: an engine keeps its value from the first compilation"
            yield subject.finding("TS409", "info", node, words, "an argument; `ts.op` compiles again where it changed")
