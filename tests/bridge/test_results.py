"""Kernels that return values: what they return is an output that no parameter has as its name."""

from typing import NamedTuple

import pytest
import torch

import cases
import tinsmith as ts


def energy(lang):
    @lang.kernel
    def energy(x: lang.types.ndarray(), w: lang.types.ndarray()) -> lang.f64:
        total = 0.0
        for i in x:
            total += w[i] * x[i] ** 2
        return 0.5 * total

    return energy


def test_a_number(lang64):
    op = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    assert op.arguments == ("x", "w")
    inputs = [torch.rand(7, dtype=torch.float64) for _ in range(2)]
    cases.assert_same_values_and_gradients(op, lambda x, w: 0.5 * (w * x**2).sum(), inputs)
    assert op(*inputs).shape == ()


# Ways to return: the kernel, and what torch makes of the same five numbers.
def local_of_the_output_s_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> lang.f64:
        out = 0.0
        for i in x:
            out += x[i] ** 3
        return out

    return kernel, "out[]", lambda x: (x**3).sum()


def index_of_the_output_s_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> lang.f64:
        total = 0.0
        for out in x:
            total += x[out] * out
        return total

    return kernel, "out[]", lambda x: (x * torch.arange(5)).sum()


def after_what_it_writes(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()) -> lang.f64:
        total = 0.0
        for i in x:
            y[i] = lang.exp(x[i])
        for i in x:
            total += y[i] * x[i]
        return total

    return kernel, "out[], y[n]", lambda x: ((x.exp() * x).sum(), x.exp())


def a_vector(lang):
    vec3 = lang.types.vector(3, lang.f64)

    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> vec3:
        total = vec3(0.0)
        for i in x:
            total += x[i] ** vec3(1.0, 2.0, 3.0)
        return total

    return kernel, "out[3]", lambda x: torch.stack([x.sum(), (x**2).sum(), (x**3).sum()])


def a_matrix(lang):
    mat2 = lang.types.matrix(2, 2, lang.f64)

    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> mat2:
        matrix = mat2([[x[0], x[1] * x[2]], [lang.sin(x[3]), 1.0]])
        return matrix @ matrix

    def twin(x):
        matrix = torch.stack([x[0], x[1] * x[2], x[3].sin(), torch.ones_like(x[0])]).reshape(2, 2)
        return matrix @ matrix

    return kernel, "out[2, 2]", twin


def a_tuple_that_is_a_local(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> (lang.f64, lang.f64):
        pair = (x[0] * x[1], lang.cos(x[2]))
        return pair  # noqa: RET504  # the local is what is tested

    return kernel, "a[], b[]", lambda x: (x[0] * x[1], x[2].cos())


def a_tuple_of_a_function(lang):
    @lang.func
    def both(v):
        return v * v, lang.sqrt(v)

    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> (lang.f64, lang.f64):
        return both(x[3])

    return kernel, "a[], b[]", lambda x: (x[3] ** 2, x[3].sqrt())


def in_branches_known_at_compile_time(lang):
    power = 3

    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> lang.f64:
        total = 0.0
        if lang.static(power == 1):
            return x[0]
        elif lang.static(power == 2):
            total = 100.0
        else:
            total = 1.0
        for i in x:
            total += x[i] ** power
        if lang.static(power == 3):
            return 2.0 * total
        else:
            return total

    return kernel, "out[]", lambda x: 2 * (x**3).sum() + 2


def before_what_is_never_run(lang):
    @lang.kernel  # noqa: RET503  # a kernel that Python would end elsewhere
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()) -> lang.f64:
        for i in x:
            y[i] = x[i] ** 2
        return x[4]
        y[0] = 7.0

    return kernel, "y[n], out[]", lambda x: (x**2, x[4])


FORMS = [
    local_of_the_output_s_name, index_of_the_output_s_name, after_what_it_writes, a_vector, a_matrix,
    a_tuple_that_is_a_local, a_tuple_of_a_function, in_branches_known_at_compile_time, before_what_is_never_run,
]  # fmt: skip


