"""Eager calls of a known kind with numbers, keywords and arguments that are updated: found as calls of tensors are."""

import numpy as np
import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.each_engine


def make_scale(lang):
    @ts.op("x[n] -> y[m]")
    @lang.kernel
    def scale(
        x: lang.types.ndarray(),
        a: float,
        shift: lang.types.vector(2, lang.f32),
        count: lang.i8,
        y: lang.types.ndarray(),
    ):
        for i in y:
            y[i] = a * x[i % x.shape[0]] + shift[0] - 3.0 * shift[1] + count

    return scale


def scaled(x, a, shift, count, m):
    """Compute in torch what `make_scale` computes."""
    return a * x.repeat(m // len(x) + 1)[:m] + shift[0] - 3.0 * shift[1] + count


def make_known(lang):
    scale, x = make_scale(lang), torch.rand(3, requires_grad=True)
    for _ in range(2):
        scale(x.detach(), 2.0, [1.0, 2.0], 3, m=4)
        torch.autograd.grad(scale(x, 2.0, [1.0, 2.0], 3, m=4).sum(), x)
    return scale


def refuse(*_arguments, **_named):
    raise AssertionError("a call of a known kind was checked again")


def test_numbers_and_keywords_are_not_checked_again(lang, monkeypatch):
    scale = make_known(lang)
    monkeypatch.setattr(type(scale), "_call_checked", refuse)
    x = torch.rand(5)
    torch.testing.assert_close(scale(x, 0.5, [4.0, -1.0], -7, m=9), scaled(x, 0.5, (4.0, -1.0), -7, 9))
    torch.testing.assert_close(scale(m=2, count=9, a=3, shift=(1, 2), x=x), scaled(x, 3.0, (1, 2), 9, 2))
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(scale(leaf, a=-1.5, shift=[0.0, 0.0], count=0, m=5).sum(), leaf)
    torch.testing.assert_close(slope, torch.full((5,), -1.5))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0.5, [4.0, -1.0], 127), {"m": 9}),
        ((np.float64(0.5), np.array([4.0, -1.0]), np.int64(2)), {"m": np.int32(6)}),
        ((True, [True, 2.5], True), {"m": 3}),
        ((float("inf"), [4, 1], 3.0), {"m": 3}),
        ((2**60, [4, 1], 0), {"m": 0}),
    ],
    ids=["plain", "numpy", "bool", "inf", "large"],
)
def test_other_kinds_of_numbers_give_what_a_first_call_gives(lang, arguments, named):
    x = torch.rand(3)
    torch.testing.assert_close(make_known(lang)(x, *arguments, **named), make_scale(lang)(x, *arguments, **named))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("0.5", [4.0, -1.0], 1), {"m": 9}),
        ((0.5, [4.0], 1), {"m": 9}),
        ((0.5, [4.0, "1"], 1), {"m": 9}),
        ((0.5, [4.0, 1.0], 128), {"m": 9}),
        ((0.5, [4.0, 1.0], 1.5), {"m": 9}),
        ((2**53 + 1, [4.0, 1.0], 1), {"m": 9}),
        ((torch.tensor(0.5), [4.0, 1.0], 1), {"m": 9}),
        ((0.5, torch.tensor([4.0, 1.0]), 1), {"m": 9}),
        ((0.5, [4.0, 1.0], 1), {"m": 9.0}),
        ((0.5, [4.0, 1.0], 1), {"m": -1}),
        ((0.5, [4.0, 1.0], 1), {}),
        ((0.5, [4.0, 1.0]), {"m": 9}),
        ((0.5, [4.0, 1.0], 1, 1), {"m": 9}),
        ((0.5, [4.0, 1.0], 1), {"m": 9, "a": 0.5}),
        ((0.5, [4.0, 1.0], 1), {"m": 9, "b": 0.5}),
    ],
)
def test_errors_are_those_of_a_first_call(lang, arguments, named):
    known, fresh, x = make_known(lang), make_scale(lang), torch.rand(3)
    with pytest.raises(ts.TinsmithError) as first:
        fresh(x, *arguments, **named)
    with pytest.raises(type(first.value)) as later:
        known(x, *arguments, **named)
    assert str(later.value) == str(first.value)


def test_parameters_may_have_the_names_of_builtins(lang, monkeypatch):
    @ts.op("get[n] -> out[n]")
    @lang.kernel
    def odd(get: lang.types.ndarray(), type: float, find: int, p0: float, out: lang.types.ndarray()):  # noqa: A002
        for i in out:
            out[i] = get[i] * type + find - p0

    x = torch.rand(4)
    odd(x, 1.0, 2, 3.0)
    monkeypatch.setattr(type(odd), "_call_checked", refuse)
    torch.testing.assert_close(odd(get=x, p0=0.5, find=-1, type=2), x * 2.0 - 1.5)


def make_step(lang):
    @ts.op("inout x[n], inout v[n] ->")
    @lang.kernel
    def step(x: lang.types.ndarray(), v: lang.types.ndarray(), dt: float):
        for i in x:
            v[i] -= dt * x[i]
        for i in x:
            x[i] += dt * v[i]

    step(torch.rand(3), torch.rand(3), 0.1)
    return step


