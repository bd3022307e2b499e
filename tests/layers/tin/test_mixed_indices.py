"""Indices of a number and a vector, `mass[t, base + offset]`, as every particle-in-cell program writes them."""

import pytest
import torch

import cases
import tinsmith as ts

PARTICLES, CELLS, STEPS = 3, 4, 2
CORNERS = [(0, 0), (0, 1), (1, 0), (1, 1)]


class Splatting:
    """Particles add their mass to a grid, the grid is squared, and particles move by what they find there."""

    def __init__(self, lang):
        self.mass, self.force = (lang.field(lang.f64, (STEPS, CELLS, CELLS), needs_grad=True) for _ in range(2))
        self.x, self.start, self.end = (
            lang.Vector.field(2, lang.f64, shape, needs_grad=True)
            for shape in ((STEPS + 1, PARTICLES), PARTICLES, PARTICLES)
        )
        self.steps = (self.splat(lang), self.square(lang), self.move(lang))
        self.begin, self.finish = self.ends(lang)

    def ends(self, lang):
        x, mass, start, end = self.x, self.mass, self.start, self.end

        @lang.kernel
        def begin():
            for t, i, j in mass:
                mass[t, i, j] = 0.0
            for p in start:
                x[0, p] = start[p]

        @lang.kernel
        def finish():
            for p in end:
                end[p] = x[STEPS, p]

        return begin, finish

    def splat(self, lang):
        x, mass = self.x, self.mass

        @lang.kernel
        def splat(t: lang.i32):
            for p in range(PARTICLES):
                base = lang.cast(x[t, p], lang.i32)
                w = x[t, p] - lang.cast(base, lang.f64)
                for i, j in lang.static(lang.ndrange(2, 2)):
                    offset = lang.Vector([i, j])
                    mass[t, base + offset] += (w[0] if i else 1.0 - w[0]) * (w[1] if j else 1.0 - w[1])

        return splat

    def square(self, lang):
        mass, force = self.mass, self.force

        @lang.kernel
        def square(t: lang.i32):
            for i, j in lang.ndrange(CELLS, CELLS):
                force[t, i, j] = mass[t, i, j] * mass[t, i, j]

        return square

    def move(self, lang):
        x, force = self.x, self.force

        @lang.kernel
        def move(t: lang.i32):
            for p in range(PARTICLES):
                base = lang.cast(x[t, p], lang.i32)
                x[t + 1, p] = x[t, p] * (1.0 + 0.1 * force[t, base + lang.Vector([0, 1])])

        return move

    def layer(self, times=range(STEPS), **how):
        layer = ts.EmptyTin(**how).register_input_field(self.start).register_output_field(self.end)
        layer.register_kernel(self.begin)
        for number, t in enumerate(times):
            for kernel in self.steps:
                layer.register_kernel(kernel, t, kernel_name=f"{kernel.__name__} {number}")
        return layer.register_kernel(self.finish).finish()


def splatted(x):
    for _ in range(STEPS):
        base = x.detach().long()
        w = x - base
        mass = torch.zeros(CELLS, CELLS, dtype=torch.float64)
        for i, j in CORNERS:
            weight = (w[:, 0] if i else 1 - w[:, 0]) * (w[:, 1] if j else 1 - w[:, 1])
            mass = mass.index_put((base[:, 0] + i, base[:, 1] + j), weight, accumulate=True)
        x = x * (1.0 + 0.1 * (mass * mass)[base[:, 0], base[:, 1] + 1])[:, None]
    return x


@pytest.mark.parametrize("how", [{}, {"on_tensors": True}], ids=["on fields", "on tensors"])
def test_elements_of_different_time_steps_are_distinguished(lang64, how):
    x, c = torch.rand(PARTICLES, 2, dtype=torch.float64) + 0.5, torch.rand(PARTICLES, 2, dtype=torch.float64)
    x.requires_grad_()
    result, expected = Splatting(lang64).layer(**how)(x), splatted(x)
    cases.assert_close(result, expected)
    cases.assert_close(torch.autograd.grad(result, x, c), torch.autograd.grad(expected, x, c))


@pytest.mark.compiled_engine
def test_a_time_that_is_written_again_is_refused(lang64):
    layer = Splatting(lang64).layer([0, 1, 0], adjoint="engine")
    with pytest.raises(ts.GradientError, match="changes a value of `mass` that its gradient needs, after `square`"):
        layer(torch.rand(PARTICLES, 2, dtype=torch.float64).requires_grad_())


def test_vectors_at_other_places_of_an_index_may_be_one_element(lang64):
    """`x[I, 0, 1]` and `x[0, 1, J]` are two indices of three parts, and the same element where I is (0, 1)."""
    x = lang64.field(lang64.f64, shape=(2, 2, 2, 2), needs_grad=True)
    start, end = (lang64.field(lang64.f64, shape=(), needs_grad=True) for _ in range(2))

    @lang64.kernel
    def first():
        for i in range(1):
            at = lang64.Vector([i, 1])
            x[at, 0, 1] = start[None]

    @lang64.kernel
    def second():
        for i in range(1):
            at = lang64.Vector([i, 1])
            end[None] = x[at, 0, 1] * x[at, 0, 1]

    @lang64.kernel
    def third():
        for i in range(1):
            at = lang64.Vector([i, 1])
            x[0, 1, at] = 5.0

    def make(adjoint):
        layer = ts.EmptyTin(adjoint=adjoint).register_input_field(start).register_output_field(end)
        return layer.register_kernel(first).register_kernel(second).register_kernel(third).finish()

    given = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ts.GradientError, match="changes a value of `x` that its gradient needs"):
        make("engine")(given)
    make("source")(given).backward()
    cases.assert_close(given.grad, torch.tensor(4.0, dtype=torch.float64))
