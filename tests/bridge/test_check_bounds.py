"""`check_bounds=True`: an index outside its array is an error that names it, and harms no memory."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.func import grad, jvp, vmap

import tinsmith as ts
from tinsmith.doctor.sanitizer import _dry_run, _sanitize

pytestmark = pytest.mark.compiled_engine

K = torch.tensor([3, 0, 1, 2], dtype=torch.int32)
OUTSIDE = torch.tensor([3, 0, 9, 2], dtype=torch.int32)
X = torch.linspace(0.5, 2.0, 4)


def gather(lang, **options):
    @lang.func
    def at(x: lang.template(), i):
        return x[i]

    @ts.op("x[*b, n], k[n]: i32 -> y[*b, n]", **options)
    @lang.kernel
    def gather(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[i] = at(x, k[i]) * x[i] + lang.select(i > 0, x[i - 1], 0.0)
            if i > 0 and x[i - 1] > 1.0:
                y[i] += 1.0

    return gather


def test_results_without_violations_equal_those_without_the_check(lang):
    plain, checked = gather(lang), gather(lang, check_bounds=True)
    many = torch.stack([X, 2.0 * X])

    def results(op):
        def loss(x):
            return op(x, K).sin().sum()

        _, moved = jvp(lambda x: op(x, K), (X,), (X,))
        return [
            op(X, K),
            op(many, K),
            grad(loss)(X),
            vmap(grad(loss))(many),
            grad(lambda x: grad(loss)(x).sum())(X),
            moved,
        ]

    for mine, theirs in zip(results(checked), results(plain), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("x", [X, torch.stack([X, X]), X.double().requires_grad_()], ids=["one", "batch", "double"])
def test_an_index_outside_is_named(lang, x):
    with pytest.raises(ts.BoundsError) as raised:
        gather(lang, check_bounds=True)(x, OUTSIDE)
    text = str(raised.value)
    assert text.startswith("op `gather` uses an index of `x` that is out of range")
    text = " ".join(text.split())
    # An axis of the source's, whether there is a batch or not.
    assert "index 9 along axis 0 size 4" in text
    assert ("out of range in all 2 indices" in text) is (x.ndim > 1)
    assert f"at {raised.value.path}:{raised.value.line}" in text and raised.value.path == __file__
    assert isinstance(raised.value, IndexError)


def test_a_violation_does_not_affect_the_next_call(lang):
    op = gather(lang, check_bounds=True)
    with pytest.raises(ts.BoundsError):
        op(X, OUTSIDE)
    torch.testing.assert_close(op(X, K), gather(lang)(X, K))


def test_stores_negative_indices_and_counts(lang):
    @ts.op("x[n] -> y[n]", check_bounds=True)
    @lang.kernel
    def back(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i - 2] += x[i]

    with pytest.raises(ts.BoundsError, match=r"index of `y`") as raised:
        back(X)
    assert "out of range in all  2 indices" in str(raised.value)
    assert "a negative index does not count from the end" in str(raised.value)


def test_a_gradient_by_hand(lang):
    @lang.kernel
    def backward(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i] * grad_y[i + 1]

    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    op = ts.op("x[n] -> y[n]", backward=backward, check_bounds=True)(square)
    with pytest.raises(ts.BoundsError, match="index of `grad_y` that is out of range"):
        op(X.clone().requires_grad_()).sum().backward()
    result = ts.gradcheck(ts.op("x[n] -> y[n]", backward=backward)(square), X)
    assert result.verdict == "not compared"
    assert [one.rule for one in result.findings] == ["TS604"] and "`grad_y`" in result.findings[0].message


def test_fields_with_an_offset(lang):
    table = lang.field(lang.f32)
    lang.root.dense(lang.i, 4).place(table, offset=-2)
    table.fill(3.0)

    @ts.op("x[n] -> y[n]", check_bounds=True)
    @lang.kernel
    def shifted(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * table[i - 2]

    torch.testing.assert_close(shifted(X), 3.0 * X)
    assert [one for one in ts.sanitize(shifted, X) if one.severity == "error"] == []
    assert ts.gradcheck(shifted, X).verdict == "right"
    with pytest.raises(ts.BoundsError, match=r"(?s)index of `table` that is out of range.*index +2 along"):
        shifted(torch.ones(5))
    (outside,) = [one for one in ts.sanitize(shifted, torch.ones(5)) if one.rule == "TS604"]
    assert "`table[2]` is read" in outside.message and "the first index is -2, the last 1" in outside.message


def test_the_setting_is_for_every_op(lang, configure):
    configure(check_bounds="1")
    with pytest.raises(ts.BoundsError):
        gather(lang)(X, OUTSIDE)


def test_calls_longer_than_the_interpreter_budget_are_checked_too(lang, monkeypatch):
    monkeypatch.setattr(_sanitize, "OPERATIONS", 10)
    monkeypatch.setattr(_dry_run, "OPERATIONS", 10)
    outside = torch.tensor([3, 0, 2, 9], dtype=torch.int32)  # beyond where the interpreter is stopped
    result = ts.gradcheck(gather(lang), X, outside)
    assert result.verdict == "not compared" and result.findings[0].rule == "TS604"


@pytest.mark.each_engine
def test_a_first_call_may_come_from_any_thread(lang):
    """The record was a field, which engines place in the main thread alone."""
    expected = gather(lang)(X, K)
    with ThreadPoolExecutor(1) as pool:
        actual = pool.submit(lambda: gather(lang, check_bounds=True)(X, K)).result()
    torch.testing.assert_close(actual, expected)


def test_each_thread_gets_its_own_error(lang):
    """There was one record for all launches of an engine: an error came in another thread, of another kernel."""
    inside, outside = gather(lang, check_bounds=True), gather(lang, check_bounds=True)
    inside(X, K)
    expected = gather(lang)(X, K)

    def call(number):
        if number % 2:
            torch.testing.assert_close(inside(X, K), expected)
        else:
            with pytest.raises(ts.BoundsError, match=f"index +{number + 9} along axis 0"):
                outside(X, torch.tensor([0, number + 9, 1, 2], dtype=torch.int32))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(400)))
