"""Rules about numbers: what is cut off, and where slopes are not finite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...analyses import affine, evaluate, expand
from ...engines import walk
from ...frontend import Spot, changes_of, definitions, dynamic, names_in, resolve_callee, root
from ...ir import Operator, nodes
from ...ir import types as ir_types
from ...ir import walk as ir_walk
from .._finding import Edit, Finding, Severity
from .._flow import has_gradient
from .._sketch import Sketch, sketch_of
from .._source_form import (
    Call,
    Expression,
    Node,
    Operation,
    excludes_zero,
    find_bit_operands,
    find_divisions,
    find_index_parts,
    find_indices_and_bounds,
    find_value_parts,
    get_arguments,
    get_array,
    get_attribute,
    get_given,
    get_index,
    get_literal,
    get_name,
    get_operation,
    is_call,
    is_in_else,
)
from .._subject import BOTH, ENGINES, Subject
from .._types import INT, Scope, Types, types_of

_DIVISIONS = (Operator.FLOOR_DIV, Operator.MOD)
_NORMS = frozenset({"norm", "normalized", "length", "normalize", "distance"})
_DIRECTIONS = frozenset({"normalized", "normalize"})
"""Norms that a vector is divided by: of zeros there is no value either, whoever makes the gradient."""
_SQUARES = ("{0}.norm_sqr()", "{0}.dot({0})")
_LENGTHS = ("{0}.norm()",)
"""Source text of a vector's squared length, and of its length; `{0}` stands for the vector."""
_GATHER = frozenset({"max", "min", "atomic_add", "atomic_max", "atomic_min"})
_SINGULAR = {"sqrt": "0", "log": "0", "acos": "1", "asin": "1", "rsqrt": "0", "pow": "0"}


def find_truncated_values(subject: Subject) -> Iterator[Finding]:
    """Report floats that are stored to locals or arrays of integers (TS301)."""
    types = types_of(subject)
    for spot in subject.spots:
        scope = types.at(spot.statement)
        for target, value in spot.assignments:
            first = scope.find_first(root(target))
            if _is_integer(target, scope) and scope.of(value).element == "float" and value is not first:
                name, given = subject.text(target), subject.text(get_given(spot.statement, value))
                was = f"`{subject.label(root(target))}` holds integers"
                was += f" since {_where(subject, first)}" if first is not None else ""
                # `pixels[i] = 255 * v` may mean it: the array was declared to hold integers. A sum loses each part.
                may_be_meant = get_array(target) in subject.integers and get_given(spot.statement, value) is value
                if not get_name(target):
                    remedy = f"int({given})  # say so, or {'an array' if first is None else 'a vector'} of floats"
                elif first is None or scope.of(target).is_vector:
                    remedy = f"{name} = 0.0" if first is None else ""
                else:
                    remedy = f"{name} = {_as_float(subject, first)}"
                words = f"{was}: `{given}` is truncated to an integer"
                fix = _start_as_float(subject, get_name(target), first)
                severity: Severity = "warning" if may_be_meant else "error"
                yield subject.finding("TS301", severity, spot.statement, words, remedy, fix=fix)
            yield from _find_integer_accumulators(subject, scope, spot, target, value)


def _find_integer_accumulators(
    subject: Subject, scope: Scope, spot: Spot, target: Expression, value: Expression
) -> Iterator[Finding]:
    """Report a local that starts as an integer and sums elements that may be floats: `n = 0`, then `n += x[i]`."""
    name = get_name(target)
    if not name or scope.of(target) != INT or scope.of(value).element:
        return
    parts = find_value_parts(value, lambda call: subject.resolve_builtin(call) in _GATHER)
    arrays = [array for one in parts if (array := get_array(one))]
    untyped = next((name for name in arrays if name in subject.floats and not scope.dtype_of(name)), "")
    first = scope.find_first(name)
    if untyped and first is not None and name in names_in(value):
        label = subject.label(untyped)
        words = f"`{name}` holds integers since {_where(subject, first)}: if `{label}` holds floats, "
        words += f"`{subject.text(get_given(spot.statement, value))}` is truncated to an integer"
        yield subject.finding("TS301", "warning", spot.statement, words, f"{name} = {_as_float(subject, first)}")


