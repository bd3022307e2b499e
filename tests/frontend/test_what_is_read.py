"""Of a Python object only what a kernel reads is looked at, and what is not there yet is noticed when it appears.

An owner that counts the reads of its attributes tells, not the clock.
"""

import sys
import types

import pytest
import torch

import tinsmith as ts

X = torch.arange(1.0, 5.0, dtype=torch.float64)


class Mesh:
    """Counts looks at everything that it holds."""

    looks = 0

    def __init__(self):
        self.n = 7
        self.faces = [[0, 1, 2]] * 5

    def __getattribute__(self, name):
        if name == "__dict__":
            Mesh.looks += 1
        return object.__getattribute__(self, name)


class Base:
    def __init__(self):
        self.mesh = Mesh()
        self.sparse = False
        self.gain = 2.0


def missing_attribute(lang):
    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.gain * x[i]
                if lang.static(self.sparse):
                    y[i] = self.flag * x[i]

    solver = Solver()

    def change():
        solver.sparse, solver.flag = True, 3.0

    return solver, solver.run, change


def missing_attribute_that_appears(lang):
    """Make a condition that reads a missing attribute, which appears later."""

    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = 2.0 * x[i]
                if lang.static(hasattr(self, "flag")):
                    y[i] = self.flag * x[i]

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "flag", 3.0)


def missing_in_a_nested_object(lang):
    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = 2.0 * x[i]
                if lang.static(self.mesh.n == 8):
                    y[i] = self.mesh.flag * x[i]

    solver = Solver()

    def change():
        solver.mesh.n, solver.mesh.flag = 8, 3.0

    return solver, solver.run, change


def missing_in_a_dict(lang):
    held = {"gain": 2.0}

    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = held["gain"] * x[i]
                if lang.static(self.sparse):
                    y[i] = held["flag"] * x[i]

    solver = Solver()
    held["solver"] = solver

    def change():
        solver.sparse, held["flag"] = True, 3.0

    return solver, solver.run, change


def missing_in_a_module(lang):
    settings = types.ModuleType("settings")
    settings.solver = None

    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.gain * x[i]
                if lang.static(self.sparse):
                    y[i] = settings.flag * x[i]

    solver = settings.solver = Solver()

    def change():
        solver.sparse, settings.flag = True, 3.0

    return solver, solver.run, change


def missing_global(lang):
    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.gain * x[i]
                if lang.static(self.sparse):
                    y[i] = appears_later * x[i]  # noqa: F821

    solver = Solver()
    vars(sys.modules[__name__]).pop("appears_later", None)

    def change():
        solver.sparse = True
        sys.modules[__name__].appears_later = 3.0

    return solver, solver.run, change


def a_property_that_raises(lang):
    @lang.data_oriented
    class Solver(Base):
        @property
        def flag(self):
            if not self.sparse:
                raise RuntimeError("not built")
            return 3.0

        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.gain * x[i]
                if lang.static(self.sparse):
                    y[i] = self.flag * x[i]

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "sparse", True)


def self_given_to_a_function(lang):
    @lang.func
    def scaled(held: lang.template(), v):
        return held.gain * v

    @lang.func
    def handed_on(held: lang.template(), v):
        return scaled(held, v)

    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = handed_on(self, x[i])

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "gain", 3.0)


def python_method(lang):
    @lang.data_oriented
    class Solver(Base):
        def chosen(self):
            mesh = self.mesh
            return self.gain if mesh.n == 7 and not hasattr(self, "flag") else self.flag

        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = lang.static(self.chosen()) * x[i]

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "flag", 3.0)


def python_function_with_a_global(lang):
    module = sys.modules[__name__]

    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = lang.static(gain_of_the_solver()) * x[i]

    module.THE_SOLVER = solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "gain", 3.0)


THE_SOLVER = None


def gain_of_the_solver():
    return THE_SOLVER.gain


def is_none(lang):
    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = 3.0 * x[i]
                if lang.static(self.mesh is not None):
                    y[i] = 2.0 * x[i]

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "mesh", None)


