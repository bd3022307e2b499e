"""Run the benchmarks of `./scripts/benchmarks`, one after the other, each in a process of its own.

What has been measured is recorded in out/benchmarks/run.json after each benchmark, so that an interrupted run continues
where it stopped: with the same code, and within a day, since ratios of different days or machines do not belong into
one table. What a benchmark prints is in out/benchmarks/NAME.log. This file needs only the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pages.results import FOLDER, bars_of, missed

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "benchmarks"
QUIET = 0.5
"""The highest load average at which a run starts."""
DAY = 24 * 3600.0
BAR_WIDTH = 30


@dataclass(frozen=True)
class Benchmark:
    """A script of benchmarks and the page of benchmarks/results that it writes.

    Attributes:
        script: the file's name in benchmarks, without `.py`.
        page: the file's name in benchmarks/results.
        minutes: an estimate, which the time of the last run replaces.
        options: of every run.
        quick: options of a trial, whose numbers mean nothing.
        is_printed: the script only prints, so its output becomes the page.
    """

    script: str
    page: str
    minutes: float
    options: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--quick",)
    is_printed: bool = False

    @property
    def name(self) -> str:
        return self.script.replace("_", "-")


BENCHMARKS = (
    Benchmark("overhead", "overhead-cpu.md", 4),
    Benchmark("layers", "layers-cpu.md", 1.5),
    Benchmark("adjoint", "adjoint-cpu.md", 2),
    Benchmark("peers", "peers-cpu.md", 2),
    Benchmark("rendering", "rendering-cpu.md", 5),
    Benchmark("gaussians", "gaussians-cpu.md", 1),
    Benchmark("splat", "splat.md", 1, ("--rounds", "5")),
    Benchmark("networks", "networks-cpu.md", 6),
    Benchmark("input_encodings", "encodings-cpu.md", 3, ("--rounds", "7")),
    Benchmark("rollout", "rollout-cpu.md", 3, ("--rounds", "7")),
    Benchmark("commands", "commands-cpu.md", 8),
    Benchmark("compile_time", "compile-time-cpu.md", 6, ("--rounds", "3")),
    Benchmark("preparation", "preparation-cpu.md", 3, ("--most", "5")),
    Benchmark("growth", "growth-cpu.md", 15, ("--seconds", "20")),
    Benchmark("rounds", "rounds-cpu.md", 2),
    Benchmark("scan", "scan-cpu.md", 1, is_printed=True),
    Benchmark("first_call", "first-call-cpu.md", 1, quick=("--rounds", "1"), is_printed=True),
    Benchmark("sizes", "sizes-cpu.md", 2),
    Benchmark("pauses", "pauses-cpu.md", 7),
    Benchmark("compiled_call", "compiled-call-cpu.md", 2, quick=("--rounds", "2")),
    Benchmark("new_sizes", "new-sizes-cpu.md", 1, quick=("--calls", "5"), is_printed=True),
    Benchmark("lint", "lint-cpu.md", 1, quick=(), is_printed=True),
    Benchmark("python_engine", "python-engine-cpu.md", 1, quick=(), is_printed=True),
)
"""In this order: what most readers look at comes first."""


@dataclass
class Record:
    """What a run has measured so far.

    Attributes:
        code: a digest of the code that is measured.
        started: seconds since 1970.
        seconds: of each benchmark that has written its page.
        earlier: of earlier runs, as estimates.
    """

    code: str
    started: float
    seconds: dict[str, float] = field(default_factory=dict)
    earlier: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Record | None:
        """Read the record of the last run. Return None if there was none."""
        return cls(**json.loads(file.read_text("utf-8"))) if file.is_file() else None

    def write(self, file: Path) -> None:
        """Write the record completely or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(".new")
        draft.write_text(json.dumps(vars(self), indent=1), "utf-8")
        draft.replace(file)

    def explain_restart(self, code: str) -> str:
        """Return why this run cannot be continued, or an empty string if it can."""
        if self.code != code:
            return "the code has changed since then"
        if time.time() - self.started > DAY:
            return "it was started more than a day ago"
        return ""

    def estimate(self, benchmark: Benchmark) -> float:
        """Return the seconds that a benchmark is expected to take."""
        return {**self.earlier, **self.seconds}.get(benchmark.name, 60 * benchmark.minutes)


