"""Memory that the threads of a block share: refused by its line, before an engine ends the process on it."""

import pytest
import torch

import tinsmith as ts
from tinsmith import GradientError, KernelError
from tinsmith.bridge._adjoint_source import _case


def test_shared_memory_is_refused_by_its_line(lang, engine):
    """Neither engine has it on CPUs, where Taichi ends the process on it."""
    array = lang.types.ndarray(dtype=lang.f32, ndim=1)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def flipped(x: array, y: array):
        lang.loop_config(block_dim=64)
        for i in range(x.shape[0]):
            pad = lang.simt.block.SharedArray((64,), lang.f32)  # pad
            pad[i % 64] = x[i]
            y[i] = pad[63 - i % 64]

    with open(__file__) as file:
        line = next(number for number, text in enumerate(file, 1) if text.rstrip().endswith("# pad"))
    words = f"op `flipped` uses memory that the threads of a block share, and {engine} has none on CPUs"
    for x in (torch.rand(64), torch.rand(64, requires_grad=True)):
        with pytest.raises(KernelError, match=words) as caught:
            flipped(x)
        assert f"test_shared_memory.py:{line}" in str(caught.value) and "Start the engine on a GPU" in str(caught.value)
    with pytest.raises(GradientError) as caught:
        flipped._core.reverse.at(_case(flipped._core.signature, flipped)).check(frozenset({"x"}))
    head, _, tail = str(caught.value).partition(f"Of {engine}'s own:\n")
    assert "SharedArray" in head and f"test_shared_memory.py:{line}" in head
    assert (
        "is not trusted with memory that the threads of a block share" in tail
        and f"test_shared_memory.py:{line}" in tail
    )
