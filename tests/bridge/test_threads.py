"""First calls from several threads at once: parsing, generating and compiling are done one at a time."""

import ast
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import COMPILING

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
SOURCE = Path(ts.__file__).parent
FORWARD_MODE = threading.Lock()  # torch's forward mode has one level for all threads


def make(lang, number):
    @lang.func
    def bent(a):
        b = a * lang.cast(number, float)
        return b + lang.sin(a)

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0.0
            for j in range(3):
                s += bent(x[i]) * j
            y[i] = s + lang.cast(number, float)

    return op


def compute_expected(number, x):
    return 3.0 * (x * number + x.sin()) + number


def compute_gradient(op, x):
    x = x.clone().requires_grad_()
    op(x).sum().backward()
    return x.grad


def tangent(op, x):
    with FORWARD_MODE:
        return torch.func.jvp(op, (x,), (torch.ones_like(x),))[1]


def forward(op, x):
    if isinstance(op, ts.Op):
        assert op.lint() is not None and "kernel" in op.explain("all")
    return op(x)


MODES = (
    compute_gradient,
    tangent,
    forward,
    lambda op, x: torch.func.vmap(op)(torch.stack([x, 2.0 * x])),
    lambda op, x: torch.func.grad(lambda value: op(value).sum())(x),
)


@pytest.fixture
def _switching():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize("count", [10, pytest.param(60, marks=pytest.mark.costly)])
def test_first_calls_of_many_ops(count, lang):
    """Ops are made, called, differentiated and linted by eight threads."""
    make(lang, count)  # an engine's memory is set up by the main thread
    # torch's first forward mode of a process parses torch's own code, and two threads must not parse at once.
    tangent(torch.sin, torch.ones(1))

    def run(number):
        mode, x = MODES[number % len(MODES)], torch.linspace(0.1, 1.0, 5)
        actual = mode(make(lang, number), x)
        assert torch.allclose(actual, mode(lambda value: compute_expected(number, value), x), atol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(count)))


@pytest.mark.usefixtures("_switching")
def test_first_backward_passes_of_one_op(lang):
    """Their memory is laid out once, for all of them."""

    @ts.op("x[n] -> y[n], z[n]", scratch="w[n]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(), w: lang.types.ndarray()):
        for i in x:
            for _ in range(3):
                w[i] = w[i] * x[i] + x[i]
        for i in x:
            y[i] = w[i] * w[i]
            z[i] = w[(i + 1) % x.shape[0]] * x[i]

    def reference(x):
        w = x**3 + x**2 + x
        return (w * w).sum() + (w.roll(-1) * x).sum()

    def run(number):
        x = torch.linspace(0.1, 1.0, 7) + 0.1 * number
        mine = compute_gradient(lambda value: torch.stack(tuple(op(value))), x)
        theirs = torch.func.grad(reference)(x)
        assert torch.allclose(mine, theirs, rtol=1e-4)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(16)))


def test_a_cached_call_waits_for_no_lock(lang):
    """Neither forward nor backward asks for the lock that another thread compiles under."""
    op, x = make(lang, 3), torch.linspace(0.1, 1.0, 5)
    before = [compute_gradient(op, x), torch.func.grad(lambda value: op(value).sum())(x), torch.func.vmap(op)(x[None])]
    holds, done = threading.Event(), threading.Event()

    def compile_for_long():
        with COMPILING:
            holds.set()
            assert done.wait(60)

    other = threading.Thread(target=compile_for_long)
    other.start()
    assert holds.wait(60)
    after: list[torch.Tensor] = []

    def call():
        after.append(compute_gradient(op, x))
        after.append(torch.func.grad(lambda value: op(value).sum())(x))
        after.append(torch.func.vmap(op)(x[None]))

    caller = threading.Thread(target=call)
    caller.start()
    caller.join(30)
    is_stuck = caller.is_alive()
    done.set()
    other.join()
    caller.join()
    assert not is_stuck
    assert all(torch.equal(one, two) for one, two in zip(after, before, strict=True))


def test_parsing_is_done_in_one_place():
    """`ast.parse` and `inspect.getsource*` are called where the lock is held."""
    parsing = {"ast.parse", "inspect.getsource", "inspect.getsourcelines", "inspect.findsource"}
    paths = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if any(name in text for name in parsing):
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            if any(ast.unparse(call.func) in parsing for call in calls):
                paths.append(str(path.relative_to(SOURCE)))
    assert paths == ["engines/_parsing.py"]
