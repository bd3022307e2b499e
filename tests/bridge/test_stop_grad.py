"""`stop_grad(x)`: what its block loads of x is a constant to the gradient, as for `x.detach()` of torch."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

N = 4
LOOP = f"for i in range({N}):"
USED = "y[None] += x[i] ** 2 * w[i]"
BODIES = {
    "first in its block": ([LOOP, "    lang.stop_grad(x)", f"    {USED}"], lambda x, w: x.detach() ** 2 * w),
    "last in its block": ([LOOP, f"    {USED}", "    lang.stop_grad(x)"], lambda x, w: x.detach() ** 2 * w),
    "one of two loops": (
        [LOOP, "    lang.stop_grad(x)", f"    {USED}", LOOP, f"    {USED}"],
        lambda x, w: x.detach() ** 2 * w + x**2 * w,
    ),
    "one of two branches": (
        [LOOP, "    if w[i] > 0.0:", "        lang.stop_grad(x)", f"        {USED}", f"    {USED}"],
        lambda x, w: torch.where(w > 0, x.detach() ** 2 * w, 0) + x**2 * w,
    ),
    "an inner loop": (
        [LOOP, "    for j in range(2):", "        lang.stop_grad(x)", f"        {USED}", "    y[None] += x[i]"],
        lambda x, w: 2 * x.detach() ** 2 * w + x,
    ),
    "blocks inside": (
        ["lang.stop_grad(x)", LOOP, f"    {USED}", "    if w[i] > 0.0:", "        y[None] += x[i]"],
        lambda x, w: x.detach() ** 2 * w + (w > 0) * x.detach(),
    ),
    "in a function": ([LOOP, "    stop(x)", f"    {USED}"], lambda x, w: x.detach() ** 2 * w),
    "stores keep theirs": (
        [LOOP, "    lang.stop_grad(z)", "    z[i] = x[i] ** 2", LOOP, "    y[None] += z[i] * w[i]"],
        lambda x, w: x**2 * w,
    ),
    "a sum whose result is not used": (
        [
            *[LOOP, "    lang.stop_grad(z)", "    z[i] = w[i]", "    lang.atomic_add(z[i], x[i] ** 2)"],
            *[LOOP, "    y[None] += z[i] * w[i]"],
        ],
        lambda x, w: (w + x**2) * w,
    ),
    "of what was stored": (
        [LOOP, "    z[i] = x[i] ** 2 * w[i]", LOOP, "    lang.stop_grad(z)", "    y[None] += z[i] * w[i] * x[i]"],
        lambda x, w: (x**2 * w).detach() * w * x,
    ),
}


def compile_kernel(lang, body, parameters="", **names):
    @lang.func
    def stop(array: lang.template()):
        lang.stop_grad(array)

    text = "\n".join([f"def kernel({parameters}):", *(f"    {line}" for line in body)]) + "\n"
    return compile_text(lang, text, stop=stop, **names)


def as_op(lang, body):
    parameters = ", ".join(f"{name}: lang.types.ndarray()" for name in "xwzy")
    return ts.op("x[n], w[n] -> y[]", scratch="z[n]", adjoint="source")(compile_kernel(lang, body, parameters))


def on_fields(lang, body, run):
    x, w, z = (lang.field(lang.f64, N, needs_grad=True) for _ in range(3))
    y = lang.field(lang.f64, (), needs_grad=True)
    kernel = compile_kernel(lang, body, x=x, w=w, z=z, y=y)
    if run == "rollout":
        return ts.rollout(lambda: kernel(), {"x": x, "w": w}, {"y": y})
    layer = ts.EmptyTin(on_tensors=run == "on tensors", adjoint="engine" if run == "engine" else "auto")
    return (
        layer.register_input_field(x).register_input_field(w).register_output_field(y).register_kernel(kernel).finish()
    )


@pytest.mark.compiled_engine
@pytest.mark.thinned(4)
@pytest.mark.parametrize("run", ["op", "rollout", "layer", "on tensors", "engine"])
@pytest.mark.parametrize("name", BODIES)
def test_stopped_gradients(lang64, engine, name, run):
    if run == "engine" and (name == "an inner loop" or (name == "one of two branches" and engine == "taichi")):
        pytest.skip("Quadrants refuses loops inside without its stacks; Taichi 1.7.4 forgets the call under a branch")
    body, twin = BODIES[name]
    compute = as_op(lang64, body) if run == "op" else on_fields(lang64, body, run)
    x, w = (torch.randn(N, dtype=torch.float64, requires_grad=True) for _ in range(2))
    ours, theirs = compute(x, w), twin(x, w).sum()
    torch.testing.assert_close(ours, theirs)
    expected = torch.autograd.grad(theirs, (x, w), materialize_grads=True)
    torch.testing.assert_close(torch.autograd.grad(ours, (x, w), materialize_grads=True), expected)
    if run in ("op", "rollout"):
        tangents = torch.randn(2, N, dtype=torch.float64)
        _, tangent = torch.func.jvp(compute, (x.detach(), w.detach()), tuple(tangents))
        torch.testing.assert_close(tangent, sum((one * two).sum() for one, two in zip(expected, tangents, strict=True)))


@pytest.mark.compiled_engine
def test_large_elementwise_kernels_and_second_derivatives(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            lang.stop_grad(y)
            y[i] = lang.sin(x[i])
        for i in x:
            lang.stop_grad(x)
            y[i] = y[i] ** 3 * x[i]

    op, x = ts.op("x[n] -> y[n]", adjoint="source")(kernel), torch.randn(70_000, requires_grad=True)

    def twin(x):
        return torch.sin(x) ** 3 * x.detach()

    torch.testing.assert_close(op(x), twin(x))
    torch.testing.assert_close(op(x.detach()), twin(x.detach()))
    twice = [torch.autograd.grad(f(x).sum(), x, create_graph=True)[0] for f in (op, twin)]
    torch.testing.assert_close(*twice, rtol=1e-4, atol=1e-5)
    second = [torch.autograd.grad(one.sum(), x)[0] for one in twice]
    torch.testing.assert_close(*second, rtol=1e-4, atol=1e-4)


@pytest.mark.compiled_engine
def test_an_engine_s_gradient_of_arrays_is_refused(lang64):
    parameters = "x: lang.types.ndarray(), y: lang.types.ndarray()"
    kernel = compile_kernel(lang64, [LOOP, "    lang.stop_grad(x)", "    y[None] += x[i]"], parameters)
    op = ts.op("x[n] -> y[]", adjoint="engine")(kernel)
    with pytest.raises(
        ts.GradientError, match=r"`stop_grad` works only on fields, and its argument at .+:3 is an array"
    ):
        op(torch.ones(N, dtype=torch.float64, requires_grad=True)).backward()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("lang.stop_grad(x[i])", "`stop_grad` of a value that is neither a field nor an array"),
        (
            "lang.atomic_max(x[i], 0.0); lang.stop_grad(x)",
            "`stop_grad` of `x_after`, to which an `atomic_max` is applied\\n",
        ),
        (
            "y[None] += lang.atomic_add(x[i], 1.0); lang.stop_grad(x)",
            "`stop_grad` of `x_after`, to which an `atomic_add` is applied whose result is used\\n",
        ),
    ],
)
def test_unsupported_stop_grad_is_refused_by_name(lang64, line, reason):
    parameters = "x: lang.types.ndarray(), y: lang.types.ndarray()"
    kernel = compile_kernel(lang64, [LOOP, f"    {line}", "    y[None] += x[i]"], parameters)
    op = ts.op("inout x[n] -> y[]" if "atomic" in line else "x[n] -> y[]", adjoint="source")(kernel)
    # No leaf, which an op that updates it in place refuses before it asks for a gradient.
    x = torch.ones(N, dtype=torch.float64, requires_grad=True).clone()
    with pytest.raises((ts.GradientError, ts.KernelError), match=reason):
        op(x)
