"""Which loops of the top level are taken in strips, and what they become."""

import ast
from dataclasses import replace

import pytest

from support.by_hand import DEFAULTS, array, assign, atomic, binary, branch, cast, kernel, local, loop, store, unary
from tinsmith.codegen import print_kernel
from tinsmith.ir import Type, nodes
from tinsmith.passes import has_vector_loops, strip_functions

X, Y, Z = array("x"), array("y"), array("z")
K, J = array("k_of", "i32"), array("m", rank=2)


def of(*body, arrays=(X, Y), end=None, **settings):
    return kernel(
        [*arrays], [loop("r", Y.size() if end is None else end, body, is_parallel=True, **settings)], a="f32", k="i32"
    )


def text(one):
    printed = print_kernel(one, dict.fromkeys(one.arrays, "_lang.types.ndarray()"), DEFAULTS)
    return ast.unparse(printed)


def test_a_loop_in_strips():
    body = [assign("a", X["r"] * 2.0), store(Y, "r", Y["r"] + unary("exp", local("a")))]
    assert text(strip_functions(of(*body))) == ast.unparse(
        ast.parse("""
def by_hand(x: _lang.types.ndarray(), y: _lang.types.ndarray()):
    for strip_of in range(y.shape[0] + 63 >> 6):
        strip_first = strip_of << 6
        strip_size = _lang.min(64, y.shape[0] - strip_first)
        y_ahead = _lang.Vector([0.0] * 64, dt=_lang.f32)
        for lane in range(strip_size):
            r_1 = strip_first + lane
            a_1 = x[r_1] * 2.0
            y_value = y[r_1] + _exp(a_1)
            y_ahead[lane] = y_value
        for lane_1 in range(strip_size):
            r = strip_first + lane_1
            y[r] = y_ahead[lane_1]
""")
    )


def test_strips_in_vectors():
    """What is read comes first, and what is stored last; strips of fewer iterations are loops."""
    r = local("r", "i32")
    body = [assign("a", X[r + 1] * X["r"]), store(Y, "r", Y["r"] + local("a")), store(Z, "r", Y["r"] + cast(r, "f32"))]
    printed = text(strip_functions(of(*body, arrays=(X, Y, Z)), has_vectors=True))
    vectors, loops = printed.split("        else:\n")
    assert "if (strip_size == 64) & (x.shape[0] <= 1073741824) & (y.shape[0] <= 1073741824) & (z" in vectors
    lines = [line.strip() for line in vectors.splitlines()]
    every = "for entry_1 in _lang.static(range(16))"
    places = ", ".join(map(str, range(16)))
    assert lines[lines.index("for part in range(4):") + 1 :] == [
        "base = strip_first + part * 16",
        "at = base + 1 & 1073741823",
        "at_1 = base & 1073741823",
        f"r_2_1 = base + _lang.Vector([{places}], dt=_lang.i32)",
        f"vector_1 = _lang.Vector([x[at + entry_1] {every}], dt=_lang.f32)",
        "x_at_2 = vector_1",
        f"vector_2 = _lang.Vector([x[at_1 + entry_1] {every}], dt=_lang.f32)",
        "x_at_1_1 = vector_2",
        f"vector_3 = _lang.Vector([y[at_1 + entry_1] {every}], dt=_lang.f32)",
        "y_at_1 = vector_3",
        "a_2_1 = x_at_2 * x_at_1_1",
        "y_value_1_1 = y_at_1 + a_2_1",
        f"vector_4 = _lang.Vector([_lang.cast(r_2_1[entry_1], _lang.f32) {every}], dt=_lang.f32)",
        "z_value_1_1 = y_value_1_1 + vector_4",
        f"{every}:",
        "y[at_1 + entry_1] = y_value_1_1[entry_1]",
        f"{every}:",
        "z[at_1 + entry_1] = z_value_1_1[entry_1]",
    ]
    # The last strip is the loop as it was written, but counted by a float, so that compilers do not unroll it.
    assert [line.strip() for line in loops.splitlines()] == [
        "r = strip_first",
        "left = _lang.cast(strip_size, _lang.f64)",
        "while True:",
        "if left < _lang.f64(0.5):",
        "break",
        "a = x[r + 1] * x[r]",
        "y[r] = y[r] + a",
        "z[r] = y[r] + _lang.cast(r, _lang.f32)",
        "left = left - _lang.f64(1.0)",
        "r = r + 1",
    ]