def _where(subject: Subject, first: Expression) -> str:
    return f"line {first.lineno}, `{subject.text(first)}`"


def _as_float(subject: Subject, first: Expression) -> str:
    number = get_literal(first)
    return repr(float(number)) if isinstance(number, int) else f"float({subject.text(first)})"


def _start_as_float(subject: Subject, name: str, first: Expression | None) -> Edit | None:
    """Return the edit of `n = 0` to `n = 0.0`; None if `n` must be an integer, or may have to be one."""
    number = get_literal(first)
    if not name or type(number) is not int or _is_used_as_integer(subject, name):
        return None
    return subject.replace_node(first, repr(float(number)))


def _is_used_as_integer(subject: Subject, name: str) -> bool:
    """Return True if a local stands in an index, in the bounds of a loop, with bits, or in a call of another function.

    Functions of the engine take floats too.
    """
    nodes = subject.source.nodes
    calls = [part for one in nodes if is_call(one) and not subject.resolve_builtin(one) for part in get_arguments(one)]
    parts = [*find_indices_and_bounds(nodes), *find_bit_operands(nodes), *find_divisions(nodes), *calls]
    return any(name in names_in(part) for part in parts)


def _is_integer(target: Expression, scope: Scope) -> bool:
    """Return True if a local, an entry of a vector, or an element of an array certainly holds integers."""
    if get_name(target) or root(target) in scope.locals:
        return scope.find_first(root(target)) is not None and scope.of(target).element == "int"
    return get_array(target) in scope.subject.integers


def through_integers(subject: Subject) -> Iterator[Finding]:
    """Report casts to integers through which a gradient would have to pass (TS302); not in indices and conditions."""
    types, indices = types_of(subject), find_index_parts(subject.source.nodes)
    for spot in subject.spots:
        scope = types.at(spot.statement)
        for target, value in spot.assignments:
            if _is_integer(target, scope):
                continue
            for node in walk(value):
                if node not in indices and _is_cast(node, subject) and _reads_floats(node, subject, scope):
                    words = f"`{subject.text(node)}` is a whole number: no gradient goes through it"
                    yield subject.finding("TS302", "info", node, words)


def _is_cast(node: Node, subject: Subject) -> bool:
    name = subject.resolve_builtin(node)
    if name == "cast" and len(get_arguments(node)) == 2:
        _, dtype = get_attribute(get_arguments(node)[1]) or (None, get_name(get_arguments(node)[1]))
        return dtype.startswith(("i", "u"))
    return name in ("int", "i32", "i64", "u32")


def _reads_floats(node: Node, subject: Subject, scope: Scope) -> bool:
    names = {name for one in get_arguments(node)[:1] for name in names_in(one)}
    return any(
        name in subject.floats or (name in scope.locals and scope.locals[name].kind.element == "float")
        for name in names
    )


# Slopes -------------------------------------------------------------------------------------------


def singular(subject: Subject) -> Iterator[Finding]:
    """Report functions whose value or slope is not finite at some argument (TS303)."""
    types = types_of(subject)
    for spot in subject.spots:
        calls = spot.calls
        chosen = {part for node in calls if subject.resolve_builtin(node) == "select" for part in walk(node)}
        for node in calls:
            yield from _norm(subject, node, spot)
            yield from _angle(subject, node)
            yield from _find_unsafe_selects(subject, node)
            if node not in chosen:
                yield from _root(subject, node, spot, types)
        for one in spot.expressions:
            if one not in chosen:
                yield from _quotient(subject, one, spot)


