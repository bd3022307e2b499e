"""A kernel's IR is read from disk where nothing has changed that it follows from, and made again where something has.

Each change below leaves the kernel's own text and lines as they are. Gradients are generated from the IR.
"""

import importlib.util
import os
from itertools import count

import pytest
import torch

from tinsmith.compiling import _stage
from tinsmith.engines import get
from tinsmith.ir import Defaults, Type

PROGRAM = """
import math
import numpy
import {engine} as ti
import tinsmith as ts
from types import SimpleNamespace
FILE = __file__ + ".number"
{before}
def make():
    {inside}
    @ts.op("x[n] -> y[n]", races="{races}")
    @ti.kernel
    def scaled(x: ti.types.ndarray(), y: ti.types.ndarray(), {parameter}):
        for i in x:
            y[i] = x[i] * {formula}
    return scaled
"""

FUNCTION = "@ti.func\ndef f({}): return {}"
TWO = "@ti.func\ndef a(): return 2.0\n@ti.func\ndef b(): return 3.0\n"
CHANGES = {
    "a global": ("G = 2.0", "G = 3.0", "G", 2.0, 3.0),
    "the type of a global": ("G = 7", "G = 7.0", "(G // 2 + ti.cast(G, ti.f32) * 0 + G / 2 - G / 2)", 3.0, 3.0),
    "a number in a list": ("G = [1.0, 2.0]", "G = [1.0, 3.0]", "G[1]", 2.0, 3.0),
    "an attribute": ("G = SimpleNamespace(a=2.0)", "G = SimpleNamespace(a=3.0)", "G.a", 2.0, 3.0),
    "a number of NumPy": ("G = numpy.float64(2.0)", "G = numpy.float64(3.0)", "G", 2.0, 3.0),
    "an array of NumPy": ("G = numpy.array([2.0])", "G = numpy.array([3.0])", "ti.static(G[0])", 2.0, 3.0),
    "a vector": ("G = ti.Vector([1.0, 2.0])", "G = ti.Vector([1.0, 3.0])", "G[1]", 2.0, 3.0),
    "a choice": ("G = True", "G = False", "ti.static(2.0 if G else 3.0)", 2.0, 3.0),
    "a function": (FUNCTION.format("v", "v * 2.0"), FUNCTION.format("v", "v * 3.0"), "f(1.0)", 2.0, 3.0),
    "which function": (f"{TWO}f = a", f"{TWO}f = b", "f()", 2.0, 3.0),
    "what a function reads": (
        f"G = 2.0\n{FUNCTION.format('', 'G')}",
        f"G = 3.0\n{FUNCTION.format('', 'G')}",
        "f()",
        2.0,
        3.0,
    ),
    "the type of a parameter": (
        f"T = ti.f32\n{FUNCTION.format('v: T', 'v')}",
        f"T = ti.i32\n{FUNCTION.format('v: T', 'v')}",
        "f(2.5)",
        2.5,
        2.0,
    ),
    "a default": (
        f"G = 2.0\n{FUNCTION.format('v=G', 'v')}",
        f"G = 3.0\n{FUNCTION.format('v=G', 'v')}",
        "f()",
        2.0,
        3.0,
    ),
    "a type": ("T = ti.f32", "T = ti.i32", "ti.cast(2.5, T)", 2.5, 2.0),
    "a type of vectors": (
        "T = ti.types.vector(2, ti.f32)",
        "T = ti.types.vector(2, ti.i32)",
        "T(2.5, 1.0)[0]",
        2.5,
        2.0,
    ),
    "a struct": ("T = ti.types.struct(a=ti.f32)", "T = ti.types.struct(a=ti.i32)", "T(a=2.5).a", 2.5, 2.0),
    "the shape of a field": ("G = ti.field(ti.f32, 2)", "G = ti.field(ti.f32, 3)", "G.shape[0]", 2.0, 3.0),
    "the type of a field": ("G = ti.field(ti.f32, ())", "G = ti.field(ti.f64, ())", "(2.0 + G[None])", 2.0, 2.0),
    "the offset of a field": (
        "G = ti.field(ti.f32, 3)",
        "G = ti.field(ti.f32, 3, offset=1)",
        "(2.0 + G[1])",
        2.0,
        2.0,
    ),
    "which names are one field": (
        "G = H = ti.field(ti.f32, ())",
        "G, H = ti.field(ti.f32, ()), ti.field(ti.f32, ())",
        "(2.0 + G[None] * H[None])",
        2.0,
        2.0,
    ),
    "a module": (
        "m = math",
        "m = numpy",
        "ti.static(2.0 if isinstance(m.floor(2.5), int) else 3.0)",
        2.0,
        3.0,
    ),
}
"""A line before the kernel, the same line changed, a number in the kernel, and what it is with each line."""


