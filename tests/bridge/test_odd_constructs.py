"""Constructs and options of the engines that an op could pass over, or take for something else: right, or refused."""

import numpy as np
import pytest
import torch

import tinsmith as ts

F64 = torch.float64
FLAG = True
on_quadrants = pytest.mark.parametrize("engine", ["quadrants"], indirect=True)


def rand(*shape):
    return torch.randn(shape, dtype=F64)


def check(op, reference, *inputs):
    """Compare an op with a function of torch: values, gradients, and both over a batch."""
    own, others = ([one.clone().requires_grad_() for one in inputs] for _ in range(2))
    got, expected = op(*own), reference(*others)
    torch.testing.assert_close(got, expected)
    cotangent = torch.randn_like(expected)
    gradients = torch.autograd.grad(got, own, cotangent)
    torch.testing.assert_close(gradients, torch.autograd.grad(expected, others, cotangent))
    batch = [torch.stack([one, 2.0 * one]) for one in inputs]
    torch.testing.assert_close(torch.func.vmap(op)(*batch)[1], reference(*[2.0 * one for one in inputs]))


# Blocks that may run at the same time -------------------------------------------------------------------------------
def squares_and_cubes(x):
    return x**2 + x + x**3


def in_streams(qd):
    from quadrants import stream_parallel

    @qd.kernel
    def kernel(x: qd.types.ndarray(), z: qd.types.ndarray(), y: qd.types.ndarray()):
        with stream_parallel():
            for i in x:
                y[i] = x[i] ** 2
            for i in range(x.shape[0]):
                y[i] += x[i]
        with qd.stream_parallel():
            for i in range(x.shape[0]):
                z[i] = x[i] ** 3
        for i in x:
            y[i] = y[i] + z[i]

    return kernel


def in_a_graph(qd):
    @qd.kernel(graph=True)
    def kernel(x: qd.types.ndarray(), z: qd.types.ndarray(), y: qd.types.ndarray()):
        with qd.graph.parallel_context():
            with qd.graph.parallel():
                for i in range(x.shape[0]):
                    y[i] = x[i] ** 2 + x[i]
            with qd.graph.parallel():
                for i in range(x.shape[0]):
                    z[i] = x[i] ** 3
        for i in range(x.shape[0]):
            y[i] = y[i] + z[i]

    return kernel


@pytest.mark.compiled_engine
@on_quadrants
@pytest.mark.parametrize("adjoint", ["source", "engine"])
@pytest.mark.parametrize("make", [in_streams, in_a_graph])
def test_concurrent_blocks(lang64, make, adjoint):
    op = ts.op("x[n] -> y[n]", scratch="z[n]", adjoint=adjoint)(make(lang64))
    check(op, squares_and_cubes, rand(5))


