"""The line that shows how far a preparation is: after two seconds, where somebody looks on."""

import io
import multiprocessing
import threading
import time
from types import SimpleNamespace

import pytest
import torch

import tinsmith as ts
from tinsmith import _preparation
from tinsmith._preparation import ProgressLine, is_watched, note_step, show_preparation
from tinsmith.engines import _compile_times


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def watched(monkeypatch):
    """Make standard error a terminal, outside of a test's output capture."""
    terminal = Terminal()
    # Not `sys.stderr` itself, which pytest replaces when the test begins.
    monkeypatch.setattr(_preparation, "sys", SimpleNamespace(stderr=terminal))
    monkeypatch.setattr(_preparation, "is_in_test", lambda: False)
    return terminal


def test_a_line_appears_after_two_seconds_and_is_erased():
    now, terminal = [100.0], Terminal()
    line = ProgressLine("rollout forward", 4, terminal, lambda: now[0])
    line.begin_step("p2g")
    now[0] = 101.9
    line.draw()
    assert not terminal.getvalue()
    line.begin_step("g2p")
    now[0] = 102.0
    line.draw()
    text = f"tinsmith: rollout forward: g2p  [{'=' * 5}{'-' * 15}] 1/4  2 s"
    assert terminal.getvalue() == f"\r{text}"
    line.begin_step("x")
    now[0] = 112.2
    line.draw()
    assert (
        terminal.getvalue().split("\r")[-1].rstrip()
        == f"tinsmith: rollout forward: x  [{'=' * 10}{'-' * 10}] 2/4  12 s"
    )
    line.erase()
    assert terminal.getvalue().endswith(" \r")


def test_a_short_preparation_writes_nothing():
    terminal = Terminal()
    line = ProgressLine("conv", 0, terminal, lambda: 0.0)
    line.draw()
    line.erase()
    assert not terminal.getvalue()


def test_a_long_name_does_not_break_the_line():
    now, terminal = [0.0], Terminal()
    line = ProgressLine("rollout " + "x" * 200, 2, terminal, lambda: now[0])
    now[0] = 3.0
    line.draw()
    assert len(terminal.getvalue().strip()) < 80
    assert terminal.getvalue().endswith("0/2  3 s")


def test_a_preparation_is_shown_while_it_runs(watched, monkeypatch):
    monkeypatch.setattr(_preparation, "DELAY", 0.0)
    with show_preparation("rollout forward", 2):
        note_step("p2g")
        with show_preparation("gradient"):  # a part of it
            note_step("g2p")
            end = time.monotonic() + 10
            while "g2p" not in watched.getvalue() and time.monotonic() < end:
                time.sleep(0.01)
    assert "rollout forward: g2p" in watched.getvalue()
    assert "gradient" not in watched.getvalue()
    assert watched.getvalue().endswith(" \r")
    assert not _preparation._lines


@pytest.mark.each_engine
@pytest.mark.compiled_engine
def test_a_line_is_drawn_before_a_long_compilation(lang, watched, monkeypatch):
    """An engine holds the interpreter's lock while it compiles: no thread draws then."""

    def run(factor):
        @lang.kernel
        def scale(x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = factor * x[i]

        assert ts.op("x[n] -> y[n]")(scale)(torch.ones(2)).tolist() == [factor, factor]

    monkeypatch.setattr(_preparation, "DELAY", 1e6)
    monkeypatch.setattr(_compile_times, "LONG_FRONT_END", 1e6)
    run(2.0)
    assert not watched.getvalue()
    monkeypatch.setattr(_compile_times, "LONG_FRONT_END", 0.0)
    run(3.0)
    assert "tinsmith: scale: scale" in watched.getvalue()
    assert watched.getvalue().endswith(" \r")


def test_an_error_erases_the_line(watched, monkeypatch):
    monkeypatch.setattr(_preparation, "DELAY", 0.0)
    with pytest.raises(ValueError, match="no"), show_preparation("conv"):
        raise ValueError("no")
    assert not _preparation._lines
    assert not any(one.name == "tinsmith progress" for one in threading.enumerate())


def test_progress_is_shown_only_on_a_terminal_of_the_main_thread(watched, monkeypatch):
    assert is_watched(watched)
    assert not is_watched(io.StringIO())  # a file or a pipe
    assert not is_watched(None)  # Python without a console
    seen = []
    thread = threading.Thread(target=lambda: seen.append(is_watched(watched)))
    thread.start()
    thread.join()
    assert seen == [False]
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: object())  # a DataLoader's worker
    assert not is_watched(watched)


def test_notebooks_and_tests(watched, monkeypatch):
    notebook = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    assert is_watched(notebook)
    monkeypatch.undo()
    assert not is_watched(notebook)
