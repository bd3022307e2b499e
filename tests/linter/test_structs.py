"""Structs in files that are not run: members are told apart, and of what may hold integers no gradient is claimed."""

import textwrap

import pytest

from tinsmith.linter import lint_file

HEAD = """
import dataclasses
import {engine} as ti

@dataclasses.dataclass(frozen=True)
class Info:
    first: ti.Tensor
    w: ti.types.ndarray(dtype=ti.f32, ndim=1)
    count: int
"""


def list_rules(text, engine="quadrants", path="k.py"):
    whole = HEAD.format(engine=engine) + textwrap.dedent(text)
    lines = whole.splitlines()
    findings = lint_file(path, whole)
    assert all(one.path == path for one in findings)
    return [(one.rule, lines[one.line - 1].partition("#")[2].strip()) for one in findings]


ROWS = {
    # the kernel, and the findings: each rule, with the comment in its line
    "a parameter that holds arrays is used by its members": (
        """
        @ti.kernel
        def k(info: Info, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in y:
                y[i] = info.w[i]
        """,
        [],
    ),
    "one that is not used": (
        """
        @ti.kernel
        def k(
            info: Info,  # unused
            y: ti.types.ndarray(dtype=ti.f32, ndim=1),
        ):
            for i in y:
                y[i] = 1.0
        """,
        [("TS501", "unused")],
    ),
    "a struct in an inner loop has no gradient of its own": (
        """
        @ti.func
        def weight(i: int, info: Info):
            return info.w[i]

        @ti.func
        def both(i: int, info: Info):
            s = 0.0
            for j in range(2):
                s += weight(i + j, info)
            return s
        """,
        [],
    ),
    "a float in an inner loop": (
        """
        @ti.func
        def both(i: int, scale: float, info: Info):
            s = 0.0
            for j in range(2):
                s += scale * info.w[i + j]  # lost
            return s
        """,
        [("TS411", "lost")],
    ),
    "an integer in an inner loop": (
        """
        @ti.func
        def both(start, info: Info):
            s = 0.0
            for j in range(2):
                s += info.w[start + j]
            return s

        @ti.kernel
        def k(info: Info, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in y:
                start = info.first[i] + 1
                for j in range(3):
                    first = start + j
                    y[i] += info.w[first]
        """,
        [],
    ),
    "a float that only decides": (
        """
        @ti.kernel
        def k(info: Info, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in y:
                limit = info.w[i] * 2.0
                for j in range(3):
                    least = limit
                    if least > info.w[j]:
                        y[i] += 1.0
        """,
        [],
    ),
    "a local that a member of known type gives": (
        """
        @ti.kernel
        def k(info: Info, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in y:
                r = info.w[i] * 2.0
                for j in range(3):
                    y[j] += r  # lost
        """,
        [("TS411", "lost")],
    ),
    "integers, as far as anybody knows": (
        """
        @ti.kernel
        def k(info: Info):
            for i in range(8):
                n = 0
                span = ti.Vector([info.first[k] for k in ti.static((i, i + 1))])
                n = n + span[1] - span[0]
                n += info.first[i]
                info.first[i] = info.first[i] * info.first[n]
        """,
        [],
    ),
    "floats in an integer": (
        """
        @ti.kernel
        def k(info: Info, y: ti.types.ndarray(dtype=ti.i32, ndim=1)):
            for i in y:
                n = info.count
                n += info.w[i]  # truncated
                y[i] = n
        """,
        [("TS301", "truncated")],
    ),
    "a member that is given floats": (
        """
        @ti.kernel
        def k(info: Info):
            for i in range(8):
                info.first[i] = ti.sin(info.first[i]) * 0.5  # in place
        """,
        [("TS102", "in place")],
    ),
    "a member of floats": (
        """
        @ti.kernel
        def k(info: Info):
            for i in range(8):
                info.w[i] = info.w[i] * info.w[i]  # in place
        """,
        [("TS102", "in place")],
    ),
}


@pytest.mark.parametrize("case", ROWS)
@pytest.mark.thinned(4)
def test_members_of_dataclasses(case):
    text, expected = ROWS[case]
    assert list_rules(text) == expected


FIELDS = """
cells = ti.types.struct(mass=ti.f32, mom=ti.f32, vel=ti.f32, kind=ti.i32, r=ti.f32)

@ti.data_oriented
class Solver:
    def __init__(self):
        self.grid = cells.field(shape=8, needs_grad=True)
        self.index = ti.field(ti.i32, shape=8)
        self.open = ti.field(dtype=some_dtype, shape=8)

    @ti.kernel
    def step(self):
        for i in range(8):
"""
MEMBERS = {
    "self.grid[i].vel = self.grid[i].mom / self.grid[i].mass": None,
    "self.grid[i].vel = self.grid[i].vel * self.grid[i].vel": "TS102",
    "self.grid.vel[i] = self.grid[i].vel * self.grid[i].vel": "TS102",
    "self.grid[i].kind = self.grid[i].kind * self.grid[i].kind": None,
    "self.grid[i].r = self.grid[i].r * self.grid[i].r": "TS102",
    "self.grid[i].r = self.grid[i].vel * self.grid[i].mom": None,
    "self.index[i] = self.index[i] * self.index[i]": None,
    "self.open[i] = self.open[i] * self.open[i]": None,
    "self.open[i] = self.open[i] * self.open[i] * 0.5": "TS102",
    "self.grid[0].mass = self.grid[i].vel": "TS105",
    "self.grid[i].mass = self.grid[0].vel": None,
}


