"""Random kernels of neighbors: stencils, steps of time in place, rows from the rows before, sums into neighbors.

On CPUs these loops are split at their edges, run in strips, and have gradients that gather (`passes/strips/_edges.py`,
`_elementwise.py`, `adjoint/clean_up/_gathers.py`), in parallel loops and inside loops that run in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from fuzz._grammar import Program
from fuzz._wide import wide_program

_NUMBERS = ("(<F> + <F>)", "(<F> - <F>)", "0.4 * <F> * <F>", "<F> / (2.0 + <leaf> * <leaf>)", "lang.max(<F>, 0.15)")
_FUNCTIONS = ("lang.exp(-<leaf> * <leaf>)", "lang.tanh(<F>)", "lang.sin(<F>)", "lang.select(<leaf> > 0.3, <F>, <F>)")
_CHANGES = ("<to> = <F>", "<to> = <F>", "<to> += 0.3 * <F>", "<to> -= <F> * 0.2", "<to> = <to> * 0.5 + <F>")


@dataclass(frozen=True)
class _Axis:
    """A loop's name, and the size of the axis that it goes along."""

    name: str
    size: str

    def reach(self, dice: random.Random) -> tuple[str, str]:
        """Draw an index near the iteration's, and the condition under which it is in range."""
        by = dice.choice([-2, -1, -1, 1, 1, 2])
        index = f"{self.name} {'+' if by > 0 else '-'} {abs(by)}"
        if by < 0:
            forms = [f"{self.name} >= {-by}", f"not ({self.name} < {-by})", f"{self.name} > {-by - 1}"]
            forms += [f"{self.name} != 0"] * (by == -1)
        else:
            forms = [f"{self.name} < {self.size} - {by}", f"{index} < {self.size}", f"{self.size} > {index}"]
            forms += [f"not ({self.name} == {self.size} - 1)"] * (by == 1)
        return index, dice.choice(forms)

    def hold(self, dice: random.Random) -> str:
        """Draw an index near the iteration's that is always in range."""
        return dice.choice(
            [
                f"lang.max({self.name} - 1, 0)",
                f"lang.min({self.name} + 1, {self.size} - 1)",
                f"({self.name} + 1) % {self.size}",
                self.name,
            ]
        )


_ROW, _COLUMN = _Axis("i", "x.shape[0]"), _Axis("j", "w.shape[1]")


def write_stencils(seed: int) -> Program:
    """Write the kernel of a seed; the same seed gives the same kernel."""
    writer = _Writer(random.Random(f"stencils {seed}"))
    writer.write()
    return wide_program(seed, "\n".join(writer.lines))


