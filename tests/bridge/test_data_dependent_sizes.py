"""Sizes that only data determine, of `k.item()` and of boolean masks, in graphs: as for torch's own operators."""

import pytest
import torch

import tinsmith as ts


@pytest.fixture(autouse=True)
def capture():
    """Let graphs contain such sizes."""
    torch.compiler.reset()
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        yield


def make_ops(lang):
    @ts.op("i[n]: i64 -> count[m]: i32")
    @lang.kernel
    def histogram(i: lang.types.ndarray(), count: lang.types.ndarray()):
        for k in i:
            count[i[k]] += 1

    @ts.op("x[n] -> y[m]")
    @lang.kernel
    def tile(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i % x.shape[0]] * x[i % x.shape[0]]

    @ts.op("x[n] -> y[n * s]")
    @lang.kernel
    def repeat(x: lang.types.ndarray(), s: lang.i32, y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i // s] * x[i // s] * s

    @ts.op("x[n], k[m] -> y[n - m + 1]")
    @lang.kernel
    def conv(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    @ts.op("x[*b, n], k[n] -> y[*b, n]")
    @lang.kernel
    def scale(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * k[i]

    return histogram, tile, repeat, conv, scale


def compute_gradients(function, tensors):
    """Compute values, then gradients of their squares."""
    leaves = [one.clone().requires_grad_(one.is_floating_point()) for one in tensors]
    made = function(*leaves)
    inputs = [one for one in leaves if one.requires_grad]
    return [made.detach(), *(torch.autograd.grad(made.pow(2).sum(), inputs) if made.requires_grad else ())]


CASES = {
    "item by keyword": lambda ops, x: (lambda i, k: ops[0](i, m=k.item()), torch.tensor([0, 2, 2]), torch.tensor(4)),
    "maximum by keyword": lambda ops, x: (lambda i: ops[0](i, m=i.max().item() + 1), torch.tensor([0, 2, 2])),
    "keyword, with a gradient": lambda ops, x: (lambda x, k: ops[1](x, m=k.item()), x, torch.tensor(11)),
    "scalar argument": lambda ops, x: (lambda x, k: ops[2](x, k.item()), x, torch.tensor(3)),
    "mask": lambda ops, x: (lambda x: ops[1](x[x > 0], m=5), x),
    "computed size": lambda ops, x: (lambda x: ops[3](x[x > -9], x[:3]), x),
    "computed size of two": lambda ops, x: (lambda x: ops[3](x[x > -9], x[x > -9][:2]), x),
    "equal sizes": lambda ops, x: (lambda x: ops[4](x[x > 0], x[x > 0] * 2), x),
    "nonzero": lambda ops, x: (lambda x: ops[1](x[torch.nonzero(x > 0)[:, 0]], m=5), x),
    "batch": lambda ops, x: (lambda x: ops[4](x[x[:, 0] > -9], x[0]), x.reshape(4, 2)),
    "two batch dims": lambda ops, x: (lambda x: ops[4](x[x[:, 0, 0] > -9], x[0, 0]), x.reshape(2, 2, 2)),
    "half precision": lambda ops, x: (lambda x: ops[4](x[x > 0].half(), x[x > 0].half()).float(), x),
    "under vmap": lambda ops, x: (lambda x: torch.func.vmap(lambda a: ops[4](a, a))(x[x[:, 0] > -9]), x.reshape(4, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled(lang, case):
    x = torch.tensor([0.5, -1.0, 2.0, 0.25, -0.5, 3.0, 1.0, -2.0])
    function, *tensors = CASES[case](make_ops(lang), x)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compute_gradients(compiled, tensors), compute_gradients(function, tensors))


def test_sizes_that_do_not_fit_are_refused_when_the_graph_runs(lang):
    *_, conv, scale = make_ops(lang)
    x = torch.tensor([1.0, 2.0, -3.0])
    with pytest.raises(ts.ShapeError, match=r"`k` does not fit `x` in op `scale`"):
        torch.compile(lambda x: scale(x[x > 0], x[x < 0]), fullgraph=True, backend="aot_eager")(x)
    with pytest.raises((ts.ShapeError, RuntimeError), match=r"n - m \+ 1|>= "):
        torch.compile(lambda x: conv(x[x > 2.5], x), fullgraph=True, backend="aot_eager")(x)


def test_exported(lang):
    histogram, tile, *_ = make_ops(lang)

    class Counts(torch.nn.Module):
        def forward(self, x, i, k):
            return tile(x[x > 0], m=k.item()), histogram(i, m=k.item())

    x, i = torch.tensor([1.0, -2.0, 3.0]), torch.tensor([0, 2, 2])
    exported = torch.export.export(Counts(), (x, i, torch.tensor(4))).module()
    y, count = exported(-x, i, torch.tensor(5))
    assert (y.tolist(), count.tolist()) == ([4.0] * 5, [1, 0, 2, 0, 0])
