"""Field managers that copy by themselves: the gradient of a Tube is generated all the same, whatever they do."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import cases
import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

F64 = torch.float64
N = ts.MatchDim("n")


def straight(lang):
    """Make a manager that lays out a field in blocks of two, in order."""

    class Straight(ts.FieldManager):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            field = lang.field(lang.f64, needs_grad=needs_grad)
            blocks = fields_builder.dense(lang.i, self.length(concrete_tensor_shape[0])).dense(lang.i, 2)
            blocks.place(field, field.grad) if needs_grad else blocks.place(field)
            return field

        def length(self, count):
            return (count + 1) // 2

        def to_tensor(self, field):
            return field.to_torch()

        def from_tensor(self, field, tensor):
            field.from_torch(tensor)

        def grad_to_tensor(self, grad_field):
            return grad_field.to_torch()

        def grad_from_tensor(self, grad_field, tensor):
            grad_field.from_torch(tensor)

    return Straight


def flipped(lang):
    """Make a manager that puts the first element last."""

    class Flipped(straight(lang)):
        def to_tensor(self, field):
            return field.to_torch().flip(0)

        def from_tensor(self, field, tensor):
            field.from_torch(tensor.flip(0))

        grad_to_tensor, grad_from_tensor = to_tensor, from_tensor

    return Flipped(), lambda v: v.flip(0), lambda v: v.flip(0)


def shifted(lang):
    """Make a manager that leaves two elements free before the first."""

    class Shifted(straight(lang)):
        def length(self, count):
            return (count + 3) // 2

        def to_tensor(self, field):
            return field.to_torch()[2:]

        def from_tensor(self, field, tensor):
            for place, value in enumerate(tensor.tolist()):
                field[place + 2] = value

        grad_to_tensor, grad_from_tensor = to_tensor, from_tensor

    pad = torch.nn.functional.pad
    return Shifted(), lambda v: pad(v, (2, 0)), lambda v: v[2:]


def sorted_by_call(lang):
    """Make a manager that sorts values and notes their original positions, anew for each call."""

    class Sorted(straight(lang)):
        def from_tensor(self, field, tensor):
            self.order = tensor.argsort()
            field.from_torch(tensor[self.order])

        def grad_to_tensor(self, grad_field):
            return torch.empty(len(self.order), dtype=F64).index_put((self.order,), grad_field.to_torch())

    return Sorted(), lambda v: v.sort().values, lambda v: v


def squared(lang):
    """Make a manager that is no copy: the field holds squares, and gradient methods read the field."""

    class Squared(straight(lang)):
        def construct_field(self, *arguments):
            self.field = super().construct_field(*arguments)
            return self.field

        def from_tensor(self, field, tensor):
            field.from_torch(tensor**2)

        def grad_to_tensor(self, grad_field):
            return 2.0 * self.field.to_torch().sqrt() * grad_field.to_torch()

        def to_tensor(self, field):
            return field.to_torch() ** 3

        def grad_from_tensor(self, grad_field, tensor):
            grad_field.from_torch(3.0 * self.field.to_torch() ** 2 * tensor)

    return Squared(), lambda v: v**2, lambda v: v**3


MANAGERS = [flipped, shifted, sorted_by_call, squared]
SHAPED = [flipped, shifted, squared]


def tube_of(lang, manager, *, is_in=True, is_out=False, **options):
    """Make a moving average in place: `x` is overwritten, and `y` weighs it after each step."""

    @lang.kernel
    def averaged(x: lang.template(), w: lang.template(), y: lang.template()):
        for _ in range(1):
            for i in range(w.shape[0]):
                x[i + 1] = 0.7 * x[i + 1] * x[i] + w[i] * x[i + 1] + 0.1
                y[i] += w[i] * x[i + 1] ** 2

    tube = ts.Tube(**options).register_input_tensor((N,), F64, "x", field_manager=manager if is_in else None)
    tube = tube.register_input_tensor((4,), F64, "w")
    tube = tube.register_output_tensor((6,), F64, "y", True, field_manager=manager if is_out else None)
    return tube.register_kernel(averaged, ["x", "w", "y"]).finish()


def make_twin(enter, leave, shape):
    def twin(x, w):
        x = list(enter(x))
        y = [torch.zeros((), dtype=F64)] * shape
        for i, weight in enumerate(w):
            x[i + 1] = 0.7 * x[i + 1] * x[i] + weight * x[i + 1] + 0.1
            y[i] = weight * x[i + 1] ** 2
        return leave(torch.stack(y))

    return twin


def inputs():
    return tuple(0.2 + torch.rand(size, dtype=F64) for size in (6, 4))


@pytest.mark.parametrize("make", MANAGERS)
def test_an_input_that_is_overwritten(lang64, make):
    manager, enter, _ = make(lang64)
    tube = tube_of(lang64, manager, adjoint="source")
    cases.assert_same_values_and_gradients(tube, make_twin(enter, lambda v: v, 6), inputs())


@pytest.mark.parametrize("make", SHAPED)
def test_an_output(lang64, make):
    manager, _, leave = make(lang64)
    tube = tube_of(lang64, manager, is_in=False, is_out=True, adjoint="source")
    length = 8 if make is shifted else 6
    cases.assert_same_values_and_gradients(tube, make_twin(lambda v: v, leave, length), inputs())


@pytest.mark.parametrize("make", [flipped, shifted])
def test_one_manager_for_input_and_output(lang64, make):
    manager, enter, leave = make(lang64)
    tube = tube_of(lang64, manager, is_out=True, adjoint="source")
    length = 8 if make is shifted else 6
    cases.assert_same_values_and_gradients(tube, make_twin(enter, leave, length), inputs())


@pytest.mark.parametrize(
    ("make", "is_out"), [*((make, False) for make in MANAGERS), (flipped, True), (sorted_by_call, True)]
)
def test_two_calls_before_one_backward_pass(lang64, make, is_out):
    manager, enter, leave = make(lang64)
    tube = tube_of(lang64, manager, is_out=is_out, adjoint="source")
    twin = make_twin(enter, leave if is_out else lambda v: v, 6)

    def twice(function):
        def both(x, w, other):
            first = function(x, w)
            with torch.no_grad():
                function(other.flip(0), w)  # in between, without a gradient
            return first * function(other, w)

        return both

    cases.assert_same_values_and_gradients(twice(tube), twice(twin), (*inputs(), inputs()[0]))


@pytest.mark.costly
@pytest.mark.parametrize("is_managed", [True, False])
def test_a_backward_pass_may_outlive_the_layer(lang64, is_managed):
    """A Tube's fields are freed with it. A graph keeps them, and others are made in the meantime."""
    manager, enter, leave = flipped(lang64)
    x, w = cases.make_leaves(inputs())

    def made():
        if is_managed:
            return tube_of(lang64, manager, is_out=True, adjoint="source")(x, w)
        return tube_of(lang64, manager.construct_field, is_out=True, adjoint="source")(x, w)  # laid out, and no more

    results = [made() for _ in range(8)]
    gc.collect()
    twin = make_twin(enter, leave, 6) if is_managed else make_twin(lambda v: v, lambda v: v, 6)
    wanted = torch.autograd.grad(twin(x, w).sum(), (x, w))
    for one in results:
        cases.assert_close(torch.autograd.grad(one.sum(), (x, w)), wanted)


