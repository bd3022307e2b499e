"""Layers and rollouts of kernels that read torch tensors and NumPy arrays as members of Python dataclasses."""

import dataclasses

import numpy as np
import pytest
import torch

import tinsmith as ts

D = torch.float64
COUNT = 4


@dataclasses.dataclass
class Table:
    w: object
    gain: float


@dataclasses.dataclass
class Whole:
    table: Table
    rows: object


def make_sim(lang):  # noqa: C901  # three kernels
    """Return an object whose kernels compute `y[i] = gain * w[rows[i]] * x[i] ** 2` from arrays in structs."""

    @lang.func
    def weigh(i, whole: lang.template()):
        return whole.table.w[whole.rows[i]] * whole.table.gain

    @lang.data_oriented
    class Sim:
        def __init__(self):
            self.x, self.y = (lang.field(lang.f64, COUNT, needs_grad=True) for _ in range(2))
            rows = torch.tensor([3, 1, 0, 2], dtype=torch.int32)
            self.whole = Whole(Table(torch.rand(COUNT, dtype=D), 1.5), rows)

        @lang.func
        def put(self, i, v):
            self.y[i] = v * self.whole.table.w[self.whole.rows[i]]

        @lang.kernel
        def given(self, whole: lang.template()):
            for i in self.x:
                self.y[i] = whole.table.w[whole.rows[i]] * whole.table.gain * self.x[i] ** 2

        @lang.kernel
        def in_function(self, whole: lang.template()):
            for i in range(whole.rows.shape[0]):
                self.y[i] = weigh(i, whole) * self.x[i] ** 2

        @lang.kernel
        def captured(self):
            for i in self.x:
                self.put(i, self.whole.table.gain * self.x[i] ** 2)

        def arguments(self, name):
            return () if name == "captured" else (self.whole,)

        def expected(self, x):
            table, rows = self.whole.table, torch.as_tensor(self.whole.rows)
            return table.gain * torch.as_tensor(table.w)[rows.long()] * x**2

    return Sim()


def make_layer(sim, name, **options):
    layer = ts.EmptyTin(**options).register_input_field(sim.x).register_output_field(sim.y)
    return layer.register_kernel(getattr(sim, name), *sim.arguments(name)).finish()


def make_rollout(sim, name):
    return ts.rollout(lambda: getattr(sim, name)(*sim.arguments(name)), {"x": sim.x}, {"y": sim.y})


MAKERS = {
    "layer": make_layer,
    "layer on tensors": lambda sim, name: make_layer(sim, name, on_tensors=True),
    "rollout": make_rollout,
}
each_maker = pytest.mark.parametrize("made", MAKERS)
each_kernel = pytest.mark.parametrize("name", ["given", "in_function", "captured"])


