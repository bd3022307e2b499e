"""Ops in exported programs: saved, and loaded in another process that imports the module with the op."""

import subprocess
import sys

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which Python cannot import it any more, and Inductor does
import torch

import tinsmith as ts

# Of torch's own modules, as they load and copy programs.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]

MODULE = """
import torch
import {engine} as ti
import tinsmith as ts

ti.init(arch=ti.cpu, default_fp=ti.f64)


@ts.op("x[*b, n], k[m] -> y[*b, n - m + 1]")
@ti.kernel
def conv(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        for j in range(k.shape[0]):
            y[i] += {formula}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.k = torch.nn.Parameter(torch.linspace(-1, 1, 3).double())

    def forward(self, x):
        return conv(2 * x, self.k).relu()
"""
SAVE = """
import torch
from model import Model
x = torch.linspace(-2, 2, 48).double().reshape(2, 3, 8)
sizes = {{"x": {{0: torch.export.Dim("b"), 2: torch.export.Dim("n", min=4)}}}} if {dynamic} else None
torch.export.save(torch.export.export(Model(), (x,), strict={strict}, dynamic_shapes=sizes), "program.pt2")
"""
LOAD = """
import torch
{imports}
x = torch.linspace(-2, 2, 48).double().reshape(2, 3, 8)
program = torch.export.load("program.pt2").module()
x = torch.cat([x, x])[..., :-1] if {dynamic} else x
y = program(x)
y.sum().backward()
want = (2 * x).unfold(-1, 3, 1) @ torch.linspace(-1, 1, 3).double()
torch.testing.assert_close(y, want.relu())
k = torch.linspace(-1, 1, 3).double().requires_grad_()
((2 * x).unfold(-1, 3, 1) @ k).relu().sum().backward()
torch.testing.assert_close(program.k.grad, k.grad)
print("the same")
"""
FORMULA = "x[i + j] * k[j]"


def run(folder, program):
    return subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True)


def save(folder, engine, strict=False, dynamic=False):
    (folder / "model.py").write_text(MODULE.format(engine=engine, formula=FORMULA))
    done = run(folder, SAVE.format(strict=strict, dynamic=dynamic))
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed sizes", "dynamic sizes"])
@pytest.mark.parametrize("strict", [False, True], ids=["", "strict"])
@pytest.mark.costly
def test_saved_and_loaded_in_another_process(engine, tmp_path, strict, dynamic):
    save(tmp_path, engine, strict, dynamic)
    done = run(tmp_path, LOAD.format(imports="import model", dynamic=dynamic))
    assert done.stdout.endswith("the same\n"), done.stderr[-3000:]


@pytest.mark.costly
def test_a_program_of_an_op_that_is_missing_or_edited(engine, tmp_path):
    save(tmp_path, engine)
    missing = run(tmp_path, LOAD.format(imports="from tinsmith import op", dynamic=False)).stderr
    assert "GraphError: a graph calls op `conv` (`tinsmith::conv_" in missing, missing[-3000:]
    assert "which does not exist in this process" in missing and "Import the module that makes it" in missing
    (tmp_path / "model.py").write_text(MODULE.format(engine=engine, formula=FORMULA.replace("*", "+")))
    edited = run(tmp_path, LOAD.format(imports="import model", dynamic=False)).stderr
    assert "GraphError: a graph calls op `conv` as it was when the graph was made" in edited, edited[-3000:]
    assert "module `model`" in edited and "Export the graph again" in edited


def square(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


class Called(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, *inputs):
        return self.op(*inputs)


def test_in_one_process(lang64):
    op, x = square(lang64), torch.randn(5).double()
    program = torch.export.export(Called(op), (x,), strict=False)
    assert [node.target for node in program.graph.nodes if node.op == "call_function"] == [op.operator]
    torch.testing.assert_close(program.module()(x), x * x)
    torch.testing.assert_close(program.run_decompositions().module()(x), x * x)


def test_templates_that_cannot_be_written_down(lang64):
    @lang64.data_oriented
    class Scale:
        def __init__(self):
            self.by = 3.0

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), how: lang64.template(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = how.by * x[i]

    x = torch.randn(5).double()
    torch.testing.assert_close(scaled(x, Scale()), 3 * x)
    how = Scale()
    with pytest.raises(ts.ArgumentError, match=r"(?s)`how` of op `scaled` cannot be traced.*Scale.*Pass a number"):
        torch.export.export(Called(lambda x: scaled(x, how)), (x,), strict=False)


@pytest.mark.costly
def test_a_package_of_ahead_of_time_inductor(lang64, tmp_path):
    op, x = square(lang64), torch.randn(5).double()
    program = torch.export.export(Called(lambda x: op(x * 2) + 1), (x,), strict=False)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "square.pt2"))
    run = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(run(x), 4 * x * x + 1)
