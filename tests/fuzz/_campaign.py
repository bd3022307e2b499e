"""Thousands of random kernels, in child processes: an engine that dies of one is noted and takes nothing with it.

A child says which seed it begins and what became of it, one line of JSON each. When it dies, the seed that it had begun
is a crash, and another child goes on after it. Lines go to a log, and seeds that a log has are not tried again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from fuzz._record import read_record
from fuzz._verdict import AGREE, CRASH, MISCOMPILED, REFUSED, ROUNDED, TANGENTLESS, UNCOMPILED, UNSTEADY
from support.commit import find_commit

CHUNK = 100
"""Seeds a child tries: engines keep every kernel that they compiled, and memory grows."""

CHUNK_OF_PYTHON = 500
"""The same on the Python engine, which keeps no kernels."""

PROGRESS = 20.0
"""Seconds between two lines that say how far a campaign is."""

SILENCE = 120.0
"""Seconds after which a child that says nothing is stopped, and its seed is a crash, where nobody says otherwise."""


@dataclass
class Campaign:
    """Random kernels on one engine. `outcomes` are lines by seed: outcome, check, words, seconds."""

    engine: str
    seeds: Sequence[int]
    jobs: int = 2
    adjoint: str = "source"
    log: Path | None = None
    grammar: str = "nests"
    is_again: bool = False
    modes: str | None = None
    record: Path | None = None
    silence: float = SILENCE
    dtype: str = "f64"
    shows_progress: bool = False
    outcomes: dict[int, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_stopped: threading.Event = field(default_factory=threading.Event)
    _children: set[subprocess.Popen[str]] = field(default_factory=set)
    _commit: str = field(default_factory=find_commit)
    _begun: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)
    _tried: int = 0
    _same_code: dict[str, bool] = field(default_factory=dict)

    def load(self) -> Campaign:
        """Read the outcomes that the record and the log have. Of a seed that was tried again the last line counts."""
        if self.record is not None:
            self.outcomes = read_record(self.record, self.engine)
        if self.log is not None and self.log.exists():
            self.outcomes |= {one["seed"]: one for one in map(json.loads, self.log.read_text().splitlines())}
        if self.engine == "python":
            # These programs are tried again sooner than those that are compiled.
            self.outcomes = {
                seed: one for seed, one in self.outcomes.items() if self._is_current(one.get("commit", ""))
            }
        return self

    def _is_current(self, commit: str) -> bool:
        """Return True if a commit has the same library and the same fuzz as this one."""
        if commit not in self._same_code:
            self._same_code[commit] = commit == self._commit or has_same_code(commit, self._commit)
        return self._same_code[commit]

    def run(self) -> Campaign:
        """Try all seeds that the log does not have yet, and with `is_again` those that fail there."""
        self.load()
        for line in self.failures if self.is_again else []:
            del self.outcomes[line["seed"]]
        left = [seed for seed in self.seeds if seed not in self.outcomes]
        most = CHUNK_OF_PYTHON if self.engine == "python" else CHUNK
        size = min(most, -(-len(left) // self.jobs) or 1)
        chunks = iter([left[at : at + size] for at in range(0, len(left), size)])
        with ThreadPoolExecutor(self.jobs) as pool:
            for worker in [pool.submit(self._work, chunks) for _ in range(self.jobs)]:
                worker.result()
        return self

    def stop(self) -> None:
        """End the children. Programs that they are at have no outcome, and are tried when the campaign goes on."""
        self._is_stopped.set()
        for child in list(self._children):
            child.terminate()

    @property
    def counts(self) -> Counter[str]:
        """How many kernels had each outcome; of a kernel with modes, the worst."""
        return Counter(self.outcomes[seed]["outcome"] for seed in self.seeds if seed in self.outcomes)

    @property
    def passed(self) -> dict[int, dict[str, Any]]:
        """Lines of all seeds that did not fail."""
        return {seed: line for seed, line in self.outcomes.items() if not self._is_failure(line)}

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Lines of the campaign's seeds that neither agree nor are the engine's own mistake."""
        outcomes = (one for seed in self.seeds if (one := self.outcomes.get(seed)))
        return [one for one in outcomes if self._is_failure(one)]

    def _is_failure(self, line: dict[str, Any]) -> bool:
        """Return True for a failure. Any mode may refuse a program of the wide grammar; else only `jvp` may."""
        passed = {AGREE, TANGENTLESS, UNCOMPILED, UNSTEADY, MISCOMPILED, ROUNDED}
        return line["outcome"] not in (passed | {REFUSED} if self.grammar != "nests" else passed)

    def _work(self, chunks: Iterator[list[int]]) -> None:
        while True:
            with self._lock:
                chunk = next(chunks, None)
            if chunk is None:
                return
            while chunk and not self._is_stopped.is_set():
                tried = self._child(chunk)
                chunk = chunk[tried:]

    def _child(self, seeds: list[int]) -> int:
        """Try seeds in a child until it is done or dead; gives how many have an outcome."""
        command = [sys.executable, "-m", "fuzz", "--child", "--engine", self.engine, "--adjoint", self.adjoint]
        command += ["--grammar", self.grammar, "--dtype", self.dtype, *(["--modes", self.modes] if self.modes else [])]
        tests = str(Path(__file__).parents[1])
        paths = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
        say = [*command, "--seeds", ",".join(map(str, seeds))]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(say, env=os.environ | {"PYTHONPATH": paths}, **pipes) as child:
            self._children.add(child)
            try:
                return self._heard(child)
            finally:
                self._children.discard(child)

    def _heard(self, child: subprocess.Popen[str]) -> int:
        """Note what a child says, and its death; gives how many seeds have an outcome."""
        last_words: list[str] = []
        listening = threading.Thread(target=_listen, args=(child.stderr, last_words))
        listening.start()
        tried, begun, last = 0, None, {}
        for line in _patiently(child, self.silence):
            said = json.loads(line)
            begun, last = said.get("begin"), said
            if begun is None:
                self._note(said)
                tried += 1
        code = child.wait()
        listening.join()
        if self._is_stopped.is_set():
            return tried
        words = f"exit status {code}\n{''.join(last_words[-5:])}"
        if begun is not None:
            self._note(_crash(begun, last, words))
            return tried + 1
        if not tried:
            raise RuntimeError(f"a child ended before its first kernel: {words}")
        return tried

    def _note(self, line: dict[str, Any]) -> None:
        line = {**line, "commit": self._commit}
        with self._lock:
            self.outcomes[line["seed"]] = line
            self._tried += 1
            self._show_progress()
            if self.log is not None:
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with self.log.open("a") as file:
                    file.write(json.dumps(line) + "\n")

    def _show_progress(self) -> None:
        now = time.monotonic()
        if not self.shows_progress or now < self._shown + PROGRESS:
            return
        self._shown = now
        done = sum(seed in self.outcomes for seed in self.seeds)
        rate = self._tried / (now - self._begun)
        words = f"{self.engine}: {done:,} of {len(self.seeds):,} programs, {rate:.1f} a second"
        sys.stderr.write(f"{words}, {len(self.failures)} failed\n")


