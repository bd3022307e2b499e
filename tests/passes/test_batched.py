"""One launch for a batch means what a loop of calls means, whatever stands outside the kernel's loops."""

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts
from tinsmith.ir import NotCovered

F64 = torch.float64


def draw_floats(*shape):
    return torch.rand(shape, dtype=F64) + 0.5


def stack_samples(twin):
    """Apply the twin of one sample to a batch."""

    def loop(*inputs):
        return torch.stack([twin(*sample) for sample in zip(*inputs, strict=True)])

    return loop


def bounds_of_each_sample(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), m: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(m[0]):
            y[i] = x[i] * x[i]

    def twin(x, m):
        return torch.where(torch.arange(len(x)) < m, x**2, 0.0)

    return (
        "x[n], m[1]: i32 -> y[n]",
        kernel,
        twin,
        (draw_floats(3, 5), torch.tensor([[1], [4], [2]], dtype=torch.int32)),
    )


def a_branch_around_loops(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), flag: lang.types.ndarray(), y: lang.types.ndarray()):
        if flag[0] > 0:
            for i in range(x.shape[0]):
                y[i] = x[i] * x[i]
        else:
            for i in range(x.shape[0]):
                y[i] = x[i] * 3.0

    flags = torch.tensor([[0], [1], [0]], dtype=torch.int32)
    twin = lambda x, flag: torch.where(flag > 0, x**2, 3.0 * x)  # noqa: E731
    return "x[n], flag[1]: i32 -> y[n]", kernel, twin, (draw_floats(3, 5), flags)


def a_return_at_the_end(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
        return  # noqa: PLR1711

    return "x[n] -> y[n]", kernel, lambda x: x**2, (draw_floats(3, 5),)


def part_of_a_shape(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=3), y: lang.types.ndarray(ndim=3)):
        for i, j, k in lang.ndrange(x.shape[0], *x.shape[1:]):
            y[i, j, k] = x[i, j, k] * x[i, j, k]

    return "x[a, b, c] -> y[a, b, c]", kernel, lambda x: x**2, (draw_floats(3, 2, 3, 4),)


