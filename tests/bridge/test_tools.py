"""Ops as torch's and Python's tools see them: profilers, counters, checkpointing policies, signatures."""

import inspect
import pickle
import subprocess
import sys
from typing import NamedTuple

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode

import tinsmith as ts


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def matmul(lang, **options):
    @ts.op("a[n, k], b[k, m] -> c[n, m]", **options)
    @lang.kernel
    def matmul(a: lang.types.ndarray(), b: lang.types.ndarray(), c: lang.types.ndarray()):
        """Multiply matrices."""
        for i, j in c:
            s = 0.0
            for q in range(a.shape[1]):
                s += a[i, q] * b[q, j]
            c[i, j] = s

    return matmul


def test_operations_are_counted_from_the_source(lang64):
    op, a, b = matmul(lang64), rand(3, 4), rand(4, 5)
    with FlopCounterMode(display=False) as counter:
        op(a, b)
    assert counter.get_total_flops() == 2 * 3 * 4 * 5
    with FlopCounterMode(display=False) as counter:
        op(a.requires_grad_(), b.requires_grad_()).sum().backward()
    assert counter.get_total_flops() >= 3 * 2 * 3 * 4 * 5
    assert [str(name) for name in counter.get_flop_counts()["Global"]] == [
        f"tinsmith.{op.operator._opname}",
        f"tinsmith.{op.operator._opname}_backward",
    ]


def test_operations_of_batches_are_counted(lang64):
    op, a, b = matmul(lang64), rand(7, 3, 4), rand(4, 5)
    with FlopCounterMode(display=False) as counter:
        torch.func.vmap(op, (0, None))(a, b)
    assert counter.get_total_flops() == 7 * 2 * 3 * 4 * 5