def digest_code(root: Path = ROOT) -> str:
    """Return a digest of the package and the benchmarks, whether committed or not."""
    digest = hashlib.sha256()
    for folder in ("src", "benchmarks"):
        for file in sorted((root / folder).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


class Run:
    """Runs some benchmarks, shows the progress, and keeps the record of what has been measured."""

    def __init__(self, record: Record, out: Path, results: Path, *, is_quick: bool = False) -> None:
        self.record, self.out, self.results, self.is_quick = record, out, results, is_quick
        self.start = time.monotonic()
        self.failed: list[Benchmark] = []

    def run(self, benchmarks: Sequence[Benchmark]) -> None:
        """Run benchmarks in this order. One that fails does not keep the others from running."""
        self.out.mkdir(parents=True, exist_ok=True)
        self.results.mkdir(parents=True, exist_ok=True)
        for number, benchmark in enumerate(benchmarks, start=1):
            rest = sum(map(self.record.estimate, benchmarks[number - 1 :]))
            head = f"[{number}/{len(benchmarks)}] {benchmark.name}"
            elapsed = time.monotonic() - self.start
            print(f"{head}: {in_minutes(elapsed)} elapsed, about {in_minutes(rest)} left", flush=True)
            before = time.monotonic()
            reason = self.measure(benchmark, head)
            seconds = time.monotonic() - before
            if reason:
                self.failed.append(benchmark)
                print(f"{head}: FAILED: {reason}; see {self.log_of(benchmark)}", flush=True)
                continue
            print(f"{head}: wrote {self.results / benchmark.page} in {in_minutes(seconds)}", flush=True)
            if not self.is_quick:
                self.record.seconds[benchmark.name] = seconds
                self.record.write(self.out / "run.json")

    def log_of(self, benchmark: Benchmark) -> Path:
        return self.out / f"{benchmark.name}.log"

    def measure(self, benchmark: Benchmark, head: str) -> str:
        """Run a benchmark. Return why it failed, or an empty string if it wrote its page.

        Some scripts exit with 1 if a target is missed, so the page counts, not the exit code.
        """
        page, before = self.results / benchmark.page, time.time_ns()
        text = describe_machine() if benchmark.is_printed else ""
        with self.log_of(benchmark).open("wb") as log:
            process = subprocess.Popen(
                self.command(benchmark),
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                code = self.wait(process, head, self.record.estimate(benchmark))
            finally:
                process.kill()  # the process still runs only if this run was interrupted
                process.wait()
        if benchmark.is_printed and code == 0:
            printed = self.log_of(benchmark).read_text("utf-8").strip("\n")
            page.write_text(printed_page(benchmark, text, printed), "utf-8")
        if page.is_file() and page.stat().st_mtime_ns >= before and code in (0, 1):
            return ""
        return f"exit code {code}"

    def command(self, benchmark: Benchmark) -> list[str]:
        """Return the command of a benchmark."""
        out = [] if benchmark.is_printed else ["--out", str(self.results)]
        options = benchmark.quick if self.is_quick else benchmark.options
        return [sys.executable, str(ROOT / "benchmarks" / f"{benchmark.script}.py"), *options, *out]

    def wait(self, process: subprocess.Popen[bytes], head: str, expected: float) -> int:
        """Wait for a benchmark, with a progress bar if a person is watching. Return its exit code."""
        start = time.monotonic()
        while True:
            try:
                code = process.wait(1.0)
            except subprocess.TimeoutExpired:
                if sys.stderr.isatty():
                    sys.stderr.write(f"\r\033[K{head} {draw_bar(time.monotonic() - start, expected)}")
                    sys.stderr.flush()
            else:
                if sys.stderr.isatty():
                    sys.stderr.write("\r\033[K")
                return code


def draw_bar(seconds: float, expected: float) -> str:
    """Draw a progress bar of text. It is never full before the end."""
    done = min(int(BAR_WIDTH * seconds / max(expected, 1)), BAR_WIDTH - 1)
    return f"[{'#' * done}{' ' * (BAR_WIDTH - done)}] {in_minutes(seconds)} of about {in_minutes(expected)}"


def in_minutes(seconds: float) -> str:
    """Format a duration: 3:07 min."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min"


def describe_machine() -> str:
    """Return the sentences about machine, versions and load that the other benchmarks write to their pages."""
    asked = "import os, _report; print(f'{_report.machine()}. Load average before: {os.getloadavg()[0]:.1f}.')"
    return subprocess.run(
        [sys.executable, "-c", asked], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    ).stdout.strip()


def printed_page(benchmark: Benchmark, machine: str, printed: str) -> str:
    """Return the page of a benchmark that only prints: a title from its docstring, the machine, the output."""
    script = f"benchmarks/{benchmark.script}.py"
    title = re.split(r"[:.]( |$)", (ROOT / script).read_text("utf-8").partition("\n")[0].strip('"'))[0]
    lines = [line for line in printed.splitlines() if not line.startswith(("[Taichi]", "[Quadrants]"))]
    text = "\n".join(["```text", *lines, "```", ""])
    return f"# {title}\n\nWhat is measured, and how: `{script}`.\n\n{machine}\n\n{text}"


def list_missed(benchmarks: Sequence[Benchmark], folder: Path) -> list[str]:
    """Return a line for each missed target on the benchmarks' pages."""
    lines = []
    for benchmark in benchmarks:
        page = folder / benchmark.page
        if not page.is_file():
            continue
        if benchmark.is_printed:
            printed = [line for line in page.read_text("utf-8").splitlines() if re.search(r"\bmissed\b", line, re.I)]
            lines += [f"{benchmark.page}: {' '.join(re.sub('[│|]', ' ', line).split())}" for line in printed]
        for bar in missed(bars_of(benchmark.page, folder)):
            against = f", against {bar.against}" if bar.against else ""
            lines.append(f"{benchmark.page}: {bar.what}: {bar.ours}{against}: {bar.measured}, target {bar.to_hold}")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are not measured yet, and list missed targets. Return 1 if a benchmark failed."""
    names = [benchmark.name for benchmark in BENCHMARKS]
    asked = argparse.ArgumentParser(prog="benchmarks", description="Measure every page of benchmarks/results again.")
    asked.add_argument("--list", action="store_true", help="print the names, minutes and pages")
    asked.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="some benchmarks; --list prints them")
    asked.add_argument("--restart", action="store_true", help="measure again what the last run has measured")
    asked.add_argument("--quick", action="store_true", help="little work, to see that all run; keeps the results")
    asked.add_argument("--busy", action="store_true", help="measure although the machine does other work")
    options = asked.parse_args(arguments)
    code, last = digest_code(), Record.read(OUT / "run.json")
    record = Record(code, time.time()) if last is None else last
    if options.list:
        for one in BENCHMARKS:
            print(f"{one.name:16} {in_minutes(record.estimate(one)):>10}  {one.page}")
        print(f"{'all':16} {in_minutes(sum(map(record.estimate, BENCHMARKS))):>10}")
        return 0
    if options.quick:
        run = Run(record, OUT / "quick", OUT / "quick" / "results", is_quick=True)
        run.run([one for one in BENCHMARKS if not options.only or one.name in options.only])
        return finish(run, [])
    if not options.busy and os.getloadavg()[0] > QUIET:
        return refuse(f"the load average is {os.getloadavg()[0]:.1f}: end other work, or measure anyway with --busy")
    reason = record.explain_restart(code)
    if options.restart or (reason and len(record.seconds) == len(BENCHMARKS)):
        record = Record(code, time.time(), earlier={**record.earlier, **record.seconds})
    elif reason:
        return refuse(f"an earlier run was not finished, and {reason}: measure all pages again with --restart")
    wanted = [one for one in BENCHMARKS if one.name in (options.only or names)]
    if not options.only:
        wanted = [one for one in wanted if one.name not in record.seconds]
        if record.seconds:
            print(f"Measured earlier in this run: {', '.join(record.seconds)}. To measure them again: --restart.")
    run = Run(record, OUT, FOLDER)
    run.run(wanted)
    return finish(run, list_missed(BENCHMARKS, FOLDER))


def finish(run: Run, lines: Sequence[str]) -> int:
    """Print missed targets and what to do next. Return the exit code."""
    if not run.is_quick:
        print(f"Missed targets: {len(lines)}", *lines, sep="\n  ")
    if run.failed:
        names = ", ".join(one.name for one in run.failed)
        return refuse(f"failed: {names}; the next run measures {'it' if len(run.failed) == 1 else 'them'} again")
    print(f"The results are in {run.results}." + ("" if run.is_quick else " Next: ./scripts/docs write"))
    return 0


def refuse(message: str) -> int:
    """Print an error. Return the exit code 1."""
    sys.stderr.write(f"benchmarks: {message}\n")
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.stderr.write("\nbenchmarks: interrupted; the next run continues with the benchmark that was not finished\n")
        sys.exit(130)
