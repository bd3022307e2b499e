"""Random numbers from a seed: a kernel that draws becomes one that is the same function of its seed every time.

    parallel for i in 0 .. n:              parallel for i in 0 .. n:
        r = random f32                ->       iteration = i; next_slot = 0
        y[i] = x[i] * r                        a, b, c, d = hash(seed, task, iteration, slot 0)
                                               r = (a >> 8) * 2^-24
                                               y[i] = x[i] * r

A number is a hash of four words: both halves of the seed, which task of the op this is, which parallel iteration, and
which draw in it. So a second run draws the same, in any order, on any engine; an adjoint that runs an iteration again
keeps nothing. The hash is PCG4D (Jarzynski and Olano, Hash Functions for GPU Rendering, 2020): additions,
multiplications and shifts of 32 bits. Its last bit alone is set too seldom (in 0.469 of all numbers), so the upper half
of a word is mixed into the lower one once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import Names, NotCovered, Operator, Type, iteration_number, nodes, walk
from ._slots import assign_slots, replace_statements

WORD = Type.U32
SEED = Type.I64
"""The type of the seed."""


def draws(kernel: nodes.Kernel) -> bool:
    """Return True if a kernel draws random numbers."""
    return any(isinstance(one, nodes.Draw) for one in walk.statements(kernel.body))


def seed_random(kernel: nodes.Kernel, seed: str, first: int = 0) -> nodes.Kernel:
    """Return a kernel whose random numbers follow from a seed.

    Args:
        kernel: the kernel.
        seed: name of an array to add: `i64`, without dims. Nobody else has that name.
        first: the number of its first task among those of an op: kernels whose tasks have other numbers draw others.

    Raises:
        NotCovered: it draws a number of a type that is not made here.
    """
    if not draws(kernel):
        return kernel
    return _Seeding(kernel, seed, first).kernel_of()


class _Seeding:
    def __init__(self, kernel: nodes.Kernel, seed: str, first: int) -> None:
        assert seed not in walk.names_of(kernel), seed
        self.kernel = kernel
        self.seed = seed
        self.first = first
        self.names = Names({*walk.names_of(kernel), seed})

    def kernel_of(self) -> nodes.Kernel:
        body = walk.number_statements(self.kernel.body)
        statements = [part for number, one in enumerate(body) for part in self.task(number, one)]
        arrays = {**self.kernel.arrays, self.seed: nodes.Array(self.seed, SEED, 0)}
        kinds = {**self.kernel.locals, **self.names.types}
        return replace(self.kernel, arrays=arrays, locals=kinds, body=tuple(statements))

    def task(self, number: int, one: nodes.Stmt) -> nodes.Block:
        """Rewrite a statement of the top level: a parallel loop, or what is a single iteration."""
        if walk.is_parallel(one):
            place = iteration_number(one.names, one.bounds)
            return (replace(one, body=self.iteration(number, one.body, place)),)
        return self.iteration(number, (one,), nodes.Const(0, Type.I32))

    def iteration(self, number: int, body: nodes.Block, place: nodes.Expr) -> nodes.Block:
        wanted = {one.number: one for one in walk.statements(body) if isinstance(one, nodes.Draw)}
        if not wanted:
            return body
        slotted = assign_slots(body, {key: one.name for key, one in wanted.items()}, self.names)
        here = self.names.local("iteration", Type.I32)

        def draw(one: nodes.Draw) -> Sequence[nodes.Stmt]:
            return self.emit_draw(one, number, here, slotted.slots[one.number])

        begun = nodes.Assign(here.name, place), nodes.Assign(slotted.counter, nodes.Const(0, Type.I32))
        return (*begun, *replace_statements(slotted.body, wanted, draw))

    def emit_draw(self, one: nodes.Draw, number: int, place: nodes.Expr, slot: nodes.Expr) -> list[nodes.Stmt]:
        """Write the hash of a draw, and the number that is made of it."""
        seed = nodes.Load(self.seed, (), (), SEED)
        upper = nodes.Binary(Operator.SHIFT_RIGHT, seed, nodes.Const(32, Type.I32), SEED)
        # The hash takes four words, and there are five numbers: the task's shares one with the seed's upper half.
        task = _word(self.first + number)
        words: list[nodes.Expr] = [
            nodes.Cast(seed, WORD),
            _binary(Operator.ADD, nodes.Cast(upper, WORD), _binary(Operator.MUL, task, _word(0x3C6EF372))),
            nodes.Cast(place, WORD),
            nodes.Cast(slot, WORD),
        ]
        # As the paper's `pcg4d`, and its fold once more for the words that become the number.
        names = [self.names.local(f"{one.name}_{letter}", WORD) for letter in "abcd"]
        steps: list[nodes.Stmt] = [
            nodes.Assign(
                name.name,
                _binary(Operator.ADD, _binary(Operator.MUL, word, _word(1664525)), _word(1013904223)),
                one.line,
            )
            for name, word in zip(names, words, strict=True)
        ]
        steps += [*self.emit_mix(names, one.line), *(self.emit_fold(name, one.line) for name in names)]
        steps += [*self.emit_mix(names, one.line), *(self.emit_fold(name, one.line) for name in names[:2])]
        return [*steps, nodes.Assign(one.name, self.number(one, names), one.line)]

    def emit_mix(self, names: Sequence[nodes.Local], line: int) -> list[nodes.Stmt]:
        a, b, c, d = names
        rounds = ((a, b, d), (b, c, a), (c, a, b), (d, b, c))
        return [
            nodes.Assign(one.name, _binary(Operator.ADD, one, _binary(Operator.MUL, x, y)), line)
            for one, x, y in rounds
        ]

    def emit_fold(self, name: nodes.Local, line: int) -> nodes.Stmt:
        return nodes.Assign(
            name.name, _binary(Operator.BIT_XOR, name, _binary(Operator.SHIFT_RIGHT, name, nodes.Const(16, WORD))), line
        )

    def number(self, one: nodes.Draw, words: Sequence[nodes.Local]) -> nodes.Expr:
        """Return a number of the type that is drawn, uniform in [0, 1) or among all integers."""
        # As many bits as the type's mantissa has, the hidden one included: more would round up to 1.
        a, b = words[:2]
        match one.type:
            case Type.F16:
                return _part(a, 11, Type.F16)
            case Type.F32:
                return _part(a, 24, Type.F32)
            case Type.F64:
                low = nodes.Binary(Operator.MUL, _part(b, 26, Type.F64), nodes.Const(2.0**-27, Type.F64), Type.F64)
                return nodes.Binary(Operator.ADD, _part(a, 27, Type.F64), low, Type.F64)
            case Type.U32:
                return a
            case Type.I32:
                return nodes.Cast(a, Type.I32, keeps_bits=True)
            case Type.I64 | Type.U64 as kind:
                high = nodes.Binary(Operator.SHIFT_LEFT, nodes.Cast(a, kind), nodes.Const(32, Type.I32), kind)
                return nodes.Binary(Operator.BIT_OR, high, nodes.Cast(b, kind), kind)
            case _:
                words_ = f"a random {one.type}"
                raise NotCovered(words_, one.line, self.kernel.path)


def _word(value: int) -> nodes.Const:
    return nodes.Const(value, WORD)


def _binary(operator: Operator, left: nodes.Expr, right: nodes.Expr) -> nodes.Expr:
    return nodes.Binary(operator, left, right, WORD)


def _part(word: nodes.Expr, bits: int, kind: Type) -> nodes.Expr:
    """Return the upper bits of a word as a number in [0, 1): exact, whatever a compiler does."""
    upper = nodes.Cast(_binary(Operator.SHIFT_RIGHT, word, nodes.Const(32 - bits, WORD)), Type.I32)
    return nodes.Binary(Operator.MUL, nodes.Cast(upper, kind), nodes.Const(2.0**-bits, kind), kind)