@pytest.mark.parametrize("statement", MEMBERS)
@pytest.mark.thinned(4)
def test_members_of_fields_of_structs(statement):
    rules = [rule for rule, _ in list_rules(f"{FIELDS}            {statement}\n") if rule != "TS303"]
    assert rules == ([MEMBERS[statement]] if MEMBERS[statement] else [])


def test_a_condition_is_evaluated_again_only_after_a_change():
    text = FIELDS + "            if self.grid[i].mass > 0.0:\n"
    assert list_rules(text + "                self.grid[i].vel = 1.0\n") == []
    assert [rule for rule, _ in list_rules(text + "                self.grid[i].mass = 1.0\n")][:1] == ["TS107"]


def test_messages_have_the_members_as_they_are_written():
    text = HEAD.format(engine="quadrants") + FIELDS + "            if self.grid[i].mass > 0.0:\n"
    finding, *_ = lint_file("k.py", text + "                self.grid[i].mass = 1.0\n")
    assert finding.message.startswith("`self.grid[i].mass` decides a branch, and the kernel changes `self.grid.mass`")


OTHER = """
import quadrants as qd

def start(precision):
    global real, index, vec
    if precision == 32:
        real = qd.f32
    else:
        real = qd.f64
    index = qd.i32
    vec = qd.types.vector(3, real)

@qd.func
def twice(x):
    return x * 2.0

@qd.func
def of_memory(i):
    return memory[i]

class State:
    mass: qd.types.ndarray(dtype=qd.f32, ndim=1)
"""
OWN = """
import quadrants as ti
import package.other as other
from package.other import State

@ti.kernel
def k(state: State, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in y:
        a = other.real(0.0)
        b = other.index(0)
        a += state.mass[i]
        b += state.mass[i]  # truncated
        y[i] = a + b + other.twice(a)
        y[i] += other.of_memory(i)  # not read
        y[i] += other.unknown(i)  # not known
"""


def test_dtypes_functions_and_classes_of_another_file(tmp_path):
    """`other.real(0.0)` is a dtype, and a function that is given all its memory hides nothing."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/other.py").write_text(OTHER, "utf-8")
    path = tmp_path / "package/own.py"
    path.write_text(OWN, "utf-8")
    lines = OWN.splitlines()
    findings = [(one.rule, lines[one.line - 1].partition("#")[2].strip()) for one in lint_file(path)]
    assert findings == [("TS301", "truncated"), ("TS502", "not read"), ("TS502", "not known")]


def test_an_array_that_goes_where_no_analysis_follows_has_its_file():
    text = """
    @ti.func
    def given(y: ti.template(), i: int):
        hidden.use(y)

    @ti.kernel
    def k(y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
        for i in y:
            given(y, i)
    """
    assert "TS502" in [rule for rule, _ in list_rules(text)]


TOP_LEVELS = {
    "if ti.static(N > 2):\n        for i in y:\n            y[i] = 1.0\n    for i in y:\n        y[i] += 1.0": False,
    "if ti.static(N > 2):\n        y[0] = 1.0\n    else:\n        for i in y:\n            y[i] = 1.0": False,
    "if ti.static(N > 2):\n        y[0] = 1.0\n    for i in y:\n        y[i] += 1.0": True,
}


@pytest.mark.parametrize("body", TOP_LEVELS)
def test_a_branch_that_is_chosen_at_compilation_is_of_the_top_level(body):
    text = f"N = 3\n\n@ti.kernel\ndef k(y: ti.types.ndarray(dtype=ti.f32, ndim=1)):\n    {body}\n"
    assert ("TS201" in [rule for rule, _ in list_rules(text)]) is TOP_LEVELS[body]


NORMS = {
    "y[i] = x[i].norm()": True,
    "length = x[i].norm()\n        y[i] = length": True,
    "length = x[i].norm()\n        if length > 1.0:\n            y[i] = 1.0": False,
    "if x[i].norm() > 1.0:\n            y[i] = 1.0": False,
}


@pytest.mark.parametrize("body", NORMS)
def test_a_norm_that_only_decides_has_no_gradient(body):
    head = "@ti.kernel\ndef k(x: ti.template(), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):\n    for i in y:\n        "
    assert ("TS303" in [rule for rule, _ in list_rules(f"{head}{body}\n")]) is NORMS[body]


def test_a_local_of_a_block_is_its_own():
    text = """
    @ti.kernel
    def k(y: ti.types.ndarray(dtype=ti.f32, ndim=1), is_hot: int):
        for i in y:
            flux = y[i] * 2.0
            y[i] += flux
        if is_hot:
            for i in range(3):
                flux = 1.0
                y[i] += flux
    """
    assert "TS105" not in [rule for rule, _ in list_rules(text)]
