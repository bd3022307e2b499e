"""Assertions of kernels: engines that check them do so in every form of a kernel, also where it is printed from IR."""

import pytest
import torch

import tinsmith as ts


@pytest.fixture
def checking(engine):
    ts.init("cpu", engine, debug=True)
    yield
    ts.init("cpu", engine)


def make_root(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def root(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            assert x[i] >= 0.0, "a negative number"
            y[i] = lang.sqrt(x[i])

    return root


def test_in_a_batch(lang, checking):
    x = torch.tensor([[1.0, 4.0], [9.0, 16.0]])
    torch.testing.assert_close(torch.func.vmap(make_root(lang))(x), x.sqrt())
    with pytest.raises(Exception, match="a negative number"):
        torch.func.vmap(make_root(lang))(x - 3.0)


def test_with_a_gradient(lang, checking):
    """What holds in the forward pass holds in the backward pass, which does not ask again."""
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    root = make_root(lang)
    root(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.5, 0.25]))
    lowered, generated = root.explain(passes=True).split("# after normalize")
    assert "assert(x[i] >= 0.0, 'a negative number')" in lowered
    assert "a negative number" not in generated
    with pytest.raises(Exception, match="a negative number"):
        root(x - 3.0)


def test_second_derivatives_and_tangents(lang, checking):
    x = torch.tensor([1.0, 4.0])
    hessian = torch.func.hessian(lambda x: make_root(lang)(x).sum())(x)
    torch.testing.assert_close(hessian, torch.diag(-0.25 * x**-1.5))


@pytest.mark.compiled_engine
def test_assertions_are_left_out_if_the_engine_does_not_check_them(lang):
    op = make_root(lang)
    assert torch.func.vmap(op)(torch.tensor([[-1.0], [4.0]])).isnan()[0, 0]
    assert "a negative number" not in op.explain(passes=True).partition("# after lower")[2]


@pytest.mark.compiled_engine  # Python says nothing of an assertion without a message
def test_under_a_condition_in_a_loop(lang, checking):
    @ts.op("x[n] -> y[]")
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            last = 0.0
            for i in range(x.shape[0]):
                if i > 0:
                    assert x[i] > last
                last = x[i]
                y[None] += last

    batch = torch.func.vmap(total)
    torch.testing.assert_close(batch(torch.tensor([[1.0, 2.0, 3.0]])), torch.tensor([6.0]))
    with pytest.raises(Exception, match=r"x\[i\] > last"):
        batch(torch.tensor([[1.0, 3.0, 2.0]]))


def test_a_function_that_only_asserts(lang, checking):
    @lang.func
    def require(value, limit):
        assert value < limit, f"{value} is too large"

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            require(x[i], 2.0)
            y[i] = 2.0 * x[i]

    batch = torch.func.vmap(double)
    torch.testing.assert_close(batch(torch.tensor([[1.0, 1.5]])), torch.tensor([[2.0, 3.0]]))
    with pytest.raises(Exception, match="is too large"):
        batch(torch.tensor([[1.0, 2.5]]))


@pytest.mark.compiled_engine
def test_the_engine_s_own_bounds_check_sees_the_axes(lang, checking):
    """Machine vectors of a batch are read along rows, where the engine would find an index beyond the axis."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    x = torch.rand(3, 70, requires_grad=True)
    y = torch.func.vmap(square)(x)
    torch.testing.assert_close(y, x * x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 2 * x)
