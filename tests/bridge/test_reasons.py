"""What is said where a gradient cannot be had: first why none is generated, with the line, then the engine's rule."""

import importlib
import warnings

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith import GradientError

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*the engine's own, since none can be generated:UserWarning"),
    pytest.mark.compiled_engine,
]


def find_line(mark):
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {mark}"))


def catch_refusal(op, *inputs):
    with pytest.raises(GradientError) as caught:
        op(*[one.requires_grad_() for one in inputs]).sum().backward()
    return str(caught.value)


def not_followed(lang):
    """Build a kernel with a function that is an instruction of the engine's compiler and cannot be analyzed."""
    return importlib.import_module(f"{lang.__name__}._funcs")._svd3d


def test_the_reason_without_a_generated_gradient_comes_first(lang, engine):
    @ts.op("x[n] -> y[n]", scratch="count[]: i32")
    @lang.kernel
    def packed(x: lang.types.ndarray(), y: lang.types.ndarray(), count: lang.types.ndarray()):
        for i in x:
            while x[i] > 0.5:
                s = lang.atomic_add(count[None], 1)  # slot
                y[s] = x[i]

    words = catch_refusal(packed, torch.rand(4))
    head, _, tail = words.partition(f"The error about {engine}'s own gradient:\n")
    assert (
        "op `packed` has no gradient: none can be generated from its source, and "
        f"{engine}'s own gradient is refused, too" in head
    )
    assert "the return value of atomic_add in a parallel loop, which depends on the order of the iterations" in head
    assert f"test_reasons.py:{find_line('slot')}" in head
    assert "Put the loop inside `for _ in range(1):`, where its iterations run in order" in head
    assert "the gradient of op `packed` needs the return value of an atomic on `count`" in tail