def _norm(subject: Subject, node: Call, spot: Spot) -> Iterator[Finding]:
    """Report norms of vectors that may be zero, which differences of two elements, a spring's ends, are not."""
    owner, method = get_attribute(node.func) or (None, "")
    is_method = method in ("norm", "normalized")
    name = method if is_method else subject.resolve_builtin(node)
    if name not in _NORMS or bool(node.args) == is_method:
        return  # `v.norm(eps)` is guarded; `length()` of nothing is no norm
    parts = [owner] if is_method and owner is not None else node.args
    if not has_gradient(subject, spot.statement, node):
        return  # it only decides what is run
    if _joins_two_elements(subject, parts, spot.guards) or _is_behind_length(subject, parts, spot, _SQUARES):
        return
    words, remedy = f"`{subject.text(node)}` of a vector of zeros", f"{name}(1e-8)" if is_method else ""
    if _is_behind_length(subject, parts, spot, _LENGTHS):
        if subject.engine_name != "quadrants":
            words += ": Taichi may compute it before the branch that keeps zeros away, and its gradient is NaN there"
            yield subject.finding("TS303", "warning", node, words, remedy, ("taichi",))
    elif name in _DIRECTIONS:
        yield subject.finding("TS303", "warning", node, f"{words} is NaN, and its gradient is not finite", remedy)
    else:
        words += f": the gradient of {BOTH} is NaN there, a generated one 0"
        yield subject.finding("TS303", "warning", node, words, remedy, ENGINES)


def _is_behind_length(subject: Subject, parts: Sequence[Expression], spot: Spot, measures: Sequence[str]) -> bool:
    """Return True if a statement runs only where a branch has found that one of `measures` of a vector is not zero.

    Neither engine then computes a slope of the norm. If the branch asks for the norm itself, Taichi 1.7.4 may take that
    for the one inside, and its gradient is NaN; that of Quadrants 1.3 is right.
    """
    if len(parts) != 1:
        return False
    vector = subject.text(parts[0])
    texts = {one.format(vector) for one in measures}
    single = definitions(subject.tree).single

    def is_length(side: Expression) -> bool:
        asked = [*walk(side), *(single[name] for name in names_in(side) if name in single)]
        return any(is_call(one) and subject.text(one) in texts for one in asked)

    return any(
        excludes_zero(guard, is_length, is_met=not is_in_else(spot.statement, guard, subject.source.nodes))
        for guard in spot.guards
    )


def _joins_two_elements(subject: Subject, parts: Sequence[Expression], guards: Sequence[Expression]) -> bool:
    """Return True if a vector is the difference of two different elements of an array, so that it is not zero.

    These are ends of a spring, whose numbers come from arrays, `x[a[s]] - x[b[s]]`; neighbors, `x[i] - x[i + 1]`; and
    what a branch keeps apart, `if i != j`. Of `x[i] - x[j]` in two loops nothing says that `i` is not `j`.
    """
    named = frozenset().union(*map(names_in, parts))
    if named.isdisjoint(subject.arrays | subject.source.assigned_names):
        return False
    sketch = sketch_of(subject)
    ends = [sketch.resolve(sketch.expressions.get(one)) for one in parts]
    match ends:
        case [nodes.Binary(Operator.SUB, start, end)]:
            ends = [sketch.resolve(start), sketch.resolve(end)]
    match ends:
        case [nodes.Load() as one, nodes.Load() as other] if (one.array, one.entry) == (other.array, other.entry):
            conditions = [sketch.expressions.get(guard) for guard in guards]
            unequal = [one for one in conditions if isinstance(one, nodes.Binary) and one.operator is Operator.NE]
            kept_apart = {frozenset((one.left, one.right)) for one in unequal}
            pairs = [*zip(one.index, other.index, strict=False)]
            return any(frozenset(pair) in kept_apart or _differ(*pair, sketch) for pair in pairs)
    return False


def _differ(one: nodes.Expr, other: nodes.Expr, sketch: Sketch) -> bool:
    match sketch.resolve(one), sketch.resolve(other):
        case nodes.Load() as first, nodes.Load() as second:
            return first != second
    first_sum, second_sum = (affine(part, sketch.definitions) for part in (one, other))
    return first_sum.distance(second_sum) not in (None, 0)


