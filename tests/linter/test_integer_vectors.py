"""TS301 knows which vectors and matrices hold integers, which hold floats, and which it cannot tell."""

import linecache

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import lint_file

HEAD = """import {module} as ti

N = 4
ivec = ti.types.vector(4, ti.i32)
fvec = ti.types.vector(n=4, dtype=float)
imat = ti.types.matrix(2, 2, int)


@ti.func
def unseen(a):
    return ti.Vector([a, a, a, a])


@ti.dataclass
class Cell:
    corner: ti.math.ivec4
    center: ti.math.vec4


"""
INTEGERS = (
    "ti.Vector([0 for _ in ti.static(range(4))], dt=ti.i32)",
    "ti.Vector([0 for _ in ti.static(range(N))])",
    "ti.Vector([k for k in ti.static(range(4))])",
    "ti.Vector([0, 0, 0, 0])",
    "ti.Vector([0, -1, N, 0])",
    "ti.Vector([0.5, 0, 0, 0], ti.i32)",
    "ti.Vector([x[0], x[1], 0, 0])",
    "ivec(0)",
    "ivec(0, 1, 2, 3)",
    "ti.math.ivec4(0)",
    "ti.Vector.zero(ti.i32, 4)",
    "ti.Vector.zero(int, N)",
    "ti.Vector.one(ti.i64, 4)",
    "ti.Vector.unit(4, 1)",
    "ti.Vector.unit(4, 1, ti.i32)",
    "ti.zero(ivec(1))",
    "ti.cast(fvec(0.5), int)",
    "ti.cast(fvec(0.5), ti.i32)",
    "fvec(0.5).cast(int)",
    "ti.floor(fvec(0.5), ti.i32)",
    "-ivec(1)",
    "2 * ivec(1) + 1",
    "ivec(5) // 2",
    "ivec(5) % 2",
    "ivec(1) << 1",
    "ivec(1) & 3",
    "ti.max(ivec(1), 2)",
    "abs(ivec(-1))",
    "ti.select(x[0] > 0, ivec(1), ivec(2))",
)
FLOATS = (
    "ti.Vector([0.0, 1.0, 0.5, 2.0])",
    "ti.Vector([0.5 for _ in ti.static(range(4))])",
    "ti.Vector([0, 0, 0, 0], dt=float)",
    "ti.Vector([f[0], f[1], 0.0, 1.0])",
    "fvec(0)",
    "ti.math.vec4(0)",
    "ti.Vector.zero(ti.f32, 4)",
    "ti.Vector.one(float, 4)",
    "ti.Vector.unit(4, 1, ti.f32)",
    "ti.cast(ivec(1), ti.f32)",
    "ivec(1).cast(float)",
    "ivec(1) / 2",
    "ivec(1) * 0.5",
    "ti.floor(fvec(0.5))",
    "ti.sqrt(fvec(0.5))",
    "fvec(1).normalized()",
    "ti.math.normalize(fvec(1))",
    "ti.max(fvec(1), 2)",
)
MATRICES = {
    "imat(0)": "int",
    "ti.Matrix([[0, 1], [1, 0]])": "int",
    "ti.Matrix([[0, 1], [1, 0]], dt=ti.i32)": "int",
    "ti.Matrix([[0 for _ in ti.static(range(2))] for _ in ti.static(range(2))])": "int",
    "ti.Matrix.zero(ti.i32, 2, 2)": "int",
    "ti.Matrix.identity(int, 2)": "int",
    "imat(1).transpose()": "int",
    "ti.Matrix([[0.0, 1.0], [1.0, 0.0]])": "float",
    "ti.math.mat2(0)": "float",
    "ti.Matrix.identity(ti.f32, 2)": "float",
    "imat(1) * 0.5": "float",
}
UNKNOWN = (
    "unseen(0)",
    "unseen(0.5)",
    "ti.Vector([0, 1.5, 0, 0])",
    "ti.Vector([y[0], y[1], 0, 0])",
    "ti.Vector([unseen(1)[0], 0, 0, 0])",
    "ti.Vector(some_list)",
    "ti.Vector([0, 0, 0, 0], dt=real)",
    "Cell().corner",
    "ti.types.vector(4, ti.i32)(0)",
)
USES = {
    "n += v[0]": "`v[0]`",
    "n = v.x + n": "`v.x + n`",
    "n += 2 * v[j]": "`2 * v[j]`",
    "n = v.sum()": "`v.sum()`",
    "n = v.dot(v)": "`v.dot(v)`",
    "n = ti.max(n, v[0])": "`ti.max(n, v[0])`",
}
PARAMETERS = "x: ti.types.ndarray(dtype=ti.i32), f: ti.types.ndarray(dtype=ti.f32), y: ti.types.ndarray()"


