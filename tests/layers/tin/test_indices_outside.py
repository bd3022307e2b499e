"""Indices that are surely outside a field: refused on tensors, where they end the process; on fields a warning."""

import warnings

import pytest
import torch

import tinsmith as ts

N, STEPS = 3, 6


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def simulation(lang):
    """Make steps that index a history by time first, though its axes are in the other order."""
    v, start, end = lang.field(lang.f64), *(lang.field(lang.f64, shape=(), needs_grad=True) for _ in range(2))
    lang.root.dense(lang.l, STEPS).dense(lang.i, 1).place(v, v.grad)

    @lang.kernel
    def begin():
        v[0, 0] = start[None]

    @lang.kernel
    def step(t: lang.i32):
        for i in range(1):
            v[t, i] = 2.0 * v[t - 1, i]

    @lang.kernel
    def finish():
        end[None] = v[STEPS - 1, 0]

    return start, end, [(begin,), *((step, t) for t in range(1, STEPS)), (finish,)]


def make_layer(start, end, launches, on_tensors):
    layer = ts.EmptyTin(on_tensors=on_tensors).register_input_field(start).register_output_field(end)
    for number, (kernel, *arguments) in enumerate(launches):
        layer.register_kernel(kernel, *arguments, kernel_name=f"launch {number}")
    return layer.finish()


@pytest.mark.compiled_engine
def test_axes_in_another_order(lang64):
    words = (
        r"(?s)kernel `step` of EmptyTin uses an index of `v` that is out of range.*test_indices_outside.*index 1, of 1"
    )
    with pytest.raises(ts.KernelError, match=words):
        make_layer(*simulation(lang64), on_tensors=True)
    layer = make_layer(*simulation(lang64), on_tensors=False)
    with pytest.warns(UserWarning, match=words):
        layer(rand().requires_grad_())


@pytest.mark.parametrize("on_tensors", [True, False])
def test_indices_that_a_branch_or_an_empty_loop_guards(lang64, on_tensors):
    x, end = (lang64.field(lang64.f64, shape=N, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def step(t: lang64.i32):
        for i in range(N):
            before = 0.0
            if t > 0:
                before = x[t - 1]
            end[i] += x[i] + before
        for _ in range(0):
            end[N] = 0.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = make_layer(x, end, [(step, 0), (step, 1)], on_tensors)
        given = rand(N).requires_grad_()
        torch.testing.assert_close(layer(given), 2 * given + given[0])
