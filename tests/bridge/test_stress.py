"""Long programs: memory stays flat, whatever a program makes again and again, and threads take locks in one order.

The ordinary run has small sizes. `./scripts/test --all tests/bridge/test_stress.py` takes minutes: 10,000 ops, 10,000
shapes, 1,000 values, and 16 threads that call 50 new ops at once.
"""

import collections
import gc
import sys
import threading
import traceback
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from support.locks import record_locks

pytestmark = [pytest.mark.timeout(1200), pytest.mark.compiled_engine]
STATM = Path("/proc/self/statm")
KEPT = 8
"""Capacity of caches, which at most double what they have: a full one drops its older half."""


def count_objects():
    """Return how many objects of the library are alive, by class."""
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    return collections.Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("tinsmith"))


def measure_memory():
    """Return the process's memory in MiB; 0 where the system does not say."""
    return int(STATM.read_text().split()[1]) * 4096 / 2**20 if STATM.exists() else 0.0


def assert_flat(run, count, most_growth, most_objects=0):
    """Run a fifth of the work, then the rest: it adds at most so many MiB, and objects of any class of the library."""
    run(range(count // 5))
    objects, memory = count_objects(), measure_memory()
    run(range(count // 5, count))
    grown = count_objects() - objects
    assert {name: number for name, number in grown.items() if number > most_objects} == {}
    assert measure_memory() - memory < most_growth


def make_scaled(lang, factor):
    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * factor

    return ts.op("x[n] -> y[n]")(scaled)


def assert_right(op, x, factor):
    x = x.clone().requires_grad_()
    y = op(x)
    y.sum().backward()
    torch.testing.assert_close(y, factor * x * x)
    torch.testing.assert_close(x.grad, 2.0 * factor * x)


@pytest.mark.parametrize("count", [250, pytest.param(10_000, marks=pytest.mark.costly)])
def test_ops_are_made_and_dropped(count, lang):
    """All of them are made, and one in 25 is called and differentiated, which takes longer."""
    x = torch.rand(5)

    def run(numbers):
        for number in numbers:
            op = make_scaled(lang, 2.0)
            if number % 25 == 0:
                assert_right(op, x, 2.0)

    # The engine keeps some bytes of each kernel that was decorated.
    # An engine's list has some dead kernels until it is looked through, and caches the trees of the last 64 functions.
    assert_flat(run, count, 4.0 + count * 0.002, 64)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.costly)])
def test_shapes_of_one_op(count, lang, configure):
    configure(plan_cache=str(KEPT))
    op = make_scaled(lang, 3.0)

    def run(sizes):
        for size in sizes:
            assert_right(op, torch.rand(size), 3.0)
            if size % 10 == 0:
                # Graphs call operators, which know the shapes that they were called with; and batches have operators.
                y, *_ = op.operator(torch.ones(size + 1))
                assert y.shape == (size + 1,)
                assert torch.func.vmap(op)(torch.ones(2, size)).shape == (2, size)

    assert_flat(run, count, 4.0, 4 * KEPT)


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.costly)])
def test_values_that_a_kernel_bakes_in(count, lang, configure):
    configure(plan_cache=str(KEPT))

    class Held:
        factor = 1.0

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * Held.factor

    def run(numbers):
        for number in numbers:
            Held.factor = 1.0 + number
            assert_right(scaled, torch.rand(5), Held.factor)

    # A kernel has some nodes of each class.
    assert_flat(run, count, 4.0, 12 * KEPT)


KEPT_FOR_A_TEXT = {"Compiled", "CompileOptions", "Cores", "KernelFamily", "Operator", "SharedKernel", "WeakKernel"}
"""What stays for each text of a kernel: what the engine compiled, and torch's operator of that name."""


def test_texts_of_kernels_keep_what_is_compiled_and_nothing_else(lang, tmp_path, engine):
    def make(number):
        text = (
            f"import {engine} as lang, tinsmith as ts\n"
            "def make():\n"
            "    @lang.kernel\n"
            "    def summed(x: lang.types.ndarray(), y: lang.types.ndarray()):\n"
            "        for i in x:\n"
            f"            y[i] = x[i] * x[i] * 2.0{' + x[i] - x[i]' * number}\n"
            "    return ts.op('x[n] -> y[n]')(summed)\n"
        )
        path = tmp_path / f"kernel_{number}.py"
        path.write_text(text)
        scope = {"__name__": "kernels_of_a_test"}
        exec(compile(text, path, "exec"), scope)
        return scope["make"]()

    def run(numbers):
        for number in numbers:
            assert_right(make(number), torch.rand(5), 2.0)
        ts.clear_caches()

    run(range(3))
    before = count_objects()
    run(range(3, 9))
    grown = count_objects() - before
    assert set(grown) <= KEPT_FOR_A_TEXT
    assert grown["Cores"] == 6


