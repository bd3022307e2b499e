"""A random kernel from a seed: loops at the top level that feed each other, and what each may do with its arrays."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fuzz._parts import RANKS, Scope, used_functions
from fuzz._statements import Statements

GIVEN = ("x", "w", "p")
_DIMS = {"n": "[n]", "nm": "[n, m]", "nv": "[n, 2]", "": "[]"}
_TYPES = {
    "n": "lang.types.ndarray(ndim=1)",
    "nm": "lang.types.ndarray(ndim=2)",
    "nv": "lang.types.ndarray(dtype=lang.math.vec2, ndim=1)",
    "": "lang.types.ndarray(ndim=0)",
}


@dataclass(frozen=True)
class Program:
    """A random kernel, or a chain of them.

    Attributes:
        source: what an engine reads, its `lang` and `kernel` to be given a value by `build`.
        spec, scratch: for `ts.op`.
        is_single: whether some locals are of single precision, so that only as much can be compared.
        kernels: names of the functions that are kernels, in the order of their launches.
        updated: inputs that are changed in place.
        lengths: dims of outputs that the spec has as sums, by name: the first of each.
    """

    seed: int
    source: str
    spec: str
    scratch: str | None
    is_single: bool
    kernels: tuple[str, ...] = ("kernel",)
    updated: tuple[str, ...] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)


def write(seed: int) -> Program:
    """Write the kernel of a seed; the same seed gives the same kernel."""
    dice = random.Random(seed)
    is_single = dice.random() < 0.12
    tasks = Tasks(dice, is_single)
    tasks.write()
    return program(seed, "\n".join(tasks.words.lines), tasks.written, is_single)


def program(seed: int, body: str, written: list[str], is_single: bool) -> Program:
    """Make a kernel with this body that writes these arrays."""
    scratch = [name for name in written if name == "h"]
    outputs = [name for name in written if name != "h"]
    arrays = [*GIVEN, "k", *outputs, *scratch]
    declared = [f"{name}: {_TYPES[RANKS[name]]}" for name in arrays]
    declared.insert(4, "a: float")
    kernel = f"def kernel({', '.join(declared)}):\n{body}\n"
    functions = used_functions(kernel)
    given = [f"{name}{_DIMS[RANKS[name]]}" for name in GIVEN]
    spec = f"{', '.join(given)}, k[n]: i32 -> {', '.join(name + _DIMS[RANKS[name]] for name in outputs)}"
    return Program(
        seed, f"{functions}\n\n\n{kernel}" if functions else kernel, spec, "h[n, m]" if scratch else None, is_single
    )


class Tasks:
    """The top level of a kernel."""

    def __init__(self, dice: random.Random, is_single: bool) -> None:
        self.dice = dice
        self.words = Statements(dice, is_single)
        self.written: list[str] = []
        self.floats: tuple[str, ...] = ()

    def write(self) -> None:
        """Write one to four loops, sometimes with numbers before them."""
        if self.dice.random() < 0.25:
            name = self.words.name("v")
            self.words.lines.append(
                f"    {name} = {self.dice.choice(['a * 0.7', 'lang.sin(x[0]) + a', 'w[1, 1] * x[2]'])}"
            )
            self.floats = (name,)
        for _ in range(self.dice.choice([1, 2, 2, 3, 4])):
            form = [self._rows, self._rows, self._rows, self._pairs, self._steps]
            self.dice.choice(form)()
        if not [name for name in self.written if name != "h"]:
            self._rows(("y",))

    def _rows(self, targets: tuple[str, ...] = ()) -> None:
        """Write a parallel loop over rows."""
        scope = self._shares(targets, ["y", "z", "s", "h", "v"])
        header = self.dice.choice(
            ["range(x.shape[0])", "x", "lang.ndrange(x.shape[0])", "lang.grouped(x)", "range(1, x.shape[0])"]
        )
        if header == "lang.grouped(x)":
            self.words.lines += ["    for place in lang.grouped(x):", "        i = place[0]"]
        else:
            self.words.lines.append(f"    for i in {header}:")
        self._filled(replace(scope, leave=("continue",)))

    def _pairs(self) -> None:
        """Write a parallel loop over rows and columns."""
        scope = self._shares((), ["s", "h"])
        header = self.dice.choice(["w", "lang.ndrange(w.shape[0], w.shape[1])", "lang.ndrange(x.shape[0], (1, 3))"])
        self.words.lines.append(f"    for i, j in {header}:")
        self._filled(replace(scope, is_pair=True, whole=("i", "j"), fixed=("i", "j"), leave=("continue",)))

    def _steps(self) -> None:
        """Write a serial loop that carries state in arrays: over rows, or over time steps."""
        targets = self._drawn(["y", "z", "s", "v", "t"])
        self._note(targets)
        scope = Scope(
            (*GIVEN, *(name for name in self.written if name not in targets)), targets, free=True, floats=self.floats
        )
        self.words.lines.append("    lang.loop_config(serialize=True)")
        if self.dice.random() < 0.5:
            self.words.lines.append("    for i in range(1, x.shape[0]):")
            self._filled(replace(scope, leave=("continue",)))
            return
        self.words.lines += [f"    for step in range({self.dice.choice(['2', '3', 'COUNT'])}):"]
        self.words.lines += ["        for i in range(x.shape[0]):"]
        known = {"whole": ("i", "step"), "fixed": ("i", "step")}
        self._filled(scope.inner(leave=("break", "continue"), **known))

    def _filled(self, scope: Scope) -> None:
        """Write the body of a loop that writes each element of its own."""
        scope = self.words.body(scope)
        for name in scope.own:
            self.words.store(scope, name)
        for name, how in scope.scattered:
            self.words.scatter(scope, name, how)

    def _drawn(self, names: list[str]) -> tuple[str, ...]:
        return tuple(self.dice.sample(names, self.dice.choice([1, 1, 2])))

    def _shares(self, targets: tuple[str, ...], names: list[str]) -> Scope:
        """Divide the arrays: what a parallel loop writes at its own place, scatters to, and may read anywhere."""
        scattered = self.dice.choice([(), (), ("t",), ("z",), ("y", "t"), ("s",), ("v",)])
        own = targets or self._drawn(names)
        scattered = tuple(name for name in scattered if name not in own)
        if scattered and not targets and self.dice.random() < 0.3:
            own = ()
        hows = ["add", "add", "add", "max", "min"]
        anywhere = (*GIVEN, *(name for name in self.written if name not in (*own, *scattered)))
        self._note((*own, *scattered))
        return Scope(anywhere, own, tuple((name, self.dice.choice(hows)) for name in scattered), constants=self.floats)

    def _note(self, names: tuple[str, ...]) -> None:
        self.written += [name for name in names if name not in self.written]
