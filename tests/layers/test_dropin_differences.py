"""Where this library does not do what Stannum does: on purpose, each with its reason."""

import pytest
import torch

import tinsmith as ts
from support.dropin import CPU, assert_agree, assert_refused, make_leaf, side_by_side
from support.scenes import Scene, make_field

F64 = torch.float64


# Right where Stannum is silently wrong ------------------------------------------------------------
def test_two_calls_before_a_backward_each_have_their_own_gradient(lang64):
    """Stannum's fields hold one call, so both calls get the second's gradient."""
    x, y = make_field(lang64, (4,)), make_field(lang64, (4,))

    @lang64.kernel
    def cube():
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    tin = ts.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_kernel(cube).finish()
    first, second = make_leaf(4), make_leaf(4)
    assert_agree(tin(first) * tin(second), first**3 * second**3, [first, second])


def test_the_gradient_of_an_input_never_adds_up(lang64):
    """`auto_clear_grad=False` is for internal fields. Stannum's inputs too get each backward's gradient on top of all
    before it, and torch adds that up once more.
    """
    scene = Scene(ts, lang64, auto_clear_grad=False)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    for _ in range(3):
        given = make_leaf(4)
        assert_agree(tin(given), 2 * given, [given])


def test_arguments_set_between_a_call_and_its_backward_are_for_later_calls(lang64):
    """In Stannum's Tin as well; here because a call's gradient is that of the call."""
    scene = Scene(ts, lang64)
    tin = scene.registered().register_kernel(scene.times(), 2.0).finish()
    given = make_leaf(4)
    before = tin(given)
    tin.set_kernel_args("times", 5.0)
    assert_agree(before, 2 * given, [given])


def test_a_tensor_is_left_without_a_gradient_that_it_did_not_get(lang64):
    """Taichi leaves zeros in `.grad` of a leaf that Stannum copies into a field."""
    x, y = make_field(lang64, (4,), needs_grad=False), make_field(lang64, (4,))

    @lang64.kernel
    def same():
        for i in x:
            y[i] = x[i]

    tin = ts.EmptyTin(CPU, True).register_input_field(x).register_output_field(y).register_kernel(same).finish()
    given = make_leaf(4)
    tin(given)
    assert given.grad is None


@side_by_side
def test_a_backward_pass_does_not_change_counters(layers, lang64):
    """The engines' reverse kernels run counters again, and Stannum lets them."""
    x, y, calls = make_field(lang64, (3,)), make_field(lang64, (3,)), lang64.field(lang64.i32, shape=())

    @lang64.kernel
    def counted():
        for i in x:
            y[i] = 2.0 * x[i]
        for _ in range(1):
            calls[None] += 1

    tin = layers.EmptyTin(CPU, True).register_input_field(x).register_output_field(y)
    tin = tin.register_internal_field(calls, name="calls").register_kernel(counted).finish()
    for _ in range(3):
        tin(make_leaf(3)).sum().backward()
    assert calls[None] == (3 if layers is ts else 6)


@side_by_side
def test_an_internal_field_that_is_set_between_a_call_and_its_backward(layers, lang64):
    """Stannum's gradient is that of the new value."""
    scene, given = Scene(layers, lang64), make_leaf(4)
    tin = scene.registered().register_internal_field(scene.w, name="w").register_kernel(scene.scaled()).finish()
    y = tin(given)
    tin.set_internal_field("w", torch.tensor(10.0, dtype=F64))
    y.sum().backward()
    assert given.grad.tolist() == [1.0 if layers is ts else 10.0] * 4


# More than Stannum takes --------------------------------------------------------------------------
def test_auto_clear_grad_may_be_left_out_and_the_device_may_be_a_name(lang64):
    scene = Scene(ts, lang64)
    for tin in (ts.EmptyTin(CPU), ts.EmptyTin("cpu"), ts.EmptyTin()):
        tin = tin.register_input_field(scene.x).register_output_field(scene.y).register_kernel(scene.times(), 2.0)
        given = make_leaf(4)
        assert_agree(tin.finish()(given), 2 * given, [given])


