"""Every cell of {batched or not} x {persistent, eager} x {with a field manager, without} x {who needs a gradient}.

Stannum wrote these by hand, one by one, and in eager mode all batched ones are wrong where there is an intermediate
field (test_dropin_differences). In all others its Tube agrees; it is not run here, since it would take minutes.
"""

import itertools

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.thinned(6)

F64 = torch.float64
FLAGS = list(itertools.product([None, False], [None, False], [True, False]))


def kernels(lang):
    @lang.kernel
    def weigh(w: lang.template(), x: lang.template(), s: lang.template()):
        for i in x:
            s[i] = w[i] * x[i]

    @lang.kernel
    def combine(s: lang.template(), x: lang.template(), y: lang.template(), a: lang.f64):
        for i in s:
            y[i] = a * s[i] * s[i] + x[i] * x[i]

    return weigh, combine


def manager(layers, lang):
    class InOrder(layers.FieldManager):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            made = lang.field(lang.f64, needs_grad=needs_grad)
            members = (made, made.grad) if needs_grad else (made,)
            fields_builder.dense(lang.i, concrete_tensor_shape).place(*members)
            return made

        def to_tensor(self, field):
            return field.to_torch()

        def grad_to_tensor(self, grad_field):
            return grad_field.to_torch()

        def from_tensor(self, field, tensor):
            field.from_torch(tensor)

        def grad_from_tensor(self, grad_field, tensor):
            grad_field.from_torch(tensor)

    return InOrder()


def compute_expected(w, x, w_needs, x_needs, s_needs):
    """Compute in torch, with `detach` where no gradient should flow."""
    w, x = (t.detach() if needs is False else t for t, needs in ((w, w_needs), (x, x_needs)))
    s = w * x
    return 2 * (s if s_needs else s.detach()) ** 2 + x**2


def compute_gradients(y, leaves, cotangent):
    """Compute gradients, with zeros where there is none."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return torch.autograd.grad(y, leaves, cotangent, allow_unused=True, materialize_grads=True)


def check_cell(layers, lang, w_batched, x_batched, persistent, managed):
    weigh, combine = kernels(lang)
    batch, plain = (layers.BatchDim, layers.MatchDim("n")), (layers.MatchDim("n"),)
    made = batch if w_batched or x_batched else plain
    between = {"field_manager": manager(layers, lang)} if managed else {}
    for w_needs, x_needs, s_needs in FLAGS:
        tube = layers.Tube(persistent_field=persistent)
        tube = tube.register_input_tensor(batch if w_batched else plain, F64, "w", w_needs)
        tube = tube.register_input_tensor(batch if x_batched else plain, F64, "x", x_needs)
        tube = tube.register_intermediate_field(made, lang.f64, "s", s_needs, **between)
        tube = tube.register_output_tensor(made, F64, "y", True)
        tube = tube.register_kernel(weigh, ["w", "x", "s"]).register_kernel(combine, ["s", "x", "y"], 2.0).finish()
        w, x = (torch.randn(*([2] if b else []), 3, dtype=F64, requires_grad=True) for b in (w_batched, x_batched))
        y, right = tube(w, x), compute_expected(w, x, w_needs, x_needs, s_needs)
        torch.testing.assert_close(y.detach(), right.detach())
        cotangent = torch.randn_like(right)
        pairs = zip(compute_gradients(y, (w, x), cotangent), compute_gradients(right, (w, x), cotangent), strict=True)
        for name, (mine, truth) in zip("wx", pairs, strict=True):
            where = f"gradient of {name}, needs {w_needs}, {x_needs}, {s_needs}"
            torch.testing.assert_close(mine, truth, msg=lambda words, where=where: f"{where}: {words}")


@pytest.mark.thinned(9)
@pytest.mark.parametrize(
    ("persistent", "managed"),
    [(True, False), (True, True), (False, True)],
    ids=["on tensors", "on persistent fields", "on eager fields"],
)
@pytest.mark.parametrize("x_batched", [False, True], ids=["x", "x batched"])
@pytest.mark.parametrize("w_batched", [False, True], ids=["w", "w batched"])
def test_every_cell_agrees_with_torch(lang64, w_batched, x_batched, persistent, managed):
    check_cell(ts, lang64, w_batched, x_batched, persistent, managed)
