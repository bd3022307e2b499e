"""Messages that say what to write name the engine's module as the user's file imports it: `ti`, `qd`, or its own."""

import importlib.util

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import lint_file

USUAL = {"taichi": "ti", "quadrants": "qd"}

KERNELS = """
import MODULE as NAME

@NAME.kernel
def race(x: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
    for i in x:
        if i > 0:
            y[i] = y[i - 1] + x[i]

@NAME.kernel
def neighbors(x: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
    for i in range(1, x.shape[0]):
        y[i] = y[i - 1] + x[i]

@NAME.kernel
def field_race(x: NAME.template(), y: NAME.template()):
    for i in range(1, x.shape[0]):
        y[i] = y[i - 1] + x[i]

@NAME.kernel
def slots(x: NAME.types.ndarray(ndim=1), count: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
    for i in x:
        slot = NAME.atomic_add(count[0], 1)
        y[slot] = x[i] * x[i]

@NAME.kernel
def narrow(x: NAME.types.ndarray(dtype=NAME.f64, ndim=1), y: NAME.types.ndarray(dtype=NAME.f64, ndim=1)):
    for i in y:
        total = 0.0
        for j in range(x.shape[0]):
            total += x[j]
        y[i] = total

@NAME.kernel
def known(x: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
    for i in x:
        a = -7
        y[i] = x[i] * (a // 2)

@NAME.func
def endless(v):
    return endless(v)

@NAME.kernel
def recursive(x: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
    for i in x:
        y[i] = endless(x[i])

class Plain:
    @NAME.kernel
    def method(self, x: NAME.types.ndarray(ndim=1), y: NAME.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i]
"""


@pytest.fixture(params=["usual", "other"])
def named(request, lang, engine, tmp_path):
    """Write a user's file of kernels; return it with the name that it gives the engine."""
    name = USUAL[engine] if request.param == "usual" else "compiler"
    path = tmp_path / f"kernels_of_{name}.py"
    path.write_text(KERNELS.replace("MODULE", engine).replace("NAME", name))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, name


def words_of(error, function):
    with pytest.raises(error) as raised:
        function()
    return str(raised.value)


def differentiate(op, *arguments):
    op(torch.rand(8, dtype=torch.float64).requires_grad_(), *arguments).sum().backward()


@pytest.mark.parametrize("adjoint", ["auto", "source"])
def test_a_race_of_an_op(named, adjoint):
    module, name = named
    words = words_of(ts.KernelError, lambda: ts.op("x[n] -> y[n]", adjoint=adjoint)(module.race))
    assert f"Put `{name}.loop_config(serialize=True)` above" in words
    assert f"`{name}.atomic_max(y[i], ...)`" in words
    op = ts.op("x[n] -> y[n]", adjoint=adjoint, races="allow")(module.race)
    assert f"Put `{name}.loop_config(serialize=True)` above" in words_of(ts.GradientError, lambda: differentiate(op))


def test_a_race_of_a_layer(named, lang):
    module, name = named
    x, y = (lang.field(lang.f32, 8, needs_grad=True) for _ in range(2))
    words = words_of(ts.KernelError, lambda: ts.EmptyTin().register_kernel(module.field_race, x, y))
    assert f"Put `{name}.loop_config(serialize=True)` above" in words
    tin = ts.EmptyTin(races="allow").register_kernel(module.field_race, x, y).register_input_field(x, name="x")
    tin = tin.register_output_field(y, name="y").finish()
    call = lambda: tin(torch.rand(8).requires_grad_()).sum().backward()  # noqa: E731
    assert f"Put `{name}.loop_config(serialize=True)` above" in words_of(ts.GradientError, call)


@pytest.mark.compiled_engine
def test_the_remedy_for_the_return_value_of_an_atomic(named):
    module, name = named
    op = ts.op("x[n] -> count[1]: i32, y[n]", adjoint="engine")(module.slots)
    words = words_of(ts.GradientError, lambda: op(torch.rand(8).requires_grad_()).y.sum().backward())
    assert f"`slot[i] = {name}.atomic_add(...)`" in words


@pytest.mark.compiled_engine
def test_a_division_of_known_integers(named):
    module, name = named
    op = ts.op("x[n] -> y[n]", adjoint="engine")(module.known)
    assert f"`{name}.static(...)`" in words_of(ts.GradientError, lambda: differentiate(op))


def test_a_function_without_end(named):
    module, name = named
    make = lambda: ts.op("x[n] -> y[n]")(module.recursive)(torch.rand(3, dtype=torch.float64))  # noqa: E731
    assert f"`if {name}.static(...)`" in words_of(ts.KernelError, make)


def test_a_method_without_an_object(named):
    module, name = named
    call = lambda: ts.op("x[n] -> y[n]")(module.Plain.method)(torch.rand(3, dtype=torch.float64))  # noqa: E731
    assert f"@{name}.data_oriented" in words_of(ts.KernelError, call)


def test_the_remedy_of_the_sanitizer(named):
    module, name = named
    findings = ts.sanitize(ts.op("x[n] -> y[n]")(module.narrow), torch.rand(3, dtype=torch.float64))
    remedy = next(one.remedy for one in findings if one.rule == "TS609")
    assert f"`{name}.f64(0.0)`" in remedy and f"default_fp={name}.f64" in remedy


@pytest.mark.parametrize(
    ("rule", "start"), [("TS106", "{}.loop_config("), ("TS306", "a = {}.static("), ("TS305", "total = {}.f64(")]
)
def test_the_remedy_of_lint(named, rule, start):
    module, name = named
    kernels = [module.neighbors, module.known, module.narrow]
    for findings in (lint_file(module.__file__), [one for kernel in kernels for one in ts.lint(kernel)]):
        remedies = [one.remedy for one in findings if one.rule == rule]
        assert remedies and all(one.startswith(start.format(name)) for one in remedies)


def test_a_field_without_a_place(engine, lang):
    field = lang.field(lang.f32)
    try:
        words = words_of(ts.KernelError, lambda: ts.EmptyTin().register_input_field(field, name="x"))
    finally:
        lang.root.dense(lang.i, 3).place(field)
    assert f"`{USUAL[engine]}.root.dense({USUAL[engine]}.i, n).place(field)`" in words