@pytest.mark.each_engine
def test_a_rule_of_lint_comes_second(lang, engine):
    if engine != "taichi":
        pytest.skip("TS404 is Taichi's")
    decompose, real = not_followed(lang), lang.f32

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def chained(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v, _, _ = decompose(lang.Matrix([[x[i], 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), real)  # inside
            s = 0.0
            for _j in range(3):
                s = s * v[0, 0] + lang.exp(s)
            y[i] = s

    head, _, tail = catch_refusal(chained, torch.rand(4)).partition("The error about taichi's own gradient:\n")
    assert "decompose" in head and f"test_reasons.py:{find_line('inside')}" in head
    assert "TS4" in tail and "TS4" not in head


def test_engine_internal_functions_are_refused_with_the_users_line(lang, engine):
    """It is refused by the user's own line, and not by what the engine does there."""
    matrices = lang.types.ndarray(dtype=lang.types.matrix(3, 3, lang.f32), ndim=1)
    decompose, real = not_followed(lang), lang.f32

    @ts.op("x[n, 3, 3] -> y[n, 3, 3]", adjoint="source")
    @lang.kernel
    def first_factor(x: matrices, y: matrices):
        for i in x:
            y[i] = decompose(x[i], real)[0]  # decompose

    words = catch_refusal(first_factor, torch.rand(2, 3, 3))
    assert f"`decompose(x[i], real)`, a function of {engine}'s own that cannot be followed" in words
    assert f"test_reasons.py:{find_line('decompose')}" in words
    assert "ast_builder" not in words and "init()" not in words


def test_remedies_fit_the_caller():
    """Quadrants takes loops of unknown length where it was started so; a layer has no `backward=`."""
    lang = pytest.importorskip("quadrants")
    lang.init(lang.cpu, ad_stack_experimental_enabled=False)
    x, y = (lang.field(lang.f32, shape=4, needs_grad=True) for _ in range(2))

    @lang.kernel
    def carried(k: int):
        for i in x:
            s = x[i]
            for _ in range(k):
                s = s * x[i] + 1.0
            y[i] = s

    @ts.op("x[n] -> y[n]", adjoint="engine")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(), k: int):
        for i in x:
            s = x[i]
            for _ in range(k):
                s = s * x[i] + 1.0
            y[i] = s

    cure = (
        "Start the engine with `ts.init(..., ad_stack_experimental_enabled=True)`, "
        "or rewrite the construct that it names"
    )
    layer = ts.EmptyTin("cpu", adjoint="engine").register_kernel(carried, 3)
    layer = layer.register_input_field(x, name="x").register_output_field(y, name="y").finish()
    with pytest.raises(GradientError) as caught:
        layer(torch.rand(4, requires_grad=True)).sum().backward()
    assert cure in str(caught.value) and "backward=" not in str(caught.value)
    with pytest.raises(GradientError) as caught:
        op(torch.rand(4, requires_grad=True), 3).sum().backward()
    assert cure in str(caught.value) and "`backward=`" in str(caught.value)


def test_dead_loops_save_nothing(lang64):
    """A loop that only knows when to end is dead as other loops are, in gradients and tangents alike."""

    @ts.op("x[n], w[n] -> y[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        unused = 0.3
        for i in range(x.shape[0]):
            total = w[i]
            for _ in range(5):
                if total > 2.0:
                    break
                total = total * 1.4 + 0.1
            unused += total
        for i in x:
            y[i] = lang64.sin(x[i])

    x, w = torch.rand(3, dtype=torch.float64), torch.rand(3, dtype=torch.float64)
    hessian = torch.func.hessian(lambda x, w: (op(x, w) ** 2).sum(), (0, 1))(x, w)
    assert torch.allclose(hessian[0][0], torch.diag(2.0 * torch.cos(2.0 * x)))
    assert not any(hessian[row][column].any() for row, column in ((0, 1), (1, 0), (1, 1)))


@pytest.mark.filterwarnings("default:.*the engine's own:UserWarning")
def test_a_warning_names_the_caller_s_line(lang):
    decompose, real = not_followed(lang), lang.f32

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def squared(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            _, _, _ = decompose(lang.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), real)
            y[i] = x[i] * x[i]

    x = torch.rand(4, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="the engine's own, since none can be generated") as warned,
        pytest.raises(GradientError),  # which it has not either
    ):
        squared(x).sum().backward()  # backward
    assert (warned[0].filename, warned[0].lineno) == (__file__, find_line("backward"))


@pytest.mark.each_engine
def test_a_kernel_that_no_engine_compiles_says_so_first(lang):
    """Neither compiles an `else` of a `while`."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def ended(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = x[i]
            n = 0
            while n < 3:  # ended
                v = v * x[i]
                n += 1
            else:
                v = v + 1.0
            y[i] = v

    place = f"test_reasons.py:{find_line('ended')}"
    for needs_gradient in (False, True):
        with pytest.raises(ts.KernelError, match="'else' clause for 'while' not supported") as caught:
            ended(torch.rand(3, requires_grad=needs_gradient))
        assert place in str(caught.value)


def test_a_stack_that_would_overflow_is_refused_before_the_launch():
    """Only Taichi has a stack of known depth."""
    taichi = pytest.importorskip("taichi")
    ts.init(engine="taichi")

    @ts.op("x[n] -> y[n]", adjoint="engine")
    @taichi.kernel
    def waves(x: taichi.types.ndarray(), m: int, y: taichi.types.ndarray()):
        for i in x:
            v = x[i]
            for _j in range(m):  # carried
                v = taichi.sin(v) * x[i]
            y[i] = v

    x = torch.rand(3, requires_grad=True)
    waves(x, 20).sum().backward()
    # Backward, since the steps of a call without a gradient need no stack.
    with pytest.raises(ts.GradientError, match="would overflow its gradient stack in op `waves` and end") as caught:
        waves(x, 100_000).sum().backward()
    words = str(caught.value)
    assert "changes `v` in each iteration" in words and f"test_reasons.py:{find_line('carried')}" in words
    assert "values to keep  100002" in words and "engine='quadrants'" in words


def halved(v):
    return v * 0.5


def test_an_engine_s_warning_names_the_user_s_line_once(lang):
    @ts.op("x[n] -> y[n]", adjoint="engine")
    @lang.kernel
    def calling(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = halved(x[i]) * x[i]  # plain Python

    x = torch.rand(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        calling(x).sum().backward()
        torch.func.vmap(calling)(x.detach().expand(2, 3))
    warned = [one for one in caught if "halved" in str(one.message)]
    assert [(one.filename, one.lineno) for one in warned] == [(__file__, find_line("plain Python"))]
    assert "\x1b" not in str(warned[0].message)


ORDERED = {  # what the order of a parallel loop's iterations decides, and what another iteration of it reads
    "a sum that is read": "y[i] += x[i]\n            y[(i + 1) % 4] += 0.5 * y[i] * x[i]",
    "a float that an atomic returned": "y[i] = x[i] * lang.atomic_add(total[0], x[i])",
    "a product": "lang.atomic_mul(y[i // 2], x[i])\n            y[i // 2] += 0.0",
}


@pytest.mark.parametrize("case", ORDERED)
def test_a_loop_whose_order_decides_has_a_gradient_in_order(lang64, case):
    """The refusal says so, and it is true."""
    lines = "        for i in x:\n            " + ORDERED[case]
    parallel, inner = lines.replace("\n    ", "\n").replace("        for", "    for"), lines
    text = """
def kernel(x: lang.types.ndarray(ndim=1), total: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in x:
        y[i] = 1.0
"""
    spec = "x[n] -> y[n]"
    x = torch.rand(4, dtype=torch.float64) + 0.5
    refusing = ts.op(spec, scratch="total[1]", adjoint="source", races="allow")(compile_text(lang64, text + parallel))
    with pytest.raises(ts.GradientError, match=r"`for _ in range\(1\):`"):
        refusing(x.clone().requires_grad_()).sum().backward()
    op = ts.op(spec, scratch="total[1]", adjoint="source")(
        compile_text(lang64, text + "    for _ in range(1):\n" + inner)
    )
    assert torch.autograd.gradcheck(op, x.requires_grad_())


@pytest.mark.parametrize("adjoint", ["auto", "source"])
def test_a_kernel_that_does_not_compile_says_so_first(lang64, adjoint):
    """With a gradient too: that none can be generated for the line is not the cause."""

    @lang64.kernel
    def backwards(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                y[i] = x[i] * x[i]
            for i in range(x.shape[0] - 2, -1, -1):  # downwards
                y[i] -= y[i] * y[i + 1]

    op = ts.op("x[n] -> y[n]", adjoint=adjoint)(backwards)
    for needs_gradient in (True, False):
        with pytest.raises(ts.KernelError, match="the kernel of op `backwards` does not compile") as caught:
            op(torch.ones(3, dtype=torch.float64, requires_grad=needs_gradient))
        words = str(caught.value)
        assert "Range should have 1 or 2 arguments" in words and "`i = n - 1 - k` counts down" in words
        assert f"test_reasons.py:{find_line('downwards')}: for i in range(x.shape[0] - 2, -1, -1):" in words


@pytest.mark.parametrize("adjoint", ["auto", "engine"])
def test_a_loop_with_too_few_indices(lang64, adjoint):
    """The line is the user's, not the one that the engine was given."""

    @lang64.kernel
    def double(a: lang64.types.ndarray(), p: lang64.types.ndarray()):
        for i in p:  # one index
            p[i] = a[i] * 2

    op = ts.op("a[n, 2] -> p[n, 2]", adjoint=adjoint)(double)
    with pytest.raises(ts.KernelError, match=r"`p` +2 dims, and `for i in p` names 1 index") as caught:
        op(torch.ones(3, 2, dtype=torch.float64))
    words = str(caught.value)
    assert f"test_reasons.py:{find_line('one index')}: for i in p:" in words and "_lang" not in words
    assert "annotate them: `p: ndarray(dtype=types.vector(k, f32), ndim=1)`" in words