def test_the_last_strip_has_the_functions_of_the_others():
    printed = text(strip_functions(of(store(Y, "r", unary("exp", X["r"]))), has_vectors=True))
    vectors, loops = printed.split("        else:\n")
    assert "_exp_of_16(" in vectors
    assert "_exp(x[" in loops


@pytest.mark.parametrize("count", [10, 23, 24])
def test_many_arrays_are_not_read_in_vectors(count):
    """Engines compile for a time that goes with the square of the elements of all lanes."""
    arrays = [array(f"x{place}") for place in range(count)]
    total = arrays[0]["r"]
    for one in arrays[1:]:
        total = total + one["r"]
    changed = strip_functions(of(store(Y, "r", total), arrays=(*arrays, Y)), has_vectors=True)
    assert has_vector_loops(changed) is (count < 24)


def test_arrays_that_are_stored_by_whole_vectors():
    """All loads of a strip come before its stores; an element by itself is a place in a vector."""
    one = strip_functions(of(store(Y, "r", Y["r"] * X["r"])), has_vectors=True, aligned={"y"})
    assert {name: array.vector_width for name, array in one.arrays.items()} == {"x": 0, "y": 16}
    vectors, loops = text(one).split("        else:\n")
    every = "for entry_1 in _lang.static(range(16))"
    places = ["entry_1", "(16 + entry_1)", "(32 + entry_1)", "(48 + entry_1)"]
    wholes = ["at >> 4", "(at >> 4) + 1", "(at >> 4) + 2", "(at >> 4) + 3"]
    lines = [line.strip() for line in vectors.splitlines()]
    assert [line.split(" = ", 1)[1] for line in lines[lines.index("vector_1 = y[at >> 4]") :]] == [
        *(part for n, whole in enumerate(wholes, 1) for part in (f"y[{whole}]", f"vector_{n}")),
        *(
            part
            for n, place in enumerate(places, 5)
            for part in (f"_lang.Vector([x[at + {place}] {every}], dt=_lang.f32)", f"vector_{n}")
        ),
        *(f"y_at_{n} * x_at_{n}" for n in range(1, 5)),
        *(f"y_value_1_{n}" for n in range(1, 5)),
    ]
    assert "y[r >> 4][r & 15] = y[r >> 4][r & 15] * x[r]" in loops


def test_arrays_that_are_loaded_by_whole_vectors():
    one = strip_functions(of(store(Y, "r", 2.0 * X["r"])), has_vectors=True, aligned={"x", "y"})
    assert {name: array.vector_width for name, array in one.arrays.items()} == {"x": 16, "y": 16}
    vectors, loops = text(one).split("        else:\n")
    assert "_lang.Vector(" not in vectors
    assert "vector_2 = x[(at >> 4) + 1]" in vectors
    assert "y[r >> 4][r & 15] = 2.0 * x[r >> 4][r & 15]" in loops


def test_long_iterations_go_vector_by_vector():
    value = X["r"]
    for _ in range(9):
        value = value * X["r"]
    printed = text(strip_functions(of(store(Y, "r", value)), has_vectors=True, aligned={"y"}))
    assert "for part in range(4):" in printed and "y[at >> 4] = y_value_1_1" in printed


R = local("r", "i32")
NUMBER_BY_NUMBER = {
    "beside the iteration's own": of(store(Y, R + 1, X["r"])),
    "read beside the iteration's own": of(store(Y, "r", X["r"]), store(Z, "r", Y[0]), arrays=(X, Y, Z)),
    "used by another loop": kernel(
        [X, Y], [loop("r", Y.size(), [store(Y, "r", X["r"])]), loop("s", 9, [store(Y, X.size(), 1.0)])]
    ),
    "used outside of loops": kernel([X, Y], [loop("r", Y.size(), [store(Y, "r", X["r"])]), store(Y, 0, 1.0)]),
    "in a loop that begins elsewhere": kernel(
        [X, Y],
        [replace(loop("r", Y.size(), [store(Y, "r", X["r"])]), bounds=((nodes.Const(1, Type.I32), Y.size().expr),))],
    ),
    "of several axes": of(store(J, (2, "r"), X["r"]), arrays=(X, Y, J)),
    "of other numbers than are stored": of(store(Y, "r", K["r"]), arrays=(X, Y, K)),
    "whose memory may begin anywhere": of(store(Z, "r", X["r"]), arrays=(X, Y, Z)),
}


