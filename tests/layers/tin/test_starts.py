"""What fields hold when a call begins: what was set from Python, what the call before left there, or zero."""

import warnings

import pytest
import torch

import tinsmith as ts

N, STEPS = 4, 5
MODES = {"fields": {}, "tensors": {"on_tensors": True}, "batched": {"batched": True}}


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def make_layer(mode, inputs, outputs, kernels, internal=(), **options):
    """Make a layer in one of the modes. `internal` are fields or (field, options)."""
    layer = ts.EmptyTin(on_tensors=mode == "tensors", **options)
    for field in inputs:
        layer.register_input_field(field, batched=mode == "batched")
    for field, more in outputs:
        layer.register_output_field(field, **more)
    for field, more in internal:
        layer.register_internal_field(field, **more)
    for place, (kernel, *arguments) in enumerate(kernels):
        layer.register_kernel(kernel, *arguments, kernel_name=f"kernel {place}")
    return layer.finish()


def inputs_for(mode, *shape):
    return rand(*((3,) if mode == "batched" else ()), *shape).requires_grad_()


def assert_agree(layer, twin, given):
    """Assert that values and gradients agree."""
    ours, theirs = layer(given), twin(given)
    torch.testing.assert_close(ours, theirs)
    cotangent = torch.randn_like(theirs)
    mine, other = (torch.autograd.grad(one, given, cotangent)[0] for one in (ours, theirs))
    torch.testing.assert_close(mine, other)


# What fields hold ---------------------------------------------------------------------------------
def simulation(lang, is_registered):
    """Build x[t + 1] = x[t] + dt force * v[t], v[t + 1] = 0.9 v[t] + force x[t], started from Python."""
    force, end = graded(lang), graded(lang)
    x, v = graded(lang, (STEPS + 1, N)), graded(lang, (STEPS + 1, N))

    @lang.kernel
    def step(t: lang.i32):
        for i in range(N):
            v[t + 1, i] = 0.9 * v[t, i] + force[i] * x[t, i]
            x[t + 1, i] = x[t, i] + 0.1 * force[i] * v[t, i]

    @lang.kernel
    def last():
        for i in end:
            end[i] = x[STEPS, i]

    kernels = [*((step, t) for t in range(STEPS)), (last,)]
    return force, end, x, v, kernels, [(x, {}), (v, {})] if is_registered else []


def simulated(force, x, v):
    for _ in range(STEPS):
        x, v = x + 0.1 * force * v, 0.9 * v + force * x
    return x


@pytest.mark.thinned(4)
@pytest.mark.parametrize("is_registered", [True, False])
@pytest.mark.parametrize("mode", MODES)
def test_a_state_set_from_python_is_where_a_call_begins(lang64, mode, is_registered):
    force, end, x, v, kernels, internal = simulation(lang64, is_registered)
    layer = make_layer(mode, [force], [(end, {})], kernels, internal)
    for _ in range(2):
        first, speed = rand(N), rand(N)
        for i in range(N):
            x[0, i], v[0, i] = first[i].item(), speed[i].item()
        assert_agree(layer, lambda one, first=first, speed=speed: simulated(one, first, speed), inputs_for(mode, N))


@pytest.mark.parametrize("mode", MODES)
def test_elements_that_no_kernel_writes_are_those_of_the_field(lang64, mode):
    """Of an output of vectors too, and of an element of no dims."""
    x, y = graded(lang64), lang64.Vector.field(2, lang64.f64, N, needs_grad=True)
    z = graded(lang64, ())

    @lang64.kernel
    def some():
        for i in range(1, 3):
            y[i] = x[i] * y[0] + z[None]
        for _ in range(1):
            z[None] = 2.0 * z[None]

    held, scale = rand(N, 2), rand()
    y.from_torch(held)
    z.from_torch(scale)
    layer = make_layer(mode, [x], [(y, {"clear": False})], [(some,)], [(z, {"clear": False, "needs_grad": False})])

    def twin(x):
        rows = [x[..., i, None] * held[0] + scale for i in (1, 2)]
        return torch.stack([held[0].expand_as(rows[0]), *rows, held[3].expand_as(rows[0])], -2)

    assert_agree(layer, twin, inputs_for(mode, N))


