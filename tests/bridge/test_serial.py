"""The serial twin: small problems on one thread, slow ones on all, the same numbers either way."""

import time

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith import _config
from tinsmith.calls import _threads as _pace
from tinsmith.compiling import _stage
from tinsmith.engines import get as get_engine
from tinsmith.ir import NotCovered


@pytest.fixture
def serial_below(monkeypatch):
    """Set TINSMITH_SERIAL_BELOW for the ops that a test makes."""

    def set_to(operations):
        monkeypatch.setenv("TINSMITH_SERIAL_BELOW", str(operations))
        _config.config.cache_clear()

    yield set_to
    monkeypatch.undo()
    _config.config.cache_clear()


def squares(lang):
    @lang.kernel
    def squares(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return squares


@pytest.mark.compiled_engine
def test_the_problem_size_decides_the_number_of_threads(lang, serial_below):
    serial_below(1000)
    op = ts.op("x[n] -> y[n]")(squares(lang))
    op(torch.rand(249))  # two loads, a product, a store
    assert "serialize=True" in op.explain("all") and op.explain("all").count("def squares") == 1
    op(torch.rand(250))
    assert op.explain("all").count("serialize=True") == 1 and op.explain("all").count("def squares") == 2


@pytest.mark.parametrize("name", ["convolution", "gather", "scratch_recurrence", "chained", "any_rank", "two_indices"])
def test_one_and_many_threads_give_the_same_result(lang64, serial_below, name):
    case = cases.select_cases(name)[0]
    inputs = case.inputs(torch.float64)
    results = []
    for operations in (0, 10**9):
        serial_below(operations)
        results.append(cases.compute_gradients(case.op(lang64, torch.float64), inputs))
    for parallel, serial in zip(*results, strict=True):
        torch.testing.assert_close(parallel, serial)


@pytest.mark.compiled_engine
def test_slow_serial_launches_go_parallel_for_every_size(lang, monkeypatch):
    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)
    op = ts.op("x[n] -> y[n]")(squares(lang))
    op(torch.ones(99))  # not counted: the engine makes machine code
    for size in range(100, 100 + _pace.SLOW_LAUNCHES):
        assert torch.equal(op(torch.ones(size)), torch.ones(size))
    assert op.explain("all").count("def squares") == 1  # still serial: one variant
    op(torch.ones(5000))
    assert op.explain("all").count("def squares") == 2  # from now on parallel, though small
    op(torch.ones(3))
    assert op.explain("all").count("serialize=True") == 1


def test_one_fast_launch_cancels_a_slow_one():
    pace = _pace.Pace(1000)
    for seconds in (1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 1.0):
        pace.note(seconds, 10)
    assert pace.serial_below == 1000
    pace.note(1.0, 10)
    assert pace.serial_below == 10


def test_launches_that_waited_for_other_programs_are_not_slow():
    """Threads would change the last digits of sums, from one backward pass to the next."""
    pace = _pace.Pace(1000)
    for _ in range(10):
        clock = pace.clock
        begin = clock()
        # as on a busy machine: another program has the processor
        time.sleep(2 * _pace.Pace(1000).limit)
        pace.note(clock() - begin, 10)
    assert pace.serial_below == 1000


def test_launches_that_compute_for_long_are_slow():
    pace = _pace.Pace(1000)
    for _ in range(_pace.SLOW_LAUNCHES):
        clock = pace.clock
        begin = clock()
        while clock() - begin < 2 * _pace.Pace(1000).limit:
            pass
        pace.note(clock() - begin, 10)
    assert pace.serial_below == 10