@pytest.mark.parametrize("name", NUMBER_BY_NUMBER)
def test_arrays_that_are_stored_number_by_number(name):
    one = strip_functions(NUMBER_BY_NUMBER[name], has_vectors=True, aligned={"y", "m"})
    assert not any(array.vector_width for array in one.arrays.values())


def test_vectors_that_an_engine_takes_whole():
    """Quadrants makes no vector of casts and functions that are written number by number."""

    def is_in_vectors(value):
        return has_vector_loops(strip_functions(of(store(Y, "r", value)), has_vectors=True, has_fast_vectors=True))

    assert is_in_vectors(X["r"] * 2.0 - unary("sqrt", X["r"]))
    assert not is_in_vectors(unary("exp", X["r"]))
    assert not is_in_vectors(cast(local("r", "i32"), "f32") * X["r"])


def test_an_array_without_axes_is_read_by_vectors_as_it_is():
    """It has no size that could be too large."""
    scale = array("scale", rank=0)
    one = text(strip_functions(of(store(Y, "r", X["r"] * scale[()]), arrays=(X, Y, scale)), has_vectors=True))
    assert "if (strip_size == 64) &" in one
    assert "scale.shape" not in one


def test_elements_of_rows_in_vectors():
    """The number of an element is masked as a whole, and arrays of more elements use the loops."""
    one = text(strip_functions(of(store(Y, "r", J[2, "r"]), arrays=(Y, J)), has_vectors=True))
    assert "& (m.shape[0] * m.shape[1] <= 1073741824)" in one
    assert "at = 2 * m.shape[1] + base & 1073741823" in one
    assert "m[0, at + entry_1]" in one


@pytest.mark.parametrize("value", [unary("sin", X["r"]), unary("log", X["r"])], ids=["sin", "log"])
def test_strips_that_stay_loops(value):
    one = of(store(Y, "r", value), arrays=(X, Y, J))
    assert text(strip_functions(one, has_vectors=True)) == text(strip_functions(one))


GOES = {
    "a copy": of(store(Y, "r", X["r"])),
    "an element beside": of(store(Y, "r", X[local("r", "i32") + 1])),
    "an element for all": of(store(Y, "r", X[0] * X["r"])),
    "in place": of(store(X, "r", X["r"] * 2.0)),
    "a place by a local": of(assign("k", local("r", "i32") + 1), store(Y, local("k", "i32"), X["r"])),
    "what this iteration changed": of(store(Y, "r", X["r"]), store(X, "r", Y["r"])),
    "a serial loop": kernel([X, Y], [loop("r", Y.size(), [store(Y, "r", X["r"])])]),
}


@pytest.mark.parametrize("name", GOES)
def test_eligible_loops_run_in_strips(name):
    assert "strip_of" in text(strip_functions(GOES[name]))


def test_stored_elements_are_read_from_locals():
    body = [store(Y, "r", Y["r"] + X["r"]), store(Y, "r", Y["r"] * 2.0), store(X, "r", Y["r"])]
    lines = [line.strip() for line in text(strip_functions(of(*body))).splitlines()]
    assert "y_value_1 = y_value * 2.0" in lines and "x_value = y_value_1" in lines
    assert lines[-2:] == ["y[r] = y_ahead[lane_1]", "x[r] = x_ahead[lane_1]"]


STAYS = {
    "with a branch": of(branch(X["r"] > 0.0, [store(Y, "r", X["r"])])),
    "of a short loop": of(store(Y, "r", X["r"]), end=7),
    "of what another iteration changes": of(store(X, local("r", "i32") + 1, X["r"])),
    "of an array that is stored to at two places": of(
        store(X, local("r", "i32") + 1, 1.0), store(X, "r", X["r"] * 2.0)
    ),
    "to a place from memory": of(store(Y, K["r"], X["r"]), arrays=(X, Y, K)),
    "from a place from memory": of(store(Y, "r", X[K["r"]]), arrays=(X, Y, K)),
    "to one place": of(store(Y, 0, X["r"])),
    "down a column": of(store(Y, "r", J["r", 0]), arrays=(X, Y, J)),
    "every second element": of(store(Y, "r", X[local("r", "i32") * 2])),
    "of a function that there is no arithmetic for": of(store(Y, "r", unary("asin", X["r"]))),
    "of whole numbers divided": of(store(K, "r", binary("//", K["r"], 3)), arrays=(K, Y)),
    "that cuts off digits": of(assign("k", cast(X["r"], "i32")), store(Y, "r", local("k", "i32") * 1.0)),
    "of a local that iterations hand on": kernel(
        [X, Y],
        [assign("a", 0.0), loop("r", Y.size(), [assign("a", local("a") + X["r"]), store(Y, "r", local("a"))])],
        a="f32",
    ),
    "of a field": of(store(Y, "r", array("f", label="f")["r"]), arrays=(X, Y, array("f", label="f"))),
    "of vectors": of(store(Y, "r", array("v", element=(3,)).at("r", (0,))), arrays=(X, Y, array("v", element=(3,)))),
    "of half precision": of(store(Y, "r", array("h", "f16")["r"]), arrays=(X, Y, array("h", "f16"))),
}


