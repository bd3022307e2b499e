"""The wide grammar: what programs of others do and `_grammar` does not, in small kernels.

Functions with several results, locals of the top level that loops share, serial outermost loops that break, atomics
whose result is used, elements of vectors and matrices, signed index arithmetic, integers as outputs, 0-d arrays.
A kernel has three rows or so, for each one is compiled a dozen times.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from fuzz._expressions import Expressions
from fuzz._grammar import Program, Tasks
from fuzz._parts import KERNELS, RANKS, Scope, used_functions
from fuzz._statements import Statements

FLOATS = ("x", "w", "p", "r", "o", "b")
"""Inputs that take a gradient."""

HALVES = ("u",)
"""Inputs in half precision."""
INTEGERS = ("k", "e")
OUTPUTS = ("y", "z", "s", "v", "t", "d", "c")
SCRATCH = ("h", "g")
DIMS = {"n": "[n]", "ni": "[n]", "nm": "[n, m]", "nv": "[n, 2]", "nc": "[n, 3]", "n22": "[n, 2, 2]", "": "[]"}
_TYPES = {
    "n": "lang.types.ndarray(ndim=1)",
    "ni": "lang.types.ndarray(ndim=1)",
    "nm": "lang.types.ndarray(ndim=2)",
    "nv": "lang.types.ndarray(dtype=lang.math.vec2, ndim=1)",
    "nc": "lang.types.ndarray(dtype=lang.math.vec3, ndim=1)",
    "n22": "lang.types.ndarray(dtype=lang.types.matrix(2, 2, lang.f64), ndim=1)",
    "": "lang.types.ndarray(ndim=0)",
}
NO_LENGTHS: Mapping[str, str] = MappingProxyType({})
NUMBERS = (
    "r[<row>].dot(r[<row>]) * 0.4",
    "r[<row>].cross(r[<row>])[1]",
    "r[<row>].z",
    "o[<row>][0, 1]",
    "(o[<row>] @ <V>).x",
    "(o[<row>] @ o[<row>]).trace() * 0.3",
    "b[None]",
    "(b[None] * <F>)",
    "(e[<row>] * 0.15)",
    "(<F> / (1.0 + lang.abs(<F>)))",
    "ends(<F>, <V>, 0)[0]",
    "ends(<F>, <V>, 1)[0]",
    "halved(<F>)[0]",
    "lang.min(<F>, <leaf>, 0.4)",
    "lang.max(x[<row>], x[<row>])",
)
_SIGNED = (
    "((e[<row>] - 3) % 5)",
    "(e[<row>] // 2 + 4)",
    "((-<I> - 1) % 4)",
    "((-<I> // 2) % 3)",
    "((<I> - 5) // -2 + 9) % 4",
    "lang.abs(e[<row>])",
    "lang.max(e[<row>], 0)",
)


def write_wide(seed: int) -> Program:
    """Write the kernel of a seed; the same seed gives the same kernel."""
    dice = random.Random(f"wide {seed}")
    tasks = WideTasks(dice)
    tasks.write()
    return wide_program(seed, "\n".join(tasks.words.lines))


def wide_program(seed: int, body: str) -> Program:
    """Make a kernel with this body and the arrays that it names."""
    return chain_program(seed, (body,))


def chain_program(
    seed: int, bodies: Sequence[str], updated: Collection[str] = (), lengths: Mapping[str, str] = NO_LENGTHS
) -> Program:
    """Return kernels with these bodies, which run one after the other. Each has the arrays that its body names.

    `updated` and `lengths` are those of `Program`, as far as there are such arrays.
    """
    texts, every = [], set[str]()
    for called, body in zip(KERNELS, bodies, strict=False):
        tree = ast.parse(f"def kernel():\n{body}")
        named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {"x", "w"}
        inputs, others = (
            [n for n in group if n in named] for group in ((*FLOATS, *HALVES), INTEGERS + OUTPUTS + SCRATCH)
        )
        declared = [f"{n}: {_type_of(n)}" for n in inputs] + ["a: float"] + [f"{n}: {_type_of(n)}" for n in others]
        texts.append(f"def {called}({', '.join(declared)}):\n{body}\n")
        every |= named
    text = "\n\n".join(texts)
    functions = used_functions(text)
    text = f"{functions}\n\n\n{text}" if functions else text
    inputs, outputs, scratch = ([n for n in group if n in every] for group in (FLOATS + HALVES, OUTPUTS, SCRATCH))
    changed = tuple(name for name in outputs if name in updated)
    outputs = [name for name in outputs if name not in changed]
    given = [*inputs, *(name for name in INTEGERS if name in every), *changed]
    made = Program(seed, text, "", ", ".join(map(_item, scratch)) or None, False, KERNELS[: len(bodies)], changed)
    made = replace(made, lengths={name: lengths[name] for name in outputs if name in lengths})
    return replace(made, spec=spec_of(made, given, outputs))


def _type_of(name: str) -> str:
    return "lang.types.ndarray(dtype=lang.f16, ndim=1)" if name in HALVES else _TYPES[RANKS[name]]


def spec_of(program: Program, inputs: list[str], outputs: list[str], batched: tuple[str, ...] = ()) -> str:
    """Return the spec of a program with these arrays, some of which have batch dims."""

    def item(name: str) -> str:
        how = "inout " if name in program.updated else ""
        return how + _item(name, name in batched, program.lengths.get(name, ""))

    left, right = (", ".join(map(item, names)) for names in (inputs, outputs))
    return f"{left} -> {right}"


def _item(name: str, is_batched: bool = False, length: str = "") -> str:
    dims = DIMS[RANKS[name]][1:-1]
    if length:
        dims = ", ".join([length, *dims.split(", ")[1:]])
    if is_batched:
        dims = f"*b, {dims}" if dims else "*b"
    return f"{name}[{dims}]" + (": i32" if name in (*INTEGERS, "c") else ": f16" if name in HALVES else "")


class WideExpressions(Expressions):
    """Expressions over more kinds of arrays, and indices that come from negative numbers."""

    def number(self, scope: Scope, depth: int = 2) -> str:
        depth -= depth > 1 and self.dice.random() < 0.8  # most are short
        if depth > 0 and self.dice.random() < 0.25:
            return self._out_of(NUMBERS, scope, depth)
        return super().number(scope, depth)

    def integer(self, scope: Scope, depth: int = 1) -> str:
        if depth > 0 and self.dice.random() < 0.3:
            return self._out_of(_SIGNED, scope, depth)
        return super().integer(scope, depth)

    def own_element(self, name: str, scope: Scope) -> str:
        rank = RANKS[name]
        if rank not in ("nc", "ni"):
            return super().own_element(name, scope)
        if scope.is_pair:
            return ""
        place = self.row(scope) if scope.free else "i"
        return f"{name}[{place}].{self.dice.choice('xyz')}" if rank == "nc" else f"({name}[{place}] * 0.2)"

    def element(self, name: str, scope: Scope) -> str:
        rank = RANKS[name]
        if rank == "nc":
            return f"{name}[{self.row(scope)}][{self.dice.choice('012')}]"
        if rank == "n22":
            return f"{name}[{self.row(scope)}][{self.dice.choice('01')}, {self.dice.choice('01')}]"
        return f"({name}[{self.row(scope)}] * 0.2)" if rank == "ni" else super().element(name, scope)

    def condition(self, scope: Scope, depth: int = 1) -> str:
        return super().condition(scope, depth)

    def row(self, scope: Scope) -> str:
        name = self.dice.choice(scope.whole)
        forms = [
            f"(({name} - 3) % x.shape[0])",
            "(e[i] % x.shape[0])",
            "((e[i] // 2) % x.shape[0])",
            f"((-{name} // 2) % x.shape[0])",
            f"({name} // 2 % x.shape[0])",
        ]
        return self.dice.choice(forms) if self.dice.random() < 0.35 else super().row(scope)

    def triple(self, scope: Scope) -> str:
        """Draw an expression of a 3-vector."""
        forms = (
            "lang.Vector([<F>, <leaf>, 0.3])",
            "r[<row>] * <F>",
            "r[<row>].cross(r[<row>]) + r[<row>]",
            "lang.sin(r[<row>]) - r[<row>]",
        )
        return self._out_of(forms, scope, 1)


class WideStatements(Statements):
    """Statements of the wide grammar."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice, is_single=False)
        self.say = WideExpressions(dice)

    def body(self, scope: Scope) -> Scope:
        for _ in range(self.dice.choice([1, 1, 2, 3] if scope.depth < 3 else [1])):
            scope = self.statement(scope)
        return scope

    def statement(self, scope: Scope) -> Scope:
        if self.dice.random() < 0.5:
            return super().statement(scope)
        forms = [self._results, self._one_branch, self._until]
        forms += [self._swap] * 4 * (len(scope.floats) > 1) + [self._parts] * 2 * bool(scope.vectors or scope.matrices)
        forms += [self._result_of_atomic] * 3 * (scope.free and bool(self._numbers_of(scope)))
        forms += [self._clamp, self._call] * (scope.free and bool(self._numbers_of(scope)))
        forms += [self._call] * (not scope.is_pair and bool(self._numbers_of(scope)))
        forms += [self._clamp] * (self.dice.random() < 0.1 and not scope.is_pair and bool(self._numbers_of(scope)))
        forms += [self._leave] * 2 * bool(scope.leave and scope.floats)
        return self.dice.choice(forms)(scope)

    def _numbers_of(self, scope: Scope) -> list[str]:
        """Return arrays of floats by row that are this iteration's own."""
        return [name for name in scope.own if RANKS[name] == "n"]

    def _results(self, scope: Scope) -> Scope:
        """Write a call of a function with several results."""
        one, two, three = (self.name("v") for _ in range(3))
        number, other = self.say.number(scope, 1), self.say.number(scope, 1)
        form = self.dice.randrange(4)
        if form == 0:
            self.line(scope, f"{one}, {two}, {three} = three({number}, {other})")
            return replace(scope, floats=(*scope.floats, one, two, three))
        if form == 1:
            self.line(scope, f"{one}, {two} = ordered({number}, {other})")
            return replace(scope, floats=(*scope.floats, one, two))
        if form == 2:
            count = self.name("c")
            self.line(scope, f"{one}, {count} = halved({number})")
            return replace(scope, floats=(*scope.floats, one), **scope.with_integer(count, fixed=False))
        vector = self.name("q")
        self.line(scope, f"{one}, {vector} = ends({number}, {self.say.vector(scope)}, {self.dice.choice('012')})")
        return replace(scope, floats=(*scope.floats, one), vectors=(*scope.vectors, vector))

    def _one_branch(self, scope: Scope) -> Scope:
        """Write a value that one branch assigns, or both."""
        name = self.name("v")
        inner = scope.inner()
        self.line(scope, f"{name} = {self.dice.choice(['0.0', '0.4', self.say.leaf(scope)])}")
        self.line(scope, f"if {self.say.condition(scope)}:")
        if self.dice.random() < 0.4:
            other = self.name("v")
            self.line(inner, f"{other} = {self.say.number(scope, 1)}")
            self.line(inner, f"{name} = {other} * {other} + {self.say.number(scope, 1)}")
        else:
            self.line(inner, f"{name} = {self.say.number(scope)}")
        if self.dice.random() < 0.4:
            self.line(scope, "else:")
            self.line(inner, f"{name} {self.dice.choice(['=', '+=', '-=', '*='])} {self.say.number(scope, 1)}")
        return replace(scope, floats=(*scope.floats, name))

    def _until(self, scope: Scope) -> Scope:
        """Write a loop that ends when a value has become small."""
        name, total = self.name("u"), self.name("v")
        self.line(scope, f"{name} = lang.tanh({self.say.number(scope, 1)})")
        self.line(scope, f"{total} = {self.say.leaf(scope)}")
        known = replace(scope, floats=(*scope.floats, total))
        inner = known.inner(leave=("break",), constants=(*scope.constants, name))
        self.line(scope, f"while {self.dice.choice(['lang.abs({})', '{} * {}']).replace('{}', name)} > 0.1:")
        self.line(inner, f"{name} *= {self.dice.choice(['0.5', '-0.6'])}")
        if self.dice.random() < 0.4:
            self.change(inner)
        if self.dice.random() < 0.3:
            self._leave(inner)
        self.line(inner, f"{total} = {total} * 0.7 + {name} * {self.say.number(inner, 1)}")
        return replace(known, floats=(*known.floats, name))

    def _swap(self, scope: Scope) -> Scope:
        one, two = self.dice.sample(scope.floats, 2)
        forms = [f"{one}, {two} = {two}, {one}", f"{one}, {two} = {two}, {one} + {two}"]
        if scope.vectors:
            name = self.dice.choice(scope.vectors)
            forms += [f"{name}[0], {name}[1] = {name}[1], {name}[0]", f"{name}.x, {one} = {one}, {name}.y"]
        self.line(scope, self.dice.choice(forms))
        return scope

    def _parts(self, scope: Scope) -> Scope:
        """Write a change of one entry of a vector or a matrix."""
        places = [
            f"{name}[{place}]"
            for name in scope.vectors
            for place in (0, 1, f"lang.cast({self.say.integer(scope, 0)} % 2, lang.i32)")
        ]
        places += [f"{name}[{place}]" for name in scope.matrices for place in ("0, 1", "1, 0", "1, 1")]
        operator = self.dice.choice(["=", "+=", "-=", "*="])
        self.line(scope, f"{self.dice.choice(places)} {operator} {self.say.number(scope, 1)}")
        return scope

    def _clamp(self, scope: Scope) -> Scope:
        """Write a clamp of an element of the iteration's own, in place."""
        name, how = self.dice.choice(self._numbers_of(scope)), self.dice.choice(["max", "min"])
        place = self.say.own_element(name, scope)
        self.line(scope, f"lang.atomic_{how}({place}, {self.dice.choice(['-0.3', '0.4', self.say.number(scope, 1)])})")
        return scope

    def _call(self, scope: Scope) -> Scope:
        """Write a call of a function that changes an element of the iteration's own."""
        place = self.say.row(scope) if scope.free else "i"
        self.line(scope, f"put({self.dice.choice(self._numbers_of(scope))}, {place}, {self.say.number(scope, 1)})")
        return scope

    def _result_of_atomic(self, scope: Scope) -> Scope:
        """Write a serial loop that uses the value that an atomic returned."""
        name, how = self.name("v"), self.dice.choice(["add", "sub", "min", "max"])
        place = self.say.own_element(self.dice.choice(self._numbers_of(scope)), scope)
        self.line(scope, f"{name} = lang.atomic_{how}({place}, {self.say.number(scope, 1)})")
        return replace(scope, floats=(*scope.floats, name))

    def store(self, scope: Scope, name: str) -> None:
        rank = RANKS[name]
        if rank not in ("nc", "ni"):
            return super().store(scope, name)
        if scope.is_pair:
            return None
        place = f"{name}[{self.say.row(scope) if scope.free else 'i'}]"
        if rank == "ni":
            value = self.say.integer(scope)
            forms = [
                f"{place} = {value}",
                f"{place} = {place} * 2 + {value}",
                f"{place} += {value}",
                f"{place} -= {value}",
            ]
            self.line(scope, self.dice.choice(forms))
            return None
        number, vector = self.say.number(scope, 1), self.say.triple(scope)
        forms = [f"{place} = {vector}", f"{place} += {vector}", f"{place}[1] += {number}", f"{place}.z = {number}"]
        forms += [
            f"{place}[lang.cast({self.say.integer(scope, 0)} % 3, lang.i32)] = {number}",
            f"{place} = {place} * 0.5 + {vector}",
        ]
        self.line(scope, self.dice.choice(forms))
        return None

    def scatter(self, scope: Scope, name: str, how: str) -> None:
        if RANKS[name] == "nc":
            place = f"{name}[{self.say.row(scope)}]"
            forms = [f"{place} += {self.say.triple(scope)}", f"{place}[2] += {self.say.number(scope, 1)}"]
            self.line(scope, self.dice.choice(forms))
        elif RANKS[name] == "ni":
            self.line(scope, f"{name}[{self.say.row(scope)}] += {self.say.integer(scope)}")
        else:
            super().scatter(scope, name, how)


