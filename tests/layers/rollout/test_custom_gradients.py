"""`ad.no_grad` and `ad.grad_replaced` mean in a rollout what they mean under the engine's own tape."""

import pytest
import torch

import tinsmith as ts

N, D = 4, torch.float64


class Program:
    """Kernels, and functions with custom gradients, on the fields x, z and total."""

    def __init__(self, lang):  # noqa: C901  # many small functions
        x, z = (lang.field(lang.f64, N, needs_grad=True) for _ in range(2))
        total = lang.field(lang.f64, (), needs_grad=True)
        self.lang, self.x, self.z, self.total = lang, x, z, total

        @lang.kernel
        def add(factor: lang.f64):
            for i in range(N):
                lang.atomic_add(total[None], x[i] * factor)

        @lang.kernel
        def square(factor: lang.f64):
            for i in range(N):
                z[i] = x[i] * x[i] * factor

        @lang.kernel
        def use():
            for i in range(N):
                total[None] += z[i] * x[i]

        @lang.kernel
        def clear():
            for i in range(N):
                z[i] = 0.0

        @lang.kernel
        def add_gradient(factor: lang.f64):
            for i in range(N):
                x.grad[i] += 100.0 * factor * total.grad[None]

        @lang.kernel
        def square_gradient(factor: lang.f64):
            for i in range(N):
                x.grad[i] += 10.0 * z.grad[i] * factor * z[i]
                z.grad[i] = 0.0

        self.add, self.square, self.use = add, square, use

        @lang.ad.no_grad
        def skipped(factor):
            add(factor)
            add(factor)

        @lang.ad.no_grad
        def skipped_square(factor):
            square(factor)

        @lang.ad.grad_replaced
        def twice(factor):
            add(factor)
            add(factor)

        @lang.ad.grad_for(twice)
        def twice_gradient(factor):
            add.grad(factor)

        @lang.ad.grad_replaced
        def by_hand(factor):
            add(factor)

        @lang.ad.grad_for(by_hand)
        def by_hand_gradient(factor):
            add_gradient(factor)

        @lang.ad.grad_replaced
        def square_by_hand(factor):
            square(factor)

        @lang.ad.grad_for(square_by_hand)
        def square_by_hand_gradient(factor):
            square_gradient(factor)

        @lang.ad.grad_replaced
        def restoring(factor):
            clear()
            square(factor)
            use()

        @lang.ad.grad_for(restoring)
        def restoring_gradient(factor):
            clear()
            square(factor)
            use.grad()
            square.grad(factor)

        @lang.ad.no_grad
        def around(factor):
            add(factor)
            by_hand(factor)

        @lang.ad.grad_replaced
        def unfinished(factor):
            add(factor)

        self.skipped, self.skipped_square, self.twice, self.by_hand = skipped, skipped_square, twice, by_hand
        self.square_by_hand, self.restoring, self.around, self.unfinished = (
            square_by_hand,
            restoring,
            around,
            unfinished,
        )

    def methods(self):
        lang, x, total = self.lang, self.x, self.total

        @lang.data_oriented
        class Model:
            def __init__(self, scale):
                self.scale = scale

            @lang.kernel
            def add(self, factor: lang.f64):
                for i in range(N):
                    lang.atomic_add(total[None], x[i] * x[i] * factor * self.scale)

            @lang.kernel
            def add_gradient(self, factor: lang.f64):
                for i in range(N):
                    x.grad[i] += 7.0 * total.grad[None] * self.scale

            @lang.ad.grad_replaced
            def step(self, factor):
                self.add(factor)

            @lang.ad.grad_for(step)
            def step_gradient(self, factor):
                self.add_gradient(factor)

            @lang.ad.no_grad
            def skip(self, factor):
                self.add(factor)

        return Model(2.0), Model(3.0)


def called_methods(p):
    first, second = p.methods()

    def forward():
        first.step(2.0)
        second.skip(1.5)
        second.step(0.5)
        p.add(5.0)

    return forward


