"""`./scripts/gpu_check` loses only what fails: its parts are run here with made-up commands, on no GPU."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gpu_parts
import pytest
from gpu_parts import PARTS, Part, Run, judge

ROOT = Path(__file__).parents[1]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_parts, "describe_machine", lambda device, **_: f"# Made up\n\nDevice: {device}.\n")
    return Run(tmp_path / "out", "cpu", 60, is_rehearsal=True)


def report(run):
    return (run.out / "gpu-rehearsal.md").read_text()


def python(name, program, limit=30.0, *more, rows=False):
    return Part(name, ("-c", program, *more), limit, rows)


def test_the_order_is_the_one_that_was_asked_for():
    names = [part.name for part in PARTS]
    assert names[0] == "doctor"
    rooms = ["op", "op and streams", "graphs", "layers", "nn", "render", "gaussians"]
    assert names[1:8] == [f"tests: {room}" for room in rooms]
    measured = ["values", "overhead", "graphs", "bandwidth", "ptx", "composite", "hash-grid", "blend", "networks"]
    assert names[-12:] == [*measured, "fit-scene", "fit-splats", "learn-image"]


def test_every_file_with_gpu_tests_is_in_a_part():
    """Those of the apps are benchmarks of their own: fit-scene, fit-splats, learn-image."""
    given = [word for part in PARTS for word in part.command if word.startswith("tests/")]
    for file in (ROOT / "tests").rglob("test_*.py"):
        text = file.read_text(encoding="utf-8")
        name = file.relative_to(ROOT).as_posix()
        if "pytest.mark.gpu" in text and not name.startswith("tests/apps/") and file.name not in OF_THE_TESTS:
            assert any(name.startswith(one) for one in given), name


OF_THE_TESTS = {"test_engine_keeper.py", "test_gpu_parts.py", "test_thinned.py"}
"""Files about the mark itself."""


def test_a_part_that_is_done_is_written_and_printed(run, capsys):
    run.run(python("one", "print(3)"))
    assert "| one | | | ok | " in capsys.readouterr().out
    assert report(run).startswith("# Made up\n\nDevice: cpu.\n\n| part | what | who | found | beside | |\n")
    assert "| one | | | ok | " in report(run)
    assert (run.out / "one.log").read_text() == "3\n"


@pytest.mark.costly
def test_a_part_that_hangs_is_ended_with_what_it_started(run):
    child = "import subprocess, sys, time; print('begun', flush=True); subprocess.run([sys.executable, '-c', {!r}])"
    marker = run.out / "alive"
    grandchild = f"import time, pathlib; time.sleep(4); pathlib.Path({str(marker)!r}).touch()"
    run.run(python("hangs", child.format(grandchild), 0.8))
    run.run(python("next", "pass"))
    assert "| hangs | | | ended after its limit of 2 s; see hangs.log |" in report(run)
    assert "| next | | | ok |" in report(run)
    time.sleep(4)
    assert not marker.exists()


def test_a_part_that_fails_says_how(run):
    run.run(python("fails", "raise SystemExit('no such device')"))
    run.run(python("dies", "import os; os.kill(os.getpid(), 11)"))
    assert "FAILED with exit code 1: no such device; see fails.log | 0 s | LOOK |" in report(run)
    assert "FAILED with signal 11" in report(run)
    assert [result.ok for result in run.results] == [False, False]


ROW = {"what": "saxpy", "who": "tinsmith", "found": "3 us", "beside": "2 x torch", "ok": True}
WRITES = "import sys; file = open(sys.argv[1], 'a'); file.write({!r}); file.flush(); {}"


def test_rows_of_a_part_that_hangs_are_kept(run):
    text = json.dumps(ROW) + "\n" + json.dumps(ROW)[:20]  # killed within the second
    run.run(python("rows", WRITES.format(text, "import time; time.sleep(60)"), 0.8, "ROWS", rows=True))
    assert "| rows | saxpy | tinsmith | 3 us | 2 x torch |  |" in report(run)
    assert len(run.results[0].rows) == 1


def test_a_row_that_is_wrong_makes_the_part_one_to_look_at(run):
    run.run(python("rows", WRITES.format(json.dumps(ROW | {"ok": False}) + "\n", "pass"), 30.0, "ROWS", rows=True))
    assert "| 3 us | 2 x torch | LOOK |" in report(run)
    assert not run.results[0].ok


def test_without_time_left_a_part_is_named_and_not_run(run):
    run.end = time.monotonic() + 0.5
    run.run(python("late", "print(1)"))
    assert "| late | | | not run: no time is left | 0 s | LOOK |" in report(run)


def test_a_run_is_resumed_where_it_was_not_good(run, monkeypatch):
    good, bad = python("one", "print(3)"), python("two", "raise SystemExit(1)")
    monkeypatch.setattr(gpu_parts, "PARTS", (good, bad))
    run.run(good)
    run.run(bad)
    earlier = run.state.read_text()
    (run.out / "one.log").unlink()
    second = Run(run.out, "cpu", 60, is_rehearsal=True)
    second.resume(earlier)
    # Stopped here, it has lost nothing.
    assert [one["part"] for one in json.loads(second.state.read_text())] == ["one"]
    for part in (good, python("two", "print(4)")):
        second.run(part)
    assert [result.ok for result in second.results] == [True, True]
    assert not (run.out / "one.log").exists()
    assert "| one | | | ok | " in report(second)
    assert "| two | | | ok | " in report(second)


def test_a_report_has_the_name_of_its_gpu():
    assert gpu_parts.name_file("NVIDIA H200") == "h200"
    assert gpu_parts.name_file("NVIDIA GeForce RTX 4090") == "geforce-rtx-4090"


def test_words_stand_for_device_folder_and_size(run):
    part = Part("one", ("x.py", "--device", "DEVICE", "--out", "ROWS", "--save", "OUT/values", "QUICK", "WORKERS"), 1)
    command = run.command(part, Path("rows.jsonl"))
    assert command[1:8] == ["x.py", "--device", "cpu", "--out", "rows.jsonl", "--save", f"{run.out}/values"]
    assert command[8] == "--quick"
    run.is_rehearsal = False
    assert "--quick" not in run.command(part, Path("rows.jsonl"))


JUDGED = {
    "== 3 passed, 1 skipped in 4.2s ==": (0, True, "ok: 3 passed, 1 skipped"),
    "1 failed, 3 passed in 4.2s": (1, False, "FAILED with exit code 1: 1 failed, 3 passed; see a.log"),
    "40 skipped in 1.00s": (0, True, "ok: 40 skipped"),
    "5 deselected in 1.00s": (5, False, "FAILED with exit code 5: 5 deselected; see a.log"),
    "no such thing": (4, False, "FAILED with exit code 4: no such thing; see a.log"),
}


@pytest.mark.parametrize("text", JUDGED)
def test_the_output_of_pytest_is_parsed(text):
    code, ok, words = JUDGED[text]
    assert judge(code, f"something\n{text}\n", 9, "a.log") == (ok, words)


@pytest.mark.skipif(not shutil.which("bash"), reason="the script needs bash")
def test_the_script_lists_its_parts_without_a_gpu():
    listed = [sys.executable, ROOT / "scripts/gpu_parts.py", "--list"]
    done = subprocess.run(listed, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == [part.name for part in PARTS]
