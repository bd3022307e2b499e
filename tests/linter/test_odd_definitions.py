"""An odd definition does not end the check of its file: the other kernels are linted."""

import importlib
import textwrap

import pytest

import tinsmith as ts
from tinsmith.doctor import check_file
from tinsmith.linter import _lint, describe_file, find_showable, lint_file, scan_kernels

RACY = """
@ti.kernel
def racy(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[0] = x[i]
"""
DEFINITIONS = {
    "a static kernel without parameters": """
        @ti.data_oriented
        class Answers:
            @staticmethod
            @ti.kernel
            def answer() -> ti.i32:
                return 42
        """,
    "static functions": """
        @ti.data_oriented
        class Answers:
            @staticmethod
            @ti.func
            def one():
                return 1

            @staticmethod
            @ti.func
            def twice(a):
                return a * 2.0

            @ti.kernel
            def run(self, x: ti.types.ndarray()):
                for i in x:
                    x[i] = self.one() + Answers.twice(x[i]) + self.twice(1.0)
        """,
    "methods that lack their object": """
        class Answers:
            @ti.kernel
            def answer() -> ti.i32:
                return 42

            @ti.func
            def zero():
                return 0

            @ti.kernel
            def run(self):
                self.zero()
                Answers.zero()
        """,
    "class methods": """
        class Answers:
            @classmethod
            @ti.kernel
            def answer(cls) -> ti.i32:
                return cls.half(42)

            @classmethod
            @ti.func
            def half(cls, a):
                return a // 2
        """,
    "parameters of every kind": """
        class Answers:
            @ti.kernel
            def any_number(*args):
                for i in args[1]:
                    args[1][i] = 1.0

            @ti.func
            def first(self, a, /):
                return a

            @ti.kernel
            def run(self, /, x: ti.types.ndarray(), *more, n: ti.i32 = 3, **named):
                for i in x:
                    x[i] = self.first(x[i]) + self.first(*more) + self.first(**named) + n
        """,
    "defaults, and calls that leave them out": """
        @ti.func
        def add(a=1, b=2):
            return a + b

        @ti.kernel
        def run(x: ti.types.ndarray() = None, n: ti.i32 = 3):
            for i in x:
                x[i] = add() + add(1) + add(b=2) + add(1, 2, 3) + add(c=n)
        """,
    "lambdas": """
        answer = ti.kernel(lambda: 42)
        add = ti.func(lambda a: a + 1)

        @ti.kernel
        def run(x: ti.types.ndarray()):
            for i in x:
                x[i] = add(x[i]) + (lambda b: b)(2)
        """,
    "nested classes": """
        class Outer:
            class Inner:
                @ti.kernel
                def run(self): ...

                class Innermost:
                    @staticmethod
                    @ti.kernel
                    def run():
                        for i in range(3):
                            print(i)
        """,
    "decorators with arguments": """
        @ti.kernel(fastcache=True)
        def first(x: ti.types.ndarray()):
            for i in x:
                x[i] = 1.0

        @table["a"](1)(2)
        @(lambda f: f)
        @ti.kernel
        def second():
            "Nothing."
        """,
    "annotations that mean nothing": """
        @ti.kernel
        def run(a: "not python (", b: 3, c: None, d: lambda: 3, e: "", f: ti.types.ndarray(1, 2, 3), g: some[3]):
            for i in f:
                f[i] = b
        """,
    "statements that engines refuse": """
        @ti.kernel
        def run(x: ti.types.ndarray()):
            with open("a") as f, g as (h, j):
                x[0] = 1
            try:
                del x[0]
            except KeyError as e:
                raise e from None
            for i, (j, k) in enumerate(zip(x, x)):
                x[i], *rest = [q for q in range(3)]
            else:
                x[0] = yy = (p := 3)
            match x[0]:
                case {"a": 1, **rest}:
                    f()[0] = 1j
                case Foo(a=1) | 3:
                    (a if b else c)[0] = f"{x[0]:.3f}"
            yield x
        """,
    "calls that lack their arguments": """
        @ti.kernel
        def run(x: ti.template()):
            for i in range():
                pass
            for i in ti.ndrange():
                pass
            for i, j in ti.ndrange((), (1,)):
                pass
            for i in ti.static():
                pass
            for i in ti.grouped():
                ti.atomic_add()
                ti.select()
                ti.cast()
            x[0] = ti.math.length() + ti.sqrt() + ti.pow(1) + int() + ti.Vector() + ti.max()
            x[0] = x[0] ** None + x[0] ** "a" + "a" / x[0] + x[0] // 0
        """,
    "functions that call each other": """
        class Answers:
            @ti.func
            def first(self, a):
                return self.second(a)

            @ti.func
            def second(self, a):
                return self.first(a)

            @ti.kernel
            def run(self, x: ti.types.ndarray()):
                for i in x:
                    x[i] = self.first(x[i])
        """,
    "a class that a function builds": """
        def build(lang):
            class Answers:
                @staticmethod
                @lang.func
                def one():
                    return 1

                @lang.kernel
                def run(self, x: lang.types.ndarray()):
                    for i in x:
                        x[i] = self.one()

            return Answers
        """,
    "methods of a struct": """
        @ti.dataclass
        class Ray:
            origin: ti.math.vec3

            @ti.func
            def nothing():
                return 0

            @staticmethod
            @ti.func
            def make():
                return Ray()
        """,
    "specs that do not fit": """
        @ts.op("x[n")
        @ti.kernel
        def first(x: ti.types.ndarray()):
            x[0] = 1.0

        @ts.op("zz[n] -> yy[n]", scratch=3)
        @staticmethod
        @ti.kernel
        def second():
            pass
        """,
}


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("module", ["taichi", "quadrants"])
def test_the_rest_of_the_file_is_linted(name, module):
    text = f"import {module} as ti\n{textwrap.dedent(DEFINITIONS[name])}{RACY}"
    findings = lint_file("odd.py", text)
    assert ("TS105", text.count("\n")) in [(one.rule, one.line) for one in findings]
    assert "TS002" not in [one.rule for one in findings], findings
    assert describe_file("odd.py", text, scan_kernels("odd.py", text)).kernels >= 1
    assert "racy" in [one.name for one in find_showable("odd.py", text)]


