"""An output that kernels only add to starts each call at zero, however the addition is written; others warn."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

N = 6
ADD = "lang.atomic_add(loss[None], x[i] ** 2)"
CLEARED = {
    "in a sum": [f"{ADD} ** 2"],
    "negated": ["-lang.atomic_sub(loss[None], -x[i] ** 2)"],
    "in an unread local": [f"old = {ADD}"],
    "in two": [f"a = b = {ADD}"],
    "in a tuple": [f"a, b = {ADD}, 1.0"],
    "chosen": [f"lang.select({ADD} > 3.0, 1.0, 2.0)"],
    "as a condition": [f"x[i] > -1.0 and {ADD} > 3.0"],
    "in a static branch": ["if lang.static(True):", f"    {ADD} * 2"],
    "by reference": ["add(loss[None], x[i] ** 2)"],
}
GROWING = {
    "stored": [f"z[i] = {ADD}"],
    "read": [f"{ADD} ** 2", "z[i] = loss[None]"],
    "returned": ["added(loss, x[i] ** 2)"],
    "written out": ["loss[None] = loss[None] + x[i] ** 2 / 2 + x[i] ** 2 / 2"],
}


def layers_of(lang, body):
    """Make a rollout and a layer of one kernel."""
    x, z = (lang.field(lang.f64, N, needs_grad=True) for _ in range(2))
    loss = lang.field(lang.f64, (), needs_grad=True)

    @lang.func
    def add(total: lang.template(), value):
        total += value

    @lang.func
    def added(total: lang.template(), value):
        return lang.atomic_add(total[None], value)

    lines = "\n".join(f"            {line}" for line in body)
    text = f"def kernel():\n    for _ in range(1):\n        for i in range({N}):\n{lines}\n"
    kernel = compile_text(lang, text, x=x, z=z, loss=loss, add=add, added=added)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(loss).register_kernel(kernel)
    return ts.rollout(lambda: kernel(), {"x": x}, {"loss": loss}), layer


@pytest.mark.parametrize("body", CLEARED)
def test_unread_sums_start_at_zero(lang64, body):
    rollout, layer = layers_of(lang64, CLEARED[body])
    x = torch.randn(N, dtype=torch.float64, requires_grad=True)
    for run in (rollout, layer.finish()):
        for _ in range(2):
            torch.testing.assert_close(run(x), (x**2).sum())
        torch.testing.assert_close(torch.autograd.grad(run(x), x)[0], 2 * x)


@pytest.mark.parametrize("body", GROWING)
def test_sums_that_are_read_warn(lang64, body):
    rollout, layer = layers_of(lang64, GROWING[body])
    x = torch.randn(N, dtype=torch.float64)
    with pytest.warns(UserWarning, match="rollout <lambda> add to the field `loss`, which is never cleared"):
        first = rollout(x)
    torch.testing.assert_close(rollout(x) - first, (x**2).sum())
    with pytest.warns(UserWarning, match="EmptyTin add to the field `output_field_0`, which is never cleared"):
        layer.finish()


def test_a_sum_in_an_assertion_counts(lang64):
    array = lang64.types.ndarray()

    @lang64.kernel
    def kernel(x: array, y: array):
        for _ in range(1):
            for i in range(x.shape[0]):
                assert lang64.atomic_add(y[None], x[i] ** 2) >= 0.0
                assert x[i] == x[i]

    x = torch.randn(N, dtype=torch.float64, requires_grad=True)
    y = ts.op("x[n] -> y[]", adjoint="source")(kernel)(x)
    torch.testing.assert_close(y, (x**2).sum())
    torch.testing.assert_close(torch.autograd.grad(y, x)[0], 2 * x)
