"""Functions that call themselves: a real one runs, and has no gradient; another one is refused with its line."""

import sys
import traceback

import pytest
import torch

import tinsmith as ts

pytestmark = [
    pytest.mark.compiled_engine,
    pytest.mark.each_engine,
    pytest.mark.filterwarnings("ignore:the gradient of op `.*` is the engine's own"),
]
X = torch.tensor([2.0, 3.0], dtype=torch.float64)


def make_direct(lang):
    @lang.real_func
    def power(a: lang.f64, n: lang.i32) -> lang.f64:
        out = 1.0
        if n > 0:
            out = a * power(a, n - 1)
        return out

    return power


def make_early(lang):
    @lang.real_func
    def power(a: lang.f64, n: lang.i32) -> lang.f64:
        if n <= 0:
            return 1.0
        return a * power(a, n - 1)

    return power


def make_mutual(lang):
    @lang.real_func
    def other(a: lang.f64, n: lang.i32) -> lang.f64:
        return a * power(a, n - 1)

    @lang.real_func
    def power(a: lang.f64, n: lang.i32) -> lang.f64:
        out = 1.0
        if n > 0:
            out = other(a, n)
        return out

    return power


def make_kernel(lang, power):
    @lang.kernel
    def powers(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = power(x[i], i + 1)

    return powers


@pytest.mark.parametrize("make", [make_direct, make_early, make_mutual])
def test_a_real_function_may_call_itself(lang64, make):
    kernel = make_kernel(lang64, make(lang64))
    op = ts.op("x[n] -> y[n]")(kernel)
    assert op(X).tolist() == [2.0, 9.0]
    with pytest.raises(ts.GradientError, match=r"test_recursion\.py"):
        op(X.clone().requires_grad_()).sum().backward()
    with pytest.raises(ts.GradientError, match=r"a call of `(power|other)` from inside itself"):
        ts.op("x[n] -> y[n]", adjoint="source")(kernel)(X.clone().requires_grad_()).sum().backward()
    with pytest.raises(ts.KernelError, match=r"from inside itself\n +at +.*test_recursion\.py:\d+"):
        ts.op("x[n] -> y[n]", check_bounds=True)(kernel)(X)
    assert ts.lint(op) == []


def test_a_function_in_place_may_not(lang64):
    @lang64.func
    def power(a, n):
        out = a * 0.0 + 1.0
        if n > 0:
            out = a * other(a, n - 1)
        return out

    @lang64.func
    def other(a, n):
        return power(a, n)

    with pytest.raises(ts.KernelError, match="calls itself without end while the kernel is compiled"):
        ts.op("x[n] -> y[n]")(make_kernel(lang64, power))(X)


def test_a_first_call_in_deep_recursion_names_the_recursion(lang):
    """Where the user raised the limit, it may leave fewer calls than an engine's compiler needs."""
    array = lang.types.ndarray()

    @lang.kernel
    def deep(x: array, y: array):
        for i in x:
            y[i] = ((((((x[i] + 0.1) * 0.2) + 0.3) * 0.4) + 0.5) * 0.6) + 0.7

    op = ts.op("x[n] -> y[n]")(deep)

    def call_at(depth):
        return call_at(depth - 1) if depth else op(torch.ones(3))

    depth, usual = len(list(traceback.walk_stack(None))), sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    refused = None
    try:
        for room in range(30, 300, 3):
            try:
                call_at(12_000 - depth - room)
                break
            except RecursionError:
                continue
            except ts.TinsmithError as error:
                refused = error
    finally:
        sys.setrecursionlimit(usual)
    assert isinstance(refused, ts.EngineError)
    assert str(refused).startswith(
        "this call is nested too deeply in a recursion: too little of Python's "
        "recursion limit is left to compile a kernel\n"
    )
    assert "limit  12000 (sys.getrecursionlimit())" in str(refused)
