"""Layers and rollouts of kernels that take Python dataclasses of `qd.Tensor`s, with fields or ndarrays behind them."""

import dataclasses

import numpy as np
import pytest
import torch

import tinsmith as ts

qd = pytest.importorskip("quadrants")
D = torch.float64
each_backend = pytest.mark.parametrize("backend", [qd.Backend.FIELD, qd.Backend.NDARRAY], ids=lambda one: one.name)


@pytest.fixture(autouse=True)
def _engine():
    ts.init("cpu", engine="quadrants", default_fp=qd.f64)


@dataclasses.dataclass(frozen=True)
class State:
    q: qd.Tensor
    out: qd.Tensor


def make_state(backend, **options):
    return State(*(qd.tensor(qd.f64, (3,), backend=backend, **options) for _ in range(2)))


class FromAnnotations(type):
    """Makes `__init__`, `__eq__` and `__hash__` of a class, which is then immutable, as Genesis' static configs are."""

    def __new__(cls, name, bases, namespace):
        names = tuple(namespace["__annotations__"])

        def __init__(self, **values):  # noqa: N807
            for one in names:
                object.__setattr__(self, one, values[one])

        def __setattr__(self, name, value):  # noqa: N807
            raise AttributeError("immutable")

        namespace |= {"__init__": __init__, "__setattr__": __setattr__}
        namespace["__eq__"] = lambda self, other: type(other) is type(self) and vars(other) == vars(self)
        namespace["__hash__"] = lambda self: hash(tuple(vars(self).values()))
        return super().__new__(cls, name, bases, namespace)


@qd.data_oriented
class Config(metaclass=FromAnnotations):
    power: int
    is_on: bool

    @property
    def twice(self):
        return 2 * self.power


@dataclasses.dataclass
class Numbers:
    gain: qd.f64
    count: qd.i32


@qd.func
def raised(x, config: qd.template()):
    return x**config.power


@qd.func
def store(state: State, i, v: qd.template()):
    state.out[i] = v[i] * v[i]


@qd.func
def both(i, a: State, b: State):
    a.out[i] = a.q[i] * b.q[i]


@qd.kernel
def powers(state: State, config: qd.template()):
    for i in range(state.q.shape[0]):
        if qd.static(config.is_on):
            state.out[i] += raised(state.q[i], config) * config.twice


@qd.kernel
def as_template(state: qd.template(), config: qd.template()):
    for i in range(state.q.shape[0]):
        state.out[i] += raised(state.q[i], config)


@qd.kernel
def beside_a_tensor(state: State, v: qd.Tensor):
    for i in state.q:
        store(state, i, v)


@qd.kernel
def grouped(state: State):
    for at in qd.grouped(state.q):
        state.out[at] = state.q[at] ** 2


@qd.kernel
def with_numbers(state: State, numbers: Numbers):
    for i in range(3):
        state.out[i] = state.q[i] * numbers.gain * numbers.count


@qd.kernel
def two_of_one_type(a: State, b: State):
    for i in range(3):
        both(i, a, b)
        both(i, b, a)


@qd.kernel
def summed(state: State, out: qd.Tensor):
    for i in range(3):
        state.out[i] += state.q[i]
        out[i] = state.out[i] ** 2


@qd.data_oriented
class Solver:
    def __init__(self, state):
        self.state = state
        self.gain = 2.0

    @qd.func
    def put(self, i, state: State):
        state.out[i] = self.gain * state.q[i]

    @qd.kernel
    def captured(self):
        for i in range(3):
            self.put(i, self.state)

    @qd.kernel
    def given(self, state: State):
        for i in range(3):
            self.put(i, state)


def filled(state):
    other = make_state(qd.Backend.FIELD)
    other.q.fill(3.0)
    return state, other


SQUARES = Config(power=2, is_on=True)
KERNELS = {
    "powers": (lambda state: (powers, state, SQUARES), lambda q: 4 * q**2),
    "as template": (lambda state: (as_template, state, SQUARES), lambda q: q**2),
    "beside a tensor": (lambda state: (beside_a_tensor, state, state.q), lambda q: q**2),
    "grouped": (lambda state: (grouped, state), lambda q: q**2),
    "with numbers": (lambda state: (with_numbers, state, Numbers(1.5, 2)), lambda q: 3 * q),
    "two of one type": (lambda state: (two_of_one_type, *filled(state)), lambda q: 3 * q),
    "captured": (lambda state: (Solver(state).captured,), lambda q: 2 * q),
    "method": (lambda state: (Solver(state).given, state), lambda q: 2 * q),
}