class WideTasks(Tasks):
    """The top level of a kernel of the wide grammar."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(dice, is_single=False)
        self.words: WideStatements = WideStatements(dice)

    def write(self) -> None:
        """Write one to three loops, locals that they share, and statements between them."""
        for _ in range(self.dice.choice([1, 1, 1, 2, 2, 3])):
            self.dice.choice(self.forms())()
        if not [name for name in self.written if name not in (*SCRATCH, "c")]:
            self._rows(("y",))

    def forms(self) -> list[Callable[[], None]]:
        """Return the forms that may stand at the top level; frequent ones are listed several times."""
        loops = [self._rows, self._rows, self._places, self._broken, self._broken, self._steps, self._total]
        return [*loops, self._total, self._unrolled, self._alone, self._under]

    def _drawn(self, names: list[str]) -> tuple[str, ...]:
        twice = [name for name in ("y", "z") if name in names]
        return tuple(self.dice.sample([*names, *twice, "d", "c", "g"], self.dice.choice([1, 1, 2])))

    def _total(self) -> None:
        """Write a top-level local that a loop adds to or takes the maximum of."""
        name = self.words.name("f")
        how = self.dice.choice(["add", "add", "add", "sub", "max", "min", "count", "vector"])
        start = {"count": "0", "vector": "lang.Vector([0.0, 0.1])"}.get(how, self.dice.choice(["0.0", "0.3", "a"]))
        self.words.lines += [f"    {name} = {start}", f"    for i in {self.dice.choice(['x', 'range(x.shape[0])'])}:"]
        scope = Scope((*FLOATS, *self.written), (), constants=self.floats, depth=2, leave=("continue",))
        scope = self.words.body(scope)
        value = self.words.say.number(scope)
        vector = self.words.say.vector(scope)
        text = {
            "add": f"{name} += {value}",
            "sub": f"{name} -= {value}",
            "count": f"{name} += {self.words.say.integer(scope)}",
            "vector": f"{name} += {vector}",
        }.get(how, f"lang.atomic_{how}({name}, {value})")
        self.words.line(scope, text)
        self.floats = (*self.floats, {"count": f"({name} * 0.1)", "vector": f"{name}[1]"}.get(how, name))
        self._rows()

    def _places(self) -> None:
        """Write a parallel loop over rows and columns."""
        scope = self._shares(tuple(self.dice.sample(["s", "h"], self.dice.choice([1, 1, 2]))), [])
        header = self.dice.choice(["w", "lang.ndrange(w.shape[0], w.shape[1])", "lang.ndrange(x.shape[0], (1, 3))", ""])
        if header:
            self.words.lines.append(f"    for i, j in {header}:")
        else:
            self.words.lines += ["    for place in lang.grouped(w):", "        i, j = place[0], place[1]"]
        pair = {"is_pair": True, "whole": ("i", "j"), "fixed": ("i", "j"), "leave": ("continue",), "depth": 2}
        self._filled(replace(scope, **pair))

    def _serial_scope(self) -> Scope:
        targets = self._drawn(["y", "z", "s", "v", "t"])
        self._note(targets)
        read = (*FLOATS, *(name for name in self.written if name not in targets))
        return Scope(read, targets, free=True, floats=self.floats_to_change(), constants=self.floats, depth=2)

    def floats_to_change(self) -> tuple[str, ...]:
        """Return top-level locals that a serial loop carries, sometimes a new one."""
        if self.dice.random() < 0.4:
            return ()
        name = self.words.name("f")
        self.words.lines.append(f"    {name} = {self.dice.choice(['0.0', '0.2', 'a * 0.5', 'x[0]'])}")
        return (name,)

    def _broken(self) -> None:
        """Write a serial outermost loop that may break."""
        scope = self._serial_scope()
        headers = ["range(x.shape[0])", "range(1, x.shape[0])", "x", "lang.ndrange(x.shape[0])"]
        self.words.lines += ["    lang.loop_config(serialize=True)", f"    for i in {self.dice.choice(headers)}:"]
        inner = replace(scope, leave=("break", "break", "continue"))
        inner = self.words.body(inner)
        if inner.floats:
            inner = self.words._leave(inner)
        self._filled(inner)
        self.floats = (*self.floats, *scope.floats)

    def _steps(self) -> None:
        """Write time steps over rows."""
        scope = self._serial_scope()
        self.words.lines += [
            "    lang.loop_config(serialize=True)",
            f"    for step in range({self.dice.choice('23')}):",
        ]
        self.words.lines += ["        for i in range(x.shape[0]):"]
        known = {"whole": ("i", "step"), "fixed": ("i", "step")}
        self._filled(scope.inner(leave=("break", "continue"), **known))
        self.floats = (*self.floats, *scope.floats)

    def _unrolled(self) -> None:
        """Write parallel loops that a static loop unrolls."""
        scope = self._shares((), ["y", "z", "v"])
        self.words.lines += ["    for turn in lang.static(range(2)):", "        for i in x:"]
        known = {"whole": ("i", "turn"), "fixed": ("i", "turn")}
        self._filled(replace(scope, indent="            ", depth=2, leave=("continue",), **known))

    def _alone(self) -> None:
        """Write a statement between loops."""
        scope = Scope((*FLOATS, *self.written), (), constants=self.floats, depth=2, indent="    ", whole=("0", "1"))
        scope = replace(scope, anywhere=tuple(name for name in scope.anywhere if RANKS[name] in ("n", "nm", "")))
        name = self.words.name("f")
        value = f"x[0] * 0.4 + {self.dice.choice(['b[None]', 'w[1, 0]', 'a', 'x[2]', *self.floats])}"
        self.words.lines.append(f"    {name} = {value}")
        if self.dice.random() < 0.5:
            self.words.lines += [
                f"    if {name} > {self.dice.choice(['0.2', 'x[1]'])}:",
                f"        {name} = {name} * 0.3 - x[1]",
            ]
        self.floats = (*self.floats, name)
        if self.dice.random() < 0.5:
            self._note(("t",))
            self.words.lines.append(f"    t[None] {self.dice.choice(['=', '+='])} {name} * 0.5")

    def _under(self) -> None:
        """Write a loop in a branch of the top level, which runs on one thread."""
        scope = self._serial_scope()
        condition = self.dice.choice(
            ["x[0] > 0.1", "b[None] < 0.2", "x[1] > x[0]", *[f"{one} > 0.2" for one in self.floats]]
        )
        self.words.lines += [f"    if {condition}:", "        for i in range(x.shape[0]):"]
        self._filled(scope.inner(leave=("break", "continue")))
        self.floats = (*self.floats, *scope.floats)

    def _shares(self, targets: tuple[str, ...], names: list[str]) -> Scope:
        scope = super()._shares(targets, names)
        read = (*FLOATS, *(name for name in scope.anywhere if name not in FLOATS))
        scattered = scope.scattered
        more = self.dice.choice([(), (), "d", "c", "g"])
        if more and more not in scope.own:
            self._note((more,))
            scattered = (*scattered, (more, "add"))
            read = tuple(name for name in read if name != more)
        return replace(scope, anywhere=read, scattered=scattered, depth=2)
