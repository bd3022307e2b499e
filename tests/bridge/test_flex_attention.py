"""`flex_attention` whose `score_mod` and `mask_mod` capture the result of an op."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tinsmith as ts

# Torch's own `flex_attention` without a compiler: it recommends one, and looks at `.grad` of what was captured.
pytestmark = [
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]


def make_cube(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    return cube


def attend(captured, mask=None):
    query, key, value = torch.linspace(-2, 2, 3 * 256).cos().reshape(3, 1, 2, 16, 8)
    return flex_attention(query, key, value, lambda score, b, h, q, k: score + captured[k], mask)


def masked(captured):
    return create_block_mask(lambda b, h, q, k: captured[k] + 1 > captured[q], 1, 1, 16, 16, "cpu", BLOCK_SIZE=8)


def test_eager_with_a_gradient(lang):
    bias = torch.linspace(-1, 1, 16, requires_grad=True)
    results = [
        attend(function(bias), masked(function(bias.detach()))) for function in (make_cube(lang), lambda x: x**3)
    ]
    gradients = [torch.autograd.grad(one.pow(2).sum(), bias)[0] for one in results]
    torch.testing.assert_close(results[0], results[1])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_compiled(lang):
    cube, bias = make_cube(lang), torch.linspace(-1, 1, 16)
    mask = masked(cube(bias))
    compiled = torch.compile(lambda b: attend(cube(b), mask), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(bias), attend(bias**3, masked(bias**3)))


def test_a_graph_that_passes_no_gradient(lang):
    """Torch has no compiled backward pass of `flex_attention` on CPUs."""
    cube, bias = make_cube(lang), torch.linspace(-1, 1, 16, requires_grad=True)
    made = torch.compile(lambda b: attend(cube(b)), fullgraph=True, backend="aot_eager")(bias)
    with pytest.raises(ts.GradientError, match="gradient of op `cube`, and passes no gradient of its outputs"):
        made.sum().backward()