@pytest.mark.parametrize("loop", ["array", "grouped", "range", "ndrange"])
def test_outputs_overwritten_by_one_statement_are_not_copied(lang64, loop):
    """One kernel runs, not two: nothing of the field is copied."""
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def array():
        for i in x:
            y[i] = x[i] * x[i]

    @lang64.kernel
    def grouped():
        for place in lang64.grouped(y):
            y[place] = x[place] * x[place]

    @lang64.kernel
    def over_range():
        for i in range(N):
            y[i] = x[i] * x[i]

    @lang64.kernel
    def over_ndrange():
        for i in lang64.ndrange(4):
            y[i] = x[i] * x[i]

    kernel = {"array": array, "grouped": grouped, "range": over_range, "ndrange": over_ndrange}[loop]
    y.fill(7.0)
    layer = make_layer("tensors", [x], [(y, {})], [(kernel,)])
    assert_agree(layer, lambda x: x * x, inputs_for("tensors", N))
    assert "def start(" not in layer.explain("all")


@pytest.mark.parametrize("how", ["in branches", "by a function"])
def test_outputs_overwritten_by_several_statements_are_not_copied(lang64, how):
    x, y = graded(lang64), graded(lang64)

    @lang64.kernel
    def in_branches():
        for i in x:
            if x[i] > 0.0:
                y[N - 1 - i] = x[N - 1 - i] * x[N - 1 - i]
            else:
                y[N - 1 - i] = x[N - 1 - i] ** 2

    @lang64.func
    def put(i, value):
        y[i] = value

    @lang64.kernel
    def by_function():
        for i in x:
            put(i, x[i] * x[i])

    y.fill(7.0)
    layer = make_layer("tensors", [x], [(y, {})], [(in_branches if how == "in branches" else by_function,)])
    assert_agree(layer, lambda x: x * x, inputs_for("tensors", N))
    assert "def start(" not in layer.explain("all")


# Sums ---------------------------------------------------------------------------------------------
def make_loss_kernel(lang, x, loss):
    @lang.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    return squares


@pytest.mark.parametrize("mode", MODES)
def test_an_output_that_is_only_added_to_starts_at_zero(lang64, mode):
    x, loss = graded(lang64), graded(lang64, ())
    layer = make_layer(mode, [x], [(loss, {})], [(make_loss_kernel(lang64, x, loss),)])
    for _ in range(3):
        assert_agree(layer, lambda x: x.square().sum(-1), inputs_for(mode, N))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("clear", [True, False])
def test_clear_says_where_an_output_starts(lang64, mode, clear):
    """On tensors a call does not change the field."""
    x, loss = graded(lang64), graded(lang64, ())
    loss.fill(3.0)
    layer = make_layer(mode, [x], [(loss, {"clear": clear})], [(make_loss_kernel(lang64, x, loss),)])
    before = 0.0 if clear else 3.0
    for _ in range(3):
        given = inputs_for(mode, N)
        assert_agree(layer, lambda x, before=before: x.square().sum(-1) + before, given)
        if mode == "fields" and not clear:
            before += given.detach().square().sum().item()
            loss.fill(before)  # `assert_agree` calls it once, and a backward pass changes nothing


@pytest.mark.parametrize("mode", MODES)
def test_clear_says_where_an_internal_field_starts(lang64, mode):
    x, total, y = graded(lang64), graded(lang64, ()), graded(lang64)

    @lang64.kernel
    def shares():
        for i in x:
            y[i] = x[i] * total[None]

    kernels = [(make_loss_kernel(lang64, x, total),), (shares,)]
    layer = make_layer(mode, [x], [(y, {})], kernels, [(total, {"clear": True})])
    total.fill(5.0)
    for _ in range(3):
        assert_agree(layer, lambda x: x * x.square().sum(-1, keepdim=True), inputs_for(mode, N))


def test_a_growing_sum_warns(lang64):
    x, total, y = graded(lang64), graded(lang64, ()), graded(lang64)

    @lang64.kernel
    def shares():
        for i in x:
            y[i] = x[i] * total[None]

    kernels = [(make_loss_kernel(lang64, x, total),), (shares,)]
    words = r"(?s)kernels of EmptyTin add to the field `sum`, which is never cleared.*clear=True.*clear=False"
    with pytest.warns(UserWarning, match=words):
        make_layer("fields", [x], [(y, {})], kernels, [(total, {"name": "sum"})])
    with pytest.warns(UserWarning, match="add to the field `total`"):
        make_layer("fields", [x], [(y, {})], kernels)
    layer = make_layer("fields", [x], [(y, {})], kernels, [(total, {"clear": False})])
    layer(rand(N))
    before = total[None]
    given = rand(N)
    torch.testing.assert_close(layer(given), given * (given.square().sum() + before))