def test_the_oldest_set_kernel_args_is_for_the_one_kernel(lang64):
    """Stannum 0.9.1 takes the first argument for the kernel."""
    scene = Scene(ts, lang64)
    tin = scene.registered().register_kernel(scene.times()).finish()
    for value in (2.0, -4.0):
        tin.set_kernel_args(value)
        given = make_leaf(4)
        assert_agree(tin(given), value * given, [given])


def test_the_oldest_set_kernel_args_wants_one_kernel(lang64):
    scene = Scene(ts, lang64)
    kernel = scene.times()
    tin = scene.registered().register_kernel(kernel, 2.0).register_kernel(kernel, 3.0, kernel_name="again").finish()
    with pytest.raises(ts.RegistrationError, match=r"(?s)2 kernels.*times, again.*set_kernel_args\(kernel_or_name"):
        tin.set_kernel_args(-4.0)


def test_a_weight_field_is_a_parameter(lang64):
    """Stannum 0.9.1 has no `register_weight_field` any more; its older ones updated nothing."""
    scene = Scene(ts, lang64)
    scene.w.fill(2.0)
    tin = scene.registered().register_weight_field(scene.w, name="w").register_kernel(scene.scaled()).finish()
    given = torch.randn(4, dtype=F64)
    assert_agree(tin(given), 2 * given * (tin.w / 2), [tin.w])
    with torch.no_grad():
        tin.w.mul_(3)
    assert_agree(tin(given), 6 * given * (tin.w / 6), [tin.w])


def test_one_name_for_two_internal_fields_is_refused(lang64):
    """Stannum forgets the first without a word."""
    scene = Scene(ts, lang64)
    scene.tin.register_internal_field(scene.w, name="w")
    with pytest.raises(ts.RegistrationError, match="`w` already"):
        scene.tin.register_internal_field(scene.x, name="w")


