"""Pitfall 46: the first launch from a thread that did not start the engine dies (taichi #2022, #4542, #7874)."""

import threading

import pytest
import torch

import cases
import tinsmith as ts

pytestmark = pytest.mark.each_engine


def run_in_thread(work):
    failures = []

    def body():
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def test_the_very_first_launch_after_init(lang64, capfd):
    options = {"ad_stack_experimental_enabled": True} if lang64.__name__ == "quadrants" else {}
    lang64.init(arch=lang64.cpu, default_fp=lang64.f64, log_level=lang64.ERROR, **options)

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    inputs = (torch.randn(4, dtype=torch.float64),)
    run_in_thread(lambda: cases.assert_same_values_and_gradients(square, lambda x: x * x, inputs))


def test_the_first_launch_after_a_restart(lang64, capfd):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    inputs = (torch.randn(4, dtype=torch.float64),)
    cases.assert_same_values_and_gradients(square, lambda x: x * x, inputs)
    options = {"ad_stack_experimental_enabled": True} if lang64.__name__ == "quadrants" else {}
    lang64.init(arch=lang64.cpu, default_fp=lang64.f64, log_level=lang64.ERROR, **options)
    # Nothing of ours ran on the thread that started the engine; if it must be refused, then with the way out.
    try:
        run_in_thread(lambda: cases.assert_same_values_and_gradients(square, lambda x: x * x, inputs))
    except ts.EngineError as error:
        words = str(error)
    else:
        return
    assert "`square`" in words and "thread" in words and "ts.init()" in words


def test_forward_here_and_the_first_backward_there(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    loss = square(x).sum()
    run_in_thread(loss.backward)
    torch.testing.assert_close(x.grad, 2 * x.detach())
