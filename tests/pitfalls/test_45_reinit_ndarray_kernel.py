"""Pitfall 45: an op made before the engine was started anew works after it (taichi #4468)."""

import torch

import cases
import tinsmith as ts
from tinsmith.calls import Program


def check(op):
    inputs = (torch.randn(5, dtype=torch.float64),)
    cases.assert_same_values_and_gradients(op, lambda x: x * x, inputs)


def restart(lang):
    options = {"ad_stack_experimental_enabled": True} if lang.__name__ == "quadrants" else {}
    lang.init(arch=lang.cpu, default_fp=lang.f64, log_level=lang.ERROR, **options)


def test_an_op_survives_init_and_reset(lang64, capfd):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    check(square)
    for _ in range(3):
        restart(lang64)
        check(square)
    lang64.reset()
    restart(lang64)
    check(square)


def test_forward_before_and_backward_after(lang64, capfd):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = square(x)
    restart(lang64)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_two_backward_passes_before_and_after(lang64, capfd, monkeypatch):
    """The second one is planned anew: on a GPU the memory of the engine that ran the first is gone."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    plans, backward = [], Program.backward

    def note(self, *arguments):
        plans.append(self)
        return backward(self, *arguments)

    monkeypatch.setattr(Program, "backward", note)
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = square(x)
    y.sum().backward(retain_graph=True)
    restart(lang64)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 4 * x.detach())
    assert len(plans) == 2 and plans[0] is not plans[1]


def test_a_kernel_used_directly_before_and_after(lang64, capfd):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x, y = torch.randn(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    square.kernel(x, y)
    check(square)
    restart(lang64)
    square.kernel(x, y)
    check(square)
    torch.testing.assert_close(y, x * x)
