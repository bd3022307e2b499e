"""What lint looks at: ops with specs, fields of objects, engine functions, kernels of factories; what it leaves."""

import ast
import sys
import textwrap

import pytest
import torch

import tinsmith as ts
from fuzz._grammar import write
from support.engine_keeper import ENGINES
from tinsmith.linter import lint_file, lint_kernels

pytestmark = pytest.mark.thinned(4)


def list_rules(text, path="k.py"):
    return [(one.rule, one.line) for one in lint_file(path, textwrap.dedent(text)) if one.severity != "info"]


def test_an_input_that_is_written():
    text = """
    import taichi as ti, tinsmith as ts

    @ts.op("x[n], w[n] -> y[n]")
    @ti.kernel
    def k(x: ti.types.ndarray(), w: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            w[i] = 0.0
            y[i] = x[i]
    """
    assert list_rules(text) == [("TS103", 8)]
    assert not list_rules(text.replace("x[n], w[n] -> y[n]", "x[n] -> y[n], w[n]"))


ARRAY_TYPES = {
    "another name of the type": ("nd = ti.types.ndarray", "nd()"),
    "another name of a type of numbers": ("Row = ti.types.ndarray(dtype=ti.f32, ndim=1)", "Row"),
    "an imported type": ("from shapes import Row", "Row"),
    "a type of an imported module": ("import shapes", "shapes.Row"),
    "an imported name of the type": ("from shapes import nd", "nd(ti.f32, 1)"),
}


@pytest.mark.parametrize("case", ARRAY_TYPES)
@pytest.mark.parametrize("is_local", [False, True], ids=["of the file", "in a function"])
def test_names_of_array_types(tmp_path, case, is_local):
    (tmp_path / "shapes.py").write_text(
        "import taichi as ti\n\nnd = ti.types.ndarray\nRow = ti.types.ndarray(dtype=ti.f32, ndim=1)\n", "utf-8"
    )
    line, annotation = ARRAY_TYPES[case]
    body = f"""
    {line}
    @ti.kernel
    def k(x: {annotation}, y: {annotation}):
        for i in range(1, 5):
            y[i] = y[i - 1] + x[i]
    """
    body = textwrap.dedent(body).strip()
    text = "import taichi as ti\n" + ("def make():\n" + textwrap.indent(body, "    ") if is_local else body)
    assert list_rules(text, str(tmp_path / "k.py")) == [("TS106", 6 + is_local)]


def test_the_spec_says_what_is_an_array_where_an_annotation_is_unknown():
    text = """
    import taichi as ti, tinsmith as ts
    from elsewhere import Row, Number

    @ts.op("x[n], s[] -> y[n]")
    @ti.kernel
    def k(x: Row, s: Number, y: Row):
        for i in range(1, 5):
            y[i] = s * y[i - 1] + x[i]
    """
    assert list_rules(text) == [("TS106", 9)]


def test_an_op_that_a_call_makes():
    text = """
    import taichi as ti, tinsmith as ts

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            x[i] = 0.0

    op = ts.op("x[n] -> y[n]")(k)
    """
    assert list_rules(text) == [("TS103", 7)]


@pytest.mark.parametrize("static", ["ti.static", "static"])
def test_a_loop_that_is_unrolled_keeps_nothing(static):
    """Also one over a `static` that was imported by itself."""
    text = f"""
    import taichi as ti, tinsmith as ts
    from taichi import static

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            p = 1.0
            for j in range(7):
                q = x[j]
                for _ in {static}(range(8)):
                    q = q * q
                p = p * x[j] * q
            y[i] = p
    """
    assert not list_rules(text)
    assert list_rules(text.replace(f"{static}(range(8))", "range(8)")) == [("TS204", 11)]


def test_a_remedy_names_the_module_that_the_kernel_uses():
    names = ["lang", "lang64", "engine"]
    text = """
    def build(NAME):
        @NAME.kernel
        def k(x: NAME.types.ndarray(), y: NAME.types.ndarray()):
            for i in x:
                p = 1.0
                for j in range(x.shape[0]):
                    p = p * x[j]
                y[i] = p
    """
    file = "".join(textwrap.dedent(text).replace("NAME", name) for name in names)
    remedies = [one.remedy for one in lint_file("k.py", file) if one.rule == "TS204"]
    assert remedies == [f"{name}.init(ad_stack_size=...)  # or Quadrants" for name in names]


