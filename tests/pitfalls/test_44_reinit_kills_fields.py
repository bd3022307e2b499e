"""Pitfall 44: a second `init`, by a library, destroys the user's fields (taichi #4468).

An op never starts an engine behind the user's back; and a kernel that reads a field of an engine
that was started anew since is refused instead of reading freed memory.
"""

import subprocess
import sys

import pytest
import torch

import tinsmith as ts


def test_a_user_s_fields_survive_everything_an_op_does(lang64):
    field = lang64.field(lang64.f64, shape=3)
    field[1] = 7.0

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    square(x).sum().backward()
    torch.func.vmap(square)(torch.randn(2, 3, dtype=torch.float64))
    torch.compile(square, backend="aot_eager", fullgraph=True)(x).sum().backward()
    assert field[1] == 7.0


PROGRAM = """
import torch, {engine} as lang
import tinsmith as ts
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64)
table = lang.field(lang.f64, shape=3)
table.fill(2.0)

@ts.op("x[n] -> y[n]")
@lang.kernel
def weighted(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = table[i] * x[i]

x = torch.ones(3, dtype=torch.float64)
assert weighted(x).tolist() == [2.0, 2.0, 2.0]
before = weighted(x.requires_grad_()).sum()
lang.init(arch=lang.cpu, log_level=lang.ERROR, default_fp=lang.f64)
for again in (lambda: weighted(x.detach()), lambda: weighted(x), before.backward):
    try:
        again()
    except ts.EngineError as error:
        assert "weighted" in str(error) and "table" in str(error), error
        print("refused")
"""


@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_a_field_of_an_engine_started_anew_is_refused(name, tmp_path):
    script = tmp_path / "stale_field.py"
    script.write_text(PROGRAM.format(engine=name))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.stdout.split()[-3:] == 3 * ["refused"], f"exit {done.returncode}: {done.stderr[-2000:]}"