PROGRAMS = {
    "skipped": lambda p: lambda: (p.skipped(4.0), p.add(5.0)),
    "skipped by name": lambda p: lambda: (p.add(5.0), p.skipped(factor=4.0)),
    "nothing else": lambda p: lambda: p.skipped(4.0),
    "skipped between": lambda p: lambda: (p.skipped_square(4.0), p.use(), p.add(2.0)),
    "overwritten by what is skipped": lambda p: lambda: (p.square(2.0), p.skipped_square(3.0), p.use()),
    "one of two gradients": lambda p: lambda: (p.twice(4.0), p.add(5.0)),
    "by hand": lambda p: lambda: (p.by_hand(4.0), p.add(5.0)),
    "by hand between": lambda p: lambda: (p.square_by_hand(4.0), p.use(), p.skipped(1.0)),
    "the generated one": lambda p: lambda: (p.restoring(4.0), p.add(5.0)),
    "in each other": lambda p: lambda: (p.around(4.0), p.add(5.0)),
    "in a loop": lambda p: lambda: [(p.by_hand(1.0 * t), p.skipped(0.5 * t), p.add(0.1)) for t in range(3)],
    "methods": called_methods,
}


@pytest.mark.filterwarnings("ignore:cannot create weak reference")  # Quadrants, of what its tape clears gradients with
@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", PROGRAMS)
def test_custom_gradients_work_as_under_the_engines_tape(lang64, name):
    program = Program(lang64)
    forward = PROGRAMS[name](program)
    x = torch.randn(N, dtype=D, requires_grad=True)
    program.x.from_torch(x.detach())
    # Gradients begin at zero. To clear those of all fields, Taichi 1.7.4 launches a kernel on the sparse fields of
    # earlier tests too, which has ended the process.
    with lang64.ad.Tape(loss=program.total, clear_gradients=False):
        forward()
    expected = program.total[None], program.x.grad.to_torch()
    program.x.grad.fill(3.0)
    rollout = ts.rollout(forward, {"x": program.x}, {"total": program.total})
    for _ in range(2):
        result = rollout(x)
        (gradient,) = torch.autograd.grad(result, x)
        torch.testing.assert_close((result.item(), gradient), expected)
    with torch.no_grad():
        assert rollout(x).item() == pytest.approx(expected[0])
    torch.testing.assert_close(torch.func.grad(rollout)(x.detach()), expected[1])
    batch = torch.stack([x.detach(), x.detach()])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(rollout))(batch), torch.stack([expected[1]] * 2))


def test_other_derivatives_of_custom_gradients_are_refused(lang64):
    program = Program(lang64)
    x = torch.randn(N, dtype=D)

    def rollout_of(forward):
        return ts.rollout(forward, {"x": program.x}, {"total": program.total})

    with pytest.raises(
        ts.GradientError, match=r"forward mode: `grad_for` replaces a gradient, and no tangent\nLeave out"
    ):
        torch.func.jvp(rollout_of(lambda: program.by_hand(2.0)), (x,), (x,))
    with pytest.raises(ts.GradientError, match="no second derivative: `grad_for` replaces a gradient"):
        torch.func.jacrev(torch.func.grad(rollout_of(lambda: program.by_hand(2.0))))(x)
    with pytest.raises(ts.GradientError, match="decorated with `grad_replaced`, but no replacement is defined"):
        torch.func.grad(rollout_of(lambda: program.unfinished(2.0)))(x)
    tangent = torch.func.jvp(rollout_of(lambda: (program.skipped(2.0), program.add(3.0))), (x,), (x,))[1]
    torch.testing.assert_close(tangent, 3.0 * x.sum())


def test_a_gradient_that_only_restores_values_is_generated(lang64):
    program, calls = Program(lang64), []
    rollout = ts.rollout(lambda: [program.restoring(1.0) for _ in range(3)], {"x": program.x}, {"total": program.total})
    rollout._run_blocks = lambda *_: calls.append("blocks")
    x = torch.randn(N, dtype=D, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(rollout(x), x)[0], 9 * x**2)
    assert not calls