@pytest.mark.parametrize("loop", ["for i in x:", "for _ in range(1):"])
def test_an_output_that_is_read_first(loop):
    text = f"""
    import taichi as ti, tinsmith as ts

    @ts.op("x[n] -> y[n], z[n]")
    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
        {loop}
            z[0] += y[0] * x[0]
        for j in x:
            y[j] = x[j]
    """
    assert ("TS104", 8) in list_rules(text)
    turned = text.replace("z[0] += y[0] * x[0]", "y[0] += x[0]; z[0] += y[0]")
    assert "TS104" not in [rule for rule, _ in list_rules(turned)]


def output_of(loop, statement, before=""):
    return f"""
    import taichi as ti, tinsmith as ts

    @ts.op("x[n, m], k[n]: i32 -> y[n, m]")
    @ti.kernel
    def op(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
        for _ in range(1):
            {before or "pass"}
        for {loop}:
            {statement}
    """


@pytest.mark.parametrize(
    ("loop", "statement"),
    [
        ("i, j in x", "y[i, j] = y[i, j] * 0.9 + x[i, j]"),
        ("i, j in x", "y[i, j] = x[i, j] - 0.9 * y[i, j]"),
        ("I in ti.grouped(x)", "y[I] = 0.1 * x[I] + y[I] / 2.0"),
        ("i in range(x.shape[0])", "y[2 * i + 1, 0] = y[2 * i + 1, 0] * x[i, 0]"),
        ("i, j in x", "y[i, j] *= 0.9"),
    ],
)
def test_an_output_that_is_scaled_before_anything_was_written(loop, statement):
    assert ("TS104", 10) in list_rules(output_of(loop, statement))
    written = output_of(loop, statement, "y[0, 0] = 1.0")
    assert "TS104" not in [rule for rule, _ in list_rules(written)]


@pytest.mark.parametrize(
    ("loop", "statement"),
    [
        ("i, j in x", "y[i, j] = y[i, j] + x[i, j] + 1.0"),  # a sum begins at zero
        ("i, j in x", "y[i, j] = y[i, j] - x[i, j]"),
        ("i, j in x", "y[i, j] = ti.max(y[i, j], x[i, j])"),
        ("i, j in x", "y[i, j] |= 1"),
        ("i, j in x", "ti.atomic_max(y[i, 0], x[i, j])"),
        ("i, j in x", "y[i + j, 0] = y[i + j, 0] * 0.9 + x[i, j]"),  # another iteration's, by a race
        ("i in range(8)", "y[i // 2, 0] = y[i // 2, 0] * 0.9 + x[i, 0]"),
        ("i in range(8)", "y[k[i], 0] = y[k[i], 0] * 0.9 + x[i, 0]"),
        ("i in range(8)", "for j in range(8): y[i, 0] = y[i, 0] * 0.9 + x[i, j]"),
        ("i in range(8)", "for j in ti.static(range(8)): y[i, 0] *= x[i, j]"),
    ],
)
def test_an_output_that_may_begin_at_zero_or_be_another_iteration_s(loop, statement):
    assert "TS104" not in [rule for rule, _ in list_rules(output_of(loop, statement))]


