"""Kernels whose iterations may race: they warn, run in order, and have the gradient of what they computed."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

D = torch.float64
KERNELS = {  # what the kernel does, its spec, its scratch, and the same in torch
    "a product": (
        "for i in y:\n        y[i] = 1.0\n    for i in x:\n        y[k[i]] *= x[i]",
        "",
        lambda x, k, m: torch.stack([x[k == j].prod() for j in range(m)]),
    ),
    "a maximum": (
        "for i in x:\n        y[k[i]] = lang.max(y[k[i]], x[i])",
        "",
        lambda x, k, m: torch.stack([torch.cat([x.new_zeros(1), x[k == j]]).max() for j in range(m)]),
    ),
    "a maximum by if": (
        "for i in x:\n        if x[i] > y[k[i]]:\n            y[k[i]] = x[i]",
        "",
        lambda x, k, m: torch.stack([torch.cat([x.new_zeros(1), x[k == j]]).max() for j in range(m)]),
    ),
    "a running minimum in a local": (
        "low = 9.0\n    for i in x:\n        s = x[i] * x[i]\n        if s < low:\n            low = s\n"
        "    y[0] = low * low",
        "",
        lambda x, k, m: torch.cat([(x * x).min()[None] ** 2, x.new_zeros(m - 1)]),
    ),
    "the first one wins": (
        "for i in x:\n        if seen[k[i]] == 0:\n            seen[k[i]] = 1\n            y[k[i]] = x[i] * x[i]",
        "seen[m]: i32",
        lambda x, k, m: torch.stack([(x[k == j] ** 2)[:1].sum() for j in range(m)]),
    ),
    "the last one stays": (
        "for i in x:\n        y[k[i]] = x[i] * x[i]",
        "",
        lambda x, k, m: torch.stack([(x[k == j] ** 2)[-1:].sum() for j in range(m)]),
    ),
    "a depth buffer": (
        "for i in y:\n        depth[i] = 1e9\n    for i in x:\n        if x[i] < depth[k[i]]:\n"
        "            depth[k[i]] = x[i]\n            y[k[i]] = x[i] * x[i] * x[i]",
        "depth[m]",
        lambda x, k, m: torch.stack([(x[k == j].min() ** 3) if (k == j).any() else x.sum() * 0 for j in range(m)]),
    ),
    "a gather from what is changed": (
        "for i in y:\n        y[i] = 1.0\n    for i in x:\n        y[k[i]] = 0.5 * y[k[i]] + x[i]",
        "",
        lambda x, k, m: torch.stack([_folded(x[k == j]) for j in range(m)]),
    ),
}


def _folded(values):
    total = values.new_ones(())
    for one in values:
        total = 0.5 * total + one
    return total


def make_kernel(lang, body, scratch):
    extra = f", {scratch.partition('[')[0]}: lang.types.ndarray()" if scratch else ""
    return compile_text(
        lang,
        f"""
def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(){extra}):
    {body}
""",
    )


def make_op(lang, form, **options):
    body, scratch, _ = KERNELS[form]
    spec = "x[n], k[n]: i32 -> y[m]"
    return ts.op(spec, **options, **({"scratch": scratch} if scratch else {}))(make_kernel(lang, body, scratch))


@pytest.mark.each_engine
@pytest.mark.parametrize("form", KERNELS)
def test_values_and_gradients_are_those_of_the_order(lang64, form):
    with pytest.warns(ts.RaceWarning, match="op `kernel` may have a data race") as warned:
        op = make_op(lang64, form)
    words = str(warned[0].message)
    assert "for the same element, depending on the data" in words
    assert "the loop runs in order, on one thread, and so does its gradient" in words
    twin = KERNELS[form][2]
    for size in (7, 3000):
        k = torch.randint(4, (size,), dtype=torch.int32)
        x = (0.2 + torch.rand(size, dtype=D) if size < 9 else 0.9 + 0.2 * torch.rand(size, dtype=D)).requires_grad_()
        actual, wanted = op(x, k, m=4), twin(x, k, 4)
        torch.testing.assert_close(actual, wanted)
        seed = torch.rand(4, dtype=D)
        ours, theirs = (torch.autograd.grad(one, x, seed) for one in (actual, wanted))
        torch.testing.assert_close(ours, theirs)


def test_a_product_with_zeros(lang64):
    with pytest.warns(ts.RaceWarning):
        op = make_op(lang64, "a product")
    x = torch.tensor([2.0, 0.0, 3.0, 0.0, 0.0, 5.0], dtype=D, requires_grad=True)
    k = torch.tensor([0, 0, 1, 1, 1, 2], dtype=torch.int32)
    seed = torch.rand(3, dtype=D)
    ours, theirs = (torch.autograd.grad(one, x, seed) for one in (op(x, k, m=3), KERNELS["a product"][2](x, k, 3)))
    torch.testing.assert_close(ours, theirs)


def test_a_promise_keeps_the_loop_parallel(lang64):
    op = ts.op("x[n], unique k[n]: i32 -> y[n]")(make_kernel(lang64, "for i in x:\n        y[k[i]] = x[i] * x[i]", ""))
    x = torch.rand(6, dtype=D, requires_grad=True)
    k = torch.randperm(6, dtype=torch.int32)
    op(x, k).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert "order" not in op.explain("all").partition("gradient")[0]


def test_a_warning_is_given_once_and_may_be_turned_off(lang64):
    kernel = make_kernel(lang64, "for i in x:\n        y[k[i]] = x[i] * x[i]", "")
    ts.op("x[n], k[n]: i32 -> y[m]", races="allow")(kernel)
    with pytest.warns(ts.RaceWarning):
        ts.op("x[n], k[n]: i32 -> y[m]")(kernel)
    ts.op("x[n], k[n]: i32 -> y[m]")(kernel)


@pytest.mark.parametrize("stride", [1, 4])
def test_an_argument_may_decide(lang64, stride):
    kernel = compile_text(
        lang64,
        """