def test_no_warning_where_a_kernel_clears(lang64):
    x, loss = graded(lang64), graded(lang64, ())

    @lang64.kernel
    def clear():
        loss[None] = 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = make_layer("fields", [x], [(loss, {})], [(clear,), (make_loss_kernel(lang64, x, loss),)])
    for _ in range(2):
        assert_agree(layer, lambda x: x.square().sum(), inputs_for("fields", N))


def test_values_that_each_call_would_clear_are_warned_of(lang64):
    x, y = graded(lang64), graded(lang64)
    y.fill(1.0)

    @lang64.kernel
    def add():
        for i in x:
            y[i] += x[i]

    words = r"(?s)sets its output `sums` to zero before each call, and it holds values now.*in kernels  y.*clear=False"
    with pytest.warns(UserWarning, match=words):
        make_layer("fields", [x], [(y, {"name": "sums"})], [(add,)])


@pytest.mark.parametrize("mode", ["fields", "tensors"])
def test_an_output_that_no_kernel_writes_is_warned_of(lang64, mode):
    x, y, other = graded(lang64), graded(lang64), graded(lang64)

    @lang64.kernel
    def square():
        for i in x:
            y[i] = x[i] * x[i]

    with pytest.warns(UserWarning, match=r"(?s)no kernel of EmptyTin writes its output `other`.*kernels  square"):
        make_layer(mode, [x], [(other, {"name": "other"})], [(square,)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_layer("fields", [x], [(y, {}), (x, {})], [(square,)])  # an input may be a result, unchanged


def test_the_third_argument_of_stannum_still_keeps_sums(lang64):
    x, loss = graded(lang64), graded(lang64, ())
    layer = ts.EmptyTin(None, True, False).register_input_field(x).register_output_field(loss)
    layer.register_kernel(make_loss_kernel(lang64, x, loss)).finish()
    given = torch.ones(N, dtype=torch.float64)
    assert [layer(given).item() for _ in range(3)] == [4.0, 8.0, 12.0]


@pytest.mark.parametrize("on_tensors", [True, False])
def test_a_class_says_where_its_output_starts(lang64, on_tensors):
    @lang64.data_oriented
    class Sums:
        def __init__(self):
            self._x, self._y = graded(lang64), graded(lang64)
            self._y.fill(1.0)

        @ts.input
        def x(self):
            return self._x

        @ts.output(clear=False)
        def y(self):
            return self._y

        @ts.kernel
        @lang64.kernel
        def add(self):
            for i in self._x:
                self._y[i] += self._x[i]

    layer, given = ts.Tin(Sums(), on_tensors=on_tensors), rand(N)
    torch.testing.assert_close(layer(given), given + 1.0)
    torch.testing.assert_close(layer(given), given + 1.0 + (0.0 if on_tensors else given))


@pytest.mark.parametrize("is_on_fields", [True, False])
def test_outputs_of_a_tube_start_at_zero(lang64, is_on_fields):
    @lang64.kernel
    def add(x: lang64.template(), t: lang64.template(), y: lang64.template()):
        for i in x:
            t[i] += x[i] * x[i]
        for i in x:
            y[i] += 3.0 * t[i]

    def make(fields_builder, concrete_tensor_shape, needs_grad):
        field = lang64.field(lang64.f64, needs_grad=needs_grad)
        fields_builder.dense(lang64.i, N).place(field, field.grad)
        return field

    tube = ts.Tube().register_input_tensor((N,), torch.float64, "x", field_manager=make if is_on_fields else None)
    tube.register_output_tensor((N,), torch.float64, "y", True)
    tube.register_intermediate_field((N,), lang64.f64, "t", True).register_kernel(add, ["x", "t", "y"]).finish()
    for _ in range(3):
        assert_agree(tube, lambda x: 3.0 * x * x, inputs_for("fields", N))


def test_an_unused_input_of_a_layer_on_tensors_is_refused_before_an_unwritten_output_is_warned_of(lang64):
    x, y, z = (graded(lang64) for _ in range(3))

    @lang64.kernel
    def fill():
        for i in z:
            z[i] = 1.0

    layer = ts.EmptyTin(on_tensors=True).register_input_field(x, name="x").register_output_field(y, name="y")
    with pytest.raises(ts.KernelError, match=r"^no kernel of EmptyTin, which runs on tensors, uses its field `x`\n"):
        layer.register_kernel(fill).finish()(rand(N))
