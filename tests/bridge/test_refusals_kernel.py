"""What a spec or a kernel that cannot be an op gets: an error where it is made, with the place."""

import inspect

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith.engines import of_kernel


def plain(lang):
    @lang.kernel
    def plain(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    return plain


def typed(lang):
    @lang.kernel
    def typed(x: lang.types.ndarray(ndim=1), a: lang.f32, y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = a * x[i]

    return typed


def vectors(lang):
    vec3 = lang.types.vector(3, lang.f32)

    @lang.kernel
    def vectors(p: lang.types.ndarray(dtype=vec3, ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in p:
            y[i] = p[i].dot(p[i])

    return vectors


# kernel, spec, options, fragments
SPECS = {
    "no arrow": (plain, "x[n]", {}, ["^", "->"]),
    "no outputs": (plain, "x[n] ->", {}, ["^"]),
    "no brackets": (plain, "x -> y[n]", {}, ["^", "x[]"]),
    "unclosed": (plain, "x[n -> y[n]", {}, ["^"]),
    "strange sign": (plain, "x[n] -> y[n & 2]", {}, ["^", "&"]),
    "arithmetic in an input": (plain, "x[n + 1] -> y[n]", {}, ["^"]),
    "unknown dtype": (plain, "x[n]: f33 -> y[n]", {}, ["^", "f33"]),
    "named twice": (plain, "x[n], x[n] -> y[n]", {}, ["x"]),
    "not a parameter": (plain, "x[n], z[n] -> y[n]", {}, ["`z`", "plain", "x, y"]),
    "array left out": (plain, "-> y[n]", {}, ["`x`", "plain"]),
    "rank of the annotation": (typed, "x[h, w] -> y[h]", {}, ["`x`", "ndim=1"]),
    "scalar as array": (typed, "x[n], a[n] -> y[n]", {}, ["`a`", "a[]"]),
    "scalar as output": (typed, "x[n] -> y[n], a[]", {}, ["`a`"]),
    "element dims missing": (vectors, "p[n] -> y[n]", {}, ["`p`", "element"]),
    "element width": (vectors, "p[n, 4] -> y[n]", {}, ["`p`", "3", "4"]),
    "dtype against the annotation": (vectors, "p[n, 3]: f64 -> y[n]", {}, ["`p`", "f64"]),
    "batch of some outputs only": (plain, "x[*b, n] -> y[n]", {}, ["*b", "y"]),
    "init of no output": (plain, "x[n] -> y[n]", {"init": {"z": "empty"}}, ["`z`", "init"]),
    "init of an input": (plain, "x[n] -> y[n]", {"init": {"x": "empty"}}, ["`x`", "init"]),
    "init of a gradient unfilled": (plain, "x[n] -> y[n]", {"init": {"grad_x": "empty"}}, ["`grad_x`", "backward="]),
    "init of an output as a workspace": (plain, "x[n] -> y[n]", {"init": {"y": "workspace"}}, ["workspace", "'empty'"]),
    "init unknown": (plain, "x[n] -> y[n]", {"init": {"y": "emtpy"}}, ["emtpy", "empty"]),
    "adjoint unknown": (plain, "x[n] -> y[n]", {"adjoint": "engnie"}, ["engnie", "engine"]),
    "engine unknown": (plain, "x[n] -> y[n]", {"engine": "taihci"}, ["taihci", "taichi"]),
    "scratch is an output": (plain, "x[n] -> y[n]", {"scratch": "y[n]"}, ["y"]),
    "scratch not a parameter": (plain, "x[n] -> y[n]", {"scratch": "h[n]"}, ["`h`", "plain"]),
    "scratch does not parse": (plain, "x[n] -> y[n]", {"scratch": "h[n"}, ["^"]),
    "backward is no kernel": (plain, "x[n] -> y[n]", {"backward": len}, ["backward", "kernel"]),
}  # fmt: skip


@pytest.mark.parametrize("mistake", SPECS)
def test_a_spec_that_does_not_fit_is_refused_where_it_is_written(lang, mistake):
    make, spec, options, fragments = SPECS[mistake]
    with pytest.raises(ts.TinsmithError) as caught:
        ts.op(spec, **options)(make(lang))
    words = str(caught.value)
    for fragment in fragments:
        assert fragment in words, words
    assert "object at 0x" not in words, words


def test_the_caret_stands_under_the_place(lang):
    with pytest.raises(ts.SpecError) as caught:
        ts.op("x[n], k[m] -> y[n - m $ 1]")(plain(lang))
    lines = str(caught.value).splitlines()
    row = next(k for k, line in enumerate(lines) if line.strip() == "^" or line.rstrip().endswith("^"))
    assert lines[row - 1][lines[row].index("^")] == "$"


def test_a_backward_kernel_with_unknown_parameters(lang):
    @lang.kernel
    def back(grad_z: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in grad_z:
            grad_x[i] = grad_z[i]

    with pytest.raises(ts.TinsmithError, match=r"(?s)grad_z.*grad_y"):
        ts.op("x[n] -> y[n]", backward=back)(plain(lang))
    op = ts.op("x[n] -> y[n]")(plain(lang))
    with pytest.raises(ts.TinsmithError, match=r"(?s)grad_z.*grad_y"):
        op.backward(back)


def test_no_kernel_at_all(lang):
    def python(x, y):
        y[0] = x[0]

    for thing in (python, len, 3, None):
        with pytest.raises(ts.TinsmithError, match=r"kernel"):
            ts.op("x[n] -> y[n]")(thing)


def test_op_without_a_spec(lang):
    with pytest.raises(ts.TinsmithError, match=r"(?s)spec.*ts\.op\("):
        ts.op(plain(lang))


def test_a_chain_of_nothing_and_of_strangers(lang):
    with pytest.raises(ts.TinsmithError, match=r"kernel"):
        ts.chain("x[n] -> y[n]", [])
    with pytest.raises(ts.ArgumentError, match="needs at least one kernel"):
        ts.chain("x[n] -> y[n]")
    with pytest.raises(ts.TinsmithError, match=r"`h`"):
        ts.chain("x[n] -> y[n]", [plain(lang)], scratch="h[n]")
    kernel = plain(lang)
    calls = (
        lambda: ts.chain(kernel, kernel),
        lambda: ts.chain([kernel, kernel], "x[n] -> y[n]"),
        lambda: ts.chain("x[n] -> y[n]", kernel),
        lambda: ts.chain("x[n] -> y[n]", ts.op("x[n] -> y[n]")(kernel)),
    )
    for call in calls:
        with pytest.raises(ts.ArgumentError, match=r"(?s)spec.*list of kernels.*\[first, second\]"):
            call()


@pytest.mark.parametrize("count", [0, 2])
def test_an_op_of_several_kernels_is_a_chain(lang, count):
    with pytest.raises(ts.ArgumentError) as refused:
        ts.op("x[n] -> y[n]")(*[plain(lang)] * count)
    assert f"ts.op makes an op of one kernel, and was given {count}" in str(refused.value)
    assert 'ts.chain("x[n] -> y[n]", [first, second]) makes an op of several' in str(refused.value)


# --- kernels ----------------------------------------------------------------------------------------------------------


def find_line(kernel, text):
    """Return the line number of a text in the kernel's file."""
    function = getattr(kernel, "__wrapped__", None) or kernel.fn
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if text in line)


def use(op, *inputs):
    """Make, call, differentiate: a refusal may come at whichever of them first knows."""
    leaves = cases.make_leaves(inputs)
    out = cases.list_tensors(op(*leaves))
    sum(o.sum() for o in out if o.requires_grad).backward()


def hidden(lang):
    @lang.kernel
    def hidden(_x: lang.types.ndarray(), _y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in _x:
            _y[i] = 2.0 * _x[i]
            z[i] = _x[i] * _x[i]

    return hidden


def test_an_output_with_an_underscore_is_no_field_of_a_named_tuple(lang):
    with pytest.raises(ts.SpecError, match="output `_y` of op `hidden` begins with an underscore(?s:.*)another name"):
        ts.op("_x[n] -> _y[n], z[n]")(hidden(lang))


def test_one_output_and_scratch_may_begin_with_an_underscore(lang):
    x = torch.rand(3, requires_grad=True)
    for spec, scratch, expected in (("_x[n] -> _y[n]", "z[n]", 2 * x), ("_x[n] -> z[n]", "_y[n]", x * x)):
        op = ts.op(spec, scratch=scratch)(hidden(lang))
        for made in (op(x), torch.compile(op, backend="aot_eager")(x)):
            torch.testing.assert_close(made, expected)
            slopes = [torch.autograd.grad(one.sum(), x, retain_graph=True)[0] for one in (made, expected)]
            torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("statement", ["store", "add", "atomic"])
def test_a_kernel_that_writes_an_input(lang, statement):
    @lang.kernel
    def store(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
            x[i] = 0.0

    @lang.kernel
    def add(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0
            x[i] += y[i]

    @lang.kernel
    def atomic(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.atomic_add(x[0], 1.0)

    kernel, text = {"store": (store, "x[i] = 0.0"), "add": (add, "x[i] += y[i]"), "atomic": (atomic, "atomic_add(")}[
        statement
    ]
    with pytest.raises(ts.KernelError, match=r"(?s)writes.*input `x`") as caught:
        ts.op("x[n] -> y[n]")(kernel)
    assert f":{find_line(kernel, text)}" in str(caught.value) or f"line {find_line(kernel, text)}" in str(caught.value)


def test_a_kernel_that_writes_an_input_through_a_function(lang):
    @lang.func
    def clear(array: lang.template(), i):
        array[i] = 0.0

    @lang.kernel
    def hidden(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
            clear(x, i)

    with pytest.raises(ts.KernelError, match=r"`x`"):
        ts.op("x[n] -> y[n]")(hidden)


def test_a_kernel_that_returns_a_value(lang):
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()) -> lang.f32:
        s = 0.0
        for i in x:
            s += x[i]
        return s

    with pytest.raises(ts.KernelError, match=r"(?s)total.*return.*\[\]"):
        ts.op("x[n] -> y[n]")(total)


def both(lang):
    @lang.kernel
    def both(x: lang.types.ndarray()) -> (lang.f32, lang.math.vec2):
        return x[0], lang.math.vec2(x[1], x[2])

    return both


def early(lang):
    @lang.kernel
    def early(x: lang.types.ndarray()) -> lang.f32:
        if x[0] > 0.0:
            return 1.0  #!
        return 2.0

    return early


def in_a_loop(lang):
    @lang.kernel  # noqa: RET503  # that is the mistake
    def in_a_loop(x: lang.types.ndarray()) -> lang.f32:
        for i in x:
            return x[i]  #!

    return in_a_loop


def one_way_only(lang):
    @lang.kernel  # noqa: RET503  # that is the mistake
    def one_way_only(x: lang.types.ndarray(), k: lang.template()) -> lang.f32:
        if lang.static(k):  #!
            return x[0]

    return one_way_only


def shadowed(lang):
    s = 2.0

    @lang.kernel
    def shadowed(x: lang.types.ndarray()) -> lang.f32:
        return s * x[0]  #!

    return shadowed


def struct(lang):
    pair = lang.types.struct(a=lang.f32, b=lang.f32)

    @lang.kernel
    def struct(x: lang.types.ndarray()) -> pair:
        return pair(x[0], x[1])

    return struct


def nothing(lang):
    @lang.kernel
    def nothing(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]

    return nothing


def one(lang):
    @lang.kernel
    def one(x: lang.types.ndarray(), y: lang.types.ndarray()) -> lang.f32:
        for i in x:
            y[i] = x[i]
        return x[0]

    return one


RETURNS = [
    (both, "x[n] -> s[]", r"(?s)both.*returns 2 values, and the spec names 1 of them.*-> result0\[\], result1\[2\]"),
    (both, "x[n] -> s[], t[3]", r"(?s)gives `t`.*elements of size 3.*of 2"),
    (both, "x[n] -> s[], t[]", r"(?s)gives `t`.*0 dims, but what the kernel returns has 1.*Write `t\[2\]`"),
    (
        early,
        "x[n] -> s[]",
        r"(?s)the return value of kernel `early`.*a `return` is in a loop, or in an `if`",
    ),
    (in_a_loop, "x[n] -> s[]", r"(?s)the return value of kernel `in_a_loop`.*`return` is in a loop"),
    (one_way_only, "x[n] -> s[]", "ends without `return`"),
    (shadowed, "x[n] -> s[]", r"(?s)the output `s` has the name of another variable.*`s_out\[\.\.\.\]`"),
    (struct, "x[n] -> s[]", r"(?s)struct.*returns a value of a type that an array cannot hold"),
    (nothing, "x[n] -> y[n], s[]", r"(?s)`s`, which is not a parameter.*returned    nothing.*`return s`"),
    (nothing, "x[n], s[] -> y[n]", r"(?s)`s`, which is not a parameter of the kernel\n.*(?<!return s`.)$"),
    (one, "x[n] -> y[n], s[], t[]", r"(?s)`t`, which is not a parameter.*returned    `s`"),
    (one, "x[n] -> yy[n]", r"(?s)gives `yy`.*1 dims, but what the kernel returns has 0"),
]


@pytest.mark.parametrize(("make", "spec", "words"), RETURNS, ids=lambda value: getattr(value, "__name__", None))
def test_the_number_and_types_of_returned_values(lang, make, spec, words):
    with pytest.raises(ts.TinsmithError, match=words) as caught:
        ts.op(spec)(make(lang))
    lines, first = inspect.getsourcelines(make)
    marked = [first + place for place, line in enumerate(lines) if line.endswith("#!\n")]
    assert all(f"{__file__}:{line}" in str(caught.value) for line in marked)


# What an engine does not compile: the line, and those of the functions that it calls.
def misspelt(lang):
    @lang.func
    def rooted(v):
        w = v + 1.0
        return w.nosuch()

    @lang.kernel
    def misspelt(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = rooted(x[i])

    return misspelt, "x[n] -> y[n]", ["y[i] = rooted(x[i])", "return w.nosuch()"]


def array_for_a_number(lang):
    @lang.func
    def twice(a, i):
        return 2.0 * a[i]

    @lang.kernel
    def doubled(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            if i < 10:
                y[i] = twice(x, i)

    return doubled, "x[n] -> y[n]", ["y[i] = twice(x, i)", "def twice(a, i)", "`a: template()`"]


def index_of_floats(lang):
    @lang.kernel
    def picked(place: lang.types.ndarray(), x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in place:
            # a comment, which is not in what the engine is given

            y[i] = x[place[i]]

    return picked, "place[n], x[m] -> y[n]", ["y[i] = x[place[i]]", "integers"]


def slice_of_an_array(lang):
    @lang.kernel
    def tails(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i:].sum()

    return tails, "x[n] -> y[n]", ["y[i] = x[i:].sum()", "`x[i:]`", "Loop over the elements"]


def slice_in_a_function(lang):
    @lang.func
    def tail(a: lang.template(), i):
        return a[i:].sum()

    @lang.kernel
    def tails(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = tail(x, i)

    return tails, "x[n] -> y[n]", ["return a[i:].sum()", "`a[i:]`", "Loop over the elements"]


def function_of_torch(lang):
    @lang.kernel
    def exps(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = torch.exp(x[i])

    return exps, "x[n] -> y[n]", ["y[i] = torch.exp(x[i])", "write the engine's function, `", ".exp` for `torch.exp`"]


def too_many_indices(lang):
    @lang.kernel
    def firsts(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i, 0]

    return firsts, "x[n] -> y[n]", ["y[i] = x[i, 0]", "Write one index for each dim in the spec"]


def tensor_from_outside(lang):
    w = torch.ones(3)

    @lang.kernel
    def weighed(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = w[i] * x[i]

    words = ["y[i] = w[i] * x[i]", "a tensor from outside the kernel", "Pass `w` as an argument"]
    return weighed, "x[n] -> y[n]", words


def method_of_a_tensor_from_outside(lang):
    w = torch.ones(3)

    @lang.kernel
    def weighed(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = w.sum() * x[i]

    words = ["y[i] = w.sum() * x[i]", "`w`  ", "a tensor from outside the kernel", "Pass `w` as an argument"]
    return weighed, "x[n] -> y[n]", words


NOT_COMPILED = [
    misspelt,
    array_for_a_number,
    index_of_floats,
    slice_of_an_array,
    slice_in_a_function,
    function_of_torch,
    too_many_indices,
    tensor_from_outside,
    method_of_a_tensor_from_outside,
]


@pytest.mark.compiled_engine
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("make", [tensor_from_outside, method_of_a_tensor_from_outside], ids=lambda make: make.__name__)
def test_a_call_with_a_gradient_says_first_that_the_kernel_does_not_compile(lang, make):
    kernel, spec, words = make(lang)
    with pytest.raises(ts.KernelError, match="does not compile") as refused:
        ts.op(spec)(kernel)(torch.ones(3, requires_grad=True))
    assert all(one in str(refused.value) for one in words)


@pytest.mark.compiled_engine
def test_an_engine_s_message_is_quoted_without_its_colors(lang, monkeypatch):
    """In the three places that quote one: of the user's source, of what was printed of it, and of a gradient."""
    engine = of_kernel(plain(lang))

    def refuse(*_, **__):
        raise ValueError("\x1b[31mno such thing\x1b[0m")

    loop = ts.op("x[n] -> y[n]")(plain(lang))
    checked = ts.op("x[n] -> y[n]", check_bounds=True)(plain(lang))
    source = ts.op("x[n] -> y[n]", adjoint="source")(plain(lang))
    x = torch.ones(3, requires_grad=True)
    y = source(x)
    monkeypatch.setattr(type(engine), "compile", refuse)
    for run in (lambda: loop(x), lambda: checked(x), lambda: torch.autograd.grad(y.sum(), x)):
        with pytest.raises(ts.TinsmithError, match="no such thing") as caught:
            run()
        assert "\x1b" not in str(caught.value)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", NOT_COMPILED)
def test_compile_errors_show_the_kernels_lines(lang, make):
    kernel, spec, fragments = make(lang)
    op = ts.op(spec)(kernel)
    with pytest.raises(ts.KernelError) as caught:
        op(*[torch.ones(3) for _ in op.arguments])
    words = str(caught.value)
    for fragment in fragments:
        assert fragment in words, words
    lines, _ = inspect.getsourcelines(make)
    first = inspect.getsourcelines(make)[1]
    line = first + next(k for k, text in enumerate(lines) if fragments[0] in text)
    assert f"{inspect.getsourcefile(make)}:{line}" in words, words
    assert "<tinsmith" not in words, words
    assert caught.value.__cause__ is not None and "cause" in words, words


# Methods and their objects.
def gains(lang, decorate):
    class Gain:
        def __init__(self):
            self.factor = 2.0

        @ts.op("x[n] -> y[n]")
        @lang.kernel
        def as_op(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i]

        @lang.kernel
        def plain(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i]

    return lang.data_oriented(Gain) if decorate else Gain


def test_a_method_without_its_object(lang):
    gain = gains(lang, True)
    for op in (gain.as_op, ts.op("x[n] -> y[n]")(gain.plain)):
        for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
            with pytest.raises(ts.KernelError, match=r"(?s)is a method.*not from an object.*data_oriented"):
                op(x)
    with pytest.raises(ts.KernelError, match="not from an object"):
        ts.check(gain.as_op, torch.ones(3))
    assert gain().as_op(torch.ones(3)).tolist() == [2.0] * 3


@pytest.mark.each_engine
def test_a_class_that_is_not_data_oriented(lang, engine):
    gain = gains(lang, False)
    if engine == "quadrants":  # which takes it
        assert gain().as_op(torch.ones(3)).tolist() == [2.0] * 3
        return
    with pytest.raises(ts.KernelError, match=r"(?s)Gain.*data_oriented"):
        gain().as_op(torch.ones(3))
    with pytest.raises(ts.KernelError, match=r"(?s)is a method.*not from an object.*data_oriented"):
        ts.op("x[n] -> y[n]")(gain().plain)(torch.ones(3))


def overwritten_output(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]
        for i in x:
            y[i] = y[i] * y[i]

    return kernel, None, "y[i] = y[i] * y[i]", "y"


def overwritten_scratch(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            h[i] = x[i]
        for i in x:
            y[i] = h[i] * h[i]
        for i in x:
            h[i] = 1.0

    return kernel, "h[n]", "h[i] = 1.0", "h"


def moving_average(lang):
    """Build the kernel of pitfall 07: a buffer of one cell carries the state from sample to sample."""

    @lang.kernel
    def kernel(x: lang.types.ndarray(), h: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                h[0] = 0.9 * h[0] * h[0] + x[i]
                y[i] = h[0]

    return kernel, "h[1]", "h[0] = 0.9", "h"


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", [overwritten_output, overwritten_scratch, moving_average], ids=lambda f: f.__name__)
def test_a_value_that_was_read_and_then_overwritten_by_the_engine_s_reverse_mode(lang, make):
    """The generated adjoint is right here: tests/frontend/test_roles.py, tests/pitfalls."""
    kernel, scratch, text, array = make(lang)
    with pytest.raises((ts.KernelError, ts.GradientError)) as caught:
        use(ts.op("x[n] -> y[n]", scratch=scratch, adjoint="engine")(kernel), torch.rand(4))
    words = str(caught.value)
    assert f"`{array}`" in words and str(find_line(kernel, text)) in words, words


def test_overwriting_is_fine_with_a_hand_written_backward(lang):
    kernel, _, _, _ = overwritten_output(lang)

    @lang.kernel
    def back(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            grad_x[i] = 2.0 * x[i] * grad_y[i]

    op = ts.op("x[n] -> y[n]", backward=back)(kernel)
    cases.assert_same_values_and_gradients(op, lambda x: x * x, (torch.rand(4),))


def test_a_kernel_without_source(lang):
    space = {"lang": lang}
    text = """
@lang.kernel
def lost(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i]
"""
    try:
        exec(compile(text, "<nowhere>", "exec"), space)
    except Exception:  # noqa: BLE001 - an engine that refuses it itself has said enough
        return
    with pytest.raises(ts.KernelError, match=r"(?s)lost.*source"):
        ts.op("x[n] -> y[n]")(space["lost"])


def test_starting_an_unknown_engine_or_arch():
    with pytest.raises(ts.TinsmithError, match=r"(?s)taihci.*taichi"):
        ts.init(engine="taihci")
    with pytest.raises(ts.TinsmithError, match=r"(?s)gpuu"):
        ts.init(arch="gpuu", engine="taichi")


@pytest.mark.compiled_engine
@pytest.mark.filterwarnings("ignore:.*holds integers:UserWarning")
def test_generated_sources_are_named_after_the_users_file(lang, capfd):
    """Engines' own warnings name nothing else: a text's line, in no file that a user has."""

    @lang.kernel
    def cut(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s = 0
            s += x[i]
            y[i] = s * 1.0

    ts.op("x[n] -> y[n]")(cut)(torch.ones(3))
    named = [line for line in capfd.readouterr().err.splitlines() if line.startswith('File "')]
    assert named and all('File "<tinsmith cut of test_refusals_kernel.py' in line for line in named)


@pytest.mark.compiled_engine
def test_a_loop_that_names_more_indices_than_dims(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def pairs(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in x:
            y[i] = x[i] + j

    with pytest.raises(ts.KernelError) as caught:
        pairs(torch.rand(3))
    words = str(caught.value)
    assert "1 dim, and `for i, j in x` names 2 indices, at" in words
    assert "Write one loop variable for each dim, or give `x` 2 dims in the spec." in words


def test_a_method_of_an_array_is_named(lang):
    @lang.kernel
    def weighed(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * w.sum()

    words = r"kernel `weighed` of op `weighed` calls `w\.sum\(\)`, but arrays have no methods in a kernel"
    words += r"\n  at .*\nLoop over"
    with pytest.raises(ts.KernelError, match=words):
        ts.op("x[n], w[n] -> y[n]")(weighed)


def test_the_error_of_a_spec_with_a_field_suggests_layers(lang):
    x, y = lang.field(lang.f32, 3), lang.field(lang.f32, 3)

    @lang.data_oriented
    class Doubling:
        def __init__(self):
            self.x, self.y = x, y

        @lang.kernel
        def run(self):
            for i in self.x:
                self.y[i] = 2.0 * self.x[i]

    @lang.kernel
    def double():
        for i in x:
            y[i] = 2.0 * x[i]

    for kernel in (double, Doubling().run):
        with pytest.raises(ts.SpecError, match=r"(?s)`x`, which is not a parameter.*`x` is a field.*ts\.EmptyTin"):
            ts.op("x[n] -> y[n]")(kernel)
