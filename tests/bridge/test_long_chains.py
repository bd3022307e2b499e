"""`elif` chains with more branches than Python's parser takes levels of indentation."""

import linecache

import pytest
import torch

import tinsmith as ts

HEAD = """\
@lang.kernel
def kernel(x: array, y: array):
    for i in range(x.shape[0]):
        s = x[i]
        t = 2.0
        if s < 0.5:
            s = s * t + 1.0
"""
BRANCH = """\
        elif s < {k}.5:
            s = s * t * s + {k}.0
            t = s * {k}.25
"""
TAIL = """\
        else:
            s = 0.0
        y[i] = s * t
"""


def make_op(lang, branches):
    text = HEAD + "".join(BRANCH.format(k=k) for k in range(1, branches)) + TAIL
    file = f"<a chain of {branches} branches, on {lang.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"lang": lang, "array": lang.types.ndarray(dtype=lang.f64, ndim=1), "__name__": __name__}
    exec(compile(text, file, "exec"), space)
    return ts.op("x[n] -> y[n]")(space["kernel"])


def follow_chain(x, branches):
    """Return what the kernel stores for one number."""
    t = torch.tensor(2.0, dtype=torch.float64)
    if x < 0.5:
        return (x * t + 1.0) * t
    k = next((k for k in range(1, branches) if x < k + 0.5), None)
    if k is None:
        return 0.0 * x * t
    s = x * t * x + k
    return s * (s * (k + 0.25))


@pytest.mark.parametrize("branches", [20, 130])
def test_values_and_gradients(lang64, branches):
    op = make_op(lang64, branches)
    x = torch.tensor([0.25, 3.3, 89.7, 95.2, branches - 0.75, branches + 10.0], dtype=torch.float64).requires_grad_()
    expected = torch.stack([follow_chain(one, branches) for one in x])
    y = op(x)
    torch.testing.assert_close(y, expected)
    cotangent = torch.arange(1.0, 7.0, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad(y, x, cotangent), torch.autograd.grad(expected, x, cotangent), rtol=1e-12, atol=0
    )
