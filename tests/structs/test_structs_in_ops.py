"""Ops of kernels that take Python dataclasses, as kernels of Quadrants do: members are arguments of their own."""

import dataclasses
import enum
from typing import ClassVar

import pytest
import torch

import tinsmith as ts

qd = pytest.importorskip("quadrants")
vec3 = qd.types.vector(3, qd.f64)
D = torch.float64


@dataclasses.dataclass(frozen=True)
class Table:
    weight: qd.Tensor
    row: qd.Tensor


@dataclasses.dataclass(frozen=True)
class State:
    q: qd.Tensor
    v: qd.types.ndarray(dtype=vec3, ndim=1)
    table: Table
    times: qd.Template
    gain: qd.f64
    total: qd.Tensor
    unused: qd.Tensor


@qd.func
def weight(i, j, table: Table):
    return table.weight[table.row[i], j]


@qd.func
def nothing(state: State):
    return 0.0


@qd.func
def add(i, j, state: State, is_on: qd.template()):
    if qd.static(is_on):
        state.total[None] += state.v[i].norm_sqr() * weight(i, j, state.table) * state.q[i, j] * state.gain
        state.total[None] += nothing(state)


@qd.kernel
def energy(state: State, is_on: qd.template()):
    for i, j in qd.ndrange(state.q.shape[0], state.q.shape[1]):
        for _ in qd.static(range(state.times)):
            add(i, j, state, is_on)


SPEC = "state.q[n, m], state.v[n, 3], state.table.weight[n, m], state.table.row[n], state.gain[] -> state.total[]"


def reference(q, v, weights, gain):
    return 2 * gain * ((v**2).sum(-1)[:, None] * weights[[3, 2, 1, 0]] * q).sum()


@pytest.fixture(autouse=True)
def _engine():
    ts.init("cpu", engine="quadrants", default_fp=qd.f64)


@pytest.fixture
def op():
    return ts.op(SPEC)(energy)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    shapes = [(4, 3), (4, 3), (4, 3), ()]
    return [torch.rand(shape, dtype=D, requires_grad=True) for shape in shapes]


ROW = torch.tensor([3, 2, 1, 0], dtype=torch.int32)


def given(q, v, weights, gain):
    return State(q, v, Table(weights, ROW), 2, gain, None, None)