def test_outputs_of_earlier_kernels_of_a_chain_count_as_written(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]

    @lang.kernel
    def second(y: lang.types.ndarray()):
        for i in y:
            y[i] = y[i] * 0.9

    @lang.kernel
    def third(y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in y:
            z[i] = y[i] * 0.9

    def rules(*kernels):
        return [one.rule for one in ts.chain("x[n] -> y[n], z[n]", kernels).lint()]

    assert "TS104" not in rules(first, second, third)
    assert rules(second, first, third).count("TS104") == rules(third, first).count("TS104") == 1


@pytest.mark.parametrize("name", ["atomic_max", "atomic_min"])
def test_the_remedy_for_an_atomic_max_is_the_generated_gradient(name):
    """A running maximum in a local would not do: Taichi's reverse mode gets that wrong too (TS405)."""
    text = f"""
    import taichi as ti

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            ti.{name}(y[0], x[i])
        for i in x:
            y[i] = ti.sin(y[i])
    """
    first, *_ = (one for one in lint_file("k.py", textwrap.dedent(text)) if one.rule == "TS102")
    assert first.line == 7
    words = 'without adjoint="engine": tinsmith gives the gradient to the value that won'
    assert first.remedy == f'@ts.op("... -> y[...]")  # {words}'
    alone = lint_file("k.py", textwrap.dedent(text).replace(f"ti.{name}(y[0], x[i])", "pass"))
    assert [one.remedy for one in alone if one.rule == "TS102"] == ["a local, stored once"]


def test_fields_of_an_object():
    text = """
    import taichi as ti

    @ti.data_oriented
    class Swarm:
        def __init__(self):
            self.x = ti.field(ti.f32, 8)
            self.sum = ti.field(ti.f32, ())
            self.drag = 0.5

        @ti.func
        def slowed(self, v):
            return v * self.drag

        @ti.kernel
        def step(self):
            for i in self.x:
                self.sum[None] = self.slowed(self.x[i])
                self.x[i] = ti.sin(self.x[i])
    """
    assert list_rules(text) == [("TS105", 18), ("TS101", 19)]
    by_rule = {one.rule: one for one in lint_file("k.py", textwrap.dedent(text))}
    assert "`self.sum[None]`" in by_rule["TS105"].message
    assert "`self.x`" in by_rule["TS101"].message
    assert (by_rule["TS409"].line, by_rule["TS409"].severity) == (13, "info")


def test_arrays_passed_to_functions():
    text = """
    import taichi as ti

    @ti.func
    def mark(y: ti.template(), i):
        y[i + 1] = y[i] + 1.0

    @ti.kernel
    def k(y: ti.types.ndarray()):
        for i in range(9):
            mark(y, i)
    """
    assert list_rules(text) == [("TS106", 11)]


def test_kernels_of_a_factory():
    text = """
    def build(lang, n):
        @lang.kernel
        def k(x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[n] = x[i]
        return k
    """
    assert list_rules(text) == [("TS105", 6)]


@pytest.mark.parametrize("text", ["import warp as wp", "from numba import cuda as wp"])
def test_kernels_of_other_libraries_are_not_linted(text):
    kernel = "@wp.kernel\ndef k(x: int, y: int):\n    for i in x:\n        y[0] = x[i]\n"
    assert not lint_file("k.py", f"{text}\n{kernel}")


@pytest.mark.parametrize(
    ("comment", "is_named"),
    [
        ("# tinsmith: ignore", False),
        ("# tinsmith: ignore[TS105]", False),
        ("# tinsmith: ignore[TS101, TS105]", False),
        ("# tinsmith: ignore[TS101]", True),
        ("# it is right to ignore this", True),
    ],
)
def test_a_comment_turns_findings_of_its_line_off(comment, is_named):
    head = "import taichi as ti\n@ti.kernel\ndef k(x: ti.types.ndarray(), y: ti.types.ndarray()):\n"
    text = f"{head}    for i in x:\n        y[0] = x[i]  {comment}\n"
    assert bool(lint_file("k.py", text)) == is_named


def test_a_comment_behind_a_joined_line_and_one_that_leaves_the_next_mistake_named():
    text = """
    import taichi as ti

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[0] = \\
                x[i]  # tinsmith: ignore[TS105]
            y[1] = x[i]
    """
    assert list_rules(text) == [("TS105", 9)]


RACES = "@ti.kernel\ndef k(x: ti.types.ndarray(), y: ti.types.ndarray()):\n    for i in x:\n        y[0] = x[i]"


@pytest.mark.parametrize("mark", ["\f", "s = 'a\u2028b'\n", "s = 'a\x1db'\n"])
def test_lines_are_counted_as_python_counts_them(mark):
    text = f"import taichi as ti\n{mark}{RACES}"
    assert [one.rule for one in lint_file("k.py", text)] == ["TS105"]
    assert lint_file("k.py", f"{text}  # tinsmith: ignore\n") == []


def test_a_column_counts_characters():
    line = "        y[0] = x[i]"
    findings = lint_file("k.py", f"import taichi as ti\n{RACES}".replace(line, f"        é = 1; {line.strip()}"))
    assert [(one.line, one.column) for one in findings if one.rule == "TS105"] == [(5, 16)]


@pytest.mark.parametrize("outside", ["class A:\n    class B:", "for _ in range(3):", "while False:"])
def test_kernels_in_loops_and_in_classes_of_classes(outside):
    depth = 4 * len(outside.splitlines())
    text = f"import taichi as ti\n{outside}\n{textwrap.indent(RACES, depth * ' ')}\n"
    assert [one.rule for one in lint_file("k.py", text)] == ["TS105"]


BLOCKS = {
    "if": "if a:\n    {}",
    "else": "if a:\n    pass\nelse:\n    {}",
    "elif": "if a:\n    pass\nelif b:\n    {}",
    "for else": "for _ in a:\n    pass\nelse:\n    {}",
    "while": "while a:\n    {}",
    "while else": "while a:\n    pass\nelse:\n    {}",
    "with": "with a:\n    {}",
    "try": "try:\n    {}\nfinally:\n    pass",
    "except": "try:\n    pass\nexcept OSError:\n    {}",
    "try else": "try:\n    pass\nexcept OSError:\n    pass\nelse:\n    {}",
    "finally": "try:\n    pass\nfinally:\n    {}",
    "match": "match a:\n    case 1:\n        pass\n    case _:\n        {}",
    "def": "def f():\n    {}",
    "async def": "async def f():\n    {}",
    "async for": "async def f():\n    async for _ in a:\n        {}",
    "async with": "async def f():\n    async with a:\n        {}",
    "class": "class A:\n    {}",
}
if sys.version_info >= (3, 11):
    BLOCKS["except*"] = "try:\n    pass\nexcept* OSError:\n    {}"


def in_block(outside, inside):
    """Return a block with these statements in place of {}."""
    [place] = [line for line in outside.splitlines() if "{}" in line]
    return outside.replace(place, textwrap.indent(inside, place.removesuffix("{}")))


def test_all_statements_with_blocks_are_tried():
    """A new version of Python may have more of them."""
    tried = {type(node) for block in BLOCKS.values() for node in ast.walk(ast.parse(block.format("pass")))}
    assert {kind for kind in ast.stmt.__subclasses__() if {"body", "cases"} & {*kind._fields}} <= tried


@pytest.mark.parametrize("around", [None, "class", "async def", "def"])
@pytest.mark.parametrize("block", BLOCKS)
def test_kernels_in_blocks(block, around):
    """The block stands at the top level, or in a class or a function."""
    text = in_block(BLOCKS[block], RACES)
    text = in_block(BLOCKS[around], text) if around else text
    assert [one.rule for one in lint_file("k.py", f"import taichi as ti\n{text}\n")] == ["TS105"]


def test_imports_in_blocks_of_functions():
    text = """
    def build():
        try:
            from taichi import kernel, types
        except ImportError:
            return None

        @kernel
        def k(x: types.ndarray(), y: types.ndarray()):
            for i in x:
                y[0] = x[i]

        return k
    """
    assert list_rules(text) == [("TS105", 11)]


def test_unrolled_loops_by_a_name_of_their_own():
    text = """
    import taichi as ti
    from taichi import static

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            s = 1.0
            for j in static(range(40)):
                s = s * x[j]
            y[i] = s
    """
    assert not list_rules(text)


def test_a_list_of_fields_is_not_one_array():
    text = """
    import taichi as ti
    z = [ti.field(ti.f32, 8 >> k) for k in range(3)]

    @ti.kernel
    def k(level: ti.template()):
        for i in z[level]:
            z[level][i] = z[level + 1][i // 2]
    """
    assert not list_rules(text)


def test_floats_that_an_array_of_integers_is_given():
    """`=` into an array that was declared to hold them may be meant, as of colors; `+=` loses every part."""
    text = """
    import taichi as ti

    pixels = ti.field(ti.u8, 8)
    counts = ti.field(ti.i32)
    entries = ti.field(ti.i32)
    nodes = ti.root.dense(ti.i, 8)
    nodes.place(counts)
    nodes.dynamic(ti.j, 8).place(entries)

    @ti.kernel
    def k():
        for i in pixels:
            pixels[i] = ti.random() * 255
            pixels[i] += ti.random() * 255
            counts[i] = ti.length(entries.parent(), i)
            counts[i] = ti.math.length(ti.Vector([1.0, 2.0]))
    """
    findings = [one for one in lint_file("k.py", textwrap.dedent(text)) if one.rule == "TS301"]
    assert [(one.severity, one.line) for one in findings] == [("warning", 14), ("error", 15), ("warning", 17)]


def test_a_file_with_a_syntax_error():
    with pytest.raises(SyntaxError):
        lint_file("k.py", "def k(:\n")


def test_functions_and_specs_of_ops_in_memory(lang):
    @lang.func
    def rooted(v):
        n = 0
        n += lang.sqrt(v) + 1.0
        return n

    @ts.op("x[n] -> y[n], z[n]: i32")
    @lang.kernel
    def k(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i] = rooted(x[i])
            z[i] += x[i] * 0.5

    findings = lint_kernels([k.kernel], k.spec)
    errors = [one for one in findings if one.severity == "error"]
    assert [one.rule for one in errors] == ["TS301", "TS301"]  # in the function, and z holds integers
    assert "`n` holds integers" in errors[0].message


@pytest.mark.costly
@pytest.mark.parametrize("name", ENGINES)
def test_random_kernels_have_no_errors(name):
    """They are right: the fuzz compares what they compute with what the interpreter says."""
    for seed in range(ENGINES.index(name), 300, 2):
        source = write(seed).source.replace("def kernel(", "@lang.kernel\ndef kernel(")
        findings = lint_file(f"{seed}.py", f"import {name} as lang\n{source}")
        assert not [one for one in findings if one.severity == "error"]


# Fields that functions name themselves -----------------------------------------------------------

IN_FUNCTIONS = {
    "a global": (
        """
        @ti.func
        def squared(i):
            return s[i] * s[i]

        @ti.kernel
        def k():
            for i in s:
                s[i] = squared(i)  #!
        """,
        "TS101",
    ),
    "a function of a function": (
        """
        @ti.func
        def value(i):
            return s[i]

        @ti.func
        def squared(i):
            return value(i) * value(i)

        @ti.kernel
        def k():
            for i in s:
                s[i] = squared(i)  #!
        """,
        "TS101",
    ),
    "stored by the function": (
        """
        @ti.func
        def put(i, v):
            s[i] = v  #!

        @ti.kernel
        def k():
            for i in range(3):
                put(i, s[i] * s[i])
        """,
        "TS101",
    ),
    "handed on by a serial loop": (
        """
        @ti.func
        def before(t):
            return s[t]

        @ti.kernel
        def k():
            ti.loop_config(serialize=True)
            for t in range(2):
                s[t + 1] = before(t) * 1.5  #!
        """,
        "TS108",
    ),
    "a method": (
        """
        @ti.data_oriented
        class Sim:
            def __init__(self):
                self.s = s

            @ti.func
            def squared(self, i):
                return self.s[i] * self.s[i]

            @ti.kernel
            def k(self):
                for i in range(3):
                    self.s[i] = self.squared(i)  #!

        k = Sim().k
        """,
        "TS101",
    ),
}


@pytest.mark.parametrize("name", IN_FUNCTIONS)
def test_fields_that_functions_name_themselves(lang, engine, tmp_path, name):
    """In a file that nobody runs, and in a kernel that lives."""
    body, rule = IN_FUNCTIONS[name]
    text = f"import {engine} as ti\ns = ti.field(ti.f32, shape=3, needs_grad=True)\n{textwrap.dedent(body)}"
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "#!" in one)
    path = tmp_path / "fields.py"
    path.write_text(text)
    scope = {"__name__": "fields"}
    exec(compile(text, path, "exec", dont_inherit=True), scope)
    for findings in (lint_file(path), lint_kernels([scope["k"]])):
        assert [(one.rule, one.line) for one in findings] == [(rule, line)]
        assert "`s`" in findings[0].message or "`self.s`" in findings[0].message


