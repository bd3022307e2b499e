"""What the handler of a signal raises while an op compiles reaches the caller as it is, and the op works afterwards."""

import signal
import threading
import time

import pytest
import torch

import tinsmith as ts
from tinsmith.engines._compiling import COMPILING

pytestmark = pytest.mark.each_engine


class TimeIsUp(RuntimeError):
    """Raised by a user's handler."""


def make_kernel(lang):
    @lang.func
    def wave(v):
        return lang.sin(v) * v

    @lang.kernel
    def add_up(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            total = 0.0
            for j in range(4):
                total += wave(x[i] * j)
            y[i] = total

    return add_up


def torch_twin(x):
    return sum(torch.sin(x * j) * x * j for j in range(4))


def raise_time_is_up(*_):
    raise TimeIsUp("now")


def interrupt(*_):
    signal.raise_signal(signal.SIGINT)


def call_until_it_raises(op, x, delay):
    """Call an op until a signal's handler raises.

    Python drops what a handler raises inside a destructor, so another signal follows each second.
    """
    for _ in range(20):
        signal.setitimer(signal.ITIMER_REAL, delay)
        end = time.monotonic() + delay + 1.0
        while time.monotonic() < end:
            op(x).sum().backward()


@pytest.mark.compiled_engine
@pytest.mark.parametrize(("handler", "error"), [(raise_time_is_up, TimeIsUp), (interrupt, KeyboardInterrupt)])
def test_an_exception_of_a_handler_is_unchanged(lang64, handler, error):
    before = signal.signal(signal.SIGALRM, handler)
    # Where the tests run in a shell's background, the shell has them ignore it.
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for delay in (0.001, 0.02, 0.06):
            op = ts.op("x[n] -> y[n]")(make_kernel(lang64))
            x = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
            with pytest.raises(error) as caught:
                call_until_it_raises(op, x, delay)
            assert type(caught.value) is error
            x.grad = None
            op(x).sum().backward()
            (expected,) = torch.autograd.grad(torch_twin(x).sum(), x)
            torch.testing.assert_close(x.grad, expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, interrupted)


def test_a_handler_that_returns_runs_after_the_compilation(lang64):
    seen = []
    interrupt = signal.getsignal(signal.SIGINT)
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        x = torch.ones(3, dtype=torch.float64)
        torch.testing.assert_close(ts.op("x[n] -> y[n]")(make_kernel(lang64))(x), torch_twin(x))
        assert seen == [1]
        assert signal.getsignal(signal.SIGINT) is interrupt
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_raises_never_leaves_the_lock_taken():
    """Whenever the signal comes: another thread can compile afterwards."""

    class Alarm(Exception):
        pass

    def raise_alarm(*_):
        raise Alarm

    before = signal.signal(signal.SIGALRM, raise_alarm)
    alarms = 0
    try:
        for number in range(4000):
            try:
                # Within the few microseconds in which the lock is taken and given back.
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + number % 400))
                for _ in range(3):
                    with COMPILING:
                        pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Alarm:
                alarms += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    taken = []

    def take():
        taken.append(COMPILING._lock.acquire(timeout=5))
        COMPILING._lock.release()

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert taken == [True] and alarms > 100
