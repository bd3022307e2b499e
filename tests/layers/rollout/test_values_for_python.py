"""Kernels that return a value to Python, and reads of fields of integers, steer a rollout and have no gradient."""

import pytest
import torch

import tinsmith as ts

N, STEPS = 4, 6


def rand():
    return torch.randn(N, dtype=torch.float64)


class Growth:
    """y doubles its elements as often as Python says, while their largest is below `limit`."""

    def __init__(self, lang):
        self.x, self.y = (lang.field(lang.f64, N, needs_grad=True) for _ in range(2))
        self.count = lang.field(lang.i32, ())
        x, y, count = self.x, self.y, self.count

        @lang.kernel
        def begin():
            for i in x:
                y[i] = x[i] * x[i]

        @lang.kernel
        def double():
            for i in y:
                y[i] = 2.0 * y[i]
            for _ in range(1):
                count[None] += 1

        @lang.kernel
        def scale(by: lang.f64):
            for i in y:
                y[i] = by * y[i]

        self.begin, self.double, self.scale = begin, double, scale
        self._make_questions(lang)

    def _make_questions(self, lang):
        y = self.y

        @lang.kernel
        def is_small(limit: lang.f64) -> lang.i32:
            value = 1
            for i in range(N):
                if y[i] > limit:
                    value = 0
            return value

        @lang.kernel
        def largest() -> lang.f64:
            value = y[0]
            for i in range(N):
                value = lang.max(value, y[i])
            return value

        self.is_small, self.largest = is_small, largest

    def rollout(self, forward):
        return ts.rollout(forward, {"x": self.x}, {"y": self.y})

    def contents(self):
        return [one.to_numpy().copy() for one in (self.x, self.y, self.count)]


def compute_expected(x, limit):
    y, doublings = x * x, 0
    while y.max() <= limit and doublings < STEPS:
        y, doublings = 2.0 * y, doublings + 1
    return y


def by_kernel(growth):
    def forward():
        growth.begin()
        for _ in range(STEPS):
            if not growth.is_small(5.0):
                break
            growth.double()

    return forward


def by_number(growth):
    def forward():
        growth.begin()
        for _ in range(STEPS):
            if growth.largest() > 5.0:
                break
            growth.double()

    return forward


def by_written_number(growth):
    def forward():
        growth.begin()
        growth.count.fill(0)
        for _ in range(STEPS):
            if growth.largest() - 1.0 > 4.0:
                growth.count[None] = 9
            if growth.count[None] == 9:
                break
            growth.double()

    return forward


@pytest.mark.parametrize("make", [by_kernel, by_number, by_written_number], ids=lambda one: one.__name__)
def test_returned_values_may_decide_what_the_function_does(lang64, make):
    growth = Growth(lang64)
    run = growth.rollout(make(growth))
    for scale in (0.2, 1.0, 0.7, 3.0):
        x = (scale * torch.ones(N, dtype=torch.float64) + 0.05 * rand()).requires_grad_()
        y = run(x)
        torch.testing.assert_close(y, compute_expected(x, 5.0))
        cotangent = rand()
        ours, theirs = (torch.autograd.grad(one, x, cotangent)[0] for one in (y, compute_expected(x, 5.0)))
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(growth.y.to_torch(), y.detach())


