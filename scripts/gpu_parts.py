"""The parts of `./scripts/gpu_check`, run one after the other, each in a process of its own with a time limit.

This file needs nothing but the standard library: where a package is missing, the part that needs it says so. What a
part measures is in benchmarks/on_device.py; which tests need a GPU is marked there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = 480.0
"""Seconds for all parts: a machine that is lent for ten minutes has to have started, too."""
REHEARSAL = "rehearsal"
"""What a rehearsal's report is named after, in place of a GPU."""
PATIENCE = 2.0
"""In a rehearsal parts may take so many times as long: it has few cores, and perhaps other work."""
STRANGERS_AWAY = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""A machine that is not ours has plugins of pytest that warn, and a warning is an error in these tests."""
HEADINGS = "| part | what | who | found | beside | |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True)
class Part:
    """A part of the check: a command with a time limit.

    Attributes:
        command: arguments of Python. DEVICE and OUT are replaced by the device and the folder of results; QUICK becomes
            `--quick` in a rehearsal.
        limit: seconds.
        rows: whether it writes rows of its own.
    """

    name: str
    command: tuple[str, ...]
    limit: float
    rows: bool = False


def tests(name: str, limit: float, *paths: str) -> Part:
    """Build the part that runs the tests marked gpu in these paths."""
    # The engines keep compiled kernels in pytest's cache, so it cannot be switched off.
    options = ("-q", "-m", "gpu", "--all", "-o", "cache_dir=OUT/cache", "-p", "pytest_timeout", "WORKERS")
    return Part(f"tests: {name}", ("-m", "pytest", *options, *paths), limit)


def measured(name: str, limit: float, *options: str) -> Part:
    """Build the part that runs a section of benchmarks/on_device.py."""
    rows = ("--out", "ROWS", "QUICK")
    return Part(name, ("benchmarks/on_device.py", name, "--device", "DEVICE", *rows, *options), limit, rows=True)


PARTS = (
    Part("doctor", ("-m", "tinsmith", "doctor", "--all"), 60),
    tests("op", 90, "tests/bridge", "--ignore-glob=tests/bridge/test_gpu*.py"),
    tests("op and streams", 90, "tests/bridge/test_gpu.py"),
    tests("graphs", 75, "tests/bridge/test_gpu_graphs.py"),
    tests("layers", 60, "tests/layers"),
    tests("nn", 60, "tests/nn"),
    tests("render", 75, "tests/render", "tests/kernels", "--ignore=tests/render/gaussians"),
    tests("gaussians", 75, "tests/render/gaussians"),
    tests("time", 45, "tests/time"),
    Part("values of the CPU", ("benchmarks/on_device.py", "values", "--save", "OUT/cpu-values", "--out", "ROWS"), 75),
    measured("values", 75, "--compare", "OUT/cpu-values"),
    measured("overhead", 40),
    measured("graphs", 75),
    measured("bandwidth", 60),
    measured("ptx", 45),
    measured("composite", 60),
    measured("hash-grid", 60),
    measured("blend", 60),
    measured("networks", 75),
    measured("fit-scene", 60),
    measured("fit-splats", 60),
    measured("learn-image", 60),
)
"""In this order: what tells most comes first, so that a short stay on a machine is worth most."""


@dataclass
class Result:
    """The result of a part: whether it succeeded, a short description, its time, and its rows.

    A row has `what`, `who`, `found`, `beside` and `ok`.
    """

    part: Part
    ended_well: bool
    words: str
    seconds: float
    rows: list[dict[str, object]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.ended_well and all(row["ok"] for row in self.rows)

    def as_json(self) -> dict[str, object]:
        """Return the result as it is kept for `--resume`."""
        kept = {"ended_well": self.ended_well, "words": self.words, "seconds": self.seconds, "rows": self.rows}
        return {"part": self.part.name, **kept}

    def lines(self) -> str:
        """Return the part's rows in the report's table."""
        took = f"{self.seconds:.0f} s"
        own = [f"| {self.part.name} | | | {self.words} | {took} | {'' if self.ok else 'LOOK'} |"]
        for row in self.rows:
            cells = " | ".join(str(row[key]).replace("|", "/") for key in ("what", "who", "found", "beside"))
            own.append(f"| {self.part.name} | {cells} | {'' if row['ok'] else 'LOOK'} |")
        return "\n".join(own) + "\n"


class Run:
    """Runs some parts, and writes their results to a folder.

    Attributes:
        report: the file of the table, `gpu-` and the name of the GPU.
        known: by part, the results of an earlier run that this one resumes.
    """

    def __init__(self, out: Path, device: str, budget: float, *, is_rehearsal: bool, gpu: str = REHEARSAL) -> None:
        self.out, self.device, self.is_rehearsal = out, device, is_rehearsal
        self.report = out / f"gpu-{name_file(gpu)}.md"
        self.known: dict[str, Result] = {}
        self.patience = PATIENCE if is_rehearsal else 1.0
        self.end = time.monotonic() + budget * self.patience
        self.results: list[Result] = []
        out.mkdir(parents=True, exist_ok=True)
        self.head = describe_machine(device, is_rehearsal=is_rehearsal)
        self.write()
        print(self.head, flush=True)

    def run(self, part: Part) -> None:
        """Run a part, or take its earlier result if it was good. Print the result, and update the report."""
        limit = min(part.limit * self.patience, self.end - time.monotonic())
        if part.name in self.known:
            result = self.known[part.name]
        elif limit < 1:
            result = Result(part, False, "not run: no time is left", 0.0)
        else:
            result = self.result_of(part, limit)
        self.results.append(result)
        self.write()
        print(result.lines(), end="", flush=True)

    def result_of(self, part: Part, limit: float) -> Result:
        """Run a part in a session of its own, so that all processes that it starts end with it. Return the result."""
        stem = re.sub(r"[^a-z]+", "-", part.name.lower())
        log, rows = self.out / f"{stem}.log", self.out / f"{stem}.jsonl"
        rows.unlink(missing_ok=True)
        start = time.monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                self.command(part, rows),
                cwd=ROOT,
                env=os.environ | STRANGERS_AWAY,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                with contextlib.suppress(ProcessLookupError):  # a part that succeeded leaves no processes
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = time.monotonic() - start
        text = log.read_text("utf-8", errors="replace")
        return Result(part, *judge(code, text, limit, log.name), seconds, read_rows(rows))

    def command(self, part: Part, rows: Path) -> list[str]:
        """Return a part's command with its placeholders (OUT, ROWS, DEVICE, QUICK, WORKERS) replaced."""
        arguments = []
        for word in part.command:
            if word == "QUICK":
                arguments += ["--quick"] * self.is_rehearsal
            elif word == "WORKERS":
                arguments += self.workers()
            else:
                word = word.replace("OUT/", f"{self.out}/").replace("ROWS", str(rows))
                arguments.append(self.device if word == "DEVICE" else word)
        return [sys.executable, *arguments]

    def workers(self) -> list[str]:
        """Return pytest's options for parallel tests: four processes on a large machine, which leave each other most of
        a GPU's memory.
        """
        has_many = (os.cpu_count() or 1) >= 8 and importlib.util.find_spec("xdist") is not None
        return ["-p", "xdist", "-n", "4"] if has_many else []

    def write(self) -> None:
        """Write the report of the results so far, and what `--resume` needs."""
        table = "".join(result.lines() for result in self.results)
        self.report.write_text(f"{self.head}\n{HEADINGS}{table}", "utf-8")
        done = {result.part.name: result for result in self.results}
        # A run that is stopped now has not lost what the one before knew.
        kept = [result.as_json() for result in (self.known | done).values()]
        self.state.write_text(json.dumps(kept), "utf-8")

    @property
    def state(self) -> Path:
        """The file that keeps the results for `--resume`."""
        return self.report.with_suffix(".json")

    def resume(self, earlier: str) -> None:
        """Take over the good results of an earlier run, given the content of its `state`."""
        parts = {part.name: part for part in PARTS}
        for one in json.loads(earlier):
            if one["part"] in parts:
                part = parts[one.pop("part")]
                result = Result(part, **one)
                if result.ok:
                    self.known[part.name] = result
        self.write()


