"""What the handler of a signal raises while an op compiles reaches the caller as it is, and the op works afterwards."""

import signal

import pytest
import torch

import tinsmith as ts

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


def call_for_ever(op, x):
    while True:
        op(x).sum().backward()


@pytest.mark.parametrize(("handler", "error"), [(raise_time_is_up, TimeIsUp), (interrupt, KeyboardInterrupt)])
def test_an_exception_of_a_handler_is_unchanged(lang64, handler, error):
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for delay in (0.001, 0.02, 0.06):
            op = ts.op("x[n] -> y[n]")(make_kernel(lang64))
            x = torch.linspace(0, 1, 5, dtype=torch.float64, requires_grad=True)
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(error) as caught:
                call_for_ever(op, x)
            assert type(caught.value) is error
            x.grad = None
            op(x).sum().backward()
            (expected,) = torch.autograd.grad(torch_twin(x).sum(), x)
            torch.testing.assert_close(x.grad, expected)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_returns_runs_after_the_compilation(lang64):
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        x = torch.ones(3, dtype=torch.float64)
        torch.testing.assert_close(ts.op("x[n] -> y[n]")(make_kernel(lang64))(x), torch_twin(x))
        assert seen == [1]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGALRM, before)