def test_a_kernel_that_returns_something_and_changes_a_field_takes_part(lang64):
    x, y = (lang64.field(lang64.f64, N, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def step() -> lang64.i32:
        changed = 0
        for i in range(N):
            y[i] = 3.0 * x[i]
            changed += 1
        return changed

    @lang64.kernel
    def square():
        for i in y:
            y[i] = y[i] * y[i]

    returned = []

    def forward():
        returned.append(step())
        square()

    run, given = ts.rollout(forward, {"x": x}, {"y": y}), rand().requires_grad_()
    y_now = run(given)
    torch.testing.assert_close(y_now, 9.0 * given**2)
    torch.testing.assert_close(torch.autograd.grad(y_now.sum(), given)[0], 18.0 * given)
    assert returned == [N]


def test_an_error_of_the_function_leaves_the_fields_as_they_were(lang64):
    growth = Growth(lang64)
    growth.y.fill(7.0)
    growth.count[None] = 3

    def forward():
        growth.begin()
        growth.double()
        if not growth.is_small(0.0):
            raise ValueError("too large")

    run, before = growth.rollout(forward), growth.contents()
    with pytest.raises(ValueError, match="too large"):
        run(rand().requires_grad_())
    assert all((now == then).all() for now, then in zip(growth.contents(), before, strict=True))
    growth.double()
    assert growth.count[None] == 4


def test_a_returned_number_that_goes_into_a_kernel_is_refused_where_it_would_lose_its_gradient(lang64):
    growth = Growth(lang64)

    def forward():
        growth.begin()
        growth.scale(1.0 / growth.largest())

    run, x = growth.rollout(forward), rand()
    torch.testing.assert_close(run(x), x**2 / (x**2).max())
    with pytest.raises(ts.GradientError, match=r"kernel `scale` of rollout forward is given a number that a kernel re"):
        run(x.requires_grad_())


def test_a_returned_number_that_counts_as_a_constant(lang64):
    growth = Growth(lang64)

    def forward():
        growth.begin()
        growth.scale(1.0 / float(growth.largest()))

    x = rand().requires_grad_()
    y = growth.rollout(forward)(x)
    constant = (x.detach() ** 2).max()
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * x / constant)


def test_a_sum_that_decides_is_not_cleared_and_warns(lang64):
    x, loss = lang64.field(lang64.f64, N), lang64.field(lang64.f64, ())

    @lang64.kernel
    def add():
        for i in x:
            loss[None] += x[i] ** 2

    @lang64.kernel
    def now() -> lang64.f64:
        return loss[None]

    seen = []

    def forward():
        add()
        seen.append(float(now()))

    run, given = ts.rollout(forward, {"x": x}, {"loss": loss}), rand()
    with pytest.warns(UserWarning, match="add to the field `loss`, which is never cleared"):
        first = run(given)
    assert [first.item(), run(given).item()] == pytest.approx(seen)


def test_random_numbers_before_a_value_for_python(lang64):
    growth = Growth(lang64)
    y = growth.y

    @lang64.kernel
    def noise():
        for i in y:
            y[i] += lang64.random(lang64.f64)

    def forward():
        growth.begin()
        noise()
        growth.is_small(1.0)

    before = growth.contents()
    with pytest.raises(ts.KernelError, match="it may depend on random numbers"):
        growth.rollout(forward)(rand())
    assert all((now == then).all() for now, then in zip(growth.contents(), before, strict=True))


def test_values_under_a_transform_are_refused(lang64):
    growth = Growth(lang64)
    with pytest.raises(ts.KernelError, match="reads a value in Python under a transform"):
        torch.func.vmap(growth.rollout(by_kernel(growth)))(torch.rand(3, N, dtype=torch.float64))


def test_a_part_of_a_field_as_input_is_there_when_python_asks(lang64):
    x, total = lang64.field(lang64.f64, (3, N)), lang64.field(lang64.f64, N)

    @lang64.kernel
    def sum_of_first() -> lang64.f64:
        value = 0.0
        for i in range(N):
            value += x[1, i]
        return value

    @lang64.kernel
    def copy(sign: lang64.f64):
        for i in total:
            total[i] = sign * x[1, i]

    def forward():
        copy(1.0 if sum_of_first() > 0.0 else -1.0)

    run = ts.rollout(forward, {"x": (x, 1)}, {"total": total})
    for given in (torch.ones(N, dtype=torch.float64), -torch.ones(N, dtype=torch.float64)):
        torch.testing.assert_close(run(given), torch.ones(N, dtype=torch.float64))
