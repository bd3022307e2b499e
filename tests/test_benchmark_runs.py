"""`./scripts/benchmarks`: every benchmark is in its list, a run continues where it stopped, misses are listed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import benchmark_runs
import pytest
from benchmark_runs import BENCHMARKS, DAY, Benchmark, Record

SCRIPTS = benchmark_runs.ROOT / "benchmarks"
TABLE = "| what | ours | against | ratio or difference | to hold |  |\n|---|---|---|---|---|---|\n"
WRITES = """
import sys
from pathlib import Path
with Path(__file__).with_suffix(".calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:-2]) + "\\n")
Path(sys.argv[-1], "a.md").write_text('''# A\\n\\n{table}| a sum | op | torch | 3 x | >= 4 x | MISSED |\\n''')
sys.exit(1)  # as a script does that misses a target
"""
PRINTS = '''"""What a sum costs: two numbers."""
from pathlib import Path
assert Path(__file__).with_suffix(".works").is_file()
print("[Taichi] Starting")
print("│ a sum │ 1 us │ missed │")
'''


def test_the_list_has_each_benchmark_and_each_page():
    others = {"on_device", "genesis_preparation"}  # `./scripts/gpu_check` runs the former; the latter needs Genesis
    scripts = {path.stem for path in SCRIPTS.glob("[!_]*.py")} - others
    assert {one.script for one in BENCHMARKS} == scripts
    own = ("gpu-", "genesis-")
    pages = {path.name for path in (SCRIPTS / "results").glob("*.md") if not path.name.startswith(own)}
    assert pages <= {one.page for one in BENCHMARKS}


def test_options_are_those_of_the_scripts():
    for one in BENCHMARKS:
        text = (SCRIPTS / f"{one.script}.py").read_text(encoding="utf-8")
        for option in (*one.options, *one.quick, *([] if one.is_printed else ["--out"])):
            assert f'"{option}"' in text or not option.startswith("--"), (one.script, option)


def test_the_list_is_printed():
    command = [sys.executable, benchmark_runs.ROOT / "scripts/benchmark_runs.py", "--list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == len(BENCHMARKS) + 1 and lines[0].split()[0] == "overhead" and lines[-1].startswith("all")


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Return a function that runs two made-up benchmarks, and returns the exit code and what was printed."""
    root = tmp_path
    (root / "benchmarks").mkdir()
    (root / "benchmarks/writes.py").write_text(WRITES.format(table=TABLE.replace("\n", "\\n")))
    (root / "benchmarks/prints.py").write_text(PRINTS)
    (root / "benchmarks/_report.py").write_text("def machine():\n    return 'A machine'\n")
    monkeypatch.setattr(benchmark_runs, "ROOT", root)
    monkeypatch.setattr(benchmark_runs, "OUT", root / "out")
    monkeypatch.setattr(benchmark_runs, "FOLDER", root / "results")
    two = (
        Benchmark("writes", "a.md", 1, ("--rounds", "3")),
        Benchmark("prints", "b.md", 1, quick=(), is_printed=True),
    )
    monkeypatch.setattr(benchmark_runs, "BENCHMARKS", two)
    monkeypatch.setattr(benchmark_runs, "digest_code", lambda: "code")
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))

    def call(*arguments: str) -> tuple[int, str]:
        code = benchmark_runs.main(arguments)
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def calls(root: Path) -> list[str]:
    return (root / "benchmarks/writes.calls").read_text().splitlines()


def test_a_run_continues_with_what_failed_and_lists_misses(run, tmp_path):
    code, said = run()
    assert code == 1 and "[2/2] prints: FAILED: exit code 1" in said and "failed: prints" in said
    assert "Missed targets: 1\n  a.md: a sum: op, against torch: 3 x, target >= 4 x" in said
    (tmp_path / "benchmarks/prints.works").touch()
    code, said = run()
    assert code == 0 and "Measured earlier in this run: writes." in said and "[1/1] prints" in said
    assert calls(tmp_path) == ["--rounds 3"]
    page = (tmp_path / "results/b.md").read_text()
    assert page.startswith("# What a sum costs\n") and "\nA machine. Load average before: " in page
    assert page.endswith("```text\n│ a sum │ 1 us │ missed │\n```\n")
    assert "Missed targets: 2\n" in said and "\n  b.md: a sum 1 us missed\n" in said
    assert run()[1].count("FAILED") == 0 and calls(tmp_path) == ["--rounds 3"]
    assert run("--restart")[0] == 0 and calls(tmp_path) == ["--rounds 3"] * 2


def test_one_benchmark_is_measured_on_request(run, tmp_path):
    assert run("--only", "writes")[0] == 0 and run("--only", "writes")[0] == 0
    assert calls(tmp_path) == ["--rounds 3"] * 2 and not (tmp_path / "results/b.md").exists()


def test_a_trial_keeps_the_results(run, tmp_path):
    assert run("--quick", "--only", "writes")[0] == 0
    assert calls(tmp_path) == ["--quick"] and (tmp_path / "out/quick/results/a.md").is_file()
    assert not (tmp_path / "results").exists() and not (tmp_path / "out/run.json").exists()


def test_a_run_is_not_continued_with_other_code(run, tmp_path, monkeypatch):
    assert run()[0] == 1
    monkeypatch.setattr(benchmark_runs, "digest_code", lambda: "other code")
    code, said = run()
    assert code == 1 and "the code has changed since then: measure all pages again with --restart" in said
    assert run("--restart")[1].startswith("[1/2] writes") and len(calls(tmp_path)) == 2


def test_a_run_is_not_continued_on_another_day():
    assert not Record("code", time.time() - DAY / 2).explain_restart("code")
    assert "more than a day ago" in Record("code", time.time() - 2 * DAY).explain_restart("code")


def test_a_busy_machine_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr("os.getloadavg", lambda: (7.0, 7.0, 7.0))
    code, said = run()
    assert code == 1 and "the load average is 7.0" in said and not (tmp_path / "results").exists()
    assert run("--busy", "--only", "writes")[0] == 0
