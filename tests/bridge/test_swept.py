"""An inner loop that moves one index of an array and not the other: where both are one element, nothing may be lost."""

import pytest
import torch

import tinsmith as ts
from support.forked import run_forked
from support.written import compile_text
from tinsmith.compiling import Stage

PAIRS = {
    "both added to": ("y[i] += x[j] * x[j]", "y[j] += x[i] * 0.3"),
    "both set": ("y[i] = y[i] + x[j] * x[j]", "y[j] = y[j] + x[i] * 0.3"),
    "set and added to": ("y[i] = y[i] * 0.5 + x[j] * x[j]", "y[j] += x[i] * 0.3"),
    "added to and set": ("y[i] += x[j]", "y[j] = y[j] * 0.5 + x[i] * 0.3"),
    "overwritten": ("y[i] = x[j]", "y[j] = x[i] * 0.3"),
    "added to by number": ("y[0] += x[j] * x[i]", "y[j] += x[i] * 0.3"),
    "added to by an array's index": ("y[k[i]] += x[j]", "y[j] += x[i] * 0.3"),
    "subtracted": ("y[i] -= x[j] * x[i]", "y[j] += x[i] * 0.3"),
    "of each other": ("y[i] += y[j] * x[j] * 0.1 + x[i]", "y[j] += x[i] * y[i] * 0.1 + 0.1"),
    "squared": ("y[i] = y[i] * y[i] * 0.5 + x[j]", "y[j] = y[j] * y[j] * 0.5 + x[i] * 0.3"),
}


def kernel_of(lang, lines, *, is_serial):
    body = "".join(f"            {line}\n" for line in lines)
    setting = "    lang.loop_config(serialize=True)\n" if is_serial else ""
    array, index = "lang.types.ndarray(ndim=1)", "lang.types.ndarray(lang.i32, ndim=1)"
    loops = "    for i in range(x.shape[0]):\n        for j in range(x.shape[0]):\n"
    text = f"def swept(x: {array}, k: {index}, y: {array}):\n{setting}{loops}{body}"
    return compile_text(lang, text)


def op_of(lang, lines, *, is_serial, adjoint="source"):
    return ts.op("x[n], k[n]: i32 -> y[n]", adjoint=adjoint)(kernel_of(lang, lines, is_serial=is_serial))


def assert_right(op):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(5, generator=generator, dtype=torch.float64).requires_grad_()
    c = torch.rand(5, generator=generator, dtype=torch.float64)
    k = torch.tensor([2, 0, 2, 4, 1], dtype=torch.int32)
    y, answer = op(x, k), ts.oracle(op, x, k, cotangents=c)
    torch.testing.assert_close(y.detach(), answer.outputs["y"])
    torch.testing.assert_close(torch.autograd.grad(y, x, c)[0], answer.gradients["x"])


@pytest.mark.each_engine
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", PAIRS)
def test_stores_to_elements_that_may_be_equal(lang64, name):
    """In one thread: Taichi keeps `y[i]` in a register through the loop, and what `y[j]` added to it is lost."""
    assert_right(op_of(lang64, PAIRS[name], is_serial=True))


@pytest.mark.each_engine
def test_a_kernel_on_disk_that_was_compiled_otherwise(lang64, tmp_path, monkeypatch):
    """Taichi finds compiled kernels on disk by some options alone, and must not find one without the others."""

    def run(check):
        lang64.reset()
        lang64.init(lang64.cpu, default_fp=lang64.f64, offline_cache_file_path=str(tmp_path), log_level=lang64.ERROR)
        check(op_of(lang64, PAIRS["overwritten"], is_serial=True))
        lang64.reset()
        return "done"

    def call(op):
        monkeypatch.setattr(Stage, "is_aliased", lambda *_: False)
        op(torch.rand(5, dtype=torch.float64), torch.zeros(5, dtype=torch.int32))

    assert run_forked(lambda: run(call)) == "done"
    assert any(tmp_path.iterdir())
    assert run_forked(lambda: run(assert_right)) == "done"


@pytest.mark.compiled_engine
@pytest.mark.parametrize("name", ["both added to", "subtracted"])
def test_a_small_call_of_a_parallel_kernel_is_run_by_one_thread(lang64, name):
    assert_right(op_of(lang64, PAIRS[name], is_serial=False))


@pytest.mark.compiled_engine
@pytest.mark.parametrize(
    "line", ["y[i] += lang.sin(x[j]) * x[i]", "y[j] += x[i] / (1.0 + x[j])", "y[i] += x[k[j]] * x[i]"]
)
def test_loads_of_two_elements(lang64, line):
    """Their adjoints are added to: the engine's own reverse mode meets the same."""
    assert_right(op_of(lang64, [line], is_serial=False, adjoint="engine"))
    assert_right(op_of(lang64, [line], is_serial=False))