def _angle(subject: Subject, node: Call) -> Iterator[Finding]:
    """Report `atan2`, whose gradient in engines is NaN if both arguments are zero."""
    if subject.resolve_builtin(node) == "atan2" and len(node.args) == 2:
        words = f"`{subject.text(node)}` of two zeros: the gradient of {BOTH} is NaN there, a generated one 0"
        yield subject.finding("TS303", "info", node, words)


def _root(subject: Subject, node: Call, spot: Spot, types: Types) -> Iterator[Finding]:
    name = subject.resolve_builtin(node)
    if name not in _SINGULAR or not node.args or (name == "pow" and _is_whole(node)):
        return
    argument = node.args[0]
    if _is_kept_away(argument) or any(names_in(argument) & names_in(guard) for guard in spot.guards):
        return
    if not (names_in(argument) & (subject.floats | types.names)):
        return
    words = f"the slope of `{subject.text(node)}` is not finite where its argument is {_SINGULAR[name]}"
    remedy = f"{name}({subject.text(argument)} + 1e-12)" if name in ("sqrt", "log", "rsqrt") else ""
    yield subject.finding("TS303", "info", node, words, remedy)


def _quotient(subject: Subject, node: Expression, spot: Spot) -> Iterator[Finding]:
    """Report divisions by elements of arrays, and their fractional powers, that no condition guards."""
    match get_operation(node):
        case Operation(Operator.DIV, _, argument):
            what = f"`{subject.text(node)}` and its slope are not finite where its divisor is 0"
        case Operation(Operator.POW, argument, exponent) if _is_fraction(exponent):
            what = f"the slope of `{subject.text(node)}` is not finite where its base is 0, or less"
        case _:
            return
    if _is_element(argument, subject) and not any(names_in(argument) & names_in(guard) for guard in spot.guards):
        yield subject.finding("TS303", "info", node, what, f"{subject.text(argument)} + 1e-12  # or a branch")


def _is_fraction(node: Expression) -> bool:
    number = get_literal(node)
    return isinstance(number, float) and number % 1 > 0


def _is_element(node: Expression, subject: Subject) -> bool:
    """Return True for an element of an array of floats, or for a difference or product that contains one."""
    match get_operation(node):
        case Operation(Operator.SUB | Operator.MUL, left, right):
            return _is_element(left, subject) or _is_element(right, subject)
    index = get_index(node)  # `size[0]` may be Python's own
    return get_array(node) in subject.floats and index is not None and bool(names_in(index))


def _is_whole(node: Call) -> bool:
    return len(node.args) == 2 and isinstance(get_literal(node.args[1]), int)


def _is_kept_away(argument: Expression) -> bool:
    """Return True if a float is added to an argument, or it is clamped."""
    numbers = [one for one in walk(argument) if isinstance(get_literal(one), float)]
    operation = get_operation(argument)
    is_sum = operation is not None and operation.operator is Operator.ADD
    return (bool(numbers) and is_sum) or resolve_callee(argument) in ("max", "clamp", "exp")


def _find_unsafe_selects(subject: Subject, node: Call) -> Iterator[Finding]:
    """Report `select(x > 0, sqrt(x), 0)`: engines multiply the slope of the side not taken by 0, which is NaN."""
    if subject.resolve_builtin(node) != "select" or len(node.args) != 3:
        return
    for side in node.args[1:]:
        inner = next((one for one in walk(side) if subject.resolve_builtin(one) in _SINGULAR), None)
        if inner is not None:
            words = (
                f"`{subject.text(inner)}` on a side of `select`: where it is not chosen, and its slope is not finite"
            )
            more = f", the gradient of {BOTH} is NaN; a generated one is not"
            remedy = "an `if`, or a safe argument: max(x, 1e-12)"
            yield subject.finding("TS303", "warning", inner, words + more, remedy, ENGINES)


# Precision ----------------------------------------------------------------------------------------


def half_sums(subject: Subject) -> Iterator[Finding]:
    """Report sums in half precision, where 2048 + 1 is 2048 (TS304)."""
    halves = subject.find_declared(lambda dtype: dtype == "f16")
    for spot in subject.spots:
        one = spot.statement
        sums = [root(change.target) for change in changes_of(one) if change.kind == "add"]
        if sums and sums[0] in halves and dynamic(spot.loops):
            label = subject.label(sums[0])
            words = f"adds up in `{label}`, which has half precision: ones stop counting at 2048"
            yield subject.finding("TS304", "warning", one, words, "a float32 array or local for the sum")