@pytest.mark.costly
def test_fields_are_given_up_quietly_where_another_thread_has_compiled(lang64):
    """The engines cannot free them then, and nobody can handle an error that a finalizer raises."""
    manager, enter, _ = flipped(lang64)
    tube, arguments = tube_of(lang64, manager, adjoint="source"), inputs()
    tube(*arguments)

    @lang64.kernel
    def increase(x: lang64.types.ndarray()):
        for i in x:
            x[i] += 1.0

    with ThreadPoolExecutor(1) as pool:
        pool.submit(increase, torch.ones(3, dtype=F64)).result()
    del tube
    gc.collect()  # pytest fails a test that leaves an exception unraised
    cases.assert_close(
        tube_of(lang64, manager, adjoint="source")(*arguments), make_twin(enter, lambda v: v, 6)(*arguments)
    )


@pytest.mark.parametrize("make", MANAGERS)
def test_without_a_gradient(lang64, make):
    manager, enter, _ = make(lang64)
    tube, twin = tube_of(lang64, manager), make_twin(enter, lambda v: v, 6)
    x, w = cases.make_leaves(inputs())
    with torch.no_grad():
        y = tube(x, w)
    assert not y.requires_grad
    cases.assert_close(y, twin(x, w).detach())
    with torch.inference_mode():
        cases.assert_close(tube(x, w), twin(x, w).detach())


@pytest.mark.parametrize("make", MANAGERS)
def test_transforms(lang64, make):
    manager, enter, _ = make(lang64)
    tube, twin = tube_of(lang64, manager, adjoint="source"), make_twin(enter, lambda v: v, 6)
    samples, w = torch.rand(3, 6, dtype=F64) + 0.2, inputs()[1]
    wanted = torch.stack([twin(x, w) for x in samples])
    cases.assert_close(torch.func.vmap(tube, (0, None))(samples, w), wanted)
    rows = [torch.func.grad(lambda x: twin(x, w).sin().sum())(x) for x in samples]
    one = torch.func.grad(lambda x: tube(x, w).sin().sum())
    cases.assert_close(one(samples[0]), rows[0])
    cases.assert_close(torch.func.vmap(one)(samples), torch.stack(rows))
    ours, theirs = (torch.func.jacrev(f)(samples[1], w) for f in (tube, twin))
    cases.assert_close(ours, theirs)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.func.jvp uses it