class _Writer:
    """Writes one kernel, line by line. No iteration of a parallel loop relies on another."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.lines: list[str] = []
        self.written: list[str] = []
        self.count = 0

    def write(self) -> None:
        """Write one to three loops of the top level."""
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            self.dice.choice([self.parallel, self.scattered, self.steps, self.steps, self.rows])()

    # Loops of the top level ---------------------------------------------------------------------

    def parallel(self) -> None:
        """Write a stencil whose iterations read elements that none changes."""
        is_pair = self.dice.random() < 0.4
        target = "s" if is_pair else self.dice.choice(["y", "z", "s"])
        self.lines.append(f"    {self.header(is_pair)}")
        self.body("        ", is_pair, target, reads=self.known_but(target))

    def scattered(self) -> None:
        """Write sums into neighbors, atomic or in order."""
        target = self.dice.choice(["y", "z"])
        if self.dice.random() < 0.4:
            self.lines.append("    lang.loop_config(serialize=True)")
        self.lines.append(f"    {self.header(is_pair=False)}")
        self.add(target)

    def add(self, target: str) -> None:
        reads = self.known_but(target)
        for _ in range(self.dice.choice([1, 2, 2])):
            index, condition = _ROW.reach(self.dice)
            self.lines.append(f"        if {condition}:")
            self.lines.append(f"            {target}[{index}] += {self.number(False, reads, 1)}")
        if self.dice.random() < 0.6:
            self.lines.append(f"        {target}[i] += {self.number(False, reads, 1)}")
        self.note(target)

    def steps(self) -> None:
        """Write time steps, in place or from one array into another."""
        self.lines.append("    lang.loop_config(serialize=True)")
        self.lines.append(f"    for step in range({self.dice.choice('123')}):")
        local = self.name("v") if self.dice.random() < 0.3 else None
        if local:
            self.lines.append(f"        {local} = 0.2")
        for _ in range(self.dice.choice([1, 2, 2])):
            is_pair = self.dice.random() < 0.25
            target = "s" if is_pair else self.dice.choice(["y", "z", "y", "s"])
            names = "i, j" if is_pair else "i"
            span = "lang.ndrange(x.shape[0], w.shape[1])" if is_pair else self.span(_ROW)
            self.lines.append(f"        for {names} in {span}:")
            self.note(target)
            self.body("            ", is_pair, target, reads=("x", "w", *self.written), carried=local)
        if local and self.dice.random() < 0.5:
            self.lines.append(f"        y[0] += 0.1 * {local}")
            self.note("y")

    def rows(self) -> None:
        """Write rows, each computed from the row before or after."""
        is_back = self.dice.random() < 0.3
        self.lines.append("    lang.loop_config(serialize=True)")
        self.lines.append("    for i in range(x.shape[0] - 1):")
        now, new = ("i", "i + 1") if not is_back else ("x.shape[0] - 1 - i", "x.shape[0] - 2 - i")
        self.lines.append(f"        for j in {self.span(_COLUMN)}:")
        self.lines.append(f"            f = {self.leaf(True, ('x', 'w'))} * s[{now}, j] + 0.3 * w[{new}, j]")
        for _ in range(self.dice.choice([1, 2])):
            index, condition = _COLUMN.reach(self.dice)
            self.lines.append(f"            if {condition}:")
            self.lines.append(f"                f {self.dice.choice(['+=', '-='])} 0.4 * s[{now}, {index}]")
        self.lines.append(f"            s[{new}, j] {self.dice.choice(['=', '+='])} f")
        self.note("s")

    def header(self, is_pair: bool) -> str:
        if is_pair:
            return f"for i, j in {self.dice.choice(['w', 'lang.ndrange(w.shape[0], w.shape[1])'])}:"
        return f"for i in {self.dice.choice(['x', self.span(_ROW)])}:"

    def span(self, axis: _Axis) -> str:
        return self.dice.choice([f"range({axis.size})", f"range({axis.size})", f"range(1, {axis.size})"])

    # Iterations ---------------------------------------------------------------------------------

    def body(self, indent: str, is_pair: bool, target: str, reads: tuple[str, ...], carried: str | None = None) -> None:
        """Write a local computed from neighbors, sometimes one that iterations carry, and the stores."""
        axes = (_ROW, _COLUMN) if is_pair else (_ROW,)
        local = self.name("f")
        self.lines.append(f"{indent}{local} = {self.dice.choice(['0.0', self.number(is_pair, reads, 1)])}")
        for _ in range(self.dice.choice([0, 1, 2, 2])):
            axis = self.dice.choice(axes)
            index, condition = axis.reach(self.dice)
            near = self.element(self.dice.choice(reads), is_pair, {axis.name: index})
            self.lines.append(f"{indent}if {condition}:")
            form = self.dice.choice(["{0} += {1} * {2}", "{0} -= {1} * 0.5", "{0} = {0} * {1} + {2}"])
            self.lines.append(f"{indent}    {form.format(local, near, self.leaf(is_pair, reads))}")
        if carried and self.dice.random() < 0.6:
            self.lines.append(f"{indent}{carried} = {carried} * 0.6 + {local}")
            local = carried
        place = self.element(target, is_pair, {}, column="j" if is_pair else self.dice.choice("012"))
        form = self.dice.choice(_CHANGES).replace("<to>", place)
        number = self.number(is_pair, reads, 1)
        self.lines.append(indent + form.replace("<F>", self.dice.choice([f"({local} + {number})", local])))
        if target == "s" and not is_pair and self.dice.random() < 0.4:
            self.lines.append(f"{indent}s[i, 1] += {local} * {self.leaf(False, reads)}")
        self.note(target)

    def number(self, is_pair: bool, reads: tuple[str, ...], depth: int = 2) -> str:
        if depth <= 0 or self.dice.random() < 0.3:
            return self.leaf(is_pair, reads)
        form = self.dice.choice([*_NUMBERS, *_NUMBERS, *_FUNCTIONS])
        while "<F>" in form:
            form = form.replace("<F>", self.number(is_pair, reads, depth - 1), 1)
        while "<leaf>" in form:
            form = form.replace("<leaf>", self.leaf(is_pair, reads), 1)
        return form

    def leaf(self, is_pair: bool, reads: tuple[str, ...]) -> str:
        held = {axis.name: axis.hold(self.dice) for axis in (_ROW, _COLUMN)} if self.dice.random() < 0.3 else {}
        return self.dice.choice([*(self.element(name, is_pair, held) for name in reads), "a", "0.7"])

    def element(self, name: str, is_pair: bool, near: dict[str, str], column: str | None = None) -> str:
        row = near.get("i", "i")
        if name in ("w", "s"):
            return f"{name}[{row}, {column or (near.get('j', 'j') if is_pair else self.dice.choice('012'))}]"
        return f"{name}[{row}]"

    def known_but(self, target: str) -> tuple[str, ...]:
        return ("x", "w", *(name for name in self.written if name != target))

    def note(self, name: str) -> None:
        self.written += [name] * (name not in self.written)

    def name(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"
