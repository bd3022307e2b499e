"""`tinsmith adjoint`: what it prints, and what it refuses."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tinsmith as ts
from tinsmith._errors import InputError
from tinsmith.cli import _adjoint, _file_names, app
from tinsmith.ir import parse_ir
from tinsmith.passes import PIPELINES

pytestmark = pytest.mark.thinned(4)

KERNELS = """
import {engine} as lang
import tinsmith as ts

vector = lang.types.ndarray(dtype=lang.f32, ndim=1)

@lang.kernel
def decay(x: vector, k: vector, y: vector):
    for i in x:
        y[i] = x[i] * lang.exp(-k[i])

@ts.op("x[n, 3] -> y[n]")
@lang.kernel
def squared(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in range(x.shape[0]):
        t = 1.0
        for j in range(3):
            t = t * x[i, j]
        y[i] = t

@lang.kernel
def loose(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = lang.sin(x[i])

@ts.op("x[n], k[n]: i32 -> y[n]", races="allow")
@lang.kernel
def racing(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        old = lang.atomic_add(y[k[i]], x[i])
        y[i] = old * x[i]

@ts.op("x[n] -> y[n]")
@lang.kernel
def templated(x: lang.types.ndarray(), times: lang.template(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i] * times

@ts.op("x[...] -> y[n]")
@lang.kernel
def open_rank(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in y:
        y[i] = 2.0

@lang.kernel
def broken(x: vector, y: vector):
    for i in x:
        y[i] = lang.bit_cast(lang.bit_cast(x[i], lang.i32) & 7, lang.f32) * x[i]

@lang.data_oriented
class Spring:
    @lang.kernel
    def step(self, k: lang.f32):
        for i in self.x:
            self.x[i] += k * self.v[i]

    @lang.kernel
    def double(self, x: vector, y: vector):
        for i in x:
            y[i] = 2.0 * x[i]

@lang.kernel
def measure(x: vector) -> lang.f32:
    return x[0]

def build():
    @lang.kernel
    def inner(x: vector, y: vector):
        for i in x:
            y[i] = x[i]

later = ts.op("x[n] -> y[n]")(loose)
both = ts.chain("x[n], k[n] -> y[n]", [decay])

class Kept:
    decay = decay

seven = 7
"""


@pytest.fixture
def invoke(engine, tmp_path):
    file = tmp_path / "some_kernels.py"
    file.write_text(KERNELS.format(engine=engine), "utf-8")

    def run(name, *options):
        return CliRunner().invoke(app, ["adjoint", f"{file}:{name}" if name else str(file), *options])

    yield run
    sys.modules.pop("some_kernels", None)


def test_the_output_is_python_with_the_kernels_lines_as_comments(invoke, engine):
    result = invoke("decay")
    assert result.exit_code == 0, result.output
    made = ast.parse(result.stdout).body
    assert [one.name for one in made] == ["decay_adjoint_0"]
    assert [argument.arg for argument in made[0].args.args] == ["x", "k", "grad_x", "grad_k", "grad_y"]
    assert "        # y[i] = x[i] * lang.exp(-k[i])\n" in result.stdout
    short = {"taichi": "ti", "quadrants": "qd"}[engine]
    assert f"{short}.exp(" in result.stdout and "_lang" not in result.stdout
    assert "grad_k[i] = " in result.stdout
    assert f"# of k, x, on {engine}" in result.stdout
    assert "tape: none" in result.stdout


def test_the_function_returns_what_the_command_prints(invoke, engine):
    assert invoke("squared").exit_code == 0  # it starts the engine, and imports the file
    module = sys.modules["some_kernels"]
    for name, options, given in (
        ("decay", (), {}),
        ("decay", ("--wrt", "k"), {"wrt": "k"}),
        ("decay", ("--wrt", "k,x"), {"wrt": ("x", "k")}),
        ("loose", ("--spec", "x[n] -> y[n]"), {"spec": "x[n] -> y[n]"}),
        ("squared", (), {"engine": engine}),
    ):
        assert ts.adjoint_source(getattr(module, name), **given) == invoke(name, *options).stdout
    with pytest.raises(ts.ArgumentError, match="op `squared` has a spec already"):
        ts.adjoint_source(module.squared, spec="x[n] -> y[n]")
    with pytest.raises(ts.ArgumentError, match="takes a kernel"):
        ts.adjoint_source(module.seven)


def test_the_ir_after_a_pass(invoke):
    result = invoke("decay", "--print-ir-after", "store-whole")
    assert result.exit_code == 0, result.output
    title, _, text = result.stdout.partition("\n")
    assert title == "# after store-whole, kernel decay_adjoint_0"
    assert parse_ir(text).name == "decay_adjoint_0"
    line = KERNELS[: KERNELS.index("y[i] = x[i] * lang.exp")].count("\n") + 1
    assert f"grad_x[i] = grad_x_at  @{line}\n" in text


def test_the_ir_after_all_passes(invoke):
    titles = [line for line in invoke("decay", "--print-ir-after=all").stdout.splitlines() if line.startswith("#")]
    names = [title.removeprefix("# after ").partition(",")[0] for title in titles]
    assert names[0] == "lower"
    assert {"lower", *(one.name for name in ("FORWARD", "ADJOINT") for one in PIPELINES[name])} <= {*names}
    assert "# after hand-on, kernel decay_adjoint_0: no change" in titles


def test_the_ir_of_a_kernel_without_a_gradient(invoke):
    result = invoke("broken", "--print-ir-after=lower", "--spec", "x[n] -> y[n]")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# after lower, kernel broken\n")
    assert "# no gradient is generated because of a derivative through the bits of a float, at " in result.stdout


def test_a_pass_that_does_not_exist(invoke):
    result = invoke("decay", "--print-ir-after", "store-hole")
    assert result.exit_code == 2
    assert "--print-ir-after got `store-hole`, which is no pass" in result.stderr
    assert "Did you mean `store-whole`?" in result.stderr


def test_the_gradient_of_some_inputs(invoke):
    result = invoke("decay", "--wrt", "k")
    assert "grad_k" in result.stdout and "grad_x" not in result.stdout


def test_an_op_and_its_tape(invoke):
    result = invoke("squared")
    assert result.exit_code == 0, result.output
    assert "# The gradient of `squared`: x[n, 3] -> y[n]" in result.stdout
    assert "# tape: `t" in result.stdout and "tape_f32" in result.stdout
    assert "# t = t * x[i, j]" in result.stdout


def test_a_spec_where_annotations_do_not_tell(invoke):
    result = invoke("loose")
    assert result.exit_code == 2
    assert "the annotation of `x` in kernel `loose` does not say how many dims it has" in result.stderr
    assert "--spec" in result.stderr
    assert "cos(" in invoke("loose", "--spec", "x[n] -> y[n]").stdout


def test_for_the_other_engine(invoke, engine, engine_keeper):
    other = {"taichi": "quadrants", "quadrants": "taichi"}[engine]
    result = invoke("decay", "--engine", other)
    assert result.exit_code == 0, result.output
    assert f"on {other}" in result.stdout and {"taichi": "ti.exp", "quadrants": "qd.exp"}[other] in result.stdout


def test_inside_a_class(invoke):
    assert "decay_adjoint_0" in invoke("Kept.decay").stdout


def test_in_colors_on_a_terminal(invoke, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    colored = invoke("decay").stdout
    assert "\x1b[" in colored and "decay_adjoint_0" in colored
    monkeypatch.delenv("FORCE_COLOR")
    assert "\x1b[" not in invoke("decay").stdout


LISTED = {
    "broken": "x, y",
    "decay": "x, k, y",
    "squared": "x[n, 3] -> y[n]",
    "loose": "x, y  (needs --spec)",
    "racing": "x[n], k[n]: i32 -> y[n]",
    "Spring.double": "x, y",
    "later": "x[n] -> y[n]",
    "both": "x[n], k[n] -> y[n]",
}
"""Not `templated` and `open_rank`, which are refused, nor what writes no array, nor what a function defines."""


def test_a_file_without_a_kernel_name_lists_its_kernels(invoke, tmp_path):
    file = tmp_path / "some_kernels.py"
    file.write_text(file.read_text("utf-8") + "\nraise SystemExit('it ran')\n", "utf-8")
    result = invoke("")
    assert result.exit_code == 0, result.output
    rows = [line.split(None, 1) for line in result.stdout.splitlines()]
    assert {place.removeprefix(f"{file}:"): about for place, about in rows} == LISTED
    assert "some_kernels" not in sys.modules


@pytest.mark.parametrize("name", [name for name in LISTED if name not in ("racing", "broken")])
def test_every_listed_kernel_can_be_printed(invoke, name):
    needs_spec = "--spec" in LISTED[name]
    result = invoke(name, *(("--spec", "x[n] -> y[n]") if needs_spec else ()))
    assert result.exit_code == 0, result.output
    assert "# The gradient of" in result.stdout


NOT_LISTED = {
    "nothing there": ("x = 1\n", (), ["no kernel with a gradient to print", "at its top level", "of its layer"]),
    "not Python": ("def f(:\n", (), ["not valid Python", "line"]),
    "signs": (f"x = {'-' * 50_000}1\n", (), ["nested too deeply", "Split its longest expression"]),
    "a sum": (f"x = {'1+' * 20_000}1\n", (), ["nested too deeply", "recursion depth"]),
    "an option for one kernel": ("", ("--wrt", "x"), ["--wrt needs the name of one kernel", "kernels.py:splat"]),
    "missing": (None, (), ["does not exist"]),
}


@pytest.mark.parametrize("case", NOT_LISTED)
def test_files_without_kernels_are_refused(tmp_path, case):
    text, options, words = NOT_LISTED[case]
    file = tmp_path / "kernels.py"
    if text is not None:
        file.write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["adjoint", str(file), *options])
    assert result.exit_code == 2 and result.stdout == "", result.output
    assert all(word in result.stderr for word in words), result.stderr


def test_a_colon_without_a_name(tmp_path):
    result = CliRunner().invoke(app, ["adjoint", f"{tmp_path / 'kernels.py'}:"])
    assert result.exit_code == 2
    assert "FILE:KERNEL" in result.stderr and "kernels.py:splat" in result.stderr


REFUSED = {
    "not covered": ("racing", (), ["`racing`", "construct", "atomic_add", "some_kernels.py:30"]),
    "no such name": ("decoy", (), ["there is no `decoy`", "Did you mean `decay`?"]),
    "no kernel": ("seven", (), ["`seven` is not a kernel or an op", "a constant"]),
    "no such input": ("decay", ("--wrt", "x,z"), ["no input `z`", "x, k"]),
    "a spec for an op": ("squared", ("--spec", "x[n] -> y[n]"), ["has a spec already", "Leave the spec out"]),
    "templates": ("templated", (), ["template arguments", "times", "explain"]),
    "on fields": ("Spring.step", (), ["kernel `step` writes to none of its array parameters", "k: f32", "--spec"]),
    "an open rank": ("open_rank", (), ["leaves the rank of `x` open"]),
}


@pytest.mark.parametrize(("name", "options", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_arguments_are_refused(invoke, name, options, words):
    result = invoke(name, *options)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert all(word in result.stderr for word in words), result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [("k = 1 / 0\n", ["fails when it is run", "ZeroDivisionError"]), (None, ["does not exist", "kernels.py"])],
)
def test_a_file_that_fails_or_is_missing(tmp_path, text, words):
    file = tmp_path / "broken_kernels.py"
    if text is not None:
        file.write_text(text, "utf-8")
    result = CliRunner().invoke(app, ["adjoint", f"{file}:k"])
    sys.modules.pop("broken_kernels", None)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr


def test_a_file_of_a_package_imports_its_neighbors(engine, tmp_path):
    package = tmp_path / "relative_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "numbers.py").write_text("seven = 7\n", "utf-8")
    file = package / "kernels.py"
    file.write_text(KERNELS.format(engine=engine) + "\nfrom .numbers import seven\n", "utf-8")
    result = CliRunner().invoke(app, ["adjoint", f"{file}:decay"])
    assert result.exit_code == 0, result.output
    assert "# The gradient of" in result.stdout


TRAINS = """
import taichi as ti

def train():
    @ti.kernel
    def inner(x: ti.types.ndarray()):
        x[0] = 1.0
    global later
    later = 3

class Model(ti.lang.Base if False else object):
    pass

class Plain:
    @ti.kernel
    def step(self):
        pass

if True:
    with open("loss.txt", "w") as file:
        found = 1
raise SystemExit("it ran")
"""
WRONG_NAMES = {
    "misspelt": ("trian", ["there is no `trian`", "Did you mean `train`?"]),
    "in a function": ("inner", ["there is no `inner`", "`train` defines one: move it"]),
    "a function": ("train", ["`train` is not a kernel or an op", "a plain function"]),
    "a class": ("Plain", ["`Plain` is not a kernel or an op", "a class"]),
    "no member": ("Plain.stop", ["there is no `stop`", "Did you mean `step`?"]),
}


@pytest.mark.parametrize("case", WRONG_NAMES)
def test_a_training_script_does_not_run_to_find_that_a_name_is_wrong(tmp_path, case):
    name, words = WRONG_NAMES[case]
    file = tmp_path / "training_script.py"
    file.write_text(TRAINS, "utf-8")
    result = CliRunner().invoke(app, ["adjoint", f"{file}:{name}"])
    assert result.exit_code == 2 and "it ran" not in result.output, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert "training_script" not in sys.modules


BOUND = {
    "by a star": "from os.path import *\n",
    "by exec": "exec('join = 3')\n",
    "in a block": "with open(__file__) as join: pass\n",
    "by a function": "def f():\n    global join\n    join = 3\n",
    "by a base": "class join(Base): pass\n",
    "by a decorator": "@wraps\ndef join(): pass\n",
    "twice": "def join(): pass\njoin = wraps(join)\n",
    "from elsewhere": "from os.path import join\n",
    "by unpacking": "join, b = 1, 2\n",
    "by a module": "import sys\nsys.modules[__name__].join = 3\n",
}


@pytest.mark.parametrize("case", BOUND)
def test_names_that_may_be_defined_at_run_time_are_not_refused(tmp_path, case):
    file = tmp_path / "kernels.py"
    file.write_text(BOUND[case], "utf-8")
    _file_names.require_defined(str(file), "join.split" if case == "by a base" else "join")


def test_a_file_that_does_not_parse(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text("x = 1\ndef f(:\n", "utf-8")
    with pytest.raises(InputError, match=r"not valid Python(.|\n)*line +2"):
        _file_names.require_defined(str(file), "f")


@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_in_a_process_of_its_own_only_source_is_printed(tmp_path, name):
    """The engine that the command starts greets nobody on standard output, and what the file prints is not there."""
    file = tmp_path / "kernels.py"
    file.write_text(KERNELS.format(engine=name) + 'print("the file says this")\n', "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tinsmith", "adjoint", f"{file}:decay"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "the file says this" in done.stderr
    assert ast.parse(done.stdout).body and done.stdout.startswith("# The gradient of `decay`")


def test_names_are_split():
    assert _adjoint._split(None) == _adjoint._split(" ,") == []
    assert _adjoint._split("x, y") == ["x", "y"]
