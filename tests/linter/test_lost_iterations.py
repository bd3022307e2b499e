"""TS411 says of the locals that loops use what the engines' own reverse modes do with them."""

import importlib.util

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import lint_file

KERNEL = """
import {engine} as lang

@lang.kernel
def k(x: lang.types.ndarray(), z: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in range(x.shape[0]):
        {values}
        for j in range(3):
            {use}
"""
ONCE, STRAIGHT = "r = x[i] * 2.0", "r = x[i]\n        r += x[i]"
BRANCH = "r = x[i]\n        if z[i] > 0.0:\n            r = x[i] * 2.0"
CASES = {
    "one value": (ONCE, "y[i] += r * z[j]", {"taichi", "quadrants"}),
    "a value that is changed": (STRAIGHT, "y[i] += r * z[j]", {"taichi"}),
    "a value that a branch changes": (BRANCH, "y[i] += r * z[j]", set()),
    "a changed value as it is": (BRANCH, "y[i] += r", {"taichi", "quadrants"}),
}


def write_kernel(folder, engine, case):
    values, use, wrong = CASES[case]
    file = folder / f"{engine}_kernel.py"
    file.write_text(KERNEL.format(engine=engine, values=values, use=use))
    return file, engine in wrong


def load_module(file):
    spec = importlib.util.spec_from_file_location("k", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", CASES)
def test_a_local_is_reported_where_the_engine_loses_it(case, lang64, tmp_path):
    file, is_wrong = write_kernel(tmp_path, lang64.__name__, case)
    module = load_module(file)
    x, z = torch.ones(3, dtype=torch.float64, requires_grad=True), torch.ones(3, dtype=torch.float64)
    ts.op("x[n], z[n] -> y[n]", adjoint="engine", trust_engine=True)(module.k)(x, z).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0 if is_wrong else 6.0] * 3
    reported = [one for one in lint_file(file) if one.rule == "TS411" and lang64.__name__ in one.engines]
    assert bool(reported) == is_wrong


@pytest.mark.parametrize("end", ["break", "continue"])
def test_refused_nests_have_no_further_findings(end, tmp_path):
    file = tmp_path / "ends.py"
    for jump, expected in ((f"if z[j] > 2.0:\n                {end}", []), ("pass", [10])):
        use = f"{jump}\n            y[i] += r * z[j]"
        file.write_text(KERNEL.format(engine="quadrants", values=ONCE, use=use))
        assert [one.line for one in lint_file(file) if one.rule == "TS411"] == expected


@pytest.mark.parametrize("config", ["lang.loop_config(serialize=True)", "pass"])
def test_parameters_of_a_function_whose_loops_threads_share_have_no_gradient(config, tmp_path):
    file = tmp_path / "top.py"
    file.write_text(f"""
import quadrants as lang

@lang.func
def scale(x: lang.types.ndarray(), y: lang.types.ndarray(), factor: float):
    {config}
    for i in range(4):
        for j in range(3):
            y[i] += factor * x[j]
""")
    reported = [one.line for one in lint_file(file) if one.rule == "TS411"]
    assert reported == ([] if "config" in config else [9])