def check(run, sim, *, wants_weights):
    """Compare values, and gradients by `x` and by the weights in the struct, with torch."""
    x = torch.rand(COUNT, dtype=D, requires_grad=True)
    wanted = (x, sim.whole.table.w) if wants_weights else (x,)
    result, expected = run(x), sim.expected(x)
    torch.testing.assert_close(result, expected)
    direction = torch.rand(COUNT, dtype=D)
    pairs = zip(*(torch.autograd.grad(one, wanted, direction) for one in (result, expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


@each_maker
@each_kernel
def test_members_are_bound_at_each_call(lang64, made, name):
    sim = make_sim(lang64)
    run = MAKERS[made](sim, name)
    check(run, sim, wants_weights=False)
    sim.whole.table.w = torch.rand(COUNT, dtype=D)
    check(run, sim, wants_weights=False)
    sim.whole.table.w.mul_(2.0)
    sim.whole.table.gain = -1.0
    sim.whole.rows = torch.tensor([0, 0, 1, 2], dtype=torch.int32)
    check(run, sim, wants_weights=False)


@each_maker
@each_kernel
def test_a_member_has_a_gradient(lang64, made, name):
    sim = make_sim(lang64)
    run = MAKERS[made](sim, name)
    for _ in range(2):
        sim.whole.table.w = torch.rand(COUNT, dtype=D, requires_grad=True)
        check(run, sim, wants_weights=True)


@each_maker
def test_numpy_arrays(lang64, made):
    sim = make_sim(lang64)
    sim.whole.table.w = np.array([1.0, 2.0, 3.0, 4.0])
    sim.whole.rows = np.array([2, 1, 0, 3], np.int32)
    run = MAKERS[made](sim, "given")
    check(run, sim, wants_weights=False)
    sim.whole.table.w[:] = [5.0, 6.0, 7.0, 8.0]
    check(run, sim, wants_weights=False)


def test_second_derivative(lang64):
    sim = make_sim(lang64)
    sim.whole.table.w = torch.rand(COUNT, dtype=D, requires_grad=True)
    layer = make_layer(sim, "given", on_tensors=True)
    x = torch.rand(COUNT, dtype=D, requires_grad=True)
    seconds = []
    for function in layer, sim.expected:
        (first,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.sum(), (x, sim.whole.table.w)))
    for one, other in zip(*seconds, strict=True):
        torch.testing.assert_close(one, other)


def test_another_struct(lang64):
    """`set_kernel_args` gives a kernel another struct, with its own arrays."""
    sim = make_sim(lang64)
    layer = make_layer(sim, "in_function")
    check(layer, sim, wants_weights=False)
    sim.whole = Whole(Table(torch.rand(COUNT, dtype=D), 0.5), sim.whole.rows)
    layer.set_kernel_args(sim.whole)
    check(layer, sim, wants_weights=False)


def test_arrays_that_a_rollout_changes(lang64):
    """Each launch gets the arrays that its struct has when it is called; structs need not be kept."""
    sim = make_sim(lang64)
    weights = [torch.rand(COUNT, dtype=D, requires_grad=True) for _ in range(3)]

    def forward():
        for w in weights:
            sim.given(Whole(Table(w, 2.0), sim.whole.rows))
            sim.x.copy_from(sim.y)

    run = ts.rollout(forward, {"x": sim.x}, {"y": sim.y})
    programs = []
    for _ in range(2):
        x = torch.rand(COUNT, dtype=D, requires_grad=True)
        expected = x
        for w in weights:
            expected = 2.0 * w[sim.whole.rows.long()] * expected**2
        wanted = (x, *weights)
        pairs = zip(*(torch.autograd.grad(one.sum(), wanted) for one in (run(x), expected)), strict=True)
        for one, other in pairs:
            torch.testing.assert_close(one, other)
        programs.append(len(run._programs))
    assert programs == [1, 1]


def test_only_a_member_needs_a_gradient(lang64):
    sim = make_sim(lang64)
    w = sim.whole.table.w = torch.rand(COUNT, dtype=D, requires_grad=True)
    x = torch.rand(COUNT, dtype=D)
    for run in make_layer(sim, "given"), make_rollout(sim, "captured"):
        results = [torch.autograd.grad(one.sum(), w)[0] for one in (run(x), sim.expected(x))]
        torch.testing.assert_close(*results)


def assert_refused(error, words, call, *arguments):
    with pytest.raises(error) as caught:
        call(*arguments)
    for one in words:
        assert one in str(caught.value)


@each_maker
def test_a_member_that_is_not_contiguous(lang64, made):
    sim = make_sim(lang64)
    sim.whole.table.w = torch.rand(COUNT, 2, dtype=D)[:, 0].requires_grad_()
    check(MAKERS[made](sim, "given"), sim, wants_weights=True)


@each_maker
@pytest.mark.parametrize(
    "wrong",
    [
        torch.ones(COUNT),
        torch.ones(COUNT, COUNT, dtype=D),
        torch.ones(COUNT, dtype=torch.complex128),
        torch.ones(COUNT, dtype=D).to_sparse(),
        torch.ones(COUNT, dtype=D, device="meta"),
        None,
    ],
    ids=["dtype", "rank", "complex", "sparse", "meta", "none"],
)
def test_refusals_name_members_by_their_paths(lang64, made, wrong):
    @dataclasses.dataclass
    class Typed:
        w: lang64.types.ndarray(dtype=lang64.f64, ndim=1)

    x, y = (lang64.field(lang64.f64, COUNT) for _ in range(2))

    @lang64.kernel
    def scale(table: lang64.template()):
        for i in x:
            y[i] = table.w[i] * x[i]

    typed = Typed(torch.ones(COUNT, dtype=D))
    if made == "rollout":
        run = ts.rollout(lambda: scale(typed), {"x": x}, {"y": y})
    else:
        run = ts.EmptyTin(on_tensors=made == "layer on tensors").register_input_field(x).register_output_field(y)
        run.register_kernel(scale, typed).finish()
    given = torch.rand(COUNT, dtype=D)
    torch.testing.assert_close(run(given), given)
    y.fill(7.0)
    typed.w = wrong
    assert_refused(ts.TinsmithError, ["`table.w`"], run, given)
    np.testing.assert_array_equal(y.to_numpy(), np.full(COUNT, 7.0))
    typed.w = torch.full((COUNT,), 2.0, dtype=D)
    torch.testing.assert_close(run(given), 2 * given)


def test_a_member_that_is_written_is_refused(lang64):
    x, y = (lang64.field(lang64.f64, COUNT) for _ in range(2))

    @lang64.kernel
    def write(table: lang64.template()):
        for i in x:
            table.w[i] = x[i]
            y[i] = x[i]

    @lang64.kernel
    def assign(table: lang64.template()):
        for i in x:
            table.w = x[i]

    table = Table(torch.zeros(COUNT, dtype=D), 1.0)
    for kernel, words in (write, "writes to the array `table.w`"), (assign, "`table.w`, which belongs to the caller"):

        def make(kernel=kernel):
            layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
            return layer.register_kernel(kernel, table).finish()(torch.ones(COUNT, dtype=D))

        assert_refused(ts.TinsmithError, [words], make)
    assert not table.w.any()


def test_an_array_under_another_name_and_as_an_argument(lang64):
    x, y = (lang64.field(lang64.f64, COUNT) for _ in range(2))

    @lang64.func
    def pick(w: lang64.template(), i):
        return w[i] ** 2

    @lang64.kernel
    def scale(table: lang64.template()):
        for i in x:
            w = table.w
            y[i] = w[i] * pick(table.w, i) * x[i]

    table = Table(torch.rand(COUNT, dtype=D, requires_grad=True), 1.0)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(scale, table).finish()
    given = torch.rand(COUNT, dtype=D, requires_grad=True)
    pairs = [torch.autograd.grad(one.sum(), (given, table.w)) for one in (layer(given), table.w**3 * given)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other)


def test_a_number_that_is_no_number(lang64):
    sim = make_sim(lang64)
    words = {None: "Give `whole.table.gain` a number", torch.ones(()): "float(whole.table.gain)"}
    for sim.whole.table.gain, remedy in words.items():
        for made in "layer", "rollout":

            def run(made=made):
                return MAKERS[made](sim, "given")(torch.rand(COUNT, dtype=D))

            assert_refused(ts.TinsmithError, ["`whole.table.gain`", remedy], run)


def test_a_value_for_python_after_a_struct_that_is_a_template(lang64):
    """Engines run no such kernel on fields; nothing of the user's is changed by the refusal."""
    sim = make_sim(lang64)

    @lang64.kernel
    def is_large(y: lang64.template()) -> lang64.i32:
        result = 0
        for i in y:
            if y[i] > 1e9:
                result = 1
        return result

    def forward():
        sim.given(sim.whole)
        is_large(sim.y)

    sim.x.fill(3.0)
    sim.y.fill(7.0)
    run = ts.rollout(forward, {"x": sim.x}, {"y": sim.y})
    assert_refused(ts.KernelError, ["`whole.table.w`", "`w: "], run, torch.rand(COUNT, dtype=D))
    np.testing.assert_array_equal(sim.x.to_numpy(), np.full(COUNT, 3.0))
    np.testing.assert_array_equal(sim.y.to_numpy(), np.full(COUNT, 7.0))


@pytest.mark.parametrize(
    "member",
    [
        {"a": 1},
        None,
        lambda x: x,
    ],
    ids=["dict", "none", "lambda"],
)
def test_a_member_that_is_no_array(lang64, member):
    """Also a lambda within a statement of several lines, whose source by itself is no Python."""
    sim = make_sim(lang64)
    sim.whole.table.w = member
    sim.y.fill(7.0)
    for made in "layer", "rollout":

        def run(made=made):
            return MAKERS[made](sim, "given")(torch.rand(COUNT, dtype=D))

        assert_refused(ts.GradientError, ["`whole.table.w`", "a field, an ndarray, or a tensor"], run)
    np.testing.assert_array_equal(sim.y.to_numpy(), np.full(COUNT, 7.0))


@each_maker
def test_a_transform_by_a_member_is_refused(lang64, made):
    sim = make_sim(lang64)
    run, x = MAKERS[made](sim, "given"), torch.rand(COUNT, dtype=D)

    def lose(w):
        sim.whole.table.w = w
        return run(x).sum()

    words = ["`whole.table.w`", "a field that is an input"]
    assert_refused(ts.GradientError, words, torch.func.grad(lose), torch.rand(COUNT, dtype=D))