@each_backend
@pytest.mark.parametrize("name", KERNELS)
def test_layer(backend, name):
    make, reference = KERNELS[name]
    state = make_state(backend)
    kernel, *arguments = make(state)
    layer = ts.EmptyTin(adjoint="source").register_input_field(state.q).register_output_field(state.out, clear=True)
    layer.register_kernel(kernel, *arguments).finish()
    for seed in range(2):
        torch.manual_seed(seed)
        q = torch.rand(3, dtype=D, requires_grad=True)
        result = layer(q)
        torch.testing.assert_close(result, reference(q))
        gradients = [torch.autograd.grad(one.sum(), q)[0] for one in (result, reference(q))]
        torch.testing.assert_close(*gradients)
    np.testing.assert_allclose(state.out.to_numpy(), result.detach().numpy())


@each_backend
@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("name", [name for name in KERNELS if name != "two of one type"])
def test_layer_on_tensors(backend, name, is_batched):
    make, reference = KERNELS[name]
    state = make_state(backend)
    kernel, *arguments = make(state)
    layer = ts.EmptyTin(on_tensors=True).register_input_field(state.q, batched=is_batched)
    layer.register_output_field(state.out, clear=True).register_kernel(kernel, *arguments).finish()
    q = torch.rand(*[4] * is_batched, 3, dtype=D, requires_grad=True)
    torch.testing.assert_close(layer(q), reference(q))
    torch.testing.assert_close(torch.compile(layer, backend="aot_eager")(q), reference(q))
    gradients = [torch.autograd.grad(one.square().sum(), q, create_graph=True)[0] for one in (layer(q), reference(q))]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), q)[0] for one in gradients))


@each_backend
def test_layer_on_tensors_gets_numbers_as_they_are(backend):
    state, numbers = make_state(backend), Numbers(1.5, 2)
    layer = ts.EmptyTin(on_tensors=True).register_input_field(state.q).register_output_field(state.out)
    layer.register_kernel(with_numbers, state, numbers).finish()
    q = torch.rand(3, dtype=D)
    torch.testing.assert_close(layer(q), 3 * q)
    numbers.gain = 2.5
    torch.testing.assert_close(layer(q), 5 * q)


def test_layer_on_tensors_refuses_the_content_of_an_ndarray():
    state, other = (make_state(qd.Backend.NDARRAY) for _ in range(2))
    layer = ts.EmptyTin(on_tensors=True).register_input_field(state.q, "q").register_output_field(state.out)
    layer.register_kernel(two_of_one_type, state, other)
    with pytest.raises(
        ts.KernelError, match=r"runs on tensors, .* earlier content of the ndarray `b.out`(.|\n)*as an input"
    ):
        layer.finish()


@each_backend
def test_check_does_not_change_state(backend):
    state = make_state(backend, needs_grad=True)
    out = qd.tensor(qd.f64, (3,), backend=backend, needs_grad=True)
    layer = ts.EmptyTin().register_input_field(state.q).register_internal_field(state.out, clear=False)
    layer.register_output_field(out).register_kernel(summed, state, out).finish()
    state.out.fill(2.0)
    report = ts.check(layer, torch.rand(3, dtype=D, requires_grad=True))
    assert report.ok, str(report)
    np.testing.assert_array_equal(state.out.to_numpy(), np.full(3, 2.0))


@dataclasses.dataclass(frozen=True)
class Table:
    weight: qd.Tensor
    row: qd.Tensor


@dataclasses.dataclass(frozen=True)
class Whole:
    q: qd.Tensor
    v: qd.Tensor
    table: Table
    times: qd.Template
    total: qd.Tensor
    unused: qd.Tensor


@qd.func
def add(i, j, whole: Whole):
    whole.total[None] += whole.v[i].norm_sqr() * whole.table.weight[whole.table.row[i], j] * whole.q[i, j]


@qd.kernel
def energy(whole: Whole):
    for i, j in qd.ndrange(whole.q.shape[0], whole.q.shape[1]):
        for _ in qd.static(range(whole.times)):
            add(i, j, whole)