def name_file(gpu: str) -> str:
    """Return a GPU's name as a part of a file's name: "NVIDIA GeForce RTX 4090" becomes "geforce-rtx-4090"."""
    return "-".join(word for word in re.findall(r"[a-z0-9]+", gpu.lower()) if word != "nvidia")


def judge(code: int | None, text: str, limit: float, log: str) -> tuple[bool, str]:
    """Decide from exit code and output whether a part succeeded; return that with a short description."""
    counts = re.findall(
        r"^(?:=+ )?(\d+ (?:passed|failed|skipped|errors?|deselected)\b.*?)(?: in [\d.]+s.*)?$", text, re.M
    )
    said = f": {counts[-1]}" if counts else ""
    if code is None:
        return False, f"ended after its limit of {limit:.0f} s{said}; see {log}"
    if code != 0:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return False, f"FAILED with {how}{said or f': {last_words(text)}'}; see {log}"
    return True, f"ok{said}"


def last_words(text: str) -> str:
    """Return the last printed line, shortened for a cell of a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:160].replace("|", "/") if lines else "it printed nothing"


def read_rows(file: Path) -> list[dict[str, object]]:
    """Read the rows that a part wrote. Skip a last line that is incomplete because the part was killed."""
    if not file.is_file():
        return []
    rows = []
    for line in file.read_text("utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


def describe_machine(device: str, *, is_rehearsal: bool) -> str:
    """Return the report's head: versions and the device. A child process asks torch, which may fail to load."""
    asked = (
        "import torch; from importlib.metadata import version as v; "
        "gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else 'no GPU';"
        "names = ('taichi', 'quadrants', 'numpy');"
        "print('torch', torch.__version__, 'CUDA', torch.version.cuda, *[f'{n} {v(n)}' for n in names], gpu)"
    )
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=120, check=False)
    versions = last_words(done.stdout if done.returncode == 0 else done.stderr)
    title = "A rehearsal on the CPU: the times mean nothing" if is_rehearsal else "What this GPU does"
    machine = f"Python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores"
    return f"# {title}\n\n{machine}; {versions}. Device: {device}.\n"


