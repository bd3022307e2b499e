"""Tensors that have no memory, or not where they say: ZeroTensors of torch's forward mode, freed storages, wrappers."""

import pytest
import torch

import tinsmith as ts
from support.forked import run_forked

pytestmark = pytest.mark.each_engine
D = torch.float64


def zeros():
    return torch._efficientzerotensor(4, dtype=D)


def freed():
    tensor = torch.ones(4, dtype=D)
    tensor.untyped_storage().resize_(0)
    return tensor


def part_of_freed():
    """Return a view whose address is a null pointer plus an offset, as FSDP's parameters have between calls."""
    part = torch.ones(12, dtype=D)[8:]
    part.untyped_storage().resize_(0)
    return part


@pytest.fixture
def weigh(lang64):
    @lang64.kernel
    def weigh(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = (x[i] + 1.0) ** 2 * w[i]

    return ts.op("x[n], w[n] -> y[n]")(weigh)


def test_zero_tensors_are_zeros(weigh):
    def run():
        x, w = zeros().requires_grad_(), torch.full((4,), 3.0, dtype=D)
        leaf = w.clone().requires_grad_()
        yield weigh(x, w), 3.0
        yield torch.autograd.grad(weigh(x, w).sum(), x)[0], 6.0
        yield weigh(w, zeros()), 0.0
        yield torch.autograd.grad(weigh(zeros(), leaf).sum(), leaf)[0], 1.0
        yield torch.autograd.grad(weigh(zeros(), leaf), leaf, zeros())[0], 0.0
        yield torch.func.jvp(weigh, (w, w), (zeros(), torch.ones_like(w)))[1], 16.0
        yield torch.func.vmap(weigh)(torch._efficientzerotensor((2, 4), dtype=D), torch.ones(2, 4, dtype=D)), 1.0
        yield ts.scan(weigh, zeros(), torch.ones(2, 4, dtype=D))[0], 4.0

    def check():
        return [bool((value == wanted).all()) for value, wanted in run()]

    assert run_forked(check) == str([True] * 8)


def test_zero_tensors_fill_fields(lang64):
    x, y = (lang64.field(lang64.f64, 4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def add(a: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] + a[i]

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(add, zeros()).finish()
    assert layer(zeros()).tolist() == [0.0] * 4
    for given in (freed, part_of_freed, lambda: torch._to_functional_tensor(torch.ones(4, dtype=D))):
        with pytest.raises(ts.DeviceError, match="has no memory"):
            layer(given())


@pytest.mark.parametrize("freed", [freed, part_of_freed])
def test_freed_storages_and_wrappers_are_refused(weigh, freed):
    one = torch.ones(4, dtype=D)
    words = "tensor `x` of op `weigh` has no memory: its storage was freed"
    with pytest.raises(ts.DeviceError, match=words):
        weigh(freed(), one)
    with pytest.raises(ts.DeviceError, match=words):
        weigh(freed().requires_grad_(), one)
    leaf = one.clone().requires_grad_()
    with pytest.raises(ts.DeviceError, match="a cotangent has no memory: its storage was freed"):
        torch.autograd.grad(weigh(leaf, one), leaf, freed())
    with pytest.raises(
        ts.DeviceError, match="tensor `w` of op `weigh` has no memory of its own: it is a wrapper of another tensor"
    ):
        weigh(one, torch._to_functional_tensor(one))