def kernel(x: lang.types.ndarray(), s: lang.i32, y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i]
    for i in x:
        if i >= s:
            y[i] = y[i - s] * x[i]
""",
    )
    with pytest.warns(ts.RaceWarning, match="for the same element, for some sizes or arguments"):
        op = ts.op("x[n] -> y[n]")(kernel)
    x = torch.rand(9, dtype=D, requires_grad=True)
    wanted = [*x[:stride]]
    for i in range(stride, 9):
        wanted.append(wanted[i - stride] * x[i])
    ours, theirs = (torch.autograd.grad(one.sum(), x) for one in (op(x, stride), torch.stack(wanted)))
    torch.testing.assert_close(ours, theirs)


def test_a_sum_at_threads_is_that_of_the_order(lang):
    """Without an error, 16 million ones added up to 8 million on two threads."""
    kernel = make_kernel(lang, "for i in x:\n        y[i] = y[i - 1] + x[i]", "")
    with pytest.raises(ts.KernelError, match="op `kernel` has a data race"):
        ts.op("x[n], k[n] -> y[n]")(kernel)


@pytest.mark.parametrize("on_tensors", [False, True])
def test_layers_and_rollouts(lang64, on_tensors):
    x, y = (lang64.field(lang64.f64, 6, needs_grad=True) for _ in range(2))
    low = lang64.field(lang64.f64, (), needs_grad=True)

    @lang64.kernel
    def least():
        low[None] = 100.0
        for i in x:
            if x[i] * x[i] < low[None]:
                low[None] = x[i] * x[i]

    @lang64.kernel
    def sums():
        for i in range(1, 6):
            y[i] = y[i - 1] + x[i]

    with pytest.raises(ts.KernelError, match="EmptyTin.sums has a data race"):
        ts.EmptyTin(on_tensors=on_tensors).register_kernel(sums)
    with pytest.raises(ts.KernelError, match="has a data race"):
        ts.rollout(sums, {"x": x}, {"y": y})(torch.rand(6, dtype=D))
    with pytest.warns(ts.RaceWarning, match="least may have a data race"):
        layer = ts.EmptyTin(on_tensors=on_tensors).register_kernel(least)
    layer.register_input_field(x).register_output_field(low).finish()
    value = torch.rand(6, dtype=D, requires_grad=True)
    (wanted,) = torch.autograd.grad((value * value).min(), value)
    for run in (layer, ts.rollout(least, {"x": x}, {"low": low})):
        torch.testing.assert_close(torch.autograd.grad(run(value), value)[0], wanted)


def test_explain_says_which_loop_runs_in_order(lang):
    with pytest.warns(ts.RaceWarning):
        op = ts.op("x[n], k[n]: i32 -> y[m]")(make_kernel(lang, "for i in x:\n        y[k[i]] = x[i]", ""))
    words = (
        "in order: the loop in line 3, because an iteration of the parallel loop changes `y[k[i]]`, "
        "and another iteration "
    )
    assert f"{words}may change the same element, `y[k[i]]` in line 4" in op.explain("all")
