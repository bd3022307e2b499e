"""Caches: they are bounded, counted by name, and emptied at any time."""

import copy
import gc
import pickle
import threading

import pytest
import torch

import tinsmith as ts
from tinsmith._cache import BoundedDict, Cache, cache_results, empty_caches, measure_caches
from tinsmith.operation._results import _TYPES, result_type


def find_size(name):
    return next((one for one in measure_caches() if one.name == name), None)


def test_a_full_cache_drops_its_older_half():
    known = BoundedDict(4)
    for number in range(4):
        assert known.keep(number, number * number) == number * number
    assert list(known) == [0, 1, 2, 3]
    known.keep(4, 16)
    assert dict(known) == {2: 4, 3: 9, 4: 16}


def test_the_setting_is_the_default_capacity(configure):
    configure(plan_cache="2")
    known = Cache("of a test")
    for number in range(100):
        known.keep(number, number)
    assert len(known) <= 2
    assert find_size("of a test") == ("of a test", 1, len(known), 2)


def test_caches_of_one_name_are_counted_together_and_go_with_their_owner():
    first, second = Cache("of a test", 8), Cache("of a test", 8)
    first.keep(1, 1)
    second.keep(1, 1)
    second.keep(2, 2)
    assert find_size("of a test") == ("of a test", 2, 3, 8)
    del first
    assert find_size("of a test") == ("of a test", 1, 2, 8)
    empty_caches()
    assert not second
    del second
    assert find_size("of a test") is None


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_have_caches_of_their_own(make_copy):
    cache = Cache("of a test", 8)
    cache.keep(1, 1)
    twin = make_copy(cache)
    assert twin == {} and cache == {1: 1}
    twin.keep(2, 2)
    assert find_size("of a test") == ("of a test", 2, 2, 8)


def test_results_of_a_function_are_counted_and_forgotten(monkeypatch):
    monkeypatch.setattr("tinsmith._cache._FUNCTIONS", [])
    calls = []

    @cache_results("squares of a test", 2)
    def square(number):
        """Return the square."""
        calls.append(number)
        return number * number

    assert [square(3), square(3), square(4), square(5)] == [9, 9, 16, 25]
    assert calls == [3, 4, 5]
    assert square.__doc__ == "Return the square."
    assert find_size("squares of a test") == ("squares of a test", 1, 2, 2)
    empty_caches()
    assert square(5) == 25
    assert calls == [3, 4, 5, 5]


def test_threads_fill_and_empty_one_cache():
    """Of a key that a thread has just put in, another may see nothing; nobody sees an error."""
    known, errors = Cache("of a test", 16), []

    def fill(first):
        try:
            for number in range(first, first + 20_000):
                assert known.keep(number, -number) == -number
                assert known.get(number) in (None, -number)
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=fill, args=(100 * place,)) for place in range(8)]
    for one in threads:
        one.start()
    while any(one.is_alive() for one in threads):
        empty_caches()
    assert not errors
    # Each thread may have added one to a full cache.
    assert len(known) <= 16 + 8