CALLS = {
    "struct": lambda op, q, v, w, gain: op(given(q, v, w, gain), True),
    "dict": lambda op, q, v, w, gain: op(
        {"q": q, "v": v, "table": {"weight": w, "row": ROW}, "times": 2, "gain": gain}, True
    ),
    "tensors in order": lambda op, q, v, w, gain: op(q, v, w, ROW, 2, gain, True),
    "tensors by name": lambda op, q, v, w, gain: op(
        **{
            "state.q": q,
            "state.v": v,
            "state.table.weight": w,
            "state_table_row": ROW,
            "state.times": 2,
            "state.gain": gain,
            "is_on": True,
        }
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_value_and_gradient(op, tensors, call):
    result, expected = CALLS[call](op, *tensors), reference(*tensors)
    torch.testing.assert_close(result, expected)
    gradients = torch.autograd.grad(result, tensors)
    for one, other in zip(gradients, torch.autograd.grad(expected, tensors), strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivative(op, tensors):
    assert torch.autograd.gradgradcheck(lambda *all_: op(given(*all_), True), tensors)


def test_number_of_a_struct_that_no_tensor_is_given_for():
    @dataclasses.dataclass
    class Line:
        slope: qd.f64
        bias: qd.f64

    @qd.kernel
    def apply(line: Line, x: qd.Tensor, y: qd.Tensor):
        for i in range(x.shape[0]):
            y[i] = line.slope * x[i] + line.bias

    x = torch.rand(5, dtype=D, requires_grad=True)
    op = ts.op("x[n] -> y[n]")(apply)
    for slope, bias in (2.0, 1.0), (-3.0, 0.5):
        torch.testing.assert_close(op(Line(slope, bias), x), slope * x + bias)
        torch.testing.assert_close(
            torch.autograd.grad(op(Line(slope, bias), x).sum(), x)[0], torch.full((5,), slope, dtype=D)
        )


def test_vmap_over_a_dict(op, tensors):
    q, v, w, gain = [t.detach() for t in tensors]
    many = torch.rand(5, 4, 3, dtype=D)
    struct = {"q": many, "v": v, "table": {"weight": w, "row": ROW}, "times": 2, "gain": gain}
    dims = {"q": 0, "v": None, "table": {"weight": None, "row": None}, "times": None, "gain": None}
    result = torch.vmap(lambda one: op(one, True), in_dims=(dims,))(struct)
    torch.testing.assert_close(result, torch.stack([reference(one, v, w, gain) for one in many]))


@dataclasses.dataclass(frozen=True)
class Pair:
    x: qd.Tensor
    y: qd.Tensor


@qd.kernel
def square(pair: Pair):
    for i in range(pair.x.shape[0]):
        pair.y[i] = pair.x[i] ** 2


def test_struct_in_graphs():
    """A compiled function takes the struct; an exported one takes it as torch's pytree."""
    op = ts.op("pair.x[n] -> pair.y[n]")(square)
    x = torch.rand(5, dtype=D, requires_grad=True)
    result = torch.compile(lambda pair: op(pair) * 2.0, fullgraph=True, backend="aot_eager")(Pair(x, None))
    torch.testing.assert_close(result, 2 * x**2)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], 4 * x)

    class Model(torch.nn.Module):
        def forward(self, pair):
            return op(pair) + 1.0

    torch.export.register_dataclass(Pair)
    program = torch.export.export(Model(), (Pair(x.detach(), None),))
    torch.testing.assert_close(program.module()(Pair(2 * x.detach(), None)), 4 * x.detach() ** 2 + 1.0)


def test_member_is_listed_and_not_used():
    @dataclasses.dataclass
    class Three:
        x: qd.Tensor
        spare: qd.Tensor
        y: qd.Tensor

    @qd.kernel
    def double(three: Three):
        for i in range(three.x.shape[0]):
            three.y[i] = 2.0 * three.x[i]

    x, spare = torch.rand(3, dtype=D, requires_grad=True), torch.rand(3, dtype=D, requires_grad=True)
    result = ts.op("three.x[n], three.spare[n] -> three.y[n]")(double)(x, spare)
    gradients = torch.autograd.grad(result.sum(), (x, spare), allow_unused=True)
    assert torch.equal(gradients[0], torch.full_like(x, 2.0))
    assert gradients[1] is None or not gradients[1].any()


def assert_refused(error, make, *words):
    with pytest.raises(error) as caught:
        make()
    for one in words:
        assert one in str(caught.value)


def test_messages_name_members_by_their_paths(op, tensors):
    q, v, w, gain = tensors
    tensor = qd.tensor(qd.f64, (4, 3), backend=qd.Backend.NDARRAY)
    assert_refused(ts.ShapeError, lambda: op(given(q, v, w[:2], gain), True), "`state.table.weight`")
    assert_refused(ts.DtypeError, lambda: op(given(q, v, w, gain.long()), True), "`state.gain`")
    assert_refused(ts.ArgumentError, lambda: op(given(q, v, None, gain), True), "`state.table.weight`", "None")
    assert_refused(ts.ArgumentError, lambda: op(given(tensor, v, w, gain), True), "`state.q`")
    assert_refused(ts.SpecError, lambda: ts.op("state.p[n] -> state.total[]")(energy), "`state.p`", "state.q")
    twice = "state.q[n, m], state.q[n, m] -> state.total[]"
    assert_refused(ts.SpecError, lambda: ts.op(twice)(energy), "`state.q` is listed twice")
    assert_refused(ts.ArgumentError, lambda: op({**vars(given(q, v, w, gain)), "table": None}, True), "`state.table`")
    assert_refused(ts.SpecError, lambda: ts.op("state.q[n, m] -> state.total[]")(energy), "`state.v`")


@pytest.mark.parametrize("is_compiled", [False, True])
def test_messages_of_graphs_name_members_by_their_paths(op, tensors, is_compiled):
    q, v, w, gain = tensors
    call = torch.compile(op, fullgraph=True, backend="aot_eager") if is_compiled else op
    message = r"`state\.gain` does not fit(.|\n)*state\.gain  \[\] = \(2,\)"
    with pytest.raises(Exception, match=message):
        call(given(q, v, w, torch.ones(2, dtype=D)), True)


def test_explain_names_members_by_their_paths(op):
    text = str(op.explain())
    assert "reads state.q" in text
    assert "state_" not in text


def test_changed_and_whole_structs_are_refused():
    @dataclasses.dataclass
    class Counted:
        kind: ClassVar[int] = 3
        x: qd.Tensor
        count: qd.i32
        y: qd.Tensor

    @qd.kernel
    def count(state: Counted):
        for i in range(3):
            state.count = 2
            state.y[i] = state.x[i]

    @qd.func
    def through_an_alias(state: Counted, i):
        other = state
        other.y[i] = 2.0

    @qd.kernel
    def alias(state: Counted):
        for i in range(3):
            through_an_alias(state, i)

    @qd.kernel
    def change_class_variable(state: Counted):
        for i in range(3):
            state.kind = 2
            state.y[i] = state.x[i]

    spec = "state.x[n] -> state.y[n]"
    assert_refused(
        ts.KernelError, lambda: ts.op(spec)(change_class_variable), "`state.kind`, which belongs to the caller"
    )
    assert_refused(ts.KernelError, lambda: ts.op(spec)(count), "`count`", "the kernel assigns to `state.count`")
    line = through_an_alias.fn.__code__.co_firstlineno + 2
    words = "`state` is a struct that is used as a whole", f"{__file__}:{line}\n"
    assert_refused(ts.KernelError, lambda: ts.op(spec)(alias), "`alias`", *words)


def test_attributes_of_structs_that_are_not_members_are_refused():
    @dataclasses.dataclass
    class Counted:
        kind: ClassVar[int] = 3
        x: qd.Tensor
        count: qd.i32
        y: qd.Tensor

        @property
        def doubled(self):
            return 2 * self.kind

        def triple(self):
            return 3 * self.kind

    @qd.kernel
    def read_property(state: Counted):
        for i in range(3):
            state.y[i] = state.x[i] * state.doubled

    @qd.kernel
    def call_method(state: Counted):
        for i in range(3):
            state.y[i] = state.x[i] * state.triple()

    @qd.kernel
    def misspell(state: Counted):
        for i in range(3):
            state.y[i] = state.x[i] * state.counts

    spec = "state.x[n] -> state.y[n]"
    function = "Write it as a function of the engine"
    assert_refused(ts.KernelError, lambda: ts.op(spec)(read_property), "`state.doubled` is a property", function)
    assert_refused(ts.KernelError, lambda: ts.op(spec)(call_method), "`state.triple` is a method", function)
    members = "Use one of the members: `x`, `count`, `y`."
    assert_refused(ts.KernelError, lambda: ts.op(spec)(misspell), "`state.counts` is not a member", members)


@pytest.mark.parametrize("is_compiled", [False, True])
def test_class_variables_are_constants(is_compiled):
    class Kind(enum.IntEnum):
        LINEAR, SQUARE = 1, 2

    @dataclasses.dataclass
    class Inner:
        x: qd.Tensor
        weights: ClassVar = qd.Vector([1.0, 3.0])
        kind: ClassVar[Kind] = Kind.SQUARE

    @dataclasses.dataclass
    class Outer:
        inner: Inner
        gain: ClassVar[float] = 2.0
        y: qd.Tensor

    @qd.func
    def weigh(inner: Inner, i):
        return inner.weights[1] * inner.x[i] ** inner.kind

    @qd.kernel
    def run(outer: Outer):
        for i in range(outer.inner.x.shape[0]):
            if qd.static(outer.inner.kind == Kind.SQUARE):
                outer.y[i] += weigh(outer.inner, i)
            outer.y[i] += outer.gain * outer.inner.x[i]

    op = ts.op("outer.inner.x[n] -> outer.y[n]")(run)
    x = torch.rand(3, dtype=D, requires_grad=True)
    # As any constant that a kernel captures, they have the value of now.
    for Outer.gain in 2.0, 5.0:
        call = torch.compile(op, fullgraph=True, backend="aot_eager") if is_compiled else op
        result = call(Outer(Inner(x), None))
        torch.testing.assert_close(result, 3 * x**2 + Outer.gain * x)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], 6 * x + Outer.gain)