@pytest.mark.compiled_engine
def test_a_loop_of_unknown_length_counts_once_and_other_gradients_nothing(lang64):
    @ts.op("start[n], x[m] -> y[k]", adjoint="engine")
    @lang64.kernel
    def segments(start: lang64.types.ndarray(dtype=lang64.i32), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(y.shape[0]):
            for j in range(start[i], start[i + 1]):
                y[i] += x[j] * x[j]

    start, x = torch.tensor([0, 2, 5], dtype=torch.int32), rand(5)
    with FlopCounterMode(display=False) as counter:
        segments(start, x, k=2)
    assert counter.get_total_flops() == 2 * 2


def test_profilers_show_an_ops_name(lang64):
    op, x = matmul(lang64), rand(3, 3).requires_grad_()
    with torch.profiler.profile() as seen:
        op(x, x).sum().backward()
        torch.func.vmap(op)(x[None], x[None])
        op.operator(x, x)
    names = {event.key for event in seen.key_averages()}
    assert {"matmul", f"tinsmith::{op.operator._opname}"} <= names


def test_selective_checkpointing_policies_recognize_ops(lang64):
    op, a, b = matmul(lang64), rand(3, 4).requires_grad_(), rand(4, 5).requires_grad_()
    calls = []

    def policy(context, target, *_, **__):
        if target is op.operator:
            calls.append(context.is_recompute)
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    def block(a, b):
        return op.operator(a.sin(), b).sin()

    y = checkpoint(block, a, b, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
    gradients = torch.autograd.grad(y.sum(), (a, b))
    want = torch.autograd.grad((a.sin() @ b).sin().sum(), (a, b))
    torch.testing.assert_close(gradients, want)
    assert False in calls


def test_the_signature_and_docstring_of_an_op(lang64):
    op = matmul(lang64)
    assert op.__doc__ == "Multiply matrices."
    assert str(inspect.signature(op)) == "(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor"

    @ts.op("x[n] -> y[m, n], total[]")
    @lang64.kernel
    def mixed(
        x: lang64.types.ndarray(),
        scale: float,
        shift: lang64.types.vector(2, float),
        times: lang64.template(),
        y: lang64.types.ndarray(),
        total: lang64.types.ndarray(),
    ):
        for i in x:
            for j in range(y.shape[0]):
                y[j, i] = scale * x[i] + shift[0] + times
            total[None] += x[i]

    signature = inspect.signature(mixed)
    assert list(signature.parameters) == ["x", "scale", "shift", "times", "m"]
    assert signature.parameters["m"].kind is inspect.Parameter.KEYWORD_ONLY
    assert signature.parameters["scale"].annotation is float
    assert signature.return_annotation._fields == ("y", "total")
    assert signature.bind(rand(2), 1.0, (1.0, 2.0), 3, m=2)
    with pytest.raises(TypeError, match="missing"):
        signature.bind(rand(2))


class Parts(NamedTuple):
    y: torch.Tensor
    total: torch.Tensor


def parted(lang, **options):
    @ts.op("x[n] -> y[n], total[]", **options)
    @lang.kernel
    def parted(x: lang.types.ndarray(), y: lang.types.ndarray(), total: lang.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]
            total[None] += x[i]

    return parted


def test_results_of_the_caller_s_own_type(lang64):
    op, x = parted(lang64, returns=Parts), rand(3)
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        parts = call(x)
        assert type(parts) is Parts
        torch.testing.assert_close(parts.total, x.sum())


def test_results_are_pickled(lang64):
    result = parted(lang64)(rand(3))
    loaded = pickle.loads(pickle.dumps(result))
    assert type(loaded) is type(result) and repr(type(loaded)(1, 2)) == "parted_outputs(y=1, total=2)"
    torch.testing.assert_close(loaded, result)


@pytest.mark.parametrize("wrong", [tuple, NamedTuple("Other", [("total", torch.Tensor), ("y", torch.Tensor)])])
def test_a_type_that_does_not_fit(lang64, wrong):
    with pytest.raises(ts.SpecError, match=r"(?s)`returns` of op `parted`.*outputs +y, total.*fields.*a NamedTuple"):
        parted(lang64, returns=wrong)


def test_the_command_line_without_its_script():
    done = subprocess.run([sys.executable, "-m", "tinsmith", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ts.__version__ or ts.__version__ in done.stdout


TYPED = """
from typing import NamedTuple
import taichi as ti
import tinsmith as ts
import torch

class Parts(NamedTuple):
    y: torch.Tensor
    total: torch.Tensor

@ts.op("x[n] -> y[n]")
@ti.kernel
def single(x: ti.types.ndarray(), y: ti.types.ndarray()):  # pyright: ignore[reportInvalidTypeForm]
    ...

@ts.op("x[n] -> y[n], total[]", returns=Parts)
@ti.kernel
def several(
    x: ti.types.ndarray(),  # pyright: ignore[reportInvalidTypeForm]
    y: ti.types.ndarray(),  # pyright: ignore[reportInvalidTypeForm]
    total: ti.types.ndarray(),  # pyright: ignore[reportInvalidTypeForm]
): ...


reveal_type(single(torch.ones(2)))
reveal_type(several(torch.ones(2)).total)
reveal_type(several(torch.ones(2)))
"""


@pytest.mark.costly
def test_type_checkers_know_what_a_call_gives(tmp_path):
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(program)]
    stdout = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path).stdout
    revealed = [line.partition(" is ")[2].strip() for line in stdout.splitlines() if "Type of" in line]
    assert revealed == ['"Tensor"', '"Tensor"', '"Parts"'], stdout


@pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=str)
@pytest.mark.parametrize("call", ["plain", "operator", "vmap", "functional"])
def test_results_with_batch_dims_are_no_views(lang64, lead, call):
    # torch's FSDP warns of modules that return views, since an in-place operation on one goes past its hook.
    @ts.op("inout x[*b, n] -> total[*b]")
    @lang64.kernel
    def doubled(x: lang64.types.ndarray(ndim=1), total: lang64.types.ndarray(ndim=0)):
        for i in x:
            x[i] = 2.0 * x[i]
            total[None] += x[i]

    op = doubled.functional
    calls = {
        "plain": op,
        "operator": op.operator,
        "vmap": torch.func.vmap(op),
        "functional": lambda x: [doubled(x * 1)],
    }
    x = rand(*lead, 4).requires_grad_()
    for one in calls[call](x):
        assert not one._is_view()
        one.sum().backward(retain_graph=True)
    assert x.grad is not None
