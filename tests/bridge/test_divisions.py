"""`//` and `%` of integers that engines know when they compile: there they round towards zero, at run time down."""

import operator

import pytest
import torch
from torch.func import grad, hessian, jacrev, vmap

import tinsmith as ts

SIGNS = [(one, other) for one in (-1, 1) for other in (-1, 1)]
SIZES = [(3, 2), (7, 4), (1, 3), (5, 5), (4, 3), (0, 2)]
PAIRS = [(sign * number, other * divisor) for sign, other in SIGNS for number, divisor in SIZES]
Q, R = operator.floordiv, operator.mod


def all_at_once(lang, number, divisor):
    """Build a kernel with every operation on two constants."""

    @lang.func
    def halved(n):
        return -n // 2

    @ts.op("x[n] -> y[n], z[10]: i32")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in x:
            a = number
            b = divisor
            y[i] = x[i] * (a // b) + x[(-abs(a) // 2) % x.shape[0]]
            z[0] = a // b
            z[1] = a % b
            z[2] = (a // b) % 4
            z[3] = halved(a)
            a //= 2
            z[4] = a
            c = lang.cast(number, lang.i64)
            z[5] = lang.cast(c % b, lang.i32)
            for j in range(3):
                z[8] += (a - j) % 4
            if b < 0 and -a % 3 > 0:
                z[9] = 1
        for _ in x:
            z[6] = divisor
            z[7] = (z[6] - 8) // 3

    return op


def all_by_python(x, number, divisor):
    n = len(x)
    half = number // 2
    y = x * (number // divisor) + x[(-abs(number) // 2) % n]
    z = [number // divisor, number % divisor, number // divisor % 4, -number // 2, half, number % divisor]
    z += [divisor, (divisor - 8) // 3, n * sum((half - j) % 4 for j in range(3)), int(divisor < 0 and -half % 3 > 0)]
    return y, torch.tensor(z, dtype=torch.int32)


@pytest.mark.parametrize(("number", "divisor"), PAIRS)
def test_known_numbers_are_divided_by_python_s_rule(lang64, number, divisor):
    op = all_at_once(lang64, number, divisor)
    x = torch.rand(3, dtype=torch.float64)
    torch.testing.assert_close(op(x), all_by_python(x, number, divisor))


@pytest.mark.parametrize(("number", "divisor"), [(-3, 2), (7, -4)])
def test_batches_and_gradients_divide_as_the_kernel_does(lang64, number, divisor):
    op = all_at_once(lang64, number, divisor)
    x = torch.rand(2, 3, dtype=torch.float64)
    right = torch.stack([all_by_python(one, number, divisor)[0] for one in x])
    torch.testing.assert_close(vmap(op)(x)[0], right)
    torch.testing.assert_close(
        jacrev(lambda one: op(one)[0])(x[0]), jacrev(lambda one: all_by_python(one, number, divisor)[0])(x[0])
    )
    cube = hessian(lambda one: (op(one)[0] ** 3).sum())(x[0])
    torch.testing.assert_close(cube, hessian(lambda one: (all_by_python(one, number, divisor)[0] ** 3).sum())(x[0]))


@pytest.mark.parametrize("is_serial", [True, False])
def test_constants_that_engines_derive_from_loops_are_divided_right(lang64, is_serial):
    """Of a loop with one iteration engines know the index, and of a serial one the locals around it."""

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        lang64.loop_config(serialize=is_serial)
        for i in range(x.shape[0]):
            for j in range(5, 6):
                y[i] += x[i] * ((-j // 2) % 4)
            k = -3
            while k < 0:
                y[i] += k // 2 * x[i] ** 2
                k += 2

    x = torch.rand(3, dtype=torch.float64)
    torch.testing.assert_close(op(x), x * (-5 // 2 % 4) + (-3 // 2 + -1 // 2) * x**2)


@pytest.mark.compiled_engine
def test_layers_on_fields_divide_by_python_s_rule(lang64):
    """The generated gradient does. The engine's differentiates what the engine makes of the division: it is refused."""

    @lang64.data_oriented
    class Program:
        def __init__(self):
            self.x = lang64.field(lang64.f64, shape=3, needs_grad=True)
            self.y = lang64.field(lang64.f64, shape=3, needs_grad=True)

        @lang64.kernel
        def forward(self):
            for i in self.x:
                k = 3
                self.y[i] = self.x[(-k // 2) % 3] * (-k % 2)

    program = Program()

    def layer_by(adjoint):
        layer = ts.EmptyTin("cpu", adjoint=adjoint).register_kernel(program.forward)
        return layer.register_input_field(program.x).register_output_field(program.y).finish()

    x = torch.rand(3, dtype=torch.float64)
    generated = layer_by("auto")
    torch.testing.assert_close(generated(x), x[1].expand(3))
    torch.testing.assert_close(grad(lambda x: generated(x).sum())(x), torch.tensor([0.0, 3.0, 0.0], dtype=x.dtype))
    layer = layer_by("engine")
    torch.testing.assert_close(layer(x), x[1].expand(3))
    with pytest.raises(ts.GradientError, match="(?s)`//` and `%` of negative constant integers.*`(ti|qd).static"):
        layer(x.requires_grad_()).sum().backward()


@pytest.mark.compiled_engine
def test_an_engine_s_own_gradient_of_such_a_kernel_is_refused(lang64):
    @ts.op("x[n] -> y[n]", adjoint="engine")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            k = 3
            y[i] = x[(-k // 2) % x.shape[0]]

    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    y = op(x)
    torch.testing.assert_close(y, x[-3 // 2 % 3].expand(3))
    words = (
        r"(?s)(taichi|quadrants) would return a wrong gradient for the kernel of op `op`.*it rounds `//` and `%` of "
    )
    words += r"negative constant integers toward zero, not down\nDivide in Python, .*`(ti|qd)\.static"
    with pytest.raises(ts.GradientError, match=words):
        y.sum().backward()


def test_divisions_of_runtime_values_are_not_rewritten(lang64, monkeypatch):
    """`i // 2` gets no locals and branches, nor does a division where nothing is negative."""
    monkeypatch.delattr("tinsmith.compiling._compilation.compile_rewritten")

    @ts.op("x[n], k[n]: i32 -> y[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), k: lang64.types.ndarray(), m: int, y: lang64.types.ndarray()):
        for i in x:
            three = 3
            y[i] = x[i // 2] + x[k[i] % x.shape[0]] * (-m // three) + three // 2

    x, k = torch.rand(4, dtype=torch.float64), torch.tensor([-1, 0, -7, 9], dtype=torch.int32)
    torch.testing.assert_close(op(x, k, 4), x[torch.arange(4) // 2] + x[k.long() % 4] * (-4 // 3) + 1)