def test_first_launches_are_not_counted(lang, monkeypatch):
    """A call forward and backward has more first launches than slow ones are allowed; and each makes machine code."""
    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)

    @lang.kernel
    def begin(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]

    @lang.kernel
    def step(g: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            g[i] = y[i] * y[i]
        for i in y:
            y[i] += 0.1 * g[i] * g[i]

    op = ts.chain("x[n] -> y[n]", [begin, step, step, step], scratch="g[n]")
    op(torch.rand(10, requires_grad=True)).sum().backward()
    texts = op.explain("all").count("def step")
    op(torch.rand(10, requires_grad=True)).sum().backward()
    assert op.explain("all").count("def step") == texts  # nothing was compiled again, for all threads


def test_kernels_that_were_launched_before_are_counted():
    pace, first, second = _pace.Pace(1000), print, repr
    for kernels in ((first,), (first, second), (second,), (first,), (second,)):
        pace.note(1.0, 10, kernels)
    assert pace.serial_below == 1000
    pace.note(1.0, 10, (first, second))
    assert pace.serial_below == 10


@pytest.mark.compiled_engine
def test_a_slow_backward_pass_does_not_affect_the_forward_pass(lang, monkeypatch):
    monkeypatch.setattr(type(get_engine(lang.__name__)), "thread_count", lambda self: 2)
    op = ts.op("x[n] -> y[n]")(squares(lang))
    x = torch.ones(100, requires_grad=True)
    y = op(x).sum()
    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)
    for _ in range(2 * _pace.SLOW_LAUNCHES):
        y.backward(retain_graph=True)
    y.backward()
    threads = [line.strip() for line in op.explain("all").splitlines() if "operations, " in line]
    assert threads == [
        "forward, `squares`: one thread (400 operations, below 8,666,666)",
        "backward for x, `squares_adjoint_0`: one thread (600 operations, below 600)",
        "backward for x, `squares_adjoint_0`: several threads (600 operations, not below 600)",
    ]


@pytest.fixture
def rows_then_sum(lang64):
    """Make a chain of a kernel with much work and one with little."""
    ti = lang64
    array = ti.types.ndarray()

    @ti.kernel
    def rows(x: array, r: array):
        for i in range(r.shape[0]):
            total = x[0] * 0.0
            for j in range(x.shape[0]):
                total += ti.sin(x[i] * x[j])
            r[i] = total

    @ti.kernel
    def total(r: array, s: array):
        for i in range(4):
            s[i] = r[i] * r[i]

    return ts.chain("x[n] -> s[4]", [rows, total], scratch="r[n]")


def read_thread_choices(op, words):
    """Return what `explain` says about the launches of a pass: the number of threads by kernel, in words."""
    lines = [
        line.strip()
        for line in op.explain("all").splitlines()
        if line.startswith(f"  {words}") and "operations" in line
    ]
    return [(line.split("`")[1].split("_")[0], line.split(": ")[1].split(" (")[0]) for line in lines]


@pytest.mark.compiled_engine
def test_each_kernel_of_a_chain_is_chosen_for_by_itself(rows_then_sum, serial_below):
    x = torch.linspace(0.1, 2.0, 200, dtype=torch.float64, requires_grad=True)
    results = []
    for operations in (0, 10**9, 10_000):
        serial_below(operations)
        op = ts.chain("x[n] -> s[4]", [stage.kernel for stage in rows_then_sum._core.signature.stages], scratch="r[n]")
        s = op(x)
        results.append((s, *torch.autograd.grad(s.sum(), x)))
    mixed = {"rows": "several threads", "total": "one thread"}
    assert dict(read_thread_choices(op, "forward")) == mixed
    assert dict(read_thread_choices(op, "backward")) == mixed
    right = torch.sin(x[:, None] * x).sum(1)[:4].square()
    for s, gradient in results:
        torch.testing.assert_close(s, right)
        torch.testing.assert_close(gradient, torch.autograd.grad(right.sum(), x, retain_graph=True)[0])


