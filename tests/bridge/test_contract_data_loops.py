"""Loops whose length is data, carrying a value: called, and mapped."""

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts

same = cases.assert_same_values_and_gradients


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64)


@pytest.mark.each_engine
def test_a_loop_as_long_as_its_data_says_carrying_a_value(lang64):
    """Mapped too: an engine that asks how long the loop gets must not look past the end of `count`."""

    @ts.op("x[n], count[n]: i32 -> y[n]")
    @lang64.kernel
    def grown(x: lang64.types.ndarray(), count: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = x[i]
            for _ in range(count[i]):
                v += (x[i] - 0.5 * v) * v
            y[i] = v

    def twin(x, count):
        rows = []
        for value, times in zip(x, count.tolist(), strict=True):
            v = value
            for _ in range(times):
                v = v + (value - 0.5 * v) * v
            rows.append(v)
        return torch.stack(rows)

    memory = torch.full((64,), 1 << 30, dtype=torch.int32)  # what lies behind `count`
    memory[:5] = torch.tensor([0, 3, 1, 0, 2])
    count, x = memory[:5], rand(5)
    mapped = torch.stack([x, -x, 0.5 * x])
    cases.assert_close(vmap(grown, (0, None))(mapped, count), torch.stack([twin(row, count) for row in mapped]))
    try:
        same(lambda x: grown(x, count), lambda x: twin(x, count), (x,))
        same(
            lambda x: vmap(grown, (0, None))(x, count),
            lambda x: torch.stack([twin(row, count) for row in x]),
            (mapped,),
        )
    except ts.GradientError as refused:  # Taichi, whose gradient stack has a fixed depth
        words = str(refused)
        assert lang64.__name__ == "taichi" and "`grown`" in words