def test_member_of_a_kind_that_cannot_be_passed():
    @dataclasses.dataclass
    class Links:
        flags: dict

    @dataclasses.dataclass
    class Odd:
        links: Links
        y: qd.Tensor

    def make():
        @qd.kernel
        def run(state: Odd):
            for i in range(3):
                state.y[i] = 1.0

        return ts.op("-> state.y[3]")(run)

    assert_refused(ts.KernelError, make, "`state.links.flags`")


def test_dict_of_all_members():
    @dataclasses.dataclass
    class Pair:
        x: qd.Tensor
        unused: qd.Tensor
        y: qd.Tensor

    @qd.kernel
    def double(pair: Pair):
        for i in range(3):
            pair.y[i] = 2 * pair.x[i]

    op = ts.op("pair.x[3] -> pair.y[3]")(double)
    x = torch.rand(3, dtype=torch.float64)
    torch.testing.assert_close(op({"x": x, "unused": None, "y": None}), 2 * x)
    assert_refused(ts.ArgumentError, lambda: op({"x": x, "z": None}), "`pair`", "`z`")


def test_a_warning_of_orders_names_members_as_the_spec_does():
    @qd.kernel
    def total(state: State, y: qd.types.ndarray()):
        for i in y:
            y[i] = state.table.weight[i] + 2.0 * state.q[i]

    with pytest.warns(UserWarning, match="lists its inputs in another order") as warned:
        ts.op("state.table.weight[n], state.q[n] -> y[n]")(total)
    words = str(warned[0].message)
    assert "state.table.weight, state.q\n" in words
    assert "state.q, state.table.weight" in words
    assert "state_q" not in words and "state_table" not in words