def has_same_code(one: str, other: str) -> bool:
    """Return True if two commits have the same code for programs; False if one is unknown or not committed."""
    if not one or not other or "-dirty" in one + other:
        return False
    command = ["git", "diff", "--quiet", one, other, "--", "src/tinsmith", "tests/fuzz"]
    return subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, check=False).returncode == 0


def _crash(seed: int, last: dict[str, Any], words: str) -> dict[str, Any]:
    """Return the outcome of a seed whose child process died after its last line, in one mode if it named one."""
    mode = last.get("mode")
    if mode is None:
        return {"seed": seed, "outcome": CRASH, "words": words}
    return {"seed": seed, "outcome": CRASH, "modes": {**last["modes"], mode: CRASH}, "words": {mode: words}}


def _patiently(child: subprocess.Popen[str], silence: float) -> Iterable[str]:
    """Read JSON lines from a child process; stop it if it is silent for too long."""
    assert child.stdout is not None
    timer = threading.Timer(silence, child.kill)
    timer.start()
    for line in child.stdout:
        timer.cancel()
        timer = threading.Timer(silence, child.kill)
        timer.start()
        if line.startswith("{"):
            yield line
    timer.cancel()


def _listen(stream: TextIO | None, words: list[str]) -> None:
    for line in stream or ():
        words.append(line)
        del words[:-50]