def sizes_counted_from_the_end(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        for i, j in x:
            total = x.shape[-1]
            for d in lang.static(range(2)):
                total += x.shape[d - 2]
            y[i, j] = x[i, j] * x[i, j] * total

    return "x[h, w] -> y[h, w]", kernel, lambda x: x**2 * (x.shape[0] + 2 * x.shape[1]), (draw_floats(3, 5, 2),)


def a_variable_of_our_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for _batch in range(x.shape[0]):
            y[_batch] = x[_batch] * x[_batch]

    return "x[n] -> y[n]", kernel, lambda x: x**2, (draw_floats(3, 5),)


def one_variable_for_a_range(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in lang.ndrange(x.shape[0]):
            y[i] = x[i] * x[i]

    return "x[n] -> y[n]", kernel, lambda x: x**2, (draw_floats(3, 5),)


# fmt: off
def text_at_the_margin(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        """Have a text
        that is not indented.
        """
        for i in x:
# a comment at the margin
            y[i] = x[i] * x[i]

    return "x[n] -> y[n]", kernel, lambda x: x**2, (draw_floats(3, 5),)
# fmt: on


def empty_ranges(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        for i, j in lang.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
            y[i, j] = x[i, j] * x[i, j]

    return "x[h, w] -> y[h, w]", kernel, lambda x: 0.0 * x, (draw_floats(3, 1, 1),)


def a_bound_with_a_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        half = x.shape[0] // 2
        for i in range(half):
            y[i] = x[i] * x[i]
        for i in range(half + 1, x.shape[0]):
            y[i] = x[i] * 3.0

    return "x[n] -> y[n]", kernel, lambda x: torch.cat([x[:2] ** 2, 0 * x[:1], 3 * x[3:]]), (draw_floats(3, 5),)


def a_function_that_is_given_arrays(lang):
    @lang.func
    def dot(x: lang.template(), k: lang.template(), start):
        total = 0.0
        for j in range(k.shape[0]):
            total += x[start + j] * k[j]
        return total

    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), k: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in y:
            y[i] = dot(x, k, i)

    twin = lambda x, k: (x.unfold(0, len(k), 1) * k).sum(1)  # noqa: E731
    return "x[n], k[m] -> y[n - m + 1]", kernel, twin, (draw_floats(3, 5), draw_floats(3, 2))


def loops_in_order(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i]
        lang.loop_config(serialize=True)
        for i in range(1, x.shape[0]):
            y[i] += y[i - 1] * x[i]

    def twin(x):
        rows = [x[0]]
        for one in x[1:]:
            rows.append(one + rows[-1] * one)
        return torch.stack(rows)

    return "x[n] -> y[n]", kernel, twin, (draw_floats(3, 5),)


def locals_that_a_loop_in_order_changes(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        total = 0.0
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            total += x[i]
            y[i] = total * x[i]

    return "x[n] -> y[n]", kernel, lambda x: x.cumsum(0) * x, (draw_floats(3, 5),)


def vectors_and_matrices(lang):
    vector, matrix = lang.types.vector(2, lang.f64), lang.types.matrix(2, 2, lang.f64)

    @lang.kernel
    def kernel(
        a: lang.types.ndarray(dtype=vector, ndim=1),
        r: lang.types.ndarray(dtype=matrix, ndim=0),
        y: lang.types.ndarray(dtype=vector, ndim=1),
    ):
        for i in a:
            y[i] = r[None] @ a[i] * a[i].norm()

    twin = lambda a, r: a @ r.T * a.norm(dim=-1, keepdim=True)  # noqa: E731
    return "a[n, 2], r[2, 2] -> y[n, 2]", kernel, twin, (draw_floats(3, 4, 2), draw_floats(3, 2, 2))


BATCHES = [
    a_function_that_is_given_arrays,
    loops_in_order,
    locals_that_a_loop_in_order_changes,
    vectors_and_matrices,
    bounds_of_each_sample,
    a_branch_around_loops,
    a_return_at_the_end,
    part_of_a_shape,
    sizes_counted_from_the_end,
    a_variable_of_our_name,
    one_variable_for_a_range,
    text_at_the_margin,
    empty_ranges,
    a_bound_with_a_name,
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("make", BATCHES, ids=lambda make: make.__name__)
def test_a_batch_is_a_loop_of_calls(lang64, make):
    spec, kernel, twin, inputs = make(lang64)
    op = ts.op(spec)(kernel)
    cases.assert_same_values_and_gradients(op, twin, [tensor[0] for tensor in inputs])
    cases.assert_same_values_and_gradients(vmap(op), stack_samples(twin), inputs)
    assert op.explain("all").count(": one launch\n") == 1


def test_a_variable_that_loops_share_is_not_shared_by_the_batch(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def summed(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        total = 0.0
        for i in x:
            total += x[i]
        for i in x:
            y[i] = total

    x = draw_floats(3, 5)
    torch.testing.assert_close(vmap(summed)(x), x.sum(1, keepdim=True).expand(3, 5))
    assert "one launch a sample" in summed.explain("all") and "`total`" in summed.explain("all")


def test_a_kernel_that_cannot_be_followed_is_launched_once_a_sample(lang64, monkeypatch):
    def refuse(*_arguments, **_named):
        raise NotCovered("`a word`", 7, "file.py")

    monkeypatch.setattr("tinsmith.compiling._stage.lower", refuse)

    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = draw_floats(3, 5)
    torch.testing.assert_close(vmap(square)(x), x * x)
    assert "one launch a sample (tinsmith cannot analyze `a word`, at file.py:7)" in square.explain("all")


def test_unbatched_arrays_get_no_batch_axis(lang64):
    """Sizes, and numbers that are there once, are those of one sample; sizes change from call to call."""

    @ts.op("x[n], k[m] -> y[n]")
    @lang64.kernel
    def scaled(x: lang64.types.ndarray(), k: lang64.types.ndarray(), scale: lang64.f64, y: lang64.types.ndarray()):
        n = x.shape[0]
        for i in range(n):
            y[i] = x[n - 1 - i] * k[i % k.shape[0]] * scale

    for samples, n, m in ((3, 5, 2), (4, 7, 3), (1, 1, 1), (2, 6, 4)):
        x, k = draw_floats(samples, n), draw_floats(m)
        expected = x.flip(1) * k[torch.arange(n) % m] * 3.0
        torch.testing.assert_close(vmap(scaled, (0, None, None))(x, k, 3.0), expected)


def beside_loops(lang, adjoint):
    @ts.op("x[n] -> y[n]", adjoint=adjoint)
    @lang.kernel
    def scaled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        scale = x[0] * 2.0
        for i in x:
            y[i] = scale * x[i]

    return scaled


def test_a_statement_beside_loops_is_right_in_a_batch_too(lang64):
    scaled = beside_loops(lang64, "auto")
    cases.assert_same_values_and_gradients(scaled, lambda x: 2 * x[0] * x, (draw_floats(5),))
    cases.assert_same_values_and_gradients(vmap(scaled), lambda x: 2 * x[:, :1] * x, (draw_floats(3, 5),))


def test_a_statement_beside_loops_is_refused_by_the_engine_s_reverse_mode_in_a_batch_too(lang64):
    """As the body of one loop the engines would differentiate it, and lose the gradient that goes through `scale`."""
    scaled, x = beside_loops(lang64, "engine"), draw_floats(3, 5)
    torch.testing.assert_close(vmap(scaled)(x), 2 * x[:, :1] * x)
    for call in (lambda x: scaled(x[0]), vmap(scaled)):
        with pytest.raises(ts.GradientError, match="(?s)`scaled`.*Mixed usage"):
            call(x.clone().requires_grad_()).sum().backward()


def test_a_long_loop_in_a_branch_does_not_overflow_the_gradient_stack(lang64):
    """More trips than Taichi's default stack holds: it killed the process."""

    @ts.op("x[n], flag[1]: i32 -> y[1]")
    @lang64.kernel
    def product(x: lang64.types.ndarray(), flag: lang64.types.ndarray(), y: lang64.types.ndarray()):
        if flag[0] > 0:
            p = 1.0
            for j in range(x.shape[0]):
                p = p * x[j]
            y[0] = p

    flag = torch.ones(3, 1, dtype=torch.int32)
    cases.assert_same_values_and_gradients(
        lambda x: vmap(product)(x, flag), lambda x: x.prod(1, keepdim=True), (draw_floats(3, 40),)
    )