@pytest.mark.thinned(4)
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.func.jvp uses it
@pytest.mark.parametrize("make", FORMS)
def test_ways_to_return(lang64, make):
    kernel, outputs, twin = make(lang64)
    op = ts.op(f"x[n] -> {outputs}")(kernel)
    x, direction = (0.2 + torch.rand(5, dtype=torch.float64) for _ in range(2))
    cases.assert_same_values_and_gradients(op, twin, (x,))
    ours, theirs = (torch.func.jvp(lambda x, f=f: cases.list_tensors(f(x)), (x,), (direction,))[1] for f in (op, twin))
    cases.assert_close(ours, theirs)
    ours, theirs = (torch.func.jacrev(lambda x, f=f: cases.list_tensors(f(x))[-1].sum())(x) for f in (op, twin))
    cases.assert_close(ours, theirs)
    samples = 0.2 + torch.rand(3, 5, dtype=torch.float64)
    ours, theirs = (torch.func.vmap(lambda x, f=f: cases.list_tensors(f(x)))(samples) for f in (op, twin))
    cases.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["i32", "i64", "u8"])
def test_integers_have_no_gradient(lang64, name):
    dtype = getattr(lang64, name)

    @lang64.kernel
    def above(x: lang64.types.ndarray()) -> (dtype, lang64.f64):
        count, total = 0, 0.0
        for i in x:
            if x[i] > 0.5:
                count += 1
            total += x[i] ** 2
        return count, total

    op = ts.op("x[n] -> count[], total[]")(above)
    x = torch.rand(20, dtype=torch.float64, requires_grad=True)
    count, total = op(x)
    assert str(count.dtype).endswith(name.lstrip("iu")) and not count.requires_grad
    assert count.item() == (x > 0.5).sum()
    cases.assert_close(torch.autograd.grad(total, x), (2 * x.detach(),))


def test_inout_arguments_beside_return_values(lang64):
    @lang64.kernel
    def decayed(force: lang64.types.ndarray(), place: lang64.types.ndarray()) -> lang64.f64:
        energy = 0.0
        for i in place:
            place[i] = 0.9 * place[i] + force[i] ** 2
        for i in place:
            energy += 0.5 * place[i] ** 2
        return energy

    op = ts.op("force[n], inout place[n] -> energy[]")(decayed)

    def ours(force, start):
        place = start.clone()
        energies = [op(force, place) for _ in range(3)]
        return (*energies, place)

    def twin(force, place):
        energies = []
        for _ in range(3):
            place = 0.9 * place + force**2
            energies.append((place**2).sum() / 2)
        return (*energies, place)

    inputs = tuple(torch.rand(4, dtype=torch.float64) for _ in range(2))
    cases.assert_same_values_and_gradients(ours, twin, inputs)
    with torch.no_grad():  # in the tensor's own memory
        cases.assert_close(ours(*inputs), twin(*inputs))