@each_backend
@pytest.mark.parametrize("layout", [None, (1, 0)])
def test_rollout_of_a_nested_struct(backend, layout):
    def tensor(shape, dtype=qd.f64):
        own = layout if len(shape) == 2 else None
        return qd.tensor(dtype, shape, backend=backend, layout=own)

    table = Table(tensor((4, 3)), tensor((4,), qd.i32))
    table.row.from_numpy(np.array([3, 2, 1, 0], np.int32))
    whole = Whole(
        tensor((4, 3)), qd.Vector.tensor(3, qd.f64, (4,), backend=backend), table, 2, tensor(()), tensor((9,))
    )
    run = ts.rollout(
        lambda: energy(whole), {"q": whole.q, "v": whole.v, "w": whole.table.weight}, {"total": whole.total}
    )
    torch.manual_seed(0)
    q, v, w = given = [torch.rand(4, 3, dtype=D, requires_grad=True) for _ in range(3)]
    expected = 2 * ((v**2).sum(1)[:, None] * w[[3, 2, 1, 0]] * q).sum()
    for _ in range(2):
        result = run(*given)
        torch.testing.assert_close(result, expected)
    pairs = zip(*(torch.autograd.grad(one, given, retain_graph=True) for one in (result, expected)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other)


@each_backend
def test_rollout_with_writes_from_python(backend):
    state = make_state(backend)

    def forward():
        state.out.fill(0.0)
        for _ in range(3):
            powers(state, SQUARES)
            state.q.copy_from(state.out)
        state.q[0] = 5.0
        state.out.from_numpy(np.ones(3))
        state.out[1] = 2.0
        powers(state, SQUARES)

    q = torch.tensor([0.3, 0.4, 0.5], dtype=D, requires_grad=True)
    result = ts.rollout(forward, {"q": state.q}, {"out": state.out})(q)
    now, out = q, torch.zeros(3, dtype=D)
    for _ in range(3):
        now = out = out + 4 * now**2
    now = torch.cat([torch.tensor([5.0], dtype=D), now[1:]])
    expected = torch.tensor([1.0, 2.0, 1.0], dtype=D) + 4 * now**2
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), q)[0] for one in (result, expected)))


@each_backend
@pytest.mark.parametrize("read", ["to_numpy", "to_torch", "element"])
def test_rollout_refuses_reads_from_python(backend, read):
    state = make_state(backend)

    def forward():
        powers(state, SQUARES)
        state.out[0] if read == "element" else getattr(state.out, read)()

    with pytest.raises(ts.KernelError, match="reads a field from Python"):
        ts.rollout(forward, {"q": state.q}, {"out": state.out})(torch.ones(3, dtype=D))


@qd.kernel
def of_tensors(q: qd.Tensor, out: qd.Tensor):
    for i in range(3):
        out[i] = q[i] ** 2


def in_plain_python(x):
    return 2.0 * x


@qd.kernel
def not_covered(state: State):
    for i in range(3):
        state.out[i] = in_plain_python(state.q[i])


@pytest.mark.parametrize("kernel", [grouped, of_tensors])
def test_engines_own_gradient_is_refused(kernel):
    state = make_state(qd.Backend.NDARRAY, needs_grad=True)
    layer = ts.EmptyTin(adjoint="engine").register_input_field(state.q).register_output_field(state.out)
    arguments, noun = (
        ((state,), "struct `state`") if kernel is grouped else ((state.q, state.out), "ndarray `input_fie")
    )
    layer.register_kernel(kernel, *arguments).finish()
    with pytest.raises(ts.GradientError, match=f"the {noun}.*\n.*adjoint='engine'"):
        layer(torch.ones(3, dtype=D, requires_grad=True))


@each_backend
def test_construct_that_has_no_generated_gradient(backend):
    state = make_state(backend)
    layer = ts.EmptyTin().register_input_field(state.q).register_output_field(state.out)
    layer.register_kernel(not_covered, state).finish()
    with pytest.raises(ts.GradientError, match="a layer with the struct `state` needs the generated gradient"):
        layer(torch.ones(3, dtype=D, requires_grad=True))


def test_ndarray_of_an_engine_that_was_restarted():
    state = make_state(qd.Backend.NDARRAY)
    ts.init("cpu", engine="quadrants", default_fp=qd.f64)
    with pytest.raises(ts.KernelError, match="`x`.*started again"):
        ts.rollout(lambda: grouped(state), {"x": state.q}, {"out": state.out})


@pytest.mark.parametrize(
    ("member", "words"),
    [(None, "an object of type `NoneType`"), ([1.0], "an object of type `list`"), (2.0, "the number 2.0")],
    ids=["none", "list", "number"],
)
def test_member_that_is_no_tensor_is_named(member, words):
    state = make_state(qd.Backend.NDARRAY)
    layer = ts.EmptyTin().register_input_field(state.q).register_output_field(state.out)
    layer.register_kernel(two_of_one_type, state, State(member, state.q))
    with pytest.raises(ts.TinsmithError, match=rf"`b\.q`, {words}"):
        layer.finish()(torch.ones(3, dtype=D, requires_grad=True))