def test_a_call_is_shown_as_it_is_written():
    """And not with what is handed to it besides."""
    text = """
    import taichi as ti

    @ti.data_oriented
    class Sim:
        @ti.func
        def value(self, i):
            return self.s[i]

        @ti.kernel
        def k(self):
            for i in range(3):
                total = 0.0
                z = self.value(i)
                for j in range(3):
                    total += ti.exp(self.value(i) * z)
                    z = z * 0.5
                self.y[i] = total
    """
    messages = [one.message for one in lint_file("k.py", textwrap.dedent(text))]
    assert any("`ti.exp(self.value(i) * z)`" in message for message in messages)


def test_a_function_of_another_file_is_not_passed_over():
    text = """
    import math
    import taichi as ti
    from forces import squared

    @ti.data_oriented
    class Sim(Base):
        @ti.kernel
        def k(self, x: ti.types.ndarray(), v: ti.math.vec3):
            for i in x:
                x[i] = squared(i) + self.inherited(i) + v.norm() + ti.sin(1.0) + math.sqrt(2.0)
    """
    findings = [one for one in lint_file("k.py", textwrap.dedent(text)) if one.rule == "TS502"]
    assert [one.line for one in findings] == [11, 11]
    assert "`squared` is not in this file" in findings[0].message
    assert "`self.inherited` is not in this file" in findings[1].message