def test_a_kernel_that_cannot_be_linted_is_named_and_the_others_are_linted(tmp_path, monkeypatch):
    def fail(subject):
        if subject.tree.name == "many":
            raise RecursionError("too deep")
        return iter(())

    monkeypatch.setattr(_lint, "RULES", (*_lint.RULES, fail))
    path = tmp_path / "odd.py"
    path.write_text(
        "import taichi as ti\n@ti.kernel\ndef many(x: ti.types.ndarray()):\n    for i in x:\n"
        f"        x[i] = 1.0\n{RACY}"
    )
    report = check_file(path)
    (odd,) = [one for one in report.findings if one.rule == "TS002"]
    assert odd.line == 3
    assert odd.message.startswith("lint of kernel `many` could not be run: RecursionError: ")
    assert ("TS105", path.read_text().count("\n")) in [(one.rule, one.line) for one in report.findings]
    assert not report.was_complete


LIVE = """
import {module} as ti


@ti.data_oriented
class Answers:
    @staticmethod
    @ti.kernel
    def answer() -> ti.i32:
        return 42

    @staticmethod
    @ti.func
    def one():
        return 1

    @ti.func
    def zero():
        return 0

    @ti.kernel
    def run(self, x: ti.types.ndarray()):
        for i in x:
            x[i] = self.one() + Answers.one()
            self.zero()
"""


def test_odd_kernels_in_memory_are_linted(engine, lang, tmp_path, monkeypatch):
    (tmp_path / f"odd_{engine}.py").write_text(LIVE.format(module=engine))
    monkeypatch.syspath_prepend(tmp_path)
    answers = importlib.import_module(f"odd_{engine}").Answers
    for kernel in (answers.answer, answers().answer, answers().run):
        assert {one.rule for one in ts.lint(kernel)} <= {"TS408"}
