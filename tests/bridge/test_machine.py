"""The costs of the machine by which threads are chosen: measured once, kept on disk, assumed where nothing is kept."""

import math
import subprocess
import sys

import pytest
import torch

import tinsmith as ts
from tinsmith import _machine
from tinsmith._machine import ASSUMED, LEAST_WAKE, Machine, find_machine, measure_machine
from tinsmith.calls import _threads
from tinsmith.engines import get as get_engine

FIXED = Machine(wake=100e-6, byte=0.01e-9, is_measured=True)


@pytest.fixture
def kept(configure, monkeypatch, tmp_path):
    """Let costs be kept in a folder of the test's own, and return the measurements that are taken."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    configure(cache="1")
    taken = []
    monkeypatch.setattr(_machine, "measure_machine", lambda: taken.append(FIXED) or FIXED)
    find_machine.cache_clear()
    yield taken
    find_machine.cache_clear()


def test_costs_are_measured_once(kept):
    assert find_machine() == FIXED
    find_machine.cache_clear()  # as in another process
    assert find_machine() == FIXED
    assert len(kept) == 1


def test_costs_that_cannot_be_kept_are_assumed(kept, monkeypatch):
    monkeypatch.setattr(_machine, "write_entry", lambda *_: None)
    assert find_machine() == ASSUMED


def test_nothing_is_measured_without_a_cache(kept, configure):
    configure(cache="0")
    assert find_machine() == ASSUMED
    assert not kept


@pytest.mark.parametrize("entry", [b"", b"1e-4", b"1e-4 x", b"nan 1e-11", b"1e-9 1e-11", b"1e-4 -1.0"])
def test_an_entry_of_something_else_is_measured_again(kept, entry):
    name = _machine._name_entry()
    _machine.write_entry(name, entry)
    assert find_machine() == FIXED
    assert len(kept) == 1


def test_a_measurement_is_plausible():
    one = measure_machine()
    assert LEAST_WAKE <= one.wake <= _machine.MOST_WAKE
    assert 1e-13 < one.byte < 1e-8


def test_an_import_measures_nothing():
    code = "import tinsmith, sys; print('tinsmith._machine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.parametrize(("threads", "seconds"), [(1, math.inf), (2, 200e-6), (4, 400e-6 / 3)])
def test_where_several_threads_break_even(threads, seconds):
    assert FIXED.break_even(threads) == pytest.approx(seconds)


def triple(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    return kernel


def choose(op, size, threads, lang, monkeypatch):
    """Return whether a call of this size would use one thread."""
    monkeypatch.setattr(type(get_engine(lang.__name__)), "thread_count", lambda self: threads)
    op(torch.rand(1))
    (program,) = op._core.programs.values()
    return program._forward.threads.choose(program.solve([(size,)], {}), {})


@pytest.mark.compiled_engine
def test_work_and_traffic_decide(lang, monkeypatch):
    """Of 200 us on one thread, a loop over elements does 6.7 million operations, or moves 20 MB; others 800,000."""
    monkeypatch.setattr(_threads, "find_machine", lambda: FIXED)
    op = ts.op("x[n] -> y[n]")(triple(lang))
    assert [choose(op, n, 2, lang, monkeypatch) for n in (2_222_222, 2_222_223)] == [(True,), (False,)]
    monkeypatch.setattr(_threads, "find_machine", lambda: Machine(100e-6, 0.02e-9))
    op = ts.op("x[n] -> y[n]")(triple(lang))
    assert [choose(op, n, 2, lang, monkeypatch) for n in (1_249_999, 1_250_001)] == [(True,), (False,)]

    @lang.kernel
    def gather(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[int(x[i])]

    op = ts.op("x[n] -> y[n]")(gather)
    assert [choose(op, n, 2, lang, monkeypatch) for n in (199_999, 200_001)] == [(True,), (False,)]


@pytest.mark.compiled_engine
def test_one_thread_of_the_engine_is_never_woken(lang, monkeypatch):
    """A launch on the thread pool would take as long as on one thread, and the time to wake it."""
    op = ts.op("x[n] -> y[n]")(triple(lang))
    assert choose(op, 2**31 - 2, 1, lang, monkeypatch) == (True,)
    assert "3 operations; the engine has one thread" in op.explain("all")


@pytest.mark.compiled_engine
def test_a_deterministic_op_depends_on_no_measurement(lang, monkeypatch):
    def refuse():
        raise AssertionError

    monkeypatch.setattr(_threads, "find_machine", refuse)
    for threads in (1, 2, 16):
        op = ts.op("x[n] -> y[n]", deterministic=True)(triple(lang))
        assert [choose(op, n, threads, lang, monkeypatch) for n in (2_800_000, 2_900_000)] == [(True,), (False,)]
    assert "waking threads takes 130 us, a byte 0.012 ns (assumed)" in op.explain("all")


@pytest.mark.compiled_engine
def test_explain_says_what_threads_cost(lang, configure):
    op = ts.op("x[n] -> y[n]")(triple(lang))
    op(torch.rand(4))
    costs = "waking threads takes 130 us, a byte 0.012 ns (assumed); an operation 0.25 ns, in vectors 0.03"
    assert op.explain("all").count(costs) == 1
    configure(serial_below="1000")
    op = ts.op("x[n] -> y[n]")(triple(lang))
    op(torch.rand(4))
    assert "waking threads" not in op.explain("all")