def find_gpu() -> str:
    """Return the name of the GPU that torch uses, or an empty string."""
    asked = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, print the results and write the report. Return the exit code."""
    names = [part.name for part in PARTS]
    asked = argparse.ArgumentParser(prog="gpu_check", description="Check tinsmith on a GPU.")
    asked.add_argument("--rehearse", action="store_true", help="on the CPU, with little of everything")
    asked.add_argument("--only", nargs="+", choices=names, metavar="PART", help="some parts; --list prints them")
    asked.add_argument("--list", action="store_true", help="print the names of the parts")
    asked.add_argument("--resume", action="store_true", help="keep the good results that the folder has")
    asked.add_argument("--out", type=Path, default=ROOT / "out" / "gpu_check", help="folder for the results")
    asked.add_argument("--budget", type=float, default=BUDGET, help="seconds for all parts")
    options = asked.parse_args(arguments)
    if options.list:
        print(*names, sep="\n")
        return 0
    gpu = REHEARSAL if options.rehearse else find_gpu()
    if not gpu:
        sys.stderr.write("gpu_check: torch cannot use a GPU here; nothing was checked\n")
        return 1
    device = "cpu" if options.rehearse else "cuda"
    out = options.out.resolve()
    state = out / f"gpu-{name_file(gpu)}.json"
    earlier = state.read_text("utf-8") if options.resume and state.is_file() else "[]"
    run = Run(out, device, options.budget, is_rehearsal=options.rehearse, gpu=gpu)
    run.resume(earlier)
    for part in PARTS:
        # The good results of an earlier run stay in the report.
        if options.only is None or part.name in options.only or part.name in run.known:
            run.run(part)
    bad = [result.part.name for result in run.results if not result.ok]
    print(f"The table is in {run.report}.")
    if bad:
        sys.stderr.write(f"gpu_check: look at: {', '.join(bad)}\n")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
