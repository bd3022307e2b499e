"""A kernel that names a function or value which its file defines further below."""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import tinsmith as ts


def _square(lang):
    """Make an op whose function gets its value after the op is made."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = later(x[i]) * factor

    @lang.func
    def later(v):
        return v * v

    factor = 3.0
    return square


def _differentiated_twice(op, x):
    x = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(op(x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x)[0]


FIRST_USES = {
    "vmap": lambda op, x: vmap(op)(x.expand(2, 3)),
    "grad": lambda op, x: grad(lambda x: op(x).sum())(x),
    "vmap of grad": lambda op, x: vmap(grad(lambda x: op(x).sum()))(x.expand(2, 3)),
    "jvp": lambda op, x: torch.stack(jvp(op, (x,), (x + 1.0,))),
    "jacfwd": lambda op, x: jacfwd(op)(x),
    "jacrev": lambda op, x: jacrev(op)(x),
    "hessian": lambda op, x: hessian(lambda x: op(x).sum())(x),
    "second derivative": _differentiated_twice,
    "compiled": lambda op, x: torch.compile(op, backend="eager", fullgraph=True)(x),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("use", FIRST_USES)
def test_first_use(lang64, use):
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    run = FIRST_USES[use]
    torch.testing.assert_close(run(_square(lang64), x), run(lambda x: 3.0 * x * x, x))
