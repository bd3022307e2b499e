"""The warning of an op whose first call takes over three seconds: by a clock of the test."""

import warnings

import pytest
import torch

import tinsmith as ts
from tinsmith.calls import _slow_preparation
from tinsmith.calls._slow_preparation import PreparationTimer
from tinsmith.engines import EngineTimes, Moment, get


class Clock:
    """A clock that the test sets, and an engine's times."""

    def __init__(self, monkeypatch):
        self.wall = self.processor = 0.0
        self.times = EngineTimes()
        monkeypatch.setattr(_slow_preparation, "is_in_test", lambda: False)

    def now(self):
        return Moment(self.wall, self.processor)

    def spend(self, own, front_end=0.0, compiler=0.0, wall=None):
        seconds = own + front_end + compiler
        self.processor += seconds
        self.wall += seconds if wall is None else wall
        self.times.front_end += front_end
        self.times.compiler += compiler
        self.times.kernels += compiler > 0


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def start_timer(engine, clock):
    return PreparationTimer("march", get(engine), clock.now, clock.times)


def test_a_first_call_of_over_three_seconds_warns_once_with_its_parts(engine, clock):
    timer = start_timer(engine, clock)
    with timer, timer:
        clock.spend(0.5, 0.25)
    with pytest.warns(ts.SlowPreparationWarning) as caught, timer:
        clock.spend(0.5, 0.5, 2.25)
    lines = str(caught[0].message).splitlines()
    assert lines[0] == "the first call of op `march` took 4.0 s to prepare"
    assert [" ".join(line.split()) for line in lines[1:4]] == [
        "tinsmith 1.0 s to analyze the kernels and generate code",
        f"{engine} 0.8 s to read the code, 2.2 s to compile it",
        "kernels 1",
    ]
    assert "Unrolled loops" in lines[-1]
    with timer:  # an error, if it warned again
        clock.spend(9.0)


@pytest.mark.parametrize(("seconds", "wall"), [(2.9, None), (9.0, 2.0)], ids=["short", "threads"])
def test_a_short_first_call_does_not_warn(engine, clock, seconds, wall):
    """Neither does one during which other threads of the process worked."""
    with start_timer(engine, clock):
        clock.spend(seconds, wall=wall)


@pytest.mark.parametrize("keeps", [False, True], ids=["dropped", "kept"])
@pytest.mark.parametrize("cache", ["0", "1"])
def test_the_setting_that_helps_is_named(engine, clock, configure, monkeypatch, keeps, cache):
    configure(cache=cache)
    monkeypatch.setattr(type(get(engine)), "keeps_compiled", lambda _: keeps)
    with pytest.warns(ts.SlowPreparationWarning) as caught, start_timer(engine, clock):
        clock.spend(4.0)
    text = str(caught[0].message)
    assert ("TINSMITH_CACHE" in text) is (cache == "0")
    assert ("offline_cache" in text) is not keeps
    assert ("kept on disk, so" in text) is (keeps and cache == "1")
    assert "Unrolled" not in text


def test_a_call_of_an_op_is_timed(lang, monkeypatch):
    monkeypatch.setattr(_slow_preparation, "is_in_test", lambda: False)
    monkeypatch.setattr(_slow_preparation, "LIMIT", 1e-5)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def slow(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] - 3.125

    x = torch.ones(2, requires_grad=True)
    with pytest.warns(ts.SlowPreparationWarning, match="op `slow`") as caught:
        y = slow(x)
    assert caught[0].filename == __file__
    with pytest.warns(ts.SlowPreparationWarning, match="op `slow`"):
        y.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        slow(x).sum().backward()
