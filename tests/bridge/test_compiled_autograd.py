"""Compiled autograd: a compiler traces backward passes, also of calls that were not compiled."""

import pytest
import torch

import tinsmith as ts

# Torch's own compiled autograd looks at `.grad` of intermediate results.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

GAIN = 2.0


def make_ops(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    @ts.op("x[n], k[n] -> y[n], z[n]")
    @lang.kernel
    def two(
        x: lang.types.ndarray(), s: lang.f32, k: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()
    ):
        for i in x:
            y[i] = lang.sin(x[i]) * k[i]
            z[i] = k[i] * k[i] * GAIN * s

    @ts.op("x[n], inout kept[n], inout other[n] -> ")
    @lang.kernel
    def update(x: lang.types.ndarray(), kept: lang.types.ndarray(), other: lang.types.ndarray()):
        for i in x:
            kept[i] = kept[i] * kept[i] * x[i]
            other[i] += x[i] * x[i]

    return cube, two, update


def run_update(ops, x):
    kept, other = x * 1, x * 2
    for _ in range(2):
        ops[2](x, kept, other)
    return kept + other


CASES = {
    "one": (lambda ops, x: ops[0](x), lambda x: x**3),
    "one of another": (lambda ops, x: ops[0](ops[0](x)), lambda x: x**9),
    "two outputs": (lambda ops, x: sum(ops[1](x, 3.0, x * x)), lambda x: x.sin() * x * x + 6 * x**4),
    "one output of two": (lambda ops, x: ops[1](x, 3.0, x)[0], lambda x: x.sin() * x),
    "one input of two": (lambda ops, x: ops[1](x.detach(), 0.5, x)[1], lambda x: x * x),
    "updates": (run_update, lambda x: x**7 + 2 * x + 2 * x * x),
    "half precision": (lambda ops, x: ops[0](x.half()).float(), lambda x: x**3),
    "memory in another order": (lambda ops, x: ops[0](x.flip(0)).flip(0), lambda x: x**3),
    "under vmap": (lambda ops, x: torch.func.vmap(ops[0])(x[None])[0], lambda x: x**3),
}


def run_backward(function, x, *, compiled, backend="aot_eager"):
    torch.compiler.reset()
    leaf = x.clone().requires_grad_()
    made = (torch.compile(function, backend=backend, fullgraph=True) if compiled else function)(leaf)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backend, fullgraph=True)):
        made.sum().backward()
    return leaf.grad


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_gradients(lang, case, compiled):
    function, wanted = CASES[case]
    ops = make_ops(lang)
    x = torch.tensor([0.5, 1.0, -1.5])
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(wanted(leaf).sum(), leaf)[0]
    for count in (3, 2):
        actual = run_backward(lambda x: function(ops, x), x[:count], compiled=compiled)
        torch.testing.assert_close(actual, expected[:count], rtol=1e-3, atol=1e-3)


def test_a_forward_graph_without_a_backend_is_differentiated(lang):
    """Without a compiler below, a compiled forward pass calls the operator, whose own gradient is traced then."""
    cube, *_ = make_ops(lang)
    actual = run_backward(cube, torch.tensor([1.0, 2.0]), compiled=True, backend="eager")
    torch.testing.assert_close(actual, torch.tensor([3.0, 12.0]))


def test_the_dynamo_option_turns_it_on(lang):
    cube, *_ = make_ops(lang)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with torch._dynamo.config.patch(compiled_autograd=True):
        torch.compile(lambda x: cube(x).sum().backward(), backend="aot_eager")(x)
    torch.testing.assert_close(x.grad, torch.tensor([3.0, 12.0]))


def test_a_value_that_changed_between(lang, monkeypatch):
    _, two, _ = make_ops(lang)
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    made = two(x, 1.0, x)[1]
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    # With `fullgraph`, torch traces how it prints the error, and raises one of its own.
    compiled = torch.compile(backend="aot_eager")
    torch.compiler.reset()
    with pytest.raises(ts.GradientError, match="GAIN"), torch._dynamo.compiled_autograd._enable(compiled):
        made.sum().backward()
