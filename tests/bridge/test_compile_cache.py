"""torch keeps compiled graphs by their text: the same kernel finds its graph again, an edited one does not."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.costly

PROGRAM = """
import json, pathlib, setuptools, torch
import {engine} as ti
import tinsmith as ts
from torch._dynamo.utils import counters

ti.init(arch=ti.cpu)

FACTOR = {factor}


@ts.op("x[n] -> y[n]{dtype}")
@ti.kernel
def edited(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = {formula}


artifacts = pathlib.Path("artifacts")
if artifacts.exists():
    torch.compiler.load_cache_artifacts(artifacts.read_bytes())
x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
values = torch.compile(lambda x: (edited(x) * 1.5).relu() + 1.0)(x)
values.sum().backward()
found = {{key: counters[group][key] for group, key in (
    ("inductor", "fxgraph_cache_hit"), ("inductor", "fxgraph_cache_miss"),
    ("aot_autograd", "autograd_cache_hit"), ("aot_autograd", "autograd_cache_miss"))}}
if not artifacts.exists():
    artifacts.write_bytes(torch.compiler.save_cache_artifacts()[0])
print(json.dumps({{"values": values.tolist(), "slopes": x.grad.tolist(), **found}}))
"""

DOUBLED = {"values": [4.0, 7.0, 10.0, 13.0], "slopes": [3.0, 3.0, 3.0, 3.0]}
SQUARED = {"values": [2.5, 7.0, 14.5, 25.0], "slopes": [3.0, 6.0, 9.0, 12.0]}
TRIPLED = {"values": [5.5, 10.0, 14.5, 19.0], "slopes": [4.5, 4.5, 4.5, 4.5]}
HIT = {"fxgraph_cache_hit": 2, "fxgraph_cache_miss": 0, "autograd_cache_hit": 1, "autograd_cache_miss": 0}
MISS = {"fxgraph_cache_hit": 0, "fxgraph_cache_miss": 2, "autograd_cache_hit": 0, "autograd_cache_miss": 1}


@pytest.fixture
def run(engine, tmp_path):
    """Run the program in a process of its own, with a cache by this name. Artifacts are handed on where asked."""

    def run(formula="2 * x[i]", dtype="", factor=1.0, *, cache="cache", hands_on=False):
        if not hands_on:
            (tmp_path / "artifacts").unlink(missing_ok=True)
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(engine=engine, dtype=dtype, formula=formula, factor=factor))
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / cache)}
        command = [sys.executable, program]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_same_kernel_hits_the_cache(run):
    assert run() == DOUBLED | MISS
    assert run() == DOUBLED | HIT


@pytest.mark.parametrize(
    ("edit", "expected"),
    [({"dtype": ": f64"}, DOUBLED), ({"formula": "x[i] * x[i]"}, SQUARED), ({"formula": "3 * x[i]"}, TRIPLED)],
    ids=["another dtype", "another formula that keeps another array", "another number"],
)
def test_an_edited_kernel_misses_the_cache(run, edit, expected):
    assert run() == DOUBLED | MISS
    assert run(**edit) == expected | MISS


def test_artifacts_of_another_machine_are_used(run):
    """As a remote cache hands them on: to a machine with an empty cache of its own."""
    assert run() == DOUBLED | MISS
    assert run(cache="elsewhere", hands_on=True) == DOUBLED | HIT
    assert run("x[i] * x[i]", cache="third", hands_on=True) == SQUARED | MISS


def test_a_changed_global_misses_the_cache(run):
    """It is no part of the operator's name, but of the graph: what a backward pass keeps may depend on it."""
    assert run("2 * FACTOR * x[i]") == DOUBLED | MISS
    assert run("2 * FACTOR * x[i]", factor=1.5) == TRIPLED | MISS
    assert run("2 * FACTOR * x[i]", factor=1.5) == TRIPLED | HIT