# Threads ------------------------------------------------------------------------------------------


def make_summed(lang, number):
    @lang.func
    def weighed(a):
        return a * lang.cast(number, float)

    @lang.kernel
    def summed(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0.0
            for j in range(3):
                s += weighed(x[i]) * j
            y[i] = s + lang.sin(x[i])

    return ts.op("x[n] -> y[n]")(summed), lambda x: 3.0 * number * x + x.sin()


def make_branched(lang, number):
    @lang.kernel
    def branched(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.5:
                y[i] = x[i] * x[i]
            else:
                y[i] = number * x[i]

    return ts.op("x[n] -> y[n]")(branched), lambda x: torch.where(x > 0.5, x * x, number * x)


def make_chained(lang, number):
    @lang.kernel
    def first(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in x:
            t[i] = lang.exp(x[i])

    @lang.kernel
    def second(t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in t:
            y[i] = t[i] * number

    return ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]"), lambda x: x.exp() * number


def make_checked(lang, number):
    @lang.kernel
    def checked(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[x.shape[0] - 1 - i] * number

    return ts.op("x[n] -> y[n]", check_bounds=True)(checked), lambda x: x.flip(-1) * number


def make_layer(lang, number):
    """Make a layer on fields that all threads share, with the lock of all."""
    x, y = lang.field(lang.f32, 7, needs_grad=True), lang.field(lang.f32, 7, needs_grad=True)

    @lang.kernel
    def doubled():
        for i in x:
            y[i] = x[i] * x[i] * number

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(doubled).finish()
    return layer, lambda x: x * x * number


def make_pythonic(lang, number):
    @lang.kernel
    def pythonic(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * number

    return ts.op("x[n] -> y[n]", engine="python")(pythonic), lambda x: x * x * number


MAKERS = (make_summed, make_branched, make_chained, make_checked, make_pythonic)


def call(made, expect, number):
    x = torch.linspace(0.1, 1.0, 7, requires_grad=True)
    (slope,) = torch.autograd.grad(made(x).sum(), x)
    (wanted,) = torch.autograd.grad(expect(x).sum(), x)
    torch.testing.assert_close(made(x), expect(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-5)
    if number % 3 == 0:
        rows = torch.stack([x, x + 1.0]).detach()
        torch.testing.assert_close(torch.func.vmap(made)(rows), expect(rows), rtol=1e-4, atol=1e-5)


@pytest.fixture
def _switching():
    """Let threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switching")
@pytest.mark.parametrize(("threads", "count"), [(8, 5), pytest.param(16, 50, marks=pytest.mark.costly)])
def test_threads_call_new_ops_while_caches_are_emptied(threads, count, lang):
    """Results are torch's, no thread waits for another forever, and locks are taken in the order of the page."""
    # Engines place fields in the main thread alone.
    layers = [make_layer(lang, 1.0 + number % 3) for number in range(threads)]
    for layer, expect in layers:
        call(layer, expect, 1)
    ops = [MAKERS[number % len(MAKERS)](lang, 1.0 + number % 7) for number in range(count)]
    errors: list[str] = []

    def run(thread):
        try:
            for number in range(count):
                # All threads begin with the same op; one call in five is of an op that the thread makes itself.
                call(*ops[number], thread + number)
                if number % 5 == 0:
                    call(*MAKERS[thread % len(MAKERS)](lang, 1.0 + thread % 7), number)
                    call(*layers[(thread + number) % threads], 1)
        except BaseException:  # noqa: BLE001
            errors.append(traceback.format_exc())

    with record_locks() as recorder:
        workers = [threading.Thread(target=run, args=(thread,), daemon=True) for thread in range(threads)]
        for one in workers:
            one.start()
        while any(one.is_alive() for one in workers):
            workers[0].join(0.2)
            ts.clear_caches()
    assert not errors, "\n".join(errors)
    assert recorder.taken == {"FIELDS_LOCK", "Python.lock", "COMPILING"}
    assert recorder.find_inversions() == []
