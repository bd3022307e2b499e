"""Rules about numbers: what is cut off, and where slopes are not finite."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from ...analyses import affine
from ...frontend import Spot, dynamic, is_size, names_in, root, sub_expressions, walk
from ...ir import Operator, nodes
from .._finding import Finding
from .._sketch import Sketch, sketch_of
from .._subject import BOTH, ENGINES, Subject
from .._types import INT, Scope, Types, types_of

_NORMS = frozenset({"norm", "normalized", "length", "normalize", "distance"})
_GATHER = frozenset({"max", "min", "atomic_add", "atomic_max", "atomic_min"})
_SINGULAR = {"sqrt": "0", "log": "0", "acos": "1", "asin": "1", "rsqrt": "0", "pow": "0"}


def find_truncated_values(subject: Subject) -> Iterator[Finding]:
    """TS301: a local keeps the type of its first value."""
    types = types_of(subject)
    for spot in subject.spots:
        scope = types.at(spot.statement)
        for target, value in spot.assignments:
            first = scope.find_first(root(target))
            if _is_integer(target, scope) and scope.of(value).element == "float" and value is not first:
                name, given = subject.text(target), _format_value(subject, spot.statement, value)
                was = f"`{subject.label(root(target))}` holds integers"
                was += f" since {_where(first)}" if first is not None else ""
                if not isinstance(target, ast.Name):
                    remedy = f"int({given})  # say so, or {'an array' if first is None else 'a vector'} of floats"
                elif first is None or scope.of(target).is_vector:
                    remedy = f"{name} = 0.0" if first is None else ""
                else:
                    remedy = f"{name} = {_as_float(first)}"
                words = f"{was}: `{given}` is truncated to an integer"
                yield subject.finding("TS301", "error", spot.statement, words, remedy)
            yield from _find_integer_accumulators(subject, scope, spot, target, value)


def _find_integer_accumulators(
    subject: Subject, scope: Scope, spot: Spot, target: ast.expr, value: ast.expr
) -> Iterator[Finding]:
    """`n = 0`, and later `n += x[i]`: of `x` it is not known whether it holds floats, but most arrays do."""
    if not isinstance(target, ast.Name) or scope.of(target) != INT or scope.of(value).element:
        return
    arrays = [root(one) for one in _outside_calls(value, subject) if isinstance(one, ast.Subscript)]
    untyped = next((name for name in arrays if name in subject.floats and not scope.dtype_of(name)), "")
    first = scope.find_first(target.id)
    if untyped and first is not None and target.id in names_in(value):
        label = subject.label(untyped)
        words = f"`{target.id}` holds integers since {_where(first)}: if `{label}` holds floats, "
        words += f"`{_format_value(subject, spot.statement, value)}` is truncated to an integer"
        yield subject.finding("TS301", "warning", spot.statement, words, f"{target.id} = {_as_float(first)}")


def _outside_calls(node: ast.expr, subject: Subject) -> Iterator[ast.expr]:
    """Parts of an expression that reach its value as they are: not those inside an index, or a cast."""
    yield node
    if isinstance(node, ast.Subscript) or (isinstance(node, ast.Call) and subject.resolve_builtin(node) not in _GATHER):
        return
    for child in sub_expressions(node):
        yield from _outside_calls(child, subject)


def _where(first: ast.expr) -> str:
    return f"line {first.lineno}, `{ast.unparse(first)}`"


def _as_float(first: ast.expr) -> str:
    is_number = isinstance(first, ast.Constant) and isinstance(first.value, int)
    return repr(float(first.value)) if is_number else f"float({ast.unparse(first)})"  # type: ignore[attr-defined]


def _format_value(subject: Subject, statement: ast.stmt, value: ast.expr) -> str:
    return subject.text(statement.value if isinstance(statement, ast.AugAssign) else value)


def _is_integer(target: ast.expr, scope: Scope) -> bool:
    """Return True if a local, an entry of a vector, or an element of an array certainly holds integers."""
    if isinstance(target, ast.Name) or root(target) in scope.locals:
        return scope.find_first(root(target)) is not None and scope.of(target).element == "int"
    return isinstance(target, ast.Subscript) and root(target) in scope.subject.integers


def through_integers(subject: Subject) -> Iterator[Finding]:
    """TS302: not where the integer is an index, a bound or a condition."""
    types, indices = types_of(subject), _inside_indices(subject)
    for spot in subject.spots:
        scope = types.at(spot.statement)
        for target, value in spot.assignments:
            if _is_integer(target, scope):
                continue
            for node in walk(value):
                if id(node) not in indices and _is_cast(node, subject) and _reads_floats(node, subject, scope):
                    words = f"`{subject.text(node)}` is a whole number: no gradient goes through it"
                    yield subject.finding("TS302", "info", node, words)


def _is_cast(node: ast.AST, subject: Subject) -> bool:
    name = subject.resolve_builtin(node)
    if name == "cast" and isinstance(node, ast.Call) and len(node.args) == 2:
        return getattr(node.args[1], "attr", getattr(node.args[1], "id", "")).startswith(("i", "u"))
    return name in ("int", "i32", "i64", "u32")


def _reads_floats(node: ast.AST, subject: Subject, scope: Scope) -> bool:
    arguments = node.args[:1] if isinstance(node, ast.Call) else []
    names = {name for one in arguments for name in names_in(one)}
    return any(
        name in subject.floats or (name in scope.locals and scope.locals[name].kind.element == "float")
        for name in names
    )


def _inside_indices(subject: Subject) -> set[int]:
    inside: set[int] = set()
    for node in subject.source.nodes:
        if isinstance(node, ast.Subscript):
            inside |= {id(one) for one in walk(node.slice)}
    return inside


# Slopes -------------------------------------------------------------------------------------------


def singular(subject: Subject) -> Iterator[Finding]:
    """TS303."""
    types = types_of(subject)
    for spot in subject.spots:
        calls = spot.calls
        chosen = {id(part) for node in calls if subject.resolve_builtin(node) == "select" for part in walk(node)}
        for node in calls:
            yield from _norm(subject, node, spot)
            yield from _angle(subject, node)
            yield from _find_unsafe_selects(subject, node)
            if id(node) not in chosen:
                yield from _root(subject, node, spot, types)
        for one in spot.expressions:
            if isinstance(one, ast.BinOp) and id(one) not in chosen:
                yield from _quotient(subject, one, spot)


def _norm(subject: Subject, node: ast.Call, spot: Spot) -> Iterator[Finding]:
    """Of a vector of zeros the engines give NaN, `tinsmith` what torch gives: 0. Ends of a spring are apart."""
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr in ("norm", "normalized")
    name = node.func.attr if is_method and isinstance(node.func, ast.Attribute) else subject.resolve_builtin(node)
    if name not in _NORMS or bool(node.args) == is_method:
        return  # `v.norm(eps)` is guarded; `length()` of nothing is no norm
    parts = [node.func.value] if is_method and isinstance(node.func, ast.Attribute) else node.args
    if _joins_two_elements(subject, parts, spot.guards):
        return
    words = f"`{subject.text(node)}` of a vector of zeros: the gradient of {BOTH} is NaN there, a generated one 0"
    yield subject.finding("TS303", "warning", node, words, f"{name}(1e-8)" if is_method else "", ENGINES)


def _joins_two_elements(subject: Subject, parts: Sequence[ast.expr], guards: Sequence[ast.expr]) -> bool:
    """Whether a vector leads from one element of an array to another that is not the same one, so that it has a length.

    These are ends of a spring, whose numbers come from arrays, `x[a[s]] - x[b[s]]`; neighbours, `x[i] - x[i + 1]`; and
    what a branch keeps apart, `if i != j`. Of `x[i] - x[j]` in two loops nothing says that `i` is not `j`.
    """
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


def _angle(subject: Subject, node: ast.Call) -> Iterator[Finding]:
    """The same of an angle of a vector of zeros."""
    if subject.resolve_builtin(node) == "atan2" and len(node.args) == 2:
        words = f"`{subject.text(node)}` of two zeros: the gradient of {BOTH} is NaN there, a generated one 0"
        yield subject.finding("TS303", "info", node, words)


def _root(subject: Subject, node: ast.Call, spot: Spot, types: Types) -> Iterator[Finding]:
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


def _quotient(subject: Subject, node: ast.BinOp, spot: Spot) -> Iterator[Finding]:
    """Of elements as they are: what was computed before may have been kept away from 0 there."""
    if isinstance(node.op, ast.Div):
        argument, what = node.right, f"`{subject.text(node)}` and its slope are not finite where its divisor is 0"
    elif isinstance(node.op, ast.Pow) and _is_fraction(node.right):
        argument, what = node.left, f"the slope of `{subject.text(node)}` is not finite where its base is 0, or less"
    else:
        return
    if _is_element(argument, subject) and not any(names_in(argument) & names_in(guard) for guard in spot.guards):
        yield subject.finding("TS303", "info", node, what, f"{subject.text(argument)} + 1e-12  # or a branch")


def _is_fraction(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value % 1 > 0


def _is_element(node: ast.expr, subject: Subject) -> bool:
    """Whether an expression is an element of an array of floats, or a difference or a product with one."""
    match node:
        case ast.Subscript(slice=index):  # `size[0]` may be Python's own
            return root(node) in subject.floats and not is_size(node) and bool(names_in(index))
        case ast.BinOp(left=left, op=ast.Sub() | ast.Mult(), right=right):
            return _is_element(left, subject) or _is_element(right, subject)
    return False


def _is_whole(node: ast.Call) -> bool:
    return len(node.args) == 2 and isinstance(node.args[1], ast.Constant) and isinstance(node.args[1].value, int)


def _is_kept_away(argument: ast.expr) -> bool:
    """Whether something is added to an argument, or it is clamped."""
    numbers = [one for one in walk(argument) if isinstance(one, ast.Constant) and isinstance(one.value, float)]
    is_sum = isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Add)
    is_clamped = isinstance(argument, ast.Call) and getattr(argument.func, "attr", "") in ("max", "clamp", "exp")
    return (bool(numbers) and (is_sum or is_clamped)) or is_clamped


def _find_unsafe_selects(subject: Subject, node: ast.Call) -> Iterator[Finding]:
    """`select(x > 0, sqrt(x), 0)`: engines multiply the slope of the side that is not taken by zero: NaN."""
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
    """TS304: in half precision 2048 + 1 is 2048."""
    halves = {name for name, one in subject.declared.items() if one.dtype == "f16"}
    halves |= {item.name for item in (subject.spec.items if subject.spec else ()) if item.dtype == "f16"}
    for spot in subject.spots:
        one = spot.statement
        if isinstance(one, ast.AugAssign) and root(one.target) in halves and dynamic(spot.loops):
            label = subject.label(root(one.target))
            words = f"adds up in `{label}`, which has half precision: ones stop counting at 2048"
            yield subject.finding("TS304", "warning", one, words, "a float32 array or local for the sum")


def narrow_literals(subject: Subject) -> Iterator[Finding]:
    """TS305: a literal is `default_fp`, float32 unless the engine was started with float64."""
    doubles = {name for name, one in subject.declared.items() if one.dtype == "f64"}
    doubles |= {item.name for item in (subject.spec.items if subject.spec else ()) if item.dtype == "f64"}
    if not doubles or subject.default_fp == "f64":
        return
    types = types_of(subject)
    for spot in subject.spots:
        for target, value in spot.assignments:
            if not isinstance(target, ast.Name) or not isinstance(value, ast.Constant):
                continue
            if isinstance(value.value, float) and types.at(spot.statement).find_first(target.id) is value:
                shown = " and ".join(f"`{name}`" for name in sorted(doubles))
                words = f"`{target.id}` begins as a literal, so it is float32, and {shown} float64"
                yield subject.finding(
                    "TS305", "warning", value, words, f"{target.id} = {subject.module_name}.f64({value.value!r})"
                )
