"""Each op is a torch operator of its own, named by its content."""

import gc
import re

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation import Op, OpOptions


@pytest.fixture(autouse=True)
def _fresh_compiler():
    """Reset torch's compiler, which compiles the code shared by all ops only a limited number of times."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def scaled(lang, factor, **options):
    """Build y = factor x^2, with the factor in a closure."""

    @lang.kernel
    def run(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = factor * x[i] * x[i]

    return ts.op("x[n] -> y[n]", **options)(run)


def name_of(op):
    return op.operator.name()


def test_an_operators_name_has_the_ops_name_and_a_digest(lang64):
    assert re.fullmatch(r"tinsmith::run_[0-9a-f]{12}", name_of(scaled(lang64, 2.0)))
    assert name_of(scaled(lang64, 2.0, name="my op²")).startswith("tinsmith::my_op_")


def test_the_same_content_is_the_same_operator(lang64):
    def doubled():
        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = 2 * x[i]

        return ts.op("x[n] -> y[n]")(run)

    first, second = doubled(), doubled()
    assert first.operator is second.operator
    x = rand(3)
    torch.testing.assert_close(second.operator(x), 2 * x)
    del first
    gc.collect()
    torch.testing.assert_close(second.operator(x), 2 * x)


def test_an_operator_whose_op_is_gone_says_so(lang64):
    op = scaled(lang64, 77.0)
    operator = op.operator
    del op
    gc.collect()
    with pytest.raises(
        ts.GraphError, match=r"calls op `run` of module `.*test_operators`, which no longer exists\nKeep the op"
    ):
        operator(rand(3))


@pytest.mark.compiled_engine
@pytest.mark.parametrize("other", ["factor", "name", "adjoint", "init", "check_bounds"])
def test_different_content_is_a_different_operator(lang64, other):
    options = {
        "factor": {},
        "name": {"name": "other"},
        "adjoint": {"adjoint": "engine"},
        "init": {"init": {"y": "empty"}},
        "check_bounds": {"check_bounds": True},
    }[other]
    assert name_of(scaled(lang64, 2.0)) != name_of(scaled(lang64, 3.0 if other == "factor" else 2.0, **options))


def test_a_function_that_the_kernel_calls_is_part_of_the_content(lang64):
    def made(power):
        @lang64.func
        def raised(v):
            return v * v if lang64.static(power == 2) else v * v * v

        @lang64.func
        def cubed(v):
            return v * v * v

        inner = raised if power == 2 else cubed

        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = inner(x[i])

        return ts.op("x[n] -> y[n]")(run)

    assert name_of(made(2)) != name_of(made(3))


def test_comments_and_positions_are_not_part_of_the_content(lang64):
    def one():
        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = 2 * x[i]

        return run

    def other():
        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            """Double the input."""
            # each element alone
            for i in x:
                y[i] = 2 * x[i]

        return run

    assert name_of(ts.op("x[n] -> y[n]")(one())) == name_of(ts.op("x[n] -> y[n]")(other()))


def test_closures_are_distinguished_once_their_values_differ(lang64):
    def counted():
        times = 1.0

        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = times * x[i]

        def change(value):
            nonlocal times
            times = value

        return ts.op("x[n] -> y[n]")(run), change

    (first, _), (second, change) = counted(), counted()
    assert name_of(second) == f"{name_of(first)}_1"
    change(5.0)
    x = rand(3, 4)
    torch.testing.assert_close(torch.func.vmap(first)(x), x)
    torch.testing.assert_close(torch.func.vmap(second)(x), 5 * x)
    compiled = torch.compile(lambda x: first(x) + second(x), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x[0]), 6 * x[0])


def test_ops_of_a_factory_are_distinguished(lang64):
    """What a factory bakes in is part of the content, also where it is not looked at again in each call."""

    def steady(factor):
        return Op([scaled(lang64, factor).kernel], "x[n] -> y[n]", OpOptions(steady=True))

    two, three = steady(2.0), steady(3.0)
    x = rand(2, 3)
    torch.testing.assert_close(torch.func.vmap(two)(x), 2 * x * x)
    torch.testing.assert_close(torch.func.vmap(three)(x), 3 * x * x)


@pytest.mark.parametrize("steady", [False, True])
def test_ops_of_one_source_on_different_fields_are_distinguished(lang64, steady):
    def table(value):
        held = lang64.field(lang64.f64, shape=())
        held[None] = value

        @lang64.kernel
        def run(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = held[None] * x[i]

        return Op([run], "x[n] -> y[n]", OpOptions(steady=steady))

    two, three, x = table(2.0), table(3.0), rand(2, 4)
    torch.testing.assert_close(torch.func.vmap(two)(x), 2 * x)
    torch.testing.assert_close(torch.func.vmap(three)(x), 3 * x)
    result = two.operator(x[0])
    torch.testing.assert_close(result if steady else result[0], 2 * x[0])


@pytest.mark.costly
def test_ops_made_in_a_loop_share_one(lang64):
    names = set()
    for _ in range(5):
        op = scaled(lang64, 2.0)
        names.add(name_of(op))
        del op
        gc.collect()
    assert len(names) == 1


def test_a_call_by_the_operator_is_a_call_of_the_op(lang64):
    @ts.op("x[*b, n] -> y[*b, n]")
    @lang64.kernel
    def doubled(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = 2 * x[i]

    for x in (rand(3), rand(2, 3), rand(4, 2, 3), rand(2, 2, 3).half(), rand(3, 2).t()):
        torch.testing.assert_close(doubled.operator(x), 2 * x)
        x.requires_grad_()
        (doubled.operator(x) * 3).sum().backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, 6.0))


def test_the_schema_has_the_ops_own_names(lang64):
    @ts.op("x[n] -> y[h, n], total[]", scratch="t[n]")
    @lang64.kernel
    def spread(
        x: lang64.types.ndarray(),
        scale: float,
        count: lang64.i32,
        y: lang64.types.ndarray(),
        t: lang64.types.ndarray(),
        total: lang64.types.ndarray(),
    ):
        for i in x:
            t[i] = scale * x[i]
        for i in x:
            for j in range(y.shape[0]):
                y[j, i] = t[i] * count
        for i in x:
            total[None] += t[i]

    schema = str(spread.operator._schema)
    assert "(Tensor x, float scale, SymInt count, SymInt[]? _batch=None, *, SymInt h) " in schema
    assert schema.endswith("-> (Tensor y, Tensor total, Tensor t)")
    torch.library.opcheck(spread.operator, (rand(3), 2.0, 3), {"h": 4})


def test_names_that_torchs_schemas_do_not_know(lang64):
    @ts.op("α[n], out[n] -> Tensor[n]")
    @lang64.kernel
    def odd(α: lang64.types.ndarray(), out: lang64.types.ndarray(), Tensor: lang64.types.ndarray()):
        for i in α:
            Tensor[i] = α[i] * out[i]

    x, y = rand(3), rand(3)
    torch.testing.assert_close(odd.operator(x, y), x * y)
    torch.testing.assert_close(torch.func.vmap(odd)(x[None], y[None]), (x * y)[None])


@pytest.mark.parametrize(("count", "numbers"), [(2, 70), (48, 2)], ids=["numbers", "arrays"])
def test_an_op_of_very_many_arguments(lang64, count, numbers):
    """Schemas of torch's take 64: beyond, numbers go in a list, and then arrays."""
    names, scalars, outputs = ([f"{one}{i}" for i in range(n)] for one, n in (("x", count), ("a", numbers), ("y", 5)))
    sums = [" + ".join(f"{name}[i]" for name in names[k::5]) or "0.0" for k in range(5)]
    lines = [f"        y{k}[i] = ({sums[k]}) * (a0 + 2 * a{numbers - 1}) + {k}" for k in range(5)]
    parameters = [f"{n}: lang.types.ndarray()" for n in names] + [f"{n}: float" for n in scalars]
    parameters += [f"{n}: lang.types.ndarray()" for n in outputs]
    text = f"def many({', '.join(parameters)}):\n    for i in x0:\n" + "\n".join(lines) + "\n"
    spec = f"{', '.join(f'{n}[n]' for n in names)} -> {', '.join(f'{n}[n]' for n in outputs)}"
    op = ts.op(spec)(compile_text(lang64, text))
    assert ("Tensor[] _arrays" in str(op.operator._schema)) == (count > 2)
    assert "Scalar[] _numbers" in str(op.operator._schema)
    leaves = [(rand(3) * i).requires_grad_() for i in range(count)]
    given = [1.0] + [0.0] * (numbers - 2) + [3.0]

    def twin(*xs):
        return [7 * sum(xs[k::5], torch.zeros(3, dtype=torch.float64)) + k for k in range(5)]

    wanted = twin(*leaves)
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        results = call(*leaves, *given)
        torch.testing.assert_close(list(results), wanted)
        slopes, expected = (
            torch.autograd.grad(sum((one * one).sum() for one in ones), leaves, retain_graph=True)
            for ones in (results, wanted)
        )
        torch.testing.assert_close(slopes, expected)
    batch = [torch.stack([leaf.detach(), 2 * leaf.detach()]) for leaf in leaves]
    mapped = torch.func.vmap(lambda *xs: tuple(op(*xs, *given)))(*batch)
    doubled = twin(*(2 * leaf for leaf in leaves))
    torch.testing.assert_close(list(mapped), [torch.stack(both) for both in zip(wanted, doubled, strict=True)])


def test_parameters_may_be_named_like_those_of_the_backward_operator(lang64):
    @ts.op("x[n], _state[n] -> y[n]")
    @lang64.kernel
    def clash(x: lang64.types.ndarray(), grad_y: float, _state: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = grad_y * x[i] * _state[i]

    x = rand(3).requires_grad_()
    (slope,) = torch.autograd.grad(clash.operator(x, 3.0, 2 * torch.ones_like(x)).sum(), x)
    torch.testing.assert_close(slope, torch.full_like(x, 6.0))
