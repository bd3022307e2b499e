"""A value that a kernel reads besides its arguments, changed between a forward pass and a derivative, in every mode.

The derivative is that of what was computed, or it is refused by an error that names the value, what it was and is, and
a remedy. It never is that of the new value.
"""

import warnings

import numpy as np
import pytest
import torch

import tinsmith as ts

OLD, NEW = 3, 4
FACTOR = float(OLD)
TIMES = OLD
TABLE = {"factor": float(OLD)}
ARRAY = np.array([0.0, OLD])


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


# What changes: each gives an op of y = value x^2, and how the value is set. ---------------------------------------
def op_of(lang, kernel):
    return ts.op("x[n] -> y[n]")(kernel)


def global_float(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = FACTOR * x[i] * x[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    return op_of(lang, kernel), change, "Python value `FACTOR`", "3.0", "4.0"


def global_size(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for _ in lang.static(range(TIMES)):
                y[i] += x[i] * x[i]

    def change(value):
        global TIMES
        TIMES = value

    return op_of(lang, kernel), change, "Python value `TIMES`", "3", "4"


def item_of_a_dict(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.static(TABLE["factor"]) * x[i] * x[i]

    return op_of(lang, kernel), lambda value: TABLE.update(factor=float(value)), "`TABLE['factor']`", "3.0", "4.0"


def captured_array(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.static(float(ARRAY[1])) * x[i] * x[i]

    return op_of(lang, kernel), lambda value: ARRAY.__setitem__(1, value), "Python value `ARRAY[1]`", "3.0", "4.0"


def captured_tensor(lang):
    factor = torch.tensor(float(OLD))

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.static(float(factor)) * x[i] * x[i]

    return op_of(lang, kernel), factor.fill_, "Python value `factor`", "", "4"


def closure(lang):
    factor = float(OLD)

    @lang.func
    def scaled(x):
        return factor * x

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = scaled(x[i]) * x[i]

    def change(value):
        nonlocal factor
        factor = float(value)

    return op_of(lang, kernel), change, "`factor`", "3.0", "4.0"


def attribute(lang):
    @lang.data_oriented
    class Owner:
        def __init__(self):
            self.c = float(OLD)

        @lang.kernel
        def kernel(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.c * x[i] * x[i]

    one = Owner()
    return op_of(lang, one.kernel), lambda value: setattr(one, "c", float(value)), "`self.c`", "3.0", "4.0"


def nested_attribute(lang):
    class Options:
        c = float(OLD)

    @lang.data_oriented
    class Owner:
        def __init__(self):
            self.options = Options()

        @lang.func
        def scaled(self, x):
            return self.options.c * x

        @lang.kernel
        def kernel(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.scaled(x[i]) * x[i]

    one = Owner()
    change = lambda value: setattr(one.options, "c", float(value))  # noqa: E731
    return op_of(lang, one.kernel), change, "`self.options.c`", "3.0", "4.0"


def chosen_function(lang):
    @lang.func
    def three(x):
        return 3.0 * x

    @lang.func
    def four(x):
        return 4.0 * x

    @lang.data_oriented
    class Owner:
        def __init__(self):
            self.scaled = three

        @lang.kernel
        def kernel(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.scaled(x[i]) * x[i]

    one = Owner()
    change = lambda value: setattr(one, "scaled", three if value == OLD else four)  # noqa: E731
    return op_of(lang, one.kernel), change, "`self.scaled`", "`three`", "`four`"


def negative_integer(lang):
    """Build an op that reads -1, whose hash in Python is that of -2."""
    value = -1

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = (2 - value) * x[i] * x[i]

    def change(new):
        nonlocal value
        value = 2 - new

    return op_of(lang, kernel), change, "`value`", "-1", "-2"


def matrix(lang):
    factors = lang.Matrix([[1.0, 2.0], [float(OLD), 0.0]])

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factors[1, 0] * x[i] * x[i]

    def change(value):
        factors[1, 0] = float(value)

    return op_of(lang, kernel), change, "Python value `factors`", "3", "4"


def field(lang):
    factor = lang.field(lang.f64, shape=())

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factor[None] * x[i] * x[i]

    return op_of(lang, kernel), factor.fill, "field `factor`", "3.0 at [None]", "4.0 at [None]"


def integer_field(lang):
    times = lang.field(lang.i32, shape=3)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for _ in range(times[1]):
                y[i] += x[i] * x[i]

    def change(value):
        times[1] = value

    return op_of(lang, kernel), change, "field `times`", "3 at [1]", "4 at [1]"


def matrix_field(lang):
    factors = lang.Matrix.field(2, 3, lang.f64, shape=(2, 2))

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factors[1, 0][0, 2] * x[i] * x[i]

    def change(value):
        factors[1, 0][0, 2] = float(value)

    return op_of(lang, kernel), change, "field `factors`", "3.0 at [1, 0][0, 2]", "4.0 at [1, 0][0, 2]"


def struct_field(lang):
    particle = lang.types.struct(mass=lang.f64, charge=lang.f64)
    particles = particle.field(shape=2)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = particles[1].charge * x[i] * x[i]

    def change(value):
        particles[1].charge = float(value)

    return op_of(lang, kernel), change, "field `particles.charge`", "3.0 at [1]", "4.0 at [1]"


def chained(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            z[i] = x[i] * x[i]

    @lang.kernel
    def second(z: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in z:
            y[i] = FACTOR * z[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    return ts.chain("x[n] -> y[n]", [first, second], scratch="z[n]"), change, "`FACTOR`", "3.0", "4.0"


WHAT = [
    global_float,
    global_size,
    item_of_a_dict,
    captured_array,
    captured_tensor,
    closure,
    attribute,
    nested_attribute,
    chosen_function,
    negative_integer,
    matrix,
    field,
    integer_field,
    matrix_field,
    struct_field,
    chained,
]


# Modes: each takes a function of x, calls `change` in between, and gives a derivative of its sum. -----------------
def compute_gradient(f, x, **how):
    return torch.autograd.grad(f(x).sum(), x, **how)[0]


def plain(f, x, change):
    y = f(x)
    change()
    return torch.autograd.grad(y.sum(), x)[0]


def kept_graph(f, x, change):
    y = f(x)
    torch.autograd.grad(y.sum(), x, retain_graph=True)
    change()
    return torch.autograd.grad(y.sum(), x)[0]


def create_graph(f, x, change):
    y = f(x)
    change()
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def batched(f, x, change):
    y = f(x)
    change()
    eye = torch.eye(len(x), dtype=x.dtype)
    return torch.autograd.grad(y, x, eye, is_grads_batched=True)[0].sum(0)


def hooks(f, x, change):
    with torch.autograd.graph.save_on_cpu():
        y = f(x)
    change()
    return torch.autograd.grad(y.sum(), x)[0]


def checkpoint(f, x, change):
    y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    change()
    return torch.autograd.grad(y.sum(), x)[0]


def checkpoint_with_graph(f, x, change):
    y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=False)
    change()
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def vjp(f, x, change):
    y, pull = torch.func.vjp(f, x)
    change()
    return pull(torch.ones_like(y))[0]


def mapped_vjp(f, x, change):
    y, pull = torch.func.vjp(f, x)
    change()
    return torch.func.vmap(pull)(torch.eye(len(y), dtype=y.dtype))[0].sum(0)


def vjp_of_mapped(f, x, change):
    y, pull = torch.func.vjp(torch.func.vmap(f), torch.stack([x, x]))
    change()
    return pull(torch.ones_like(y))[0][1]


def linearize(f, x, change):
    _, push = torch.func.linearize(f, x.detach())
    change()
    return push(torch.ones_like(x))


def linearize_again(f, x, change):
    _, push = torch.func.linearize(f, x.detach())
    push(torch.ones_like(x))
    change()
    return push(torch.ones_like(x))


def dual(f, x, change):
    """Forward over reverse: the tangent of a gradient of an earlier call."""
    with torch.autograd.forward_ad.dual_level():
        y = f(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        change()
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.forward_ad.unpack_dual(g).tangent * x.detach()


FIRST = [
    plain,
    kept_graph,
    create_graph,
    batched,
    hooks,
    checkpoint,
    checkpoint_with_graph,
    vjp,
    mapped_vjp,
    vjp_of_mapped,
    linearize,
    linearize_again,
    dual,
]


def second(f, x, change):
    g = compute_gradient(f, x, create_graph=True)
    change()
    return torch.autograd.grad(g.sum(), x)[0]


def second_with_graph(f, x, change):
    g = compute_gradient(f, x, create_graph=True)
    change()
    return torch.autograd.grad(g.sum(), x, create_graph=True)[0]


def over_func_grad(f, x, change):
    g = torch.func.grad(lambda x: f(x).sum())(x)
    change()
    return torch.autograd.grad(g.sum(), x)[0]


def over_jacrev(f, x, change):
    g = torch.func.jacrev(f)(x)
    change()
    return torch.autograd.grad(g.sum(), x)[0]


def over_jvp(f, x, change):
    g = torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]
    change()
    return torch.autograd.grad(g.sum(), x)[0]


def vjp_of_grad(f, x, change):
    g, pull = torch.func.vjp(torch.func.grad(lambda x: f(x).sum()), x.detach())
    change()
    return pull(torch.ones_like(g))[0]


def linearized_grad(f, x, change):
    _, push = torch.func.linearize(torch.func.grad(lambda x: f(x).sum()), x.detach())
    change()
    return push(torch.ones_like(x))


def over_mapped_grad(f, x, change):
    g = torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.stack([x, x]))
    change()
    return torch.autograd.grad(g[1].sum(), x)[0]


SECOND = [
    second,
    second_with_graph,
    over_func_grad,
    over_jacrev,
    over_jvp,
    vjp_of_grad,
    linearized_grad,
    over_mapped_grad,
]


def third(f, x, change):
    """Differentiate x f(x) three times, since f has no third derivative."""
    g = compute_gradient(lambda x: x * f(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    change()
    return torch.autograd.grad(h.sum(), x)[0]


def check(f, change, name, before, now, modes=(*FIRST, *SECOND, third)):
    wrong = []
    for mode in modes:
        x = rand(3).requires_grad_()
        expected = OLD * (6.0 if mode is third else 2.0 if mode in SECOND else 2.0 * x.detach())
        change(OLD)
        with warnings.catch_warnings():
            # torch's own, of `linearize` and of `vmap` over what has no rule.
            warnings.simplefilter("ignore")
            same = mode(f, x, lambda: None)
            assert torch.allclose(same, expected + torch.zeros_like(x)), mode.__name__
            try:
                got = mode(f, x, lambda: change(NEW))
            except ts.GradientError as error:
                words = str(error)
                is_told = name in words and before in words and now in words and "after the backward pass" in words
                wrong += [] if is_told else [f"{mode.__name__}: {words}"]
            else:
                is_old = torch.allclose(got, expected + torch.zeros_like(x))
                wrong += [] if is_old else [f"{mode.__name__}: got {got}, expected {expected}"]
    change(OLD)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("what", WHAT)
def test_a_changed_value_is_refused_or_right(lang64, what):
    check(*what(lang64))


def reentrant_checkpoint(f, x, change):
    y = torch.utils.checkpoint.checkpoint(f, x, use_reentrant=True)
    change()
    before = x.grad
    y.sum().backward()
    x.grad, gradient = before, x.grad
    return gradient


@pytest.mark.each_engine
def test_a_checkpoint_that_keeps_nothing(lang64):
    """It calls the op again, and values that no call had before are refused."""
    op, *rest = global_float(lang64)
    check(op, *rest, modes=[reentrant_checkpoint])
    compiled = torch.compile(op, backend="aot_eager")
    check(compiled, *rest, modes=[checkpoint])

    def inside(x):
        return torch.utils.checkpoint.checkpoint(lambda x: op(x.sinh().asinh()), x, use_reentrant=False)

    op, *rest = global_float(lang64)
    check(torch.compile(inside, backend="aot_eager"), *rest, modes=[plain])


@pytest.mark.parametrize("what", [global_float, field, chosen_function])
def test_a_change_in_a_compiled_function(lang64, what):
    op, *rest = what(lang64)
    compiled = torch.compile(lambda x: 1.0 * op(x), backend="aot_eager", fullgraph=True)
    check(compiled, *rest, modes=[plain, hooks])


@pytest.mark.parametrize("what", [global_float, field])
def test_a_change_around_the_operator(lang64, what):
    op, *rest = what(lang64)
    check(lambda x: op.operator(x)[0], *rest, modes=[plain, create_graph, checkpoint, vjp, linearize, second, over_jvp])


@pytest.mark.parametrize("what", [global_float, field])
def test_a_change_around_a_scan(lang64, what):
    op, *rest = what(lang64)

    def run(x, **options):
        return ts.scan(lambda state, _: (op(state), None), x, length=1, **options)[0]

    check(run, *rest, modes=[plain, create_graph, vjp, second, over_func_grad])
    check(lambda x: run(x, checkpoint=1), *rest, modes=[plain, create_graph])


def test_only_one_of_two_outputs_is_differentiated(lang64):
    """What was prepared for both is of no use then."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in x:
            y[i] = FACTOR * x[i] * x[i]
            z[i] = FACTOR * FACTOR * x[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    op = ts.op("x[n] -> y[n], z[n]")(kernel)
    check(lambda x: op(x).y, change, "`FACTOR`", "3.0", "4.0")


def test_only_one_of_two_inputs_is_differentiated(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = FACTOR * w[i] * x[i] * x[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    op = ts.op("x[n], w[n] -> y[n]")(kernel)
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    check(lambda x: op(x, w), change, "`FACTOR`", "3.0", "4.0", modes=[plain, create_graph, batched, vjp, second])


@pytest.mark.each_engine
def test_a_gradient_kernel_of_the_users_reads_the_value(lang64):
    """Alone: the kernel itself does not."""
    factor = lang64.field(lang64.f64, shape=())

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i]

    @lang64.kernel
    def by_value(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * FACTOR * x[i] * grad_y[i]

    @lang64.kernel
    def by_field(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * factor[None] * x[i] * grad_y[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    modes = [plain, kept_graph, create_graph, batched, hooks, checkpoint, vjp, mapped_vjp]
    op = ts.op("x[n] -> y[n]", backward=by_value)(kernel)
    check(op, change, "`FACTOR`", "3.0", "4.0", modes=modes)
    # Later calls have the gradient of later values.
    x = rand(3).requires_grad_()
    change(NEW)
    torch.testing.assert_close(compute_gradient(op, x), 2.0 * NEW * x.detach())
    change(OLD)
    check(ts.op("x[n] -> y[n]", backward=by_field)(kernel), factor.fill, "`factor`", "3.0", "4.0", modes=modes)


def test_an_attribute_of_a_template_argument(lang64):
    class Options:
        c = float(OLD)

    @lang64.kernel
    def kernel(options: lang64.template(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = options.c * x[i] * x[i]

    options = Options()
    op = ts.op("x[n] -> y[n]")(kernel)
    change = lambda value: setattr(options, "c", float(value))  # noqa: E731
    modes = [plain, kept_graph, hooks, checkpoint]
    check(lambda x: op(options, x), change, "`options.c`", "3.0", "4.0", modes=modes)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_either_adjoint(lang64, adjoint):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = FACTOR * x[i] * x[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    op = ts.op("x[n] -> y[n]", adjoint=adjoint)(kernel)
    check(op, change, "`FACTOR`", "3.0", "4.0", modes=[plain, kept_graph, create_graph, batched, vjp, checkpoint])


# Layers and rollouts keep what they read, or refuse. -----------------------------------------------------------------
def in_a_layer(lang, kind):
    x, y = (lang.field(lang.f64, shape=3, needs_grad=True) for _ in range(2))
    weight = lang.field(lang.f64, shape=())

    @lang.kernel
    def by_value():
        for i in x:
            y[i] = FACTOR * x[i] * x[i]

    @lang.kernel
    def by_field():
        for i in x:
            y[i] = weight[None] * x[i] * x[i]

    def change(value):
        global FACTOR
        FACTOR = float(value)

    for kernel, put, name in ((by_value, change, "`FACTOR`"), (by_field, weight.fill, "`weight`")):
        if kind == "rollout":
            yield ts.rollout(kernel, {"x": x}, {"y": y}), put, name
        else:
            how = {"on_tensors": True} if kind == "tensors" else {"adjoint": "engine"} if kind == "engine" else {}
            layer = ts.EmptyTin(**how).register_input_field(x).register_output_field(y).register_kernel(kernel)
            yield layer.finish(), put, name


@pytest.mark.compiled_engine
@pytest.mark.parametrize("kind", ["fields", "engine", "tensors", "rollout"])
def test_a_layer(lang64, kind):
    modes = [plain, kept_graph, create_graph, batched, hooks, checkpoint, vjp, mapped_vjp, linearize, second]
    if kind == "engine":
        modes = [plain, kept_graph, hooks, checkpoint, vjp]
    for layer, change, name in in_a_layer(lang64, kind):
        change(OLD)
        check(layer, change, name, "3.0", "4.0", modes=modes)
