"""Pitfall 41: a statistic doubles after backward.

A statement whose target has no adjoint stays in the reverse kernel and runs again.
"""

import torch

import tinsmith as ts


def test_statistics_and_counters_stay_as_the_forward_left_them(lang64):
    @ts.op("x[n] -> y[n], stat[1], count[1]: i32")
    @lang64.kernel
    def counted(
        x: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        stat: lang64.types.ndarray(),
        count: lang64.types.ndarray(),
    ):
        for i in x:
            y[i] = x[i] * x[i]
            stat[0] += x[i]
            count[0] += 1

    x = torch.randn(6, dtype=torch.float64, requires_grad=True)
    out = counted(x)
    stat, count = out.stat.detach().clone(), out.count.clone()
    torch.testing.assert_close(stat, x.detach().sum()[None])
    for _ in range(2):
        (gradient,) = torch.autograd.grad(out.y.sum(), x, retain_graph=True)
        torch.testing.assert_close(gradient, 2 * x.detach())
        assert torch.equal(out.stat, stat) and torch.equal(out.count, count) and out.count.item() == 6


def test_a_field_that_the_kernel_counts_in(lang64):
    """Right or refused: the field is the user's, and the backward pass must not count again."""
    seen = lang64.field(lang64.i32, shape=())
    seen[None] = 0

    @lang64.kernel
    def squares(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
            seen[None] += 1

    try:
        op = ts.op("x[n] -> y[n]")(squares)
    except ts.KernelError as refused:
        words = str(refused)
    else:
        x = torch.randn(3, dtype=torch.float64, requires_grad=True)
        op(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.detach())
        assert seen[None] == 3
        return
    assert "`seen`" in words and "`squares`" in words


def test_a_counter_that_decides_a_branch(lang64):
    """The counter is read again: run a second time, it would stand elsewhere."""

    @ts.op("x[n] -> y[n], slot[n]: i32", scratch="count[1]: i32")
    @lang64.kernel
    def packed(
        x: lang64.types.ndarray(),
        count: lang64.types.ndarray(),
        slot: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
    ):
        for _ in range(1):
            for i in range(x.shape[0]):
                slot[i] = count[0]
                if x[i] > 0:
                    count[0] += 1
        for i in x:
            if x[i] > 0:
                y[slot[i]] += x[i] * x[i]

    x = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0], dtype=torch.float64, requires_grad=True)
    out = packed(x)
    assert out.y.tolist() == [1.0, 9.0, 25.0, 0.0, 0.0]
    (out.y * torch.tensor([1.0, 10.0, 100.0, 0.0, 0.0], dtype=torch.float64)).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 60.0, 0.0, 1000.0]


def test_a_count_that_is_returned_and_read_again(lang64):
    """Run again on the tensor that the caller holds, it would double under the caller's eyes."""

    @ts.op("x[n] -> y[n], count[1]: i32", scratch="inside[n]: i32")
    @lang64.kernel
    def scaled(
        x: lang64.types.ndarray(),
        inside: lang64.types.ndarray(),
        count: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
    ):
        for i in x:
            if x[i] > 0.5:
                inside[i] = 1
                count[0] += 1
        for i in x:
            if inside[i] == 1:
                y[i] = x[i] * x[i] * count[0]

    x = torch.rand(9, dtype=torch.float64, requires_grad=True)
    out = scaled(x)
    count = int((x > 0.5).sum())
    for _ in range(3):
        (gradient,) = torch.autograd.grad(out.y.sum(), x, retain_graph=True)
        torch.testing.assert_close(gradient, torch.where(x > 0.5, 2 * x * count, 0.0).detach())
        assert out.count.item() == count


def test_a_slot_handed_out_by_an_atomic(lang64):
    """Run again in parallel, the counter hands out other slots: right or refused, never another order's gradient."""

    @ts.op("x[n] -> y[n], count[1]: i32")
    @lang64.kernel
    def packed(x: lang64.types.ndarray(), count: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            slot = lang64.atomic_add(count[0], 1)
            y[slot] += x[i] * x[i]

    size = 3_000_000  # enough for threads to overtake each other
    x = torch.arange(1, size + 1, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(packed(x).y.sqrt().sort().values, x)
    x.requires_grad_()
    weight = torch.rand(size, dtype=torch.float64)
    try:
        y = packed(x).y
        (gradient,) = torch.autograd.grad((y * weight).sum(), x)
    except ts.GradientError as refused:
        words = str(refused)
    else:
        source = y.detach().sqrt().round().long() - 1  # which element went to each slot
        wanted = torch.empty_like(weight)
        wanted[source] = 2 * x.detach()[source] * weight
        torch.testing.assert_close(gradient, wanted)
        return
    assert "`packed`" in words and "count" in words