def test_a_type_of_its_results(lang64):
    class Moments(NamedTuple):
        mean: torch.Tensor
        square: torch.Tensor

    @lang64.kernel
    def moments(x: lang64.types.ndarray()) -> (lang64.f64, lang64.f64):
        mean, square = 0.0, 0.0
        for i in x:
            mean += x[i] / x.shape[0]
            square += x[i] ** 2 / x.shape[0]
        return mean, square

    op = ts.op("x[n] -> mean[], square[]", returns=Moments)(moments)
    typed = op(torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert isinstance(typed, Moments)
    assert typed.mean.item() == 2.0 and typed.square.item() == 5.0


@pytest.mark.parametrize("on_tensors", [False, True])
def test_layers_ignore_return_values(lang64, on_tensors):
    x, y = (lang64.field(lang64.f64, shape=4, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def squared(is_total: lang64.template()) -> lang64.f64:
        for i in x:
            y[i] = x[i] ** 2
        if lang64.static(is_total):
            return y[0] + y[1]
        return y[0]

    layer = ts.EmptyTin(on_tensors=on_tensors, adjoint="source").register_kernel(squared, 1)
    layer.register_input_field(x).register_output_field(y).finish()
    cases.assert_same_values_and_gradients(layer, lambda x: x**2, (torch.rand(4, dtype=torch.float64),))


def test_a_number_of_each_sample(lang64):
    op = ts.op("x[*b, n], w[n] -> energy[*b]")(energy(lang64))
    inputs = torch.rand(2, 3, 7, dtype=torch.float64), torch.rand(7, dtype=torch.float64)
    cases.assert_same_values_and_gradients(op, lambda x, w: 0.5 * (w * x**2).sum(-1), inputs)
    single = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    x, w = inputs
    torch.testing.assert_close(torch.func.vmap(single, (0, None))(x[0], w), op(x[0], w))
    torch.testing.assert_close(torch.func.hessian(single)(x[0, 0], w), torch.diag(w))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("adjoint", ["source", "engine"])
def test_several_values_one_of_them_a_vector(lang64, adjoint):
    vec2 = lang64.types.vector(2, lang64.f64)

    @lang64.kernel
    def summary(x: lang64.types.ndarray(), y: lang64.types.ndarray()) -> (lang64.f64, vec2):
        for i in x:
            y[i] = 2.0 * x[i]
        return x[0] * x[1], vec2(x[0] ** 2, lang64.sin(x[1]))

    op = ts.op("x[n] -> y[n], product[], pair[2]", adjoint=adjoint)(summary)

    def expected(x):
        return 2 * x, x[0] * x[1], torch.stack([x[0] ** 2, x[1].sin()])

    cases.assert_same_values_and_gradients(op, expected, (torch.rand(5, dtype=torch.float64),))
    assert op(torch.rand(5, dtype=torch.float64))._fields == ("y", "product", "pair")


def test_the_last_kernel_of_a_chain(lang64):
    @lang64.kernel
    def squares(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 2

    @lang64.kernel
    def largest(y: lang64.types.ndarray()) -> lang64.f64:
        greatest = 0.0
        for _ in range(1):
            for i in range(y.shape[0]):
                greatest = lang64.max(greatest, y[i])
        return greatest

    op = ts.chain("x[n] -> top[]", [squares, largest], scratch="y[n]")
    cases.assert_same_values_and_gradients(op, lambda x: (x**2).max(), (torch.rand(6, dtype=torch.float64),))


def test_half_and_single_precision_as_the_annotation_says(lang):
    @lang.kernel
    def mean(x: lang.types.ndarray()) -> lang.f32:
        total = 0.0
        for i in x:
            total += x[i]
        return total / x.shape[0]

    op = ts.op("x[n] -> mean[]")(mean)
    x = torch.rand(9)
    torch.testing.assert_close(op(x), x.mean())
    assert op(x.bfloat16()).dtype == torch.bfloat16
    assert op(x.double()).dtype == torch.float32


def test_the_kernel_stays_the_user_s(lang64):
    kernel = energy(lang64)
    x, w = torch.rand(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    value = ts.op("x[n], w[n] -> energy[]")(kernel)(x, w)
    assert kernel(x, w) == pytest.approx(value.item())


def test_a_compiled_call(lang64):
    torch._dynamo.reset()
    op = ts.op("x[n], w[n] -> energy[]")(energy(lang64))
    x, w = torch.rand(5, dtype=torch.float64, requires_grad=True), torch.rand(5, dtype=torch.float64)
    value = torch.compile(op, fullgraph=True, backend="aot_eager")(x, w)
    (slope,) = torch.autograd.grad(value, x)
    torch.testing.assert_close(slope, (w * x).detach())


def test_python_s_int_is_the_engine_s_integer(lang64):
    """Of an argument and of a result: not the smallest that there is."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), count: int, scale: int) -> int:
        total = 0
        for i in range(count):
            total += lang64.cast(x[i] * scale, int)
        return total

    op = ts.op("x[n] -> total[]")(kernel)
    total = op(torch.full((300,), 2, dtype=torch.int32), 300, 70_000)
    assert total.dtype == torch.int32
    assert total == 300 * 2 * 70_000
    with pytest.raises(ts.ArgumentError, match=r"annotation  int: -2147483648 to 2147483647"):
        op(torch.zeros(3, dtype=torch.int32), 3, 2**31)


def test_python_s_float_is_the_engine_s_float(lang64):
    """Of a result, where no input is of floats."""

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(dtype=lang64.i32, ndim=1)) -> float:
        total = 0.0
        for i in x:
            total += 0.5 * x[i]
        return total

    total = ts.op("x[n] -> total[]")(kernel)(torch.full((3,), 3, dtype=torch.int32))
    assert total.dtype == torch.float64
    assert total == 4.5