def test_reassigned_parameters_are_not_treated_as_constants():
    text = """
    import taichi as ti

    @ti.func
    def half(n):
        n = n + 1
        return n // -2

    @ti.kernel
    def k(n: ti.i32, x: ti.types.ndarray(), y: ti.types.ndarray()):
        for i in x:
            y[i] = x[i] * half(n)
    """
    assert not list_rules(text)


def test_loop_carried_locals_through_functions_with_two_results():
    text = """
    import taichi as ti

    @ti.func
    def turn(a, b):
        return b, -a

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray()):
        a, b = 1.0, 0.0
        for i in x:
            a, b = turn(a, b)
            y[i] = x[i]
    """
    assert ("TS105", 12) in list_rules(text)
    assert ("TS105", 12) not in list_rules(text.replace("= turn(a, b)", "= turn(x[i], 0.0)"))


def test_stores_of_one_vector_are_no_race():
    text = """
    import taichi as ti

    @ti.kernel
    def k(x: ti.types.ndarray(), y: ti.types.ndarray(), z: ti.types.ndarray()):
        for b, i in x:
            y[i] = ti.Vector([1.0, -0.65, 0.0], dt=ti.f32)
            z[i] = ti.Vector([1.0, x[b, i], 0.0])
    """
    assert [one for one in list_rules(text) if one[0] == "TS105"] == [("TS105", 8)]


