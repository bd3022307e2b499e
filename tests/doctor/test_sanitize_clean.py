"""`ts.sanitize` on kernels that are right: no error, and nothing that was not run. Those that do wrong are named."""

import importlib.util
from pathlib import Path

import pytest
import torch

import cases
import rows
import tinsmith as ts
from support.as_op import make_op
from support.findings import sanitize_call
from tinsmith.kernels import splat

KERNELS = Path(__file__).parents[2] / "benchmarks" / "_adjoint_kernels.py"

FAULTS = {
    "types_of_locals": {"TS301", "TS605"},  # 7 * 77 does not fit eight bits
    **dict.fromkeys(["loop_variables_that_change", "atomics", "atomics_on_locals", "entries"], {"TS301"}),
    "memory_of_other_types": {"TS301"},
    "reductions": {"TS601"},  # reads a sum (times zero) while others add to it
}
WRITES_FIELDS = {"fields", "owned_fields"}  # no ops: a layer's kernels may


@pytest.mark.parametrize("row", [row for row in rows.ALL if row.name not in WRITES_FIELDS], ids=str)
def test_the_table_of_kernels(lang, row):
    op, inputs = make_op(row.build(lang, lang.f32), *row.draw(rows.Draw(torch.float32)))
    findings = sanitize_call(op, *inputs)
    assert "TS608" not in findings.rules
    assert {one.rule for one in findings.errors} == FAULTS.get(row.name, set()), "\n".join(map(str, findings))


@pytest.mark.parametrize("case", cases.ALL, ids=str)
def test_the_table_of_ops(lang, case):
    findings = sanitize_call(case.raw_op(lang, torch.float32), *case.inputs(torch.float32), **case.keywords)
    assert "TS608" not in findings.rules
    assert not findings.errors, "\n".join(map(str, findings))


@pytest.mark.parametrize("is_serial", [True, False])
def test_splat(lang, is_serial):
    op = ts.op("pos[n, 2], scale[n, 2], angle[n], color[n, 3], opacity[n] -> image[h, w, 3]")(
        splat(lang, serial=is_serial)
    )
    inputs = torch.rand(6, 2) * 8, torch.rand(6, 2) + 0.5, torch.rand(6) * 3, torch.randn(6, 3), torch.rand(6) * 0.9
    assert sanitize_call(op, *inputs, h=9, w=8) == []


SPRINGS = torch.arange(4) + torch.rand(4), torch.randn(4), torch.rand(4) * 50
NATURAL = {
    "compositing": (
        "density[r, s], thickness[r, s], color[r, s, 3] -> light[r, 3]",
        (),
        lambda: (torch.rand(3, 4), torch.rand(3, 4) * 0.2, torch.rand(3, 4, 3)),
        {},
        set(),
    ),
    "chain": ("start[n], speed[n], stiffness[n] -> x[t, n], v[t, n]", (), lambda: SPRINGS, {"t": 4}, set()),
    "chain_in_place": ("start[n], speed[n], stiffness[n] -> x[n], v[n]", (3,), lambda: SPRINGS, {}, {"TS603"}),
    "online_softmax": ("x[r, n] -> y[r, n]", (), lambda: (torch.randn(3, 5) * 3,), {}, set()),
}


@pytest.mark.parametrize("name", NATURAL)
def test_natural_kernels(lang, name):
    spec, options, inputs, named, expected = NATURAL[name]
    located = importlib.util.spec_from_file_location("natural_kernels", KERNELS)
    module = importlib.util.module_from_spec(located)
    located.loader.exec_module(module)
    op = ts.op(spec)(getattr(module, name)(lang, *options))
    assert sanitize_call(op, *inputs(), **named).rules == expected