def test_updates_of_a_known_kind_are_not_checked_again(lang, monkeypatch):
    step, x, v = make_step(lang), torch.rand(5), torch.rand(5)
    after_v = v - 0.5 * x
    after_x = x + 0.5 * after_v
    monkeypatch.setattr(type(step), "_call_checked", refuse)
    versions = x._version, v._version
    returned = step(x, v, dt=0.5)
    torch.testing.assert_close((x, v), (after_x, after_v))
    assert [one is two for one, two in zip(returned, (x, v), strict=True)] == [True, True]
    assert (x._version, v._version) == (versions[0] + 1, versions[1] + 1)


def test_known_updates_refuse_what_first_updates_refuse(lang):
    step, x = make_step(lang), torch.rand(6)
    step(torch.rand(3, requires_grad=True) * 1.0, torch.rand(3), 0.1)
    with pytest.raises(ts.ArgumentError, match="share memory"):
        step(x[:4], x[2:], 0.1)
    with pytest.raises(ts.ArgumentError, match="share memory"):
        step(x, x, 0.1)
    with pytest.raises(ts.GradientError, match="is a leaf that requires a gradient"):
        step(torch.rand(3, requires_grad=True), torch.rand(3), 0.1)
    with torch.inference_mode():
        inference = torch.rand(3)
    with pytest.raises(RuntimeError, match="[Ii]nference tensor"):
        step(inference, torch.rand(3), 0.1)


def test_known_updates_are_differentiated(lang):
    step = make_step(lang)
    leaf, v = torch.rand(3, dtype=torch.float64, requires_grad=True), torch.rand(3, dtype=torch.float64)
    step(leaf.detach().clone(), v.clone(), 0.1)
    for _ in range(2):
        x, speed = leaf * 1.0, v.clone()
        step(x, speed, 0.25)
        (slope,) = torch.autograd.grad(x.sum(), leaf)
        torch.testing.assert_close(slope, torch.full_like(slope, 1.0 - 0.25 * 0.25))
    with torch.no_grad():
        step(leaf, v, 0.5)
    assert leaf._version == 1


def test_members_of_structs_are_not_checked_again(lang, monkeypatch):
    @lang.dataclass
    class Line:
        slope: lang.f32
        shift: lang.f32

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def evaluate(x: lang.types.ndarray(), line: Line, y: lang.types.ndarray()):
        for i in y:
            y[i] = line.slope * x[i] + line.shift

    x = torch.rand(3)
    evaluate(x, {"slope": 1.0, "shift": 2.0})
    monkeypatch.setattr(type(evaluate), "_call_checked", refuse)
    torch.testing.assert_close(evaluate(x, line={"slope": 0.5, "shift": -1}), 0.5 * x - 1.0)


FACTOR = 2.0
"""A value that a kernel below bakes in."""


def test_python_values_that_changed_make_another_call(lang, monkeypatch):
    def make_function(shift):
        @lang.func
        def move(a):
            return a + shift

        return move

    functions = {"move": make_function(1.0)}
    move = functions["move"]

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def change(x: lang.types.ndarray(), power: lang.template(), y: lang.types.ndarray()):
        for i in y:
            y[i] = FACTOR * move(x[i])
            if lang.static(power == 2):
                y[i] *= move(x[i])

    x = torch.rand(4)
    change(x, 1), change(x, 2)
    with monkeypatch.context() as patched:
        patched.setattr(type(change), "_call_checked", refuse)
        torch.testing.assert_close(change(x, 1), 2.0 * (x + 1.0))
        torch.testing.assert_close(change(x, power=2), 2.0 * (x + 1.0) ** 2)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    torch.testing.assert_close(change(x, 2), 5.0 * (x + 1.0) ** 2)
    move = make_function(-1.0)
    torch.testing.assert_close(change(x, 1), 5.0 * (x - 1.0))
    leaf = x.clone().requires_grad_()
    for factor in (3.0, 4.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        (slope,) = torch.autograd.grad(change(leaf, 2).sum(), leaf)
        torch.testing.assert_close(slope, 2.0 * factor * (x - 1.0))
    with pytest.raises(ts.ArgumentError, match="template argument `power` of op `change` is a tensor"):
        change(x, torch.tensor(2))


def test_sizes_decide_which_dims_are_those_of_vectors(lang, monkeypatch):
    @ts.op("x[n, m] -> y[n, m]")
    @lang.kernel
    def double(x: lang.template(), y: lang.template()):
        for i in lang.grouped(x):
            y[i] = 2.0 * x[i]

    wide, narrow = torch.rand(4, 3), torch.rand(2, 2)
    double(wide), double(narrow)
    monkeypatch.setattr(type(double), "_call_checked", refuse)
    torch.testing.assert_close(double(wide), 2.0 * wide)
    torch.testing.assert_close(double(x=narrow), 2.0 * narrow)
