"""Bits: the check for floats that are rebuilt from a float's bits, whose derivative is unknown.

What a kernel learns of a float's bits is an integer, which has no derivative: a comparison, a sort key, an exponent.
But a float that is made of its mantissa again varies with it, and its derivative was lost on the way.

    b = bits(x[i]);  if b > 0: y[i] = x[i]             accepted: the bits only steer
    y[i] = f32((bits(x[i]) >> 23) - 127)               accepted: exponents are constant almost everywhere
    y[i] = from_bits(bits(x[i]) + 1)                   NotCovered: (
        "a derivative through the bits of a "
        "float, which has none"
    )

For each integer the analysis finds its *fine* bits: those that change whenever the float does. The exponent of a float
has none: it is constant between two powers of two, so that a float made of it alone has derivative 0. Hashes have none
either: they depend on the float, but not differentiably.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..analyses import differentiated_leaves
from ..ir import NotCovered, Operator, Type, nodes, operators, types, walk

IsActive = Callable[[nodes.Expr], bool]
_MANTISSA = {Type.F16: 10, Type.F32: 23, Type.F64: 52}
_LEAST_HASH_FACTOR = 1 << 16
"""Products with at least this wrap around: hashes have such factors; calculations with mantissas have smaller ones."""


class Part(NamedTuple):
    """Statements with locals of their own.

    Attributes:
        statements: all of them, those inside others too.
        is_active: whether an expression that is floating has a derivative.
        is_useful: whether the derivative of a local, or of an array with an `@` before its name, is needed.
        path: the file that their lines count in.
    """

    statements: Sequence[nodes.Stmt]
    is_active: IsActive
    is_useful: Callable[[str], bool]
    path: str


class _Fine(NamedTuple):
    """The fine bits of an integer. A float has either none, or all: then a derivative was lost on the way to it.

    Attributes:
        of_bits: those that are bits of a float.
        of_values: those that come from rounding a float to an integer, which has derivative 0 as a number.
        is_shifted: whether they were shifted: `h ^ (h >> 16)` is a step of a hash.
    """

    of_bits: int = 0
    of_values: int = 0
    is_shifted: bool = False

    @property
    def all(self) -> int:
        return self.of_bits | self.of_values

    def map(self, change: Callable[[int], int], *, is_shift: bool = False) -> _Fine:
        return _Fine(change(self.of_bits), change(self.of_values), self.is_shifted or is_shift)

    def join(self, other: _Fine) -> _Fine:
        return _Fine(
            self.of_bits | other.of_bits, self.of_values | other.of_values, self.is_shifted or other.is_shifted
        )


_NONE = _Fine()


def check_bits(*parts: Part) -> None:
    """Refuse statements that make a float from the bits of one that has a derivative. Parts share memory.

    A float whose own derivative is not needed, such as one that is only compared, is none of them.

    Raises:
        NotCovered: with the line where they do.
    """
    known: dict[tuple[int, str], _Fine] = {}
    readers = [_Reader(number, part, known) for number, part in enumerate(parts)]
    # Loops and later parts hand bits back to earlier statements, so all are read until nothing is new. Bits are only
    # added, and there are finitely many, so this ends.
    is_new = True
    while is_new:
        is_new = any([reader.note(one) for reader in readers for one in reader.part.statements])  # noqa: C419  # all
    for reader in readers:
        for one in reader.part.statements:
            if any(map(reader.part.is_useful, _find_targets(one))):
                reader.check(one)


class _Reader:
    """Reads one part. What is known of locals and arrays is shared."""

    def __init__(self, number: int, part: Part, known: dict[tuple[int, str], _Fine]) -> None:
        self.part = part
        self._number = number
        self._known = known

    def note(self, one: nodes.Stmt) -> bool:
        """Note what a statement gives to locals and arrays. Return True if that was unknown."""
        is_new = False
        for value in _values(one):
            fine = self.fine(value)
            for name in _find_targets(one) if fine.all else ():
                before = self._known.get(self._key(name), _NONE)
                after = self._known[self._key(name)] = before.join(fine)
                is_new |= after != before
        return is_new

    def check(self, one: nodes.Stmt) -> None:
        """Raise NotCovered if a statement makes a float from fine bits, and hands it on."""
        for value in _values(one):
            for leaf in differentiated_leaves(value):
                is_made_here = isinstance(leaf, nodes.Cast) or not types.is_float(leaf.type)
                if is_made_here and self._is_lost(leaf):
                    raise NotCovered("a derivative through the bits of a float", one.line, self.part.path)

    def fine(self, expr: nodes.Expr) -> _Fine:
        """Return the fine bits of an expression: those that change whenever the float changes that they came from."""
        if types.is_float(expr.type):
            lost = any(self._is_lost(leaf) for leaf in differentiated_leaves(expr))
            return _Fine(_ones(types.width(expr.type))) if lost else _NONE
        # The truth of a comparison has no derivative to lose.
        if expr.type == Type.U1:
            return _NONE
        match expr:
            case nodes.Local() | nodes.Load():
                return self._look_up(expr)
            case nodes.Cast(value) if types.is_float(value.type):
                return self._of_float(expr)
            case nodes.Select(_, then, otherwise):
                return self.fine(then).join(self.fine(otherwise))
            case nodes.Cast(value):
                return self.fine(value).map(lambda bits: _resize(bits, value.type, expr.type))
            case nodes.Unary(operator, value):
                # Counts and positions of bits are like hashes and exponents: no mantissa can be rebuilt from them.
                return _NONE if operator in ("popcnt", "clz", "ffs") else self.fine(value)
            case nodes.Binary():
                return self._of_binary(expr)
        return _NONE

    def _is_lost(self, leaf: nodes.Expr) -> bool:
        """Return True if the number that a float is computed from has lost a derivative."""
        # Of bits that become a float again, the mantissa's alone vary smoothly: a sign and an exponent jump.
        if isinstance(leaf, nodes.Cast) and types.is_float(leaf.type):
            return bool(self.fine(leaf.value).all & _ones(_MANTISSA[leaf.type]))
        # An integer that was rounded from a float has the derivative 0 as a number: `of_values` do not count here.
        return bool((self._look_up(leaf) if types.is_float(leaf.type) else self.fine(leaf)).of_bits)

    def _look_up(self, leaf: nodes.Expr) -> _Fine:
        """Return the fine bits that were noted for a local or an array."""
        match leaf:
            case nodes.Local(name) | nodes.Load(array=name):
                key = self._key(name if isinstance(leaf, nodes.Local) else f"@{name}")
                return self._known.get(key, _NONE)
        return _NONE

    def _of_float(self, cast: nodes.Cast) -> _Fine:
        value = cast.value
        if not (self.part.is_active(value) or self.fine(value).all):
            return _NONE
        if cast.keeps_bits:
            return _Fine(of_bits=_ones(_MANTISSA[value.type]))
        return _Fine(of_values=_ones(types.width(cast.type)))

    def _of_binary(self, expr: nodes.Binary) -> _Fine:
        left, right = self.fine(expr.left), self.fine(expr.right)
        if not (left.all or right.all):
            return _NONE
        width = types.width(expr.type)
        # A number that is known says which bits stay. It may stand on either side of a commutative operator.
        number = _known_number(expr.right)
        if number is None and expr.operator in (Operator.BIT_AND, Operator.BIT_OR, Operator.MUL):
            number = _known_number(expr.left)
            left = left if number is None else right
        # `h ^ (h >> 16)` mixes a float's bits with each other, which is a step of a hash.
        if expr.operator == Operator.BIT_XOR and left.all and right.all and (left.is_shifted or right.is_shifted):
            return _NONE
        if expr.operator in (Operator.ADD, Operator.SUB, Operator.BIT_XOR, Operator.MIN, Operator.MAX):
            return left.join(right)
        if expr.operator == Operator.MUL and number is not None and abs(number) >= _LEAST_HASH_FACTOR:
            return _NONE
        if number is None:
            joined = left.join(right)
            return (
                joined
                if expr.operator in (Operator.BIT_AND, Operator.BIT_OR)
                else joined.map(lambda bits: bits and _ones(width))
            )
        return left.map(
            lambda bits: _operate(expr.operator, bits, number, width), is_shift=expr.operator in operators.SHIFTS
        )

    def _key(self, name: str) -> tuple[int, str]:
        # Parts share memory, not locals: two of them may have locals of one name.
        return (-1 if name.startswith("@") else self._number), name


def _operate(operator: Operator, bits: int, number: int, width: int) -> int:
    """Return the fine bits of an operation on an integer, which has these `bits`, and a number that is known."""
    length = bits.bit_length()
    match operator:
        case "&":
            return bits & number
        case "|":
            return bits & ~number
        case "<<":
            return bits << number & _ones(width)
        case ">>" | ">>>":
            return bits >> number
        # A divisor of n bits takes at least n - 1 bits away; exactly those where it is a power of two.
        case "//" if number > 0:
            return _ones(max(0, length - number.bit_length() + 1))
        case "%" if number > 0 and number & (number - 1) == 0:
            return bits & (number - 1)
    # Of anything else, a carry may reach every bit.
    return bits and _ones(width)


def _known_number(expr: nodes.Expr) -> int | None:
    """Return an integer that is written out in the kernel; None for any other expression."""
    match expr:
        case nodes.Const(value) if not types.is_float(expr.type):
            return int(value)
        case nodes.Cast(value) if not types.is_float(expr.type):
            return _known_number(value)
        case nodes.Unary(Operator.NEG | Operator.INVERT as operator, value):
            number = _known_number(value)
            return number if number is None else -number if operator == "neg" else ~number
    return None


def _resize(bits: int, before: Type, after: Type) -> int:
    """Return an integer's fine bits after a cast to another width, which copies a sign into the new bits."""
    is_negative = before in types.SIGNED and bits >> (types.width(before) - 1)
    return (bits | -1 << types.width(before) if is_negative else bits) & _ones(types.width(after))


def _ones(count: int) -> int:
    return (1 << count) - 1


def _values(one: nodes.Stmt) -> Iterator[nodes.Expr]:
    match one:
        case nodes.Assign() | nodes.Store():
            yield one.value
        case nodes.Atomic():
            yield one.value
            yield nodes.Load(one.array, one.index, one.entry, one.value.type)  # what it returns
        case nodes.Decompose():
            yield from one.matrix


def _find_targets(one: nodes.Stmt) -> Iterator[str]:
    """Yield the locals and arrays that are given a statement's value, arrays with an `@` before their names."""
    yield from walk.find_assigned(one)
    if isinstance(one, nodes.Store | nodes.Atomic):
        yield f"@{one.array}"