def narrow_literals(subject: Subject) -> Iterator[Finding]:
    """Report locals that start as a float32 literal in a kernel with float64 arrays (TS305)."""
    doubles = subject.find_declared(lambda dtype: dtype == "f64")
    if not doubles or subject.default_fp == "f64":
        return
    types = types_of(subject)
    for spot in subject.spots:
        for target, value in spot.assignments:
            name, number = get_name(target), get_literal(value)
            if isinstance(number, float) and types.at(spot.statement).find_first(name) is value:
                shown = " and ".join(f"`{name}`" for name in sorted(doubles))
                words = f"`{name}` begins as a literal, so it is float32, and {shown} float64"
                remedy = f"{name} = {subject.module_name}.f64({number!r})"
                module = subject.bound_module_name
                fix = subject.replace_node(value, f"{module}.f64({subject.text(value)})") if module else None
                yield subject.finding("TS305", "warning", value, words, remedy, fix=fix)


# Divisions ----------------------------------------------------------------------------------------


def known_divisions(subject: Subject) -> Iterator[Finding]:
    """Report divisions of integers known at compile time, which engines round towards zero (TS306)."""
    if not any(_may_be_known(one, subject) for one in find_divisions(subject.source.nodes)):
        return
    sketch = sketch_of(subject)
    divisions = [one for one in sketch.noted if isinstance(one.expr, nodes.Binary) and one.expr.operator in _DIVISIONS]
    misled = {one.expr for one in divisions if _is_rounded_up(one.expr, sketch.definitions)}
    for one in divisions:
        if one.expr not in misled or any(part in misled for part in ir_walk.parts(*ir_walk.operands(one.expr))):
            continue
        words = f"`{subject.text(one.node)}` divides integers that are known at compile time: there {BOTH} round "
        words += "towards zero, while Python and the engines at run time round down"
        local = next(part.name for part in ir_walk.parts(one.expr) if isinstance(part, nodes.Local))
        value = next(other.node for other in sketch.noted if other.expr is sketch.definitions[local])
        remedy = f"{sketch.kernel.source_name(local)} = {subject.module_name}.static({subject.text(value)})"
        module = subject.bound_module_name
        fix = subject.replace_node(value, f"{module}.static({subject.text(value)})") if module else None
        yield subject.finding("TS306", "warning", one.node, words, remedy, fix=fix)


def _may_be_known(division: Node, subject: Subject) -> bool:
    """Return True if the operands of a division may be known at compile time, judging by names alone.

    They use a local, and are computed only from locals that are assigned once, and from globals.
    """
    own, single = subject.source.assigned_names, definitions(subject.tree).single
    waiting, seen = [*names_in(division)], set[str]()
    if own.isdisjoint(waiting):
        return False
    while waiting:
        name = waiting.pop()
        if name in subject.declared or name in subject.arrays or (name in own and name not in single):
            return False
        waiting += names_in(single[name]) - seen if name in own else ()
        seen.add(name)
    return True


def _is_rounded_up(one: nodes.Expr, known: Mapping[str, nodes.Expr]) -> bool:
    """Return True for a division of integers that the engine computes when it compiles, to another number."""
    if ir_types.is_float(one.type) or not ir_walk.locals_in([one]):
        return False
    dividend, divisor = (_evaluate(side, known) for side in ir_walk.operands(one))
    if dividend is None or not divisor:
        return False
    return dividend % divisor != 0 and (dividend < 0) != (divisor < 0)


def _evaluate(expr: nodes.Expr, known: Mapping[str, nodes.Expr]) -> int | None:
    expanded = expand(expr, set(), known)
    result = None if expanded is None else evaluate(expanded, lambda leaf: None)
    return None if result is None or not result.is_defined[0] else int(result.numbers[0])