@pytest.mark.parametrize(
    "in_loop", ["y[0] = v", "for j in range(3):\n        y[j] = v", "ti.atomic_add(y[0], v)\n    y[1] = y[0]"]
)
def test_a_race_in_a_function_of_another_file_is_placed_at_the_call(lang, engine, tmp_path, in_loop):
    """The lines of the other file mean something else in the kernel's."""
    other, own = tmp_path / "other_forces.py", tmp_path / "own_kernel.py"
    above = "\n" * 40
    other.write_text(f"import {engine} as ti\n{above}@ti.func\ndef put(y: ti.template(), v):\n    {in_loop}\n")
    own.write_text(
        f"import {engine} as ti\n\n@ti.kernel\ndef k(x: ti.types.ndarray(), y: ti.types.ndarray()):\n"
        "    for i in range(x.shape[0]):\n        put(y, x[i])\n"
    )
    scope = {"__name__": "written_files"}
    for path in (other, own):
        exec(compile(path.read_text(), path, "exec", dont_inherit=True), scope)
    findings = [one for one in lint_kernels([scope["k"]]) if one.rule in ("TS105", "TS106")]
    assert {(one.path, one.line, one.column) for one in findings} == {(str(own), 6, 9)}
    assert all("in line 6:" in one.message for one in findings)
    with pytest.raises(ts.KernelError, match="has a data race") as raised:
        ts.op("x[n] -> y[3]")(scope["k"])(torch.ones(4))
    assert "in line 6" in str(raised.value) and f"{own}:5" in str(raised.value)
