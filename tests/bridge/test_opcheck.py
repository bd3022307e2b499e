"""torch's own examination of the registered operators, for every form an op can take."""

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.library import opcheck

import cases

pytestmark = [
    pytest.mark.thinned(8),
    # From torch 2.14 on opcheck clones its inputs, and asks the clones for `.grad`.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

# The rows that differ in form; kernels of one form differ in nothing that torch could see.
FORMS = cases.select_cases(
    "square", "convolution", "two_outputs", "counted", "learnable_scalar", "scalars", "polynomial", "static_branch",
    "any_rank", "method", "template_arrays", "batched", "unzeroed", "own_backward", "backward_argument", "chained",
    "gather", "embedding", "scratch_recurrence", "output_recurrence", "splat", "upsampled", "cross", "matrix_vector",
    "dot", "no_inputs", "returned", "returned_several",
)  # fmt: skip


def registered_calls(function, inputs):
    """List the operators outside aten that a compiled call runs, forward and backward, with their arguments."""
    calls = []

    class Recorder(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            if isinstance(target, torch._ops.OpOverload) and target.namespace not in ("aten", "prims", "prim"):
                calls.append((target, args, kwargs))
            return super().call_function(target, args, kwargs)

    def backend(graph, _):
        return make_boxed_func(lambda *args: Recorder(graph).run(*args))

    torch._dynamo.reset()
    aot = aot_autograd(fw_compiler=backend)
    run = torch.compile(function, backend=aot, fullgraph=True)
    if cases.select_differentiable(inputs):
        cases.compute_gradients(run, inputs)
    else:
        run(*inputs)
    torch._dynamo.reset()
    return calls


def copied(value, requires_grad):
    """Copy the arguments, which opcheck may keep."""
    if torch.is_tensor(value):
        fresh = value.detach().clone()
        return fresh.requires_grad_(requires_grad and fresh.is_floating_point())
    return type(value)(copied(v, requires_grad) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("case", FORMS, ids=str)
def test_opcheck(lang64, case):
    inputs = case.inputs(torch.float64)
    calls = registered_calls(case.op(lang64, torch.float64), inputs)
    backward = [case] if cases.select_differentiable(inputs) else []
    assert len(calls) >= 1 + len(backward)  # the forward operator, and the backward one
    target, args, kwargs = calls[0]
    opcheck(target, copied(args, True), kwargs)
    for target, args, kwargs in calls[1:]:  # never differentiated: second derivatives are refused
        opcheck(target, copied(args, False), kwargs)