def errors_of(lines, module="taichi"):
    body = "".join(f"        {line}\n" for line in lines)
    text = f"{HEAD.format(module=module)}@ti.kernel\ndef k({PARAMETERS}, given: ivec):\n    for i in range(1):\n{body}"
    return [one for one in lint_file("k.py", text) if one.rule == "TS301"]


@pytest.mark.parametrize("module", ["taichi", "quadrants"])
def test_numbers_of_vectors_in_integers(module):
    for made in (*INTEGERS, *UNKNOWN):
        for use in USES:
            assert errors_of([f"v = {made}", "n = 0", "j = 1", use], module) == [], made
    for made in FLOATS:
        for use, words in USES.items():
            (one,) = errors_of([f"v = {made}", "n = 0", "j = 1", use], module)
            assert (one.severity, one.remedy) == ("error", "n = 0.0"), made
            assert f"`n` holds integers since line 24, `0`: {words} is truncated to an integer" in one.message


@pytest.mark.parametrize("made", MATRICES)
def test_numbers_of_matrices(made):
    errors = errors_of([f"v = {made}", "n = 0", "n += v[0, 1]"])
    assert len(errors) == (MATRICES[made] == "float")
    errors = errors_of([f"v = {made}", "v[0, 1] += 0.5"])
    assert len(errors) == (MATRICES[made] == "int")


def test_floats_in_vectors_of_integers():
    for made in INTEGERS:
        (one,) = errors_of([f"v = {made}", "v[0] += 0.5"])
        assert one.message == f"`v` holds integers since line 23, `{made}`: `0.5` is truncated to an integer"
        assert one.remedy == "int(0.5)  # say so, or a vector of floats"
        assert len(errors_of([f"v = {made}", "v.x = 0.5", "v += 0.5"])) == 2
    assert len(errors_of(["v = given", "v[0] += 0.5"])) == 1  # its annotation says so
    for made in (*FLOATS, *UNKNOWN):
        assert errors_of([f"v = {made}", "v[0] += 0.5", "v += 0.5"]) == [], made


def test_types_of_vectors_are_the_engines(engine, lang):
    """Each row stores 2.5 in an entry of its vector: a vector of integers holds 2 then."""
    rows = [*((made, 2.0, "[0]") for made in INTEGERS), *((made, 2.5, "[0]") for made in FLOATS)]
    rows += [(made, 2.0 if kind == "int" else 2.5, "[0, 0]") for made, kind in MATRICES.items()]
    lines = [
        f"        v{k} = {made}\n        v{k}{place} = 2.5\n        y[{k}] = v{k}{place}\n"
        for k, (made, _, place) in enumerate(rows)
    ]
    text = f"{HEAD.format(module=engine)}@ti.kernel\ndef k({PARAMETERS}):\n    for i in range(1):\n{''.join(lines)}"
    path = f"<integer vectors {engine}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    scope = {"__name__": "vectors"}
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    y = torch.zeros(len(rows))
    scope["k"](torch.ones(4, dtype=torch.int32), torch.ones(4), y)
    assert y.tolist() == [value for _, value, _ in rows]
    marked = {one.line for one in ts.lint(scope["k"]) if one.rule == "TS301"}
    texts = text.splitlines()
    assert [texts[line - 2].strip() for line in sorted(marked)] == [
        f"v{k} = {made}" for k, (made, value, _) in enumerate(rows) if value == 2.0
    ]


SCOPES = {
    "two loops": ["for j in range(2):", "    a = 0", "for j in range(2):", "    a = 0.5", "    a += 0.5"],
    "two branches": ["if i > 3:", "    a = 0", "else:", "    a = 0.5", "    a += 0.5"],
    "two branches, one of which is compiled": ["if ti.static(N > 3):", "    a = 0", "else:", "    a = 0.5", "a += 0.5"],
    "a loop's variable": ["for j in range(2):", "    pass", "for k in range(2):", "    j = 0.5", "    j += 0.5"],
}


@pytest.mark.parametrize("name", SCOPES)
def test_locals_of_one_name_in_two_blocks_are_distinct(name):
    assert errors_of(SCOPES[name]) == []


def test_a_local_has_one_type_in_the_blocks_inside_its_own():
    lines = ["a = 0", "for j in range(2):", "    if j > 0:", "        a += 0.5", "for j in range(2):", "    a = 0.5"]
    assert [one.line for one in errors_of(lines)] == [26, 28]
    assert [one.line for one in errors_of(["if ti.static(N > 3):", "    a = 0", "a += 0.5"])] == [25]