def test_loop_lengths_given_by_arguments_are_counted(lang, serial_below):
    serial_below(1000)
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def again(x: array, times: lang.i32, y: array):
        for i in x:
            total = x[i]
            for _ in range(times):
                total += 1.0
            y[i] = total

    serial_below(1000)
    op = again
    op(torch.zeros(10), 3)
    assert op(torch.zeros(10), 200).tolist() == [200.0] * 10
    assert [threads for _, threads in read_thread_choices(again, "forward")] == ["one thread", "several threads"]


@pytest.mark.compiled_engine
def test_a_kernel_that_is_not_understood_counts_its_elements(lang, serial_below, monkeypatch):
    def refuse(*_, **__):
        raise NotCovered("what the front end does not know", 1, "a.py")

    monkeypatch.setattr(_stage, "lower", refuse)
    serial_below(100)
    op = ts.op("x[n] -> y[n]", adjoint="engine")(squares(lang))
    for size in (12, 13):  # 4 operations for an element of either array
        op(torch.ones(size))
    assert read_thread_choices(op, "forward") == [("squares", "one thread"), ("squares", "several threads")]


@pytest.mark.compiled_engine
def test_atomics_of_all_iterations_take_one_thread_however_many_there_are(lang, monkeypatch):
    """An atomic takes as long as some twenty operations, so two threads are slower than one that needs none."""
    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)  # slow launches do not change it
    engine = get_engine(lang.__name__)
    monkeypatch.setattr(type(engine), "thread_count", lambda self: 2)

    @lang.kernel
    def histogram(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[k[i]] += x[i] * x[i]

    op = ts.op("x[n], k[n]: i32 -> y[m]")(histogram)
    n = 200_000
    x, k = torch.rand(n), torch.arange(n, dtype=torch.int32) % 7
    for _ in range(_pace.SLOW_LAUNCHES + 3):
        y = op(x, k, m=7)
    torch.testing.assert_close(y, torch.zeros(7).index_add(0, k.long(), x * x))
    threads = [line.strip() for line in op.explain("all").splitlines() if "operations, " in line]
    assert threads == [
        "forward, `histogram`: one thread (1,600,000 operations, with atomics that would cost more than threads save)"
    ]


@pytest.mark.compiled_engine
def test_atomics_of_a_loop_inside_count_once(lang, monkeypatch):
    """What an inner loop adds to one element is summed in a local, and added once."""
    monkeypatch.setattr(_pace, "SLOWNESS", 0.0)
    monkeypatch.setattr(type(get_engine(lang.__name__)), "thread_count", lambda self: 2)

    @lang.kernel
    def histogram(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[k[i]] += x[i, j] * x[i, j]

    op = ts.op("x[n, m], k[n]: i32 -> y[7]")(histogram)
    x, k = torch.rand(4000, 50), torch.arange(4000, dtype=torch.int32) % 7
    expected = torch.zeros(7, dtype=torch.float64).index_add(0, k.long(), (x.double() * x).sum(1))
    # Threads add their sums in any order.
    torch.testing.assert_close(op(x, k), expected.float(), rtol=1e-5, atol=0)
    assert read_thread_choices(op, "forward") == [("histogram", "several threads")]


def test_a_bound_of_0_uses_threads_for_atomics_too(lang, serial_below):
    serial_below(0)

    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[0] += x[i]

    op = ts.op("x[n] -> y[1]")(total)
    op(torch.rand(100))
    assert "serialize=True" not in op.explain("all")


def test_a_kernel_without_parallel_loops_never_uses_several_threads(lang, serial_below):
    serial_below(0)

    @lang.kernel
    def running_sum(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in x:
            y[i] = x[i] + (y[i - 1] if i > 0 else 0.0)

    op = ts.op("x[n] -> y[n]")(running_sum)
    op(torch.rand(100, requires_grad=True)).sum().backward()
    explained = op.explain("all")
    for words in ("forward, `running_sum`", "backward for x, `running_sum_adjoint_0`"):
        assert f"  {words}: one thread (it has no parallel loop)\n" in explained
    assert "in order:" not in explained