def test_other_derivatives_are_refused(lang64):
    tube = tube_of(lang64, flipped(lang64)[0])
    x, w = cases.make_leaves(inputs())
    (first,) = torch.autograd.grad(tube(x, w).sum(), x, create_graph=True)
    with pytest.raises(ts.GradientError, match="no second derivative: a field manager moves its gradients"):
        torch.autograd.grad(first.sum(), x)
    with pytest.raises(ts.GradientError, match="no forward mode: a field manager"):
        torch.func.jvp(lambda x: tube(x, w.detach()), (x.detach(),), (torch.ones_like(x),))


def test_a_batch(lang64):
    manager, enter, leave = flipped(lang64)

    @lang64.kernel
    def grown(x: lang64.template(), y: lang64.template()):
        for i in x:
            x[i] = x[i] ** 2
        for i in x:
            y[i] = x[i] * (i + 1)

    dims = (ts.BatchDim, N)
    tube = ts.Tube(adjoint="source").register_input_tensor(dims, F64, "x", field_manager=manager)
    tube = tube.register_output_tensor(dims, F64, "y", True, field_manager=manager)
    tube = tube.register_kernel(grown, ["x", "y"]).finish()

    def twin(x):
        return torch.stack([leave(enter(one) ** 2 * torch.arange(1, 5)) for one in x])

    cases.assert_same_values_and_gradients(tube, twin, (torch.rand(3, 4, dtype=F64),))


@pytest.mark.parametrize("make", MANAGERS)
def test_check_compares_with_differences_what_managers_change(lang64, make):
    """The kernels' oracle does not know what a manager does: it would call the gradient wrong."""
    report = ts.check(tube_of(lang64, make(lang64)[0]), *inputs())
    assert report.verdict == "right", report
    assert report.gradient.origin == "generated from the kernel's source"
    assert not {one.rule for one in report.findings} & {"TS701", "TS704"}, report
    assert "field managers of Tube(averaged) change values" in str(report)


def test_check_compares_with_the_oracle_what_managers_keep(lang64):
    report = ts.check(tube_of(lang64, straight(lang64)(), is_out=True), *inputs())
    assert report.verdict == "right", report
    assert "field managers" not in str(report)
    assert not {one.rule for one in report.findings} & {"TS701", "TS704"}, report


# The engine's own -----------------------------------------------------------------------------------
def test_a_sparse_field_keeps_the_engine_s_and_says_so_first(lang64):
    class Sparse(straight(lang64)):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            field = lang64.field(lang64.f64, needs_grad=needs_grad)
            node = fields_builder.pointer(lang64.i, concrete_tensor_shape[0] // 2).dense(lang64.i, 2)
            node.place(field, field.grad) if needs_grad else node.place(field)
            return field

        def from_tensor(self, field, tensor):
            for place, value in enumerate(tensor.tolist()):
                field[place] = value

    with pytest.raises(ts.GradientError, match=r"(?s)no gradient: none can be generated.*field `x` of .* is sparse"):
        tube_of(lang64, Sparse())(*cases.make_leaves(inputs()))
    with pytest.raises(ts.GradientError, match=r"(?s)no gradient can be generated.*field `x` of .* is sparse"):
        tube_of(lang64, Sparse(), adjoint="source")(*cases.make_leaves(inputs()))


@pytest.mark.compiled_engine
def test_managers_find_the_gradients_of_other_fields(lang64):
    """A manager that fills two fields from one tensor, and adds their gradients."""
    second = lang64.field(lang64.f64, shape=4, needs_grad=True)

    class Twofold(straight(lang64)):
        def from_tensor(self, field, tensor):
            field.from_torch(tensor)
            second.from_torch(tensor)
            second.grad.fill(0.0)

        def grad_to_tensor(self, grad_field):
            return grad_field.to_torch() + second.grad.to_torch()

    @lang64.kernel
    def product(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i] * second[i]

    def tube(adjoint):
        tube = ts.Tube(adjoint=adjoint).register_input_tensor((N,), F64, "x", field_manager=Twofold())
        return tube.register_output_tensor((N,), F64, "y", True).register_kernel(product, ["x", "y"]).finish()

    x = torch.rand(4, dtype=F64)
    cases.assert_same_values_and_gradients(tube("auto"), lambda x: x**2, (x,))
    with pytest.raises(ts.GradientError, match=r"(?s)`second` has a gradient and is not registered in .*, whose man"):
        tube("source")(x.requires_grad_())