@pytest.mark.parametrize("name", STAYS)
def test_ineligible_loops_stay(name):
    assert strip_functions(STAYS[name]) is STAYS[name]


def inside(*body, arrays=(X, Y), end=None, after=(), **settings):
    """Build a kernel whose loop over steps has a loop of these statements."""
    inner = loop("s", Y.size() if end is None else end, body)
    return kernel([*arrays], [loop("r", 9, [assign("a", 0.0), inner, *after], **settings)], a="f32", b="f32")


S = local("s", "i32")
GOES_INSIDE = {
    "a copy": inside(store(Y, "s", X["s"])),
    "in place": inside(store(Y, "s", Y["s"] * X["s"])),
    "of many rows": inside(store(Y, "s", X["s"]), is_parallel=True),
    "with ends of its own": inside(store(Y, "s", X["s"]), branch(S > 0, [store(Y, "s", X[S - 1])])),
    "row by row": inside(store(J, ("r", "s"), J[local("r", "i32") + 1, S] * Y["s"]), arrays=(J, Y)),
    "by a local from around it": inside(store(Y, "s", X[S + local("r", "i32")])),
    "a sum that is atomic without need": inside(atomic("add", Y, "s", X["s"])),
    "a difference that is": inside(atomic("sub", Y, "s", X["s"])),
}
STAYS_INSIDE = {
    "of one array": inside(store(Y, "s", Y["s"] * 2.0)),
    "of a short loop": inside(store(Y, "s", X["s"]), end=7),
    "of a local that iterations hand on": inside(assign("a", local("a") + X["s"]), store(Y, "s", local("a"))),
    "of a local that is read afterwards": inside(
        assign("a", X["s"]), store(Y, "s", local("a")), after=[store(X, 0, local("a"))]
    ),
    "of a local that the next step reads": inside(
        store(Y, "s", local("b")), assign("b", X["s"]), after=[store(X, 0, local("b"))]
    ),
    "of a row that it reads": inside(store(J, ("r", "s"), J["r", S + 1] * Y["s"]), arrays=(J, Y)),
    "of a row that may be the same": inside(store(J, ("r", "s"), J[X.size(), S] * Y["s"]), arrays=(X, J, Y)),
    "of a sum that other threads add to": inside(atomic("add", Y, "s", X["s"]), is_parallel=True),
}


@pytest.mark.parametrize("name", GOES_INSIDE)
def test_eligible_inner_loops_run_in_strips(name):
    printed = text(strip_functions(GOES_INSIDE[name]))
    assert "strip_of" in printed and "atomic" not in printed, printed


@pytest.mark.parametrize("name", STAYS_INSIDE)
def test_ineligible_inner_loops_stay(name):
    assert strip_functions(STAYS_INSIDE[name]) is STAYS_INSIDE[name]


def test_a_loop_inside_another_one_has_its_text_and_its_strips_once():
    """The text runs what is too short for strips, and both ends where it has any."""
    printed = text(strip_functions(inside(store(Y, "s", X["s"]))))
    assert "strip_low = _lang.select(y.shape[0] >= 8, 0, y.shape[0])" in printed
    assert printed.count("y[s] = x[s]") == 1 and "for s in range(strip_low):" in printed
    near = [branch(S > 0, [store(Y, "s", X[S - 1])]), branch(S < Y.size() - 1, [store(Y, "s", X[S + 1])])]
    printed = text(strip_functions(inside(*near)))
    assert printed.count("y[s] = x[s - 1]") == 1 and "for part in range(2):" in printed, printed
