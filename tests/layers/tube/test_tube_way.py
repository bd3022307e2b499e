"""Which way a Tube runs: on tensors, or on fields, and then it says why."""

import pytest
import torch

import tinsmith as ts
from support.dropin import assert_agree, make_leaf

F64 = torch.float64
N = (ts.MatchDim("n"),)


def tube_of(kernel, *extra, manager=None):
    tube = ts.Tube().register_input_tensor(N, F64, "x", field_manager=manager).register_output_tensor(N, F64, "y", True)
    return tube.register_kernel(kernel, ["x", "y"], *extra).finish()


def explain_way(tube):
    return tube.explain("all").partition("\n")[0]


# On fields ----------------------------------------------------------------------------------------
def in_place(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            x[i] *= 2.0
            y[i] = x[i]

    return kernel, (), "writes the input `x` at "


def parent(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x.parent():
            y[i] = x[i]

    return kernel, (), "uses `x` as only a field can be used, at "


def activity(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            if lang.is_active(y.snode, [i]):
                y[i] = x[i]

    return kernel, (), "uses `y` as only a field can be used, at "


def in_a_function(lang):
    @lang.func
    def appended(target: lang.template(), value):
        lang.append(target.parent(), 0, value)

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            appended(y, 1)
            y[i] = x[i]

    return kernel, (), "uses `y` as only a field can be used, at "


def global_field(lang):
    seen = lang.field(lang.f64, shape=())

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            seen[None] += x[i]
            y[i] = x[i]

    return kernel, (), "writes the field `seen` at "


def own_field(lang):
    @lang.data_oriented
    class Model:
        def __init__(self):
            self.seen = lang.field(lang.f64, shape=())

        @lang.kernel
        def kernel(self, x: lang.template(), y: lang.template()):
            for i in x:
                self.seen[None] += x[i]
                y[i] = x[i]

    return Model().kernel, (), "writes the field `self.seen` at "


def given_field(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template(), w: lang.template()):
        for i in x:
            y[i] = x[i] * w[None]

    return kernel, (lang.field(lang.f64, shape=()),), "is given the field `w`"


def given_array(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template(), w: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * w[0]

    return kernel, (torch.ones(1),), "is given the array `w`, which is not a registered tensor"


ON_FIELDS = [
    in_place, parent, activity, in_a_function, global_field, own_field, given_field, given_array,
]  # fmt: skip


@pytest.mark.parametrize("make", ON_FIELDS)
def test_kernels_that_need_fields_run_on_fields_and_explain_says_why(lang64, make):
    kernel, extra, reason = make(lang64)
    explanation = explain_way(tube_of(kernel, *extra))
    assert explanation.startswith(f"Tube(kernel) runs on fields, because kernel `kernel` {reason}")
    assert (__file__ in explanation) == reason.endswith(" at ")


class Manager:
    """Lays a field out as it is laid out anyway."""

    def construct_field(self, builder, shape, needs_grad):
        raise NotImplementedError("nobody calls")


def test_a_field_manager_takes_fields(lang64):
    kernel = in_place(lang64)[0]
    assert (
        explain_way(tube_of(kernel, manager=Manager()))
        == "Tube(kernel) runs on fields, because `x` has a field manager"
    )


def test_other_extra_arguments_may_change_the_way(lang64):
    kernel, (field,), _ = given_field(lang64)

    @lang64.kernel
    def scaled(x: lang64.template(), y: lang64.template(), w: lang64.template()):
        for i in x:
            y[i] = x[i] * w

    tube = tube_of(scaled, 2.0)
    assert "without fields" in explain_way(tube)
    tube.set_kernel_extra_args(scaled, field)
    assert "is given the field `w`" in explain_way(tube)
    tube.set_kernel_extra_args(scaled, 3.0)
    assert "without fields" in explain_way(tube)
    x = make_leaf(3)
    assert_agree(tube(x), 3.0 * x, [x])


# On tensors ---------------------------------------------------------------------------------------
def grouped(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for place in lang.grouped(x):
            y[place] = 3.0 * x[place]

    return kernel


def aliased(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        source = lang.static(x)
        for i in range(y.shape[0]):
            y[i] = 3.0 * source[i]

    return kernel


def through_a_function(lang):
    @lang.func
    def tripled(source: lang.template(), i):
        return 3.0 * source[i]

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in lang.ndrange(x.shape[0]):
            y[i] += tripled(x, i)

    return kernel


def reading_a_field(lang):
    gain = lang.field(lang.f64, shape=())
    gain[None] = 3.0

    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()):
        for i in x:
            y[i] = gain[None] * x[i]

    return kernel


def value_returned(lang):
    @lang.kernel
    def kernel(x: lang.template(), y: lang.template()) -> lang.f64:
        for i in x:
            y[i] = 3.0 * x[i]
        return y[0]

    return kernel


@pytest.mark.parametrize("make", [grouped, aliased, through_a_function, reading_a_field, value_returned])
def test_kernels_that_do_not_need_fields_run_on_tensors(lang64, make):
    tube = tube_of(make(lang64))
    assert explain_way(tube) == "Tube(kernel) runs on the caller's tensors, without fields"
    x = make_leaf(4)
    assert_agree(tube(x), 3.0 * x, [x])


def test_an_output_that_no_kernel_writes_is_refused(lang64):
    tube = ts.Tube().register_input_tensor(N, F64, "x").register_output_tensor(N, F64, "y", True)
    tube.register_output_tensor(N, F64, "z", True).register_kernel(grouped(lang64), ["x", "y"])
    with pytest.raises(ts.RegistrationError, match="no kernel of Tube.kernel. writes its output `z`"):
        tube.finish()


def test_names_in_the_wrong_order_leave_an_output_without_a_kernel(lang64):
    tube = ts.Tube().register_input_tensor(N, F64, "x").register_output_tensor(N, F64, "y", True)
    with pytest.raises(ts.RegistrationError, match="no kernel of Tube.kernel. writes its output `y`"):
        tube.register_kernel(grouped(lang64), ["y", "x"]).finish()


def test_a_number_before_an_array_parameter_is_seen_in_the_call(lang64):
    @lang64.kernel
    def scale(x: lang64.template(), s: lang64.f64, y: lang64.template()):
        for i in x:
            y[i] = s * x[i]

    tube = ts.Tube().register_input_tensor(N, F64, "x").register_output_tensor(N, F64, "y", True)
    words = r"(?s)writes its output `y`.*called  scale\(x=x, s=y, y=2\.0\).*tensors come before numbers"
    with pytest.raises(ts.RegistrationError, match=words):
        tube.register_kernel(scale, ["x", "y"], 2.0).finish()
