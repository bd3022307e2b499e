"""Pitfall 46c: two threads launch one op at once, each on tensors of its own (taichi #2022)."""

import threading

import torch

import cases
import tinsmith as ts


def test_two_threads_at_once(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    failures = []

    def work(size):
        try:
            for _ in range(100):
                inputs = (torch.randn(size, dtype=torch.float64),)
                cases.assert_same_values_and_gradients(square, lambda x: x * x, inputs)
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (100, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
