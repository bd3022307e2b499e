"""Locals of the top level that a parallel loop changes: memory of the kernel's own, changed by atomics."""

import torch

from support.interpreted import run_with_gradients
from support.roundtrip import load_printed_kernel, lower_kernel, print_lowered
from tinsmith.ir import nodes, walk


def _standardized(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f64, ndim=1), y: lang.types.ndarray(dtype=lang.f64, ndim=1)):
        total = 0.0
        size = x.shape[0]
        for i in x:
            total += x[i]
        mean = total / size
        spread = 0.0
        for i in x:
            spread += (x[i] - mean) ** 2
        for i in x:
            y[i] = (x[i] - mean) / lang.sqrt(spread / size)

    return kernel


def test_only_what_a_parallel_loop_changes_is_a_cell(lang64):
    kernel = lower_kernel(_standardized(lang64), torch.zeros(3).double(), torch.zeros(3).double()).kernel
    assert kernel.cells == ("total", "spread")
    assert kernel.arrays["total"] == nodes.Array("total", "f64", 0)
    assert not {"total", "spread"} & kernel.locals.keys()
    assert {"mean", "size"} <= kernel.locals.keys()
    changes = [one for one in walk.statements(kernel.body) if isinstance(one, nodes.Atomic)]
    assert [(one.operator, one.array) for one in changes] == [("add", "total"), ("add", "spread")]


def test_values_and_derivatives(lang64):
    x = torch.randn(50, dtype=torch.float64)
    y, kernel, cotangent = torch.zeros_like(x), _standardized(lang64), torch.randn(50).double()
    mine = run_with_gradients(lower_kernel(kernel, x, y).kernel, {"x": x, "y": y}, {}, {"y": cotangent})
    kernel(x, y)
    leaf = x.clone().requires_grad_()
    wanted = (leaf - leaf.mean()) / leaf.var(correction=0).sqrt()
    wanted.backward(cotangent)
    torch.testing.assert_close(y, wanted.detach())
    torch.testing.assert_close(mine.arrays["y"], wanted.detach())
    torch.testing.assert_close(mine.gradients["x"], leaf.grad)
    assert mine.arrays.keys() == mine.gradients.keys() == {"x", "y"}


def test_no_thread_s_addition_is_lost(lang):
    @lang.kernel
    def kernel(k: lang.types.ndarray(dtype=lang.i32, ndim=1), n: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        count = 0
        greatest = k[0]
        for i in k:
            count += k[i]
            lang.atomic_max(greatest, k[i])
        n[0] = count
        n[1] = greatest

    k, n = torch.randint(-9, 9, (300_000,), dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    load_printed_kernel(kernel, k, n)(k, n)
    assert n.tolist() == [k.sum().item(), k.max().item()]


def test_they_are_printed_as_locals(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f32, ndim=1), y: lang.types.ndarray(dtype=lang.f32, ndim=0)):
        total = x[0]
        for i in x:
            total += x[i]
        y[None] = total

    shown = print_lowered(kernel, torch.zeros(3), torch.zeros(())).splitlines()[1:]
    assert [line.strip() for line in shown] == [
        "total = 0.0",
        "total = x[0]",
        "for i in range(x.shape[0]):",
        "_lang.atomic_add(total, x[i])",
        "y[None] = total",
    ]


def test_a_serial_loop_s_state_stays_a_local(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f32, ndim=1), y: lang.types.ndarray(dtype=lang.f32, ndim=0)):
        total = 0.0
        lang.loop_config(serialize=True)
        for i in range(3):
            total += x[i]
        y[None] = total

    kernel_ = lower_kernel(kernel, torch.zeros(3), torch.zeros(())).kernel
    assert kernel_.cells == ()
    assert "total" in kernel_.locals


def test_an_inner_loop_s_state_stays_a_local(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f32, ndim=2), y: lang.types.ndarray(dtype=lang.f32, ndim=1)):
        for i in y:
            total = 0.0
            for j in range(x.shape[1]):
                total += x[i, j]
            y[i] = total
        total = 1.0
        y[0] += total

    assert lower_kernel(kernel, torch.zeros(3, 2), torch.zeros(3)).kernel.cells == ()