@pytest.fixture
def run(engine, lang, tmp_path, disk_cache, monkeypatch):
    """Return a function that runs a program anew: it returns the gradient, and how many kernels were lowered."""
    lowered = []
    lower = _stage.lower
    monkeypatch.setattr(
        _stage, "lower", lambda source, *given, **named: lowered.append(source.name) or lower(source, *given, **named)
    )
    path = tmp_path / "program.py"
    seconds = count(1_000_000_000)

    def run(before, formula, *, inside="pass", parameter="count: int", races="check", dtype=torch.float32):
        text = PROGRAM.format(
            engine=engine, before=before, formula=formula, inside=inside, parameter=parameter, races=races
        )
        path.write_text(text)
        # Python and `inspect` tell files apart by seconds and sizes, which two programs here may have in common.
        os.utime(path, (next(seconds), next(seconds)))
        lowered.clear()
        spec = importlib.util.spec_from_file_location("program_on_disk", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        x = torch.ones(3, dtype=dtype, requires_grad=True)
        module.make()(x, 0).sum().backward()
        return x.grad[0].item(), lowered.count("scaled")

    return run


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(run, change):
    before, after, formula, *results = change
    first, count = run(before, formula)
    assert count > 0
    assert (first, 0) == run(before, formula)
    second, count = run(after, formula)
    assert count > 0
    assert [first, second] == results


def test_a_variable_of_a_closure(run):
    assert run("pass", "g", inside="g = 2.0")[0] == 2.0
    assert run("pass", "g", inside="g = 2.0") == (2.0, 0)
    assert run("pass", "g", inside="g = 3.0")[0] == 3.0


def test_a_file_that_the_kernel_reads_while_it_is_compiled(run, tmp_path):
    read = "def read(): return float(numpy.loadtxt(FILE))"
    for number in (2.0, 3.0):
        (tmp_path / "program.py.number").write_text(str(number))
        assert run(read, "ti.static(read())")[0] == number
        assert run("pass", "ti.static(float(numpy.loadtxt(FILE)))")[0] == number


@pytest.mark.compiled_engine
@pytest.mark.parametrize("name", ["_defaults", "is_debugging"])
def test_settings_of_the_engine(run, lang, monkeypatch, name):
    def run_again():
        return run("pass", "2.0")

    assert run_again()[1] > 0
    assert run_again() == (2.0, 0)
    if name == "_defaults":
        monkeypatch.setattr(_stage.Stage, name, Defaults(Type.F64, Type.I64))
    else:
        monkeypatch.setattr(type(get(lang.__name__)), name, lambda _: True)
    assert run_again()[1] > 0


def test_dtypes_options_and_lines(run):
    others = [
        {"dtype": torch.float64},
        {"races": "allow"},
        {"parameter": "count: float"},
        {"before": "G = 2.0\n"},
        {"formula": "(G + 0)"},
    ]
    given = {"before": "G = 2.0", "formula": "G"}
    assert run(**given)[1] > 0
    for other in others:
        assert run(**given)[1] == 0
        assert run(**{**given, **other})[1] > 0, other