@pytest.mark.compiled_engine
@on_quadrants
@pytest.mark.parametrize("adjoint", ["auto", "engine", "rollout"])
def test_concurrent_blocks_of_a_layer(lang64, adjoint):
    x, y, z = (lang64.field(lang64.f64, shape=3, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def kernel():
        with lang64.stream_parallel():
            for i in x:
                y[i] = x[i] ** 2
        with lang64.stream_parallel():
            for i in x:
                z[i] = x[i] ** 3

    if adjoint == "rollout":
        layer = ts.rollout(kernel, {"x": x}, {"y": y, "z": z})
    else:
        layer = ts.EmptyTin(adjoint=adjoint).register_input_field(x).register_kernel(kernel)
        layer = layer.register_output_field(y).register_output_field(z).finish()
    given = rand(3).requires_grad_()
    squares, cubes = layer(given)
    torch.testing.assert_close((squares, cubes), (given**2, given**3))
    (gradient,) = torch.autograd.grad(squares.sum() + cubes.sum(), given)
    torch.testing.assert_close(gradient, 2.0 * given + 3.0 * given**2)


# Statements that no op runs -----------------------------------------------------------------------------------------
def context(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        with open("x"):  # line
            for i in x:
                y[i] = x[i]

    return kernel


def context_of_a_function(lang):
    @lang.func
    def function(x):
        with open("x"):  # line
            x += 1.0
        return x

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = function(x[i])

    return kernel


def attempt(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        try:  # line
            for i in x:
                y[i] = x[i]
        except ValueError:
            pass

    return kernel


def find_line(make):
    import inspect

    lines, first = inspect.getsourcelines(make)
    return next(first + place for place, line in enumerate(lines) if line.rstrip().endswith("# line"))


@pytest.mark.parametrize("make", [context, context_of_a_function, attempt])
def test_statements_that_no_op_runs(lang64, make):
    statement = "try" if make is attempt else r"with open\('x'\)"
    words = (
        rf"(?s)kernel `kernel` contains `{statement}`, which no op can run: "
        rf".*odd_constructs.py:{find_line(make)}\s.*without"
    )
    with pytest.raises(ts.KernelError, match=words):
        ts.op("x[n] -> y[n]")(make(lang64))


def repeated(qd):
    @qd.kernel(graph=True)
    def kernel(x: qd.types.ndarray(), count: qd.types.ndarray(qd.i32, ndim=0), y: qd.types.ndarray()):
        while qd.graph.do_while(count):  # line
            for i in x:
                y[i] += x[i]
            for _ in range(1):
                count[()] -= 1

    return kernel


def paused(qd):
    @qd.kernel(graph=True, checkpoints=True)
    def kernel(x: qd.types.ndarray(), count: qd.types.ndarray(qd.i32, ndim=0), y: qd.types.ndarray()):
        with qd.checkpoint(1, yield_on=count):  # line
            for i in x:
                y[i] = x[i]

    return kernel


@on_quadrants
@pytest.mark.parametrize(
    ("make", "spec", "words"),
    [
        (repeated, "x[n], inout count[]: i32 -> y[n]", "while a condition in an array holds.*in a Python loop"),
        (paused, "x[n], count[]: i32 -> y[n]", "pauses the kernel.*Split the kernel there"),
    ],
)
def test_statements_of_quadrants_that_no_op_runs(lang64, make, spec, words):
    with pytest.raises(ts.KernelError, match=rf"(?s)which no op can run: .*{words}") as caught:
        ts.op(spec)(make(lang64))
    assert f"odd_constructs.py:{find_line(make)}" in str(caught.value)


# Members that Quadrants would make arguments ------------------------------------------------------------------------
@on_quadrants
def test_struct_members_may_be_run_time_arguments(lang64):
    class Options:
        pass

    @lang64.data_oriented(template_primitives=False)
    class Inner:
        def __init__(self):
            self.factor, self.is_on = 2, True

    @lang64.data_oriented(template_primitives=False)
    class Owner:
        def __init__(self):
            self.gain, self.times = 3.0, 2
            self.inner, self.options = Inner(), Options()
            self.options.scale = 1.5

        @lang64.func
        def scaled(self, value):
            return value * self.gain * self.options.scale

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                for _ in range(self.times):
                    y[i] += self.scaled(x[i]) * self.inner.factor
                if self.inner.is_on:
                    y[i] += x[i] * x[i]

    one = Owner()
    op = ts.op("x[n] -> y[n]")(one.run)

    def reference(x):
        linear = one.gain * one.options.scale * one.inner.factor * one.times
        return linear * x + one.inner.is_on * x * x

    check(op, reference, rand(4))
    one.gain, one.times, one.inner.factor, one.inner.is_on = 0.5, 3, 4, False
    check(op, reference, rand(4))
    # The engine's own calls still read the members.
    x, y = rand(4), torch.zeros(4, dtype=F64)
    one.run(x, y)
    torch.testing.assert_close(y, reference(x))


@pytest.mark.compiled_engine
@on_quadrants
@pytest.mark.parametrize("adjoint", ["auto", "engine"])
def test_members_that_are_arguments_at_run_time_of_a_layer(lang64, adjoint):
    @lang64.data_oriented(template_primitives=False)
    class Net:
        def __init__(self):
            self.x, self.y = (lang64.field(lang64.f64, shape=3, needs_grad=True) for _ in range(2))
            self.gain = 3.0

        @lang64.kernel
        def run(self):
            for i in self.x:
                self.y[i] = self.x[i] ** 2 * self.gain

    net = Net()
    layer = ts.Tin(net, torch.device("cpu"), adjoint=adjoint).register_kernel(net.run)
    layer = layer.register_input_field(net.x).register_output_field(net.y).finish()
    for net.gain in (3.0, 5.0):
        given = rand(3).requires_grad_()
        result = layer(given)
        torch.testing.assert_close(result, net.gain * given**2)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), given)[0], 2.0 * net.gain * given)


# Orders of loops ----------------------------------------------------------------------------------------------------
@on_quadrants
@pytest.mark.parametrize("axes", [(1, 0), (0, 1)])
@pytest.mark.parametrize("how", ["inner", "grouped", "static", "captured"])
def test_axes_of_a_loop_in_order(lang64, axes, how):
    known = lang64.ndrange(2, 3, axes=axes)

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            v = 0.0
            if lang64.static(how == "inner"):
                for i, j in lang64.ndrange(2, 3, axes=axes):
                    v = v * 0.5 + x[i, j] ** 2
            elif lang64.static(how == "grouped"):
                for place in lang64.grouped(lang64.ndrange(2, 3, axes=axes)):
                    v = v * 0.5 + x[place] ** 2
            elif lang64.static(how == "static"):
                for i, j in lang64.static(lang64.ndrange(2, 3, axes=axes)):
                    v = v * 0.5 + x[i, j] ** 2
            else:
                for i, j in lang64.static(known):
                    v = v * 0.5 + x[i, j] ** 2
            y[0] = v

    def reference(x):
        v = torch.zeros((), dtype=F64)
        for one in (x.T if axes == (1, 0) else x).reshape(-1):
            v = v * 0.5 + one**2
        return v[None]

    check(ts.op("x[2, 3] -> y[1]", adjoint="source")(kernel), reference, rand(2, 3))


@on_quadrants
def test_axes_of_a_parallel_loop(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j, k in lang64.ndrange((0, 2), 3, x.shape[2], axes=(1, 2, 0)):
            y[i, j, k] = x[i, j, k] ** 2 * (i + 10 * j + 100 * k)

    i, j, k = torch.meshgrid(torch.arange(2), torch.arange(3), torch.arange(4), indexing="ij")
    op = ts.op("x[2, 3, p] -> y[2, 3, p]", adjoint="source")(kernel)
    check(op, lambda x: x**2 * (i + 10 * j + 100 * k), rand(2, 3, 4))


def test_parallelize_1_runs_in_order(lang64):
    """`parallelize=1` is `serialize=True`: each iteration reads what the last one wrote."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        lang64.loop_config(parallelize=1)
        for i in range(x.shape[0]):
            if i == 0:
                y[i] = x[i]
            else:
                y[i] = y[i - 1] * 0.5 + x[i]

    def reference(x):
        rows = [x[0]]
        for one in x[1:]:
            rows.append(rows[-1] * 0.5 + one)
        return torch.stack(rows)

    check(ts.op("x[n] -> y[n]", adjoint="source")(kernel), reference, rand(5))


# Loops over a choice, and tuples as indices -------------------------------------------------------------------------
@pytest.fixture
def flag():
    def put(value):
        global FLAG
        FLAG = value

    yield put
    put(True)


def test_loops_over_a_conditional_range_chosen_statically(lang64, flag):
    """Unrolled or not, inside and outermost; the choice may be another one at the next call."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(4) if lang64.static(FLAG) else range(2):
            v = x[i]
            for j in lang64.static(range(3)) if lang64.static(not FLAG) else range(3):
                v = v * 0.9 + j
            y[i] = v

    op = ts.op("x[4] -> y[4]", adjoint="source")(kernel)
    for value, count in ((True, 4), (False, 2), (True, 4)):
        flag(value)
        inside = (torch.arange(4) < count).to(F64)
        check(op, lambda x, inside=inside: inside * (((x * 0.9) * 0.9 + 1.0) * 0.9 + 2.0), rand(4))


@pytest.mark.compiled_engine
def test_loops_over_a_conditional_range_chosen_at_run_time_are_refused(lang64):
    """Neither engine compiles it."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            for _ in range(2) if x[i] > 0.0 else range(1):
                y[i] += x[i]

    words = r"(?s)the kernel of op `kernel` does not compile.*for _ in range\(2\) if x\[i\] > 0.0 else range\(1\):"
    with pytest.raises(ts.KernelError, match=words):
        ts.op("x[n] -> y[n]", adjoint="source")(kernel)(rand(3).requires_grad_())


def test_tuples_as_indices(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in lang64.ndrange(x.shape[0], x.shape[1]):
            for k in range(x.shape[2]):
                place = (i, j)
                y[place] += x[place, k] ** 2
                y[(i, j)] += x[(i, j), k]

    op = ts.op("x[n, m, p] -> y[n, m]", adjoint="source")(kernel)
    check(op, lambda x: (x**2 + x).sum(2), rand(2, 3, 5))
    assert not ts.lint(op)


# Arrays whose indices are clamped -----------------------------------------------------------------------------------
@pytest.mark.compiled_engine
@pytest.mark.each_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_clamped_indices(lang64, adjoint):
    clamped = lang64.types.ndarray(dtype=lang64.f64, ndim=2, boundary="clamp")

    @lang64.kernel
    def laplacian(x: clamped, y: lang64.types.ndarray(dtype=lang64.f64, ndim=2)):
        for i, j in x:
            y[i, j] = (x[i + 1, j] + x[i - 1, j] + x[i, j + 2] + x[i, j - 1] - 4.0 * x[i, j]) * x[i, j]

    def reference(x):
        def at(di, dj):
            rows, columns = (torch.arange(size) for size in x.shape)
            return x[(rows + di).clamp(0, len(rows) - 1)][:, (columns + dj).clamp(0, len(columns) - 1)]

        return (at(1, 0) + at(-1, 0) + at(0, 2) + at(0, -1) - 4.0 * x) * x

    op = ts.op("x[n, m] -> y[n, m]", adjoint=adjoint)(laplacian)
    check(op, reference, rand(4, 5))
    assert not ts.lint(op)


# Statements for people ----------------------------------------------------------------------------------------------
def make_printing(lang, limit):
    """Build a kernel whose vectorized form has neither prints nor assertions."""

    @lang.func
    def tell(value):
        print("value", value)  # noqa: T201

    @lang.kernel
    def printing(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            assert x[i] < limit, "too large"
            tell(x[i])
            y[i] = limit * x[i]

    return ts.op("x[n] -> y[n]")(printing)


@pytest.mark.compiled_engine
def test_a_kernel_prints(lang, capfd):
    """Also the one that could share the compiled kernel of others, which differ in a number."""
    for number in range(6):
        make_printing(lang, number + 1.0)(torch.tensor([0.5]))
        lang.sync()
        assert capfd.readouterr().out.split("\n")[0] == "value 0.500000"


def test_an_assertion_holds_where_the_engine_checks_it(lang, engine):
    ts.init("cpu", engine, debug=True)
    try:
        with pytest.raises(Exception, match="too large"):
            make_printing(lang, 0.25)(torch.tensor([0.5]))
    finally:
        ts.init("cpu", engine)


# Tuples and lists as indices ----------------------------------------------------------------------------------------
def test_tuples_as_indices_of_matrices(lang64):
    @lang64.func
    def square(x: lang64.template(), place):
        return x[place] ** 2

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i, j in lang64.ndrange(2, 3):
            cell = (i, j)
            m = lang64.Matrix([[x[cell, 0], 2.0], [3.0, x[i, (j, 1)]]])
            m[(0, 1)] *= square(x, [i, j, 0])
            for place in lang64.static(lang64.grouped(lang64.ndrange(2, 2))):
                y[cell] += m[place] ** 2 * (place[0] + 1)
            y[[i, j]] += square(x, (cell, 1)) * m[lang64.Vector([1, 1])]

    def reference(x):
        a, b = x[..., 0], x[..., 1]
        return a**2 + 4.0 * a**4 + 18.0 + 2.0 * b**2 + b**3

    check(ts.op("x[2, 3, 2] -> y[2, 3]", adjoint="source")(kernel), reference, rand(2, 3, 2))
    # Printed from its IR, and run by Python.
    for options in ({"check_bounds": True}, {"engine": "python"}):
        x = rand(2, 3, 2)
        torch.testing.assert_close(ts.op("x[2, 3, 2] -> y[2, 3]", **options)(kernel)(x), reference(x))


@pytest.mark.compiled_engine
def test_tuples_as_indices_of_fields(lang64):
    x = lang64.field(lang64.f64, (2, 2, 3), needs_grad=True)
    total = lang64.field(lang64.f64, (), needs_grad=True)

    @lang64.func
    def weigh(place, f: lang64.i32):
        return x[f, place] ** 2 * place[1]

    @lang64.kernel
    def run(f: lang64.i32):
        for i, j in lang64.ndrange(2, 3):
            cell = (i, j)
            total[None] += weigh(cell, f) + x[[f, i, j]]

    def reference(x):
        return (x[1] ** 2 * torch.arange(3)).sum() + x[1].sum()

    own = rand(2, 2, 3).requires_grad_()
    others = own.detach().clone().requires_grad_()
    reference(others).backward()
    for result in (
        ts.rollout(lambda: run(1), {"x": x}, {"total": total})(own),
        ts.EmptyTin(adjoint="source")
        .register_input_field(x)
        .register_output_field(total, clear=True)
        .register_kernel(run, 1)
        .finish()(own),
    ):
        torch.testing.assert_close(result, reference(own))
        torch.testing.assert_close(torch.autograd.grad(result, own)[0], others.grad)


def test_numbers_of_static_vectors_are_known(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for place in lang64.static(lang64.grouped(lang64.ndrange(3, 3))):
                y[place] = x[place] ** 2
                if lang64.static(place[0] >= 2):
                    break
                if lang64.static(place.y == 1 and place.x < 1):
                    continue
                for k in range(lang64.static(place[0] + 2)):
                    y[place] += k * x[place]

    extra = torch.tensor([[1.0, 0.0, 1.0], [3.0, 3.0, 3.0], [0.0, 0.0, 0.0]], dtype=F64)
    kept = torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]], dtype=F64)
    op = ts.op("x[3, 3] -> y[3, 3]", adjoint="source")(kernel)
    check(op, lambda x: kept * x**2 + extra * x, rand(3, 3))


def test_assertion_messages_may_contain_run_time_values(lang, engine):
    """Where the engine checks assertions, the gradient's kernel has them too: with the source as their message."""
    ts.init("cpu", engine, debug=True)
    try:

        @lang.kernel
        def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                assert x[i] < 3.0, "%d is too large" % i  # noqa: UP031
                y[i] = x[i] ** 2

        x = torch.tensor([0.5, 2.0], requires_grad=True)
        (slope,) = torch.autograd.grad(ts.op("x[n] -> y[n]", adjoint="source")(kernel)(x).sum(), x)
        torch.testing.assert_close(slope, 2.0 * x)
    finally:
        ts.init("cpu", engine)


# Numbers of NumPy, choices in choices, atomics on entries -----------------------------------------------------------
@pytest.mark.compiled_engine
def test_numpy_constants_keep_numpy_arithmetic(lang64):
    """The engines let Python compute what is known: float32 stays float32, `nextafter` is one step of float32."""
    c, n = np.float32(0.1), np.int64(7)

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * (c * 3) + -c / 7 + np.nextafter(np.float32(1.0), np.float32(2.0)) + n // 2 * x[i] ** 2
            for j in range(n // 2):
                y[i] += c * c * x[i] * j

    def reference(x):
        known = float(-c / 7) + float(np.nextafter(np.float32(1.0), np.float32(2.0)))
        return x * float(c * 3) + known + 3.0 * x**2 + 3.0 * float(c * c) * x

    op = ts.op("x[n] -> y[n]", adjoint="source")(kernel)
    x = rand(4)
    for options in ({}, {"check_bounds": True}):
        result = ts.op("x[n] -> y[n]", **options)(kernel)(x)
        torch.testing.assert_close(result, reference(x), rtol=1e-13, atol=1e-13)
    check(op, reference, x)


@on_quadrants
def test_loops_over_nested_conditional_ranges(lang64, flag):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(2) if lang64.static(FLAG) else (lang64.ndrange(4) if lang64.static(not FLAG) else range(3)):
            y[i] = x[i] ** 2

    for value, count in ((True, 2), (False, 4)):
        flag(value)
        inside = (torch.arange(4) < count).to(F64)
        check(ts.op("x[4] -> y[4]", adjoint="source")(kernel), lambda x, inside=inside: inside * x**2, rand(4))


def test_atomics_on_entries_with_run_time_indices(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            v = lang64.Vector([x[i], 2.0, 3.0])
            before = lang64.atomic_add(v[i % 3], x[i] ** 2)
            lang64.atomic_max(v[(i + 1) % 3], 2.5)
            y[i] = v[0] * v[1] * v[2] + before

    def reference(x):
        def one(i, x):
            v = [x, 2.0 * x**0, 3.0 * x**0]
            before = v[i % 3]
            v[i % 3] = v[i % 3] + x**2
            v[(i + 1) % 3] = v[(i + 1) % 3].clamp(min=2.5)
            return v[0] * v[1] * v[2] + before

        return torch.stack([one(i, x[i]) for i in range(3)])

    check(ts.op("x[3] -> y[3]", adjoint="source")(kernel), reference, rand(3))
