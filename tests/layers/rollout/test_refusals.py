"""What a rollout refuses: the kernel, the line, and what to do."""

import importlib
import re
import warnings

import pytest
import torch

import tinsmith as ts

N = 4


def assert_refused(lang, body, error, *words):
    """Assert that a rollout of `body(lang, x, y)` refuses a call, with a message that has all of `words`."""
    x, y = (lang.field(lang.f64, N, needs_grad=True) for _ in range(2))

    @lang.kernel
    def copy():
        for i in x:
            y[i] = x[i]

    def forward():
        copy()
        body(lang, x, y)

    run = ts.rollout(forward, {"x": x}, {"y": y})
    with pytest.raises(error) as caught:
        run(torch.rand(N, dtype=torch.float64, requires_grad=True))
    for word in words:
        assert re.search(word, str(caught.value)), str(caught.value)


def branches_on_an_element(lang, x, y):
    if x[0] > 0:
        y[0] = 1.0


def looks_at_all(lang, x, y):
    y.to_numpy().sum()


@pytest.mark.parametrize("body", [branches_on_an_element, looks_at_all])
def test_reads_from_python(lang64, body):
    line = body.__code__.co_firstlineno + 1
    assert_refused(
        lang64, body, ts.KernelError, "rollout forward reads a field from Python", rf"test_refusals.py:{line}\b"
    )


@pytest.mark.parametrize("index", [N, -1])
def test_an_element_outside_is_refused_with_the_line_of_its_write(lang64, index):
    def write(_, x, __):
        x[index] = 1.0

    line = write.__code__.co_firstlineno + 1
    words = (
        "to an element that the field does not have",
        rf"index +\({index},\)",
        rf"field +\({N},\)",
        f"{__file__}:{line}",
    )
    assert_refused(lang64, write, ts.KernelError, *words)


def test_a_write_with_another_number_of_indices_is_refused(lang64):
    def write(_, x, __):
        x[1, 2] = 1.0

    assert_refused(lang64, write, ts.KernelError, "from Python to a field with 2 indices, not 1", r"\(1, 2\)")


def test_gradient_kernels_and_tapes(lang64):
    z = lang64.field(lang64.f64, N, needs_grad=True)

    @lang64.kernel
    def square():
        for i in z:
            z[i] = 2.0 * i

    assert_refused(lang64, lambda *_: square.grad(), ts.GradientError, "engine's gradient of kernel `square`", "Tape")

    def taped(lang, x, y):
        with lang.ad.Tape(lang.field(lang.f64, (), needs_grad=True)):
            square()

    assert_refused(lang64, taped, ts.KernelError, "a kernel of \\w+'s own", "test_refusals", "Tape")


def test_layers_and_rollouts_inside(lang64):
    def calling(make):
        def call(lang, x, y):
            @lang.kernel
            def double():
                for i in x:
                    y[i] = 2.0 * x[i]

            make(double, x, y)(torch.ones(N, dtype=torch.float64))

        return call

    def layer(double, x, y, **how):
        return ts.EmptyTin(**how).register_input_field(x).register_output_field(y).register_kernel(double).finish()

    def rollout(double, x, y):
        return ts.rollout(lambda: double(), {"x": x}, {"y": y})

    for make in (layer, lambda *given: layer(*given, on_tensors=True), rollout):
        assert_refused(lang64, calling(make), ts.KernelError, "the function of rollout forward calls")


def test_arrays_that_a_kernel_writes(lang64):
    @lang64.kernel
    def show(image: lang64.types.ndarray()):
        for i in range(N):
            image[i] = 1.0

    image = torch.zeros(N, dtype=torch.float64)
    assert_refused(lang64, lambda *_: show(image), ts.KernelError, "kernel `show`", "writes its input", "test_refusals")
    assert not image.any()


def test_kernels_and_fields_of_another_engine(lang64):
    pytest.importorskip("quadrants")
    name = "quadrants" if lang64.__name__ == "taichi" else "taichi"
    other = importlib.import_module(name)

    @other.kernel
    def foreign():
        pass

    assert_refused(
        lang64, lambda *_: foreign(), ts.KernelError, "`foreign` is a kernel of another engine", "test_refusals"
    )


def test_sparse_fields(lang64):
    z = lang64.field(lang64.f64)
    lang64.root.pointer(lang64.i, N).place(z)

    @lang64.kernel
    def fill():
        for i in range(N):
            z[i] = 2.0 * i

    assert_refused(lang64, lambda *_: fill(), ts.KernelError, "`z` of rollout forward is sparse")


@pytest.mark.parametrize("given", [(), (1, 2)])
def test_arguments_of_kernels(lang64, given):
    @lang64.kernel
    def step(t: lang64.i32):
        for _ in range(N):
            pass

    def called(*_):
        step(1)
        step(*given)

    assert_refused(
        lang64, called, ts.ArgumentError, "is missing `t`|kernel `step` of rollout forward was called with too many"
    )


def test_races(lang64):
    def racing(lang, x, y):
        @lang.kernel
        def pass_on():
            for i in range(N - 1):
                y[i + 1] = y[i + 1] + y[i] * y[i]

        pass_on()

    assert_refused(
        lang64,
        racing,
        ts.KernelError,
        "rollout forward has a data race",
        "y\\[i \\+ 1\\]",
        "test_refusals.py",
    )