def make_op(lang, held):
    @ts.op("x[n] -> y[n], z[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * held.factor
            z[i] = lang.max(x[i], 0.0)

    return scaled


class Held:
    factor = 3.0


def test_calls_are_right_after_clear_caches(lang):
    op = make_op(lang, Held())
    x = torch.randn(5, requires_grad=True)
    assert_right = torch.testing.assert_close
    for _ in range(2):
        out = op(x)
        assert_right(out.y, 3.0 * x * x)
        had = ts.clear_caches()
        assert had["programs"] >= 1 and had["programs by tensors"] >= 1
        assert not any(op._core.programs or stage.compiled or stage._lowered for stage in op._core.signature.stages)
        # Between the forward and the backward pass, and between two derivatives.
        (slope,) = torch.autograd.grad(out.y.sum(), x, create_graph=True)
        ts.clear_caches()
        assert_right(slope, 6.0 * x)
        (curvature,) = torch.autograd.grad(slope.sum(), x)
        assert_right(curvature, torch.full_like(x, 6.0))
        ts.clear_caches()
        rows = torch.stack([x, 2.0 * x])
        assert_right(torch.func.vmap(lambda row: op(row).y)(rows), 3.0 * rows * rows)
        ts.clear_caches()
        assert_right(torch.func.jvp(lambda x: op(x).y, (x.detach(),), (torch.ones(5),))[1], 6.0 * x)


def test_a_gradient_after_clear_caches_is_that_of_the_forward_pass(lang):
    """Also where a Python value changed since: its backward pass belongs to the call, and no cache has it alone."""
    held = Held()
    op = make_op(lang, held)
    x = torch.randn(5, requires_grad=True)
    out = op(x)
    ts.clear_caches()
    held.factor = 4.0
    torch.testing.assert_close(op(x.detach()).y, 4.0 * x * x)
    ts.clear_caches()
    out.y.sum().backward()
    torch.testing.assert_close(x.grad, 6.0 * x)


def test_a_checkpoint_that_runs_again_with_another_value_is_refused_after_clear_caches(lang):
    """Nothing but the note of the values that calls had tells that this one is new (`refuse_rerun`)."""
    held = Held()
    op = make_op(lang, held)
    x = torch.randn(5, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(lambda x: op(x).y, x, use_reentrant=True)
    ts.clear_caches()
    held.factor = 4.0
    with pytest.raises(ts.GradientError, match="changed between its forward and its backward pass"):
        y.sum().backward()


def test_a_rerun_is_distinguished_from_the_first_run_after_clear_caches(lang):
    """The message names values that the caches no longer have."""
    held = Held()
    op = make_op(lang, held)
    x = torch.randn(5, requires_grad=True)

    def call(x):
        y = op(x).y
        held.factor = 4.0 if held.factor == 3.0 else 3.0
        ts.clear_caches()
        return y

    y = torch.utils.checkpoint.checkpoint(call, x, use_reentrant=False)
    with pytest.raises(ts.GradientError, match=r"(?s)`held.factor`.*no longer known|`held.factor`.*3\.0"):
        y.sum().backward()


def test_a_compiled_graph_is_right_after_clear_caches(lang):
    op = make_op(lang, Held())
    compiled = torch.compile(lambda x: op(x).y + 1.0, backend="aot_eager")
    x = torch.randn(5, requires_grad=True)
    for _ in range(2):
        y = compiled(x)
        ts.clear_caches()
        y.sum().backward()
        torch.testing.assert_close(y, 3.0 * x * x + 1.0)
        torch.testing.assert_close(x.grad, 6.0 * x)
        x.grad = None
        ts.clear_caches()


def test_values_that_change_do_not_pile_up(lang, configure):
    """What was made for a value went with its plan; the text, the IR and the gradient of each stayed."""
    configure(plan_cache="8")
    held = Held()
    op = make_op(lang, held)
    (stage,) = op._core.signature.stages
    x = torch.randn(5, requires_grad=True)
    for number in range(40):
        held.factor = float(number)
        (slope,) = torch.autograd.grad(op(x).y.sum(), x)
        torch.testing.assert_close(slope, 2.0 * held.factor * x)
    gc.collect()
    # Forward and backward have a variant each, on one thread or several.
    assert max(map(len, (stage.texts, stage.compiled, stage._lowered, stage.baked_values._surveyed))) <= 8
    assert len(op._core.programs) <= 8
    assert len(op._core.reverse.source._at) <= 8 and len(op._core.reverse._at) <= 8
    assert len(op._core.paces._by_kernel) <= 32


def test_types_of_results_go_with_their_op():
    kept = result_type("some_op_of_a_test", ("a", "b"), None)
    result_type("another_op_of_a_test", ("a", "b"), None)
    gc.collect()
    assert {key[0] for key in _TYPES if "of_a_test" in key[0]} == {"some_op_of_a_test"}
    result = pickle.loads(pickle.dumps(kept(1, 2)))
    assert type(result) is kept is result_type("some_op_of_a_test", ("a", "b"), None)
