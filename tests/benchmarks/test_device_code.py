"""Instructions of PTX are counted by kind."""

import importlib
import json

import pytest

from support.benchmarks import BENCHMARKS, run_benchmark

PTX = """\
.version 7.1
.target sm_86
.visible .entry saxpy_0_range_for(
\t.param .align 8 .b8 saxpy_0_param_0[32]
)
.maxntid 128, 1, 1
{
\t.local .align 8 .b8 \t__local_depot0[8];
\tmov.u32 \t%r1, %ctaid.x;
\tld.param.u64 \t%rd1, [saxpy_0_param_0+8];
\tcvta.to.global.u64 \t%rd2, %rd1;
\tld.global.nc.u64 \t%rd3, [%rd2+16];
$L__BB0_1:
\tmul.wide.s32 \t%rd4, %r1, 4;
\tadd.s64 \t%rd5, %rd3, %rd4;
\tcvt.s64.s32 \t%rd6, %r1;
\tcvt.rn.f32.s64 \t%f9, %rd6;
\tmad.lo.s32 \t%r2, %r1, %r1, %r1;
@%p1\tbra \t$L__BB0_1;
\t@%p2 ld.global.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd5];
\tld.f32 \t%f5, [%rd5];
\tst.local.f32 \t[%rd7], %f5;
\tst.global.f32 \t[%rd5], %f5;
\tst.global.v2.f32 \t[%rd5], {%f1, %f2};
\tatom.global.add.f32 \t%f6, [%rd5], %f5;
\tred.shared.add.f32 \t[%rd8], %f5;
\tcvt.f64.f32 \t%fd1, %f5;
\tret;
}
"""
WANTED = {
    "kernels": 1,
    "loads": 2,
    "loads of vectors": 1,
    "stores": 1,
    "stores of vectors": 1,
    "atomics": 1,
    "64-bit integer": 3,
    "f64": 1,
    "local memory": 1,
}


@pytest.fixture
def device_code(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("_device_code")


def test_counts(device_code):
    assert dict(device_code.count_instructions(PTX)) == WANTED


def test_counts_as_words(device_code):
    words = device_code.describe_counts(device_code.count_instructions(PTX))
    assert words.startswith("kernels 1, loads 2, loads of vectors 1, stores 1, ")


def test_files_are_read_once(device_code, tmp_path):
    folder = device_code.PtxFolder(tmp_path)
    (tmp_path / "one.ptx").write_text("a", encoding="utf-8")
    assert folder.read_new() == ["a"]
    (tmp_path / "two.ptx").write_text("b", encoding="utf-8")
    assert folder.read_new() == ["b"]
    assert folder.read_new() == []


@pytest.mark.costly
@pytest.mark.parametrize(("section", "least"), [("bandwidth", 30), ("ptx", 1)])
def test_a_section_is_rehearsed_on_the_cpu(tmp_path, section, least):
    rows = tmp_path / "rows.jsonl"
    done = run_benchmark("on_device.py", section, "--quick", "--out", rows)
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    assert len(written) >= least
    assert all(row["ok"] for row in written)