def test_kernels_of_which_no_gradient_is_generated(lang64):
    def using_a_gradient(lang, x, y):
        @lang.kernel
        def use():
            for i in x:
                y[i] = x.grad[i] * x[i]

        use()

    assert_refused(
        lang64,
        using_a_gradient,
        ts.GradientError,
        "kernel `use` of rollout forward uses the gradient",
        "test_refusals.py",
    )


def test_a_tensor_with_a_gradient_written_from_python(lang64):
    weight = torch.rand(N, dtype=torch.float64, requires_grad=True)
    assert_refused(lang64, lambda _, x, y: y.from_torch(weight), ts.GradientError, "requires a gradient", "inputs")


def test_arguments(lang64):
    x = lang64.field(lang64.f64, (3, N))
    run = ts.rollout(lambda: None, {"x": (x, 0)}, {"y": x})
    one = torch.rand(N, dtype=torch.float64)
    for given, named, words in (
        ((), {}, r"takes one tensor for each input\n  expected  x\n  got       0 in order\n"),
        ((one, one), {}, "takes one tensor for each input\n.*\n  got       2 in order\n"),
        ((one,), {"x": one}, "takes one tensor for each input\n.*\n  got       1 in order, x by name\n"),
        ((), {"z": one}, r"has no input `z`\n  inputs  x\nDid you mean `x`\?$"),
        ((one,), {"z": one}, r"has no input `z`\n  inputs  x\nLeave `z` out\.$"),
    ):
        with pytest.raises(ts.ArgumentError, match=words):
            run(*given, **named)
    with pytest.raises(ts.ShapeError, match="does not fit field `x`"):
        run(torch.rand(3, N, dtype=torch.float64))


@pytest.mark.parametrize(
    ("inputs", "outputs", "error", "word"),
    [
        ({}, {"y": None}, ts.RegistrationError, "inputs as fields by name"),
        ({"x": None}, [None], ts.RegistrationError, "outputs as fields by name"),
        ({"x y": None}, {"y": None}, ts.RegistrationError, "is not a valid name"),
        ({"x": (None, 3)}, {"y": None}, ts.ArgumentError, "an invalid index of its field"),
        ({"x": (None, True)}, {"y": None}, ts.ArgumentError, "an invalid index of its field"),
        ({"x": 3}, {"y": None}, ts.ArgumentError, "must be a field"),
    ],
)
def test_registration(lang64, inputs, outputs, error, word):
    field = lang64.field(lang64.f64, (3, N))

    def put(one):
        one = [one] if not isinstance(one, tuple) else list(one)
        registered = tuple(field if part is None else part for part in one)
        return registered if len(registered) > 1 else registered[0]

    sides = [
        {name: put(one) for name, one in side.items()} if isinstance(side, dict) else side for side in (inputs, outputs)
    ]
    with pytest.raises(error, match=word):
        ts.rollout(lambda: None, *sides)


def make_square(lang):
    """Return three fields, and a function that squares the first one into the second."""
    x, y, z = (lang.field(lang.f64, N) for _ in range(3))

    @lang.kernel
    def square():
        for i in x:
            y[i] = x[i] ** 2

    return x, y, z, lambda: square()  # noqa: PLW0108  # a kernel has no name of a function


def test_what_the_function_returned_is_refused(lang64):
    x, y, _, forward = make_square(lang64)
    with pytest.raises(ts.ArgumentError, match=r"(?s)got  NoneType None\n.*`ts.rollout\(forward, ...\)`"):
        ts.rollout(forward(), {"x": x}, {"y": y})


def test_functions_whose_kernels_read_no_input_are_refused_by_a_public_error(lang64):
    """The error comes first: there are warnings of fields without a use, too."""
    x, y, z, _ = make_square(lang64)

    @lang64.kernel
    def fill():
        for i in z:
            z[i] = 1.0

    for function, words in (
        (lambda: None, "rollout <lambda> launches no kernel"),
        (lambda: fill(), "the kernels of rollout <lambda> do not read the input fields"),
    ):
        with pytest.raises(ts.KernelError, match=f"^{words}\n") as refused:
            ts.rollout(function, {"x": x}, {"y": y})(torch.rand(N, dtype=torch.float64))
        assert type(refused.value) is ts.KernelError


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_field_that_no_kernel_uses_is_named_once(lang64, side):
    x, y, z, forward = make_square(lang64)
    inputs, outputs = {"x": x}, {"y": y}
    (inputs if side == "input" else outputs)["z"] = z
    words = {
        "input": "uses the values of its input `z`: it has no effect",
        "output": "writes its output `z`: each call returns",
    }
    run, values = ts.rollout(forward, inputs, outputs), torch.rand(N, dtype=torch.float64)
    given = (values, values)[: len(inputs)]
    with pytest.warns(UserWarning, match=f"no kernel of rollout .* {words[side]}"):
        run(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = run(*given)
    torch.testing.assert_close(result if side == "input" else result.y, values**2)