def truth(lang):
    @lang.data_oriented
    class Solver(Base):
        @lang.kernel
        def run(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = 2.0 * x[i]
                if lang.static(not self.mesh and not self.sparse):
                    y[i] = 3.0 * x[i]

    solver = Solver()
    return solver, solver.run, lambda: setattr(solver, "mesh", None)


WAYS = [
    missing_attribute,
    missing_attribute_that_appears,
    missing_in_a_nested_object,
    missing_in_a_dict,
    missing_in_a_module,
    missing_global,
    a_property_that_raises,
    self_given_to_a_function,
    python_method,
    python_function_with_a_global,
    is_none,
    truth,
]


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_only_values_that_a_kernel_reads_are_compared(lang64, make):
    solver, kernel, change = make(lang64)
    op, x = ts.op("x[n] -> y[n]")(kernel), X.clone().requires_grad_()
    torch.testing.assert_close(op(x), 2.0 * x)
    before = Mesh.looks
    y = op(x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.full_like(x, 2.0))
    assert Mesh.looks == before
    change()
    torch.testing.assert_close(op(x), 3.0 * x)


@pytest.mark.parametrize("make", [missing_attribute, self_given_to_a_function], ids=lambda make: make.__name__)
def test_a_first_call_compares_the_values_that_are_read(lang64, make):
    """Nothing of ours does; an engine may look at its owner when it compiles."""
    solver, kernel, _ = make(lang64)
    op, before = ts.op("x[n] -> y[n]")(kernel), Mesh.looks
    op(X)
    assert Mesh.looks == before


def test_a_list_that_is_read_whole_is_compared_whole(lang64):
    """Faces are looped over while the kernel is compiled."""

    @lang64.data_oriented
    class Solver(Base):
        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                for face in lang64.static(self.factors):
                    y[i] += face[0] * x[i]

    solver = Solver()
    solver.factors = [[1.5], [0.5]]
    op = ts.op("x[n] -> y[n]")(solver.run)
    torch.testing.assert_close(op(X), 2.0 * X)
    solver.factors[1][0] = 1.5
    torch.testing.assert_close(op(X), 3.0 * X)


def test_a_python_function_that_hides_what_it_reads_is_compared_with_all_that_it_reaches(lang64):
    @lang64.data_oriented
    class Solver(Base):
        def hidden(self):
            return (lambda one: one.inner["gain"])(self)

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = lang64.static(self.hidden()) * x[i]

    solver = Solver()
    solver.inner = {"gain": 2.0}
    op = ts.op("x[n] -> y[n]")(solver.run)
    torch.testing.assert_close(op(X), 2.0 * X)
    solver.inner["gain"] = 3.0
    torch.testing.assert_close(op(X), 3.0 * X)


GAINS = {
    "double": lambda v: 2.0 * v,
    "triple": lambda v: 3.0 * v,
}
"""The lines of a lambda here are no statement by themselves."""


@pytest.mark.filterwarnings("ignore:Calling non-")
@pytest.mark.parametrize(("name", "factor"), [("double", 2.0), ("triple", 3.0)])
def test_a_lambda_of_a_dict_runs_and_the_gradient_asks_for_a_function_of_the_engine(lang64, name, factor):
    gain = GAINS[name]

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def scale(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = gain(x[i])

    torch.testing.assert_close(scale(X), factor * X)
    with pytest.warns(UserWarning, match=r"Decorate the function `gain` with `@\w+\.func`, and write it as a `def`"):
        scale(X.clone().requires_grad_())


def test_a_layer_looks_at_what_its_kernels_read(lang64):
    x, y = (lang64.field(lang64.f64, 4, needs_grad=True) for _ in range(2))

    @lang64.data_oriented
    class Solver(Base):
        @lang64.kernel
        def run(self):
            for i in range(4):
                y[i] = self.gain * x[i]
                if lang64.static(self.sparse):
                    self.flags[i] = 1

    solver = Solver()
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(solver.run).finish()
    given = X.clone().requires_grad_()
    layer(given).sum().backward()
    before = Mesh.looks
    layer(given).sum().backward()
    assert Mesh.looks == before
    solver.gain = 3.0
    torch.testing.assert_close(layer(given), 3.0 * given)


def test_a_rollout_looks_at_what_its_kernels_read(lang64):
    x = lang64.field(lang64.f64, (5, 4))

    @lang64.data_oriented
    class Solver(Base):
        @lang64.kernel
        def substep(self, f: lang64.i32):
            for i in range(4):
                x[f + 1, i] = self.gain * x[f, i]
                if lang64.static(self.sparse):
                    self.flags[i] = 1

    solver = Solver()

    def forward():
        for f in range(4):
            solver.substep(f)

    run, given = ts.rollout(forward, {"x": (x, 0)}, {"x": (x, 4)}), X.clone().requires_grad_()
    run(given).sum().backward()
    before = Mesh.looks
    run(given).sum().backward()
    assert Mesh.looks == before
    solver.gain = 3.0
    torch.testing.assert_close(run(given), 81.0 * given)