# Tubes --------------------------------------------------------------------------------------------
def doubled(lang):
    @lang.kernel
    def doubled(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = 2.0 * x[i]

    return doubled


def squared(lang):
    @lang.kernel
    def squared(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = x[i] * x[i]

    return squared


@side_by_side
def test_a_batch_through_several_kernels_in_eager_mode(layers, lang64):
    """Stannum's eager mode saves outputs where it should save intermediates, so its gradient is silently wrong."""
    batch = (layers.BatchDim, 3)
    tube = layers.Tube(persistent_field=False).register_input_tensor(batch, F64, "x")
    tube = tube.register_intermediate_field(batch, lang64.f64, "between", True)
    tube = tube.register_output_tensor(batch, F64, "y", True)
    tube = tube.register_kernel(doubled(lang64), ["x", "between"])
    tube = tube.register_kernel(squared(lang64), ["between", "y"]).finish()
    x = make_leaf(2, 3)
    if layers is ts:
        assert_agree(tube(x), (2 * x) ** 2, [x])
    else:
        with pytest.raises(AssertionError, match="not close"):
            assert_agree(tube(x), (2 * x) ** 2, [x])


@side_by_side
@pytest.mark.parametrize("is_intermediate", [False, True])
def test_a_calculator_may_say_batch_dim(layers, lang64, is_intermediate):
    """Stannum knows a calculated batch only as None, against its own message."""

    def calculator(name, dims, shapes):
        return (layers.BatchDim, shapes["x"][1])

    tube = layers.Tube().register_input_tensor((layers.BatchDim, layers.AnyDim), F64, "x")
    tube = tube.register_output_tensor(calculator, F64, "y", True)
    if is_intermediate:
        tube = tube.register_intermediate_field(calculator, lang64.f64, "between", True)
        tube = tube.register_kernel(doubled(lang64), ["x", "between"])
        tube = tube.register_kernel(squared(lang64), ["between", "y"]).finish()
    else:
        tube = tube.register_kernel(squared(lang64), ["x", "y"]).finish()
    x = make_leaf(2, 3)
    if layers is ts:
        assert_agree(tube(x), (2 * x) ** 2 if is_intermediate else x**2, [x])
    else:
        with pytest.raises(AssertionError, match="is not batched"):
            tube(x)


@side_by_side
def test_a_call_before_finish(layers, lang64):
    """Stannum runs, unchecked."""
    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube = tube.register_kernel(doubled(lang64), ["x", "y"])
    if layers is ts:
        with pytest.raises(ts.RegistrationError, match="finish"):
            tube(torch.rand(3, dtype=F64))
    else:
        tube(torch.rand(3, dtype=F64))


@side_by_side
def test_floats_are_not_cut_to_integers(layers, lang64):
    """Stannum drops what is behind the point (Taichi warns in its log)."""
    n = layers.MatchDim("n")
    tube = layers.Tube().register_input_tensor((n,), torch.int32, "x").register_output_tensor((n,), F64, "y", True)
    tube = tube.register_kernel(doubled(lang64), ["x", "y"]).finish()
    if layers is ts:
        with pytest.raises(ts.DtypeError, match="(?s)x.*float"):
            tube(torch.tensor([1.5]))
    else:
        assert tube(torch.tensor([1.5])).tolist() == [2.0]


@side_by_side
def test_a_kernel_wants_as_many_tensors_as_it_has_parameters_at_registration(layers, lang64):
    """Stannum finds out at the first call, in the engine's words."""
    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    with assert_refused(layers, (ts.RegistrationError, ts.ArgumentError), "doubled", "missing"):
        tube.register_kernel(doubled(lang64), ["x"]).finish()(torch.rand(3))


@side_by_side
def test_a_gradient_may_be_asked_for_twice(layers, lang64):
    """Stannum's persistent fields add the second gradient to the first; its eager mode gives it as it is."""
    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube = tube.register_kernel(squared(lang64), ["x", "y"]).finish()
    x, cotangent = make_leaf(3), torch.randn(3, dtype=F64)
    y = tube(x)
    once, twice = (torch.autograd.grad(y, x, cotangent, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(once, 2 * x.detach() * cotangent)
    if layers is ts:
        torch.testing.assert_close(twice, once)
    else:
        torch.testing.assert_close(twice, 2 * once)


@side_by_side
def test_an_output_that_no_kernel_writes_is_refused(layers, lang64):
    """Stannum returns zeros; a name is missing in a `register_kernel`, most likely."""
    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube = tube.register_output_tensor((2,), F64, "empty", True).register_kernel(doubled(lang64), ["x", "y"])
    if layers is ts:
        with pytest.raises(ts.RegistrationError, match="writes its output `empty`"):
            tube.finish()
    else:
        assert tube.finish()(torch.rand(3, dtype=F64))[1].tolist() == [0.0, 0.0]


@side_by_side
def test_a_gradient_that_no_field_can_hold(layers, lang64):
    """Stannum gives none, silently, and the layers before get nothing; `needs_grad=False` says that this is meant."""
    x, y = lang64.field(lang64.f64, shape=3), lang64.field(lang64.f64, shape=3, needs_grad=True)

    @lang64.kernel
    def copied():
        for i in x:
            y[i] = x[i]

    tin = layers.EmptyTin(torch.device("cpu"), True).register_input_field(x, "x").register_output_field(y)
    given = make_leaf(3)
    out = tin.register_kernel(copied).finish()(given)
    out.sum().backward()
    if layers is ts:
        assert torch.equal(given.grad, torch.ones_like(given))
    else:
        assert given.grad is None or not given.grad.any()


@side_by_side
def test_a_value_that_is_overwritten_though_its_gradient_needs_it(layers, lang64):
    """The engines' reverse kernels read the new value in the old one's place; Stannum returns what comes out."""

    @lang64.kernel
    def squared_in_place(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i]
        for i in x:
            y[i] = y[i] * x[i]

    tube = layers.Tube().register_input_tensor((3,), F64, "x").register_output_tensor((3,), F64, "y", True)
    tube, x = tube.register_kernel(squared_in_place, ["x", "y"]).finish(), make_leaf(3)
    if layers is ts:
        assert_agree(tube(x), x**2, [x])
    else:
        with pytest.raises(AssertionError, match="not close"):
            assert_agree(tube(x), x**2, [x])
