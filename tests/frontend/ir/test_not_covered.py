"""What the front end does not know is named: the construct and the line."""

import pytest
import torch

from support.roundtrip import lower_kernel
from tinsmith.ir import NotCovered

CASES = {}


def case(words):
    """Return a decorator that adds a kernel whose line with `# here` is refused with these words."""

    def add(build):
        CASES[build.__name__] = (build, words)
        return build

    return add


@case("`return x[0]` of a kernel")
def returns(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()) -> lang.f32:
        return x[0]  # here

    return kernel


@case("`return 1` inside a loop or branch that is not static")
def returns_early(lang):
    @lang.func
    def function(v):
        if v > 0:
            return 1  # here
        return 2

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = function(x[i])

    return kernel


@case("the name `missing`, which is not defined")
def unknown_name(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = missing  # noqa: F821  # here

    return kernel


@case("a call of the Python function `outside` with a value computed at run time")
def python_function(lang):
    def outside(v):
        return v

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = outside(x[i])  # here

    return kernel


@case("an operation on operands of the shapes (2,) and (3,)")
def shapes(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = (lang.Vector([1, 2]) + lang.Vector([1, 2, 3])).sum()  # here

    return kernel


@case("2 indices into `x`, which has 1")
def indices(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in range(2):
            x[i, i] = 1  # here

    return kernel


@case("`static` of a value that is computed at run time")
def static(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            if lang.static(x[i] > 0):  # here
                x[i] = 1

    return kernel


@case("`.grad` of the array `x`")
def gradient(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = x.grad[i]  # here

    return kernel


@case("loop variables `i` for the 2 dim(s) of `lang.ndrange(2, 3)`")
def collapsed(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in lang.ndrange(2, 3):  # here
            x[i] = 1

    return kernel


@case("loop variables `(i, j)` for the 1 dim(s) of `range(2)`")
def two_variables(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i, j in range(2):  # here
            x[i] = j

    return kernel


@case("`range(0, 4, 2)`, where a loop's `range` takes 1 or 2 arguments and has no step")
def step_of_a_range(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in range(0, 4, 2):  # here
            x[i] = 1

    return kernel


@case("the loop over `range(2) if x[0] > 0 else range(3)`, where `x[0] > 0` is computed at run time")
def chosen_range(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in range(2) if x[0] > 0 else range(3):  # here
            x[i] = 1

    return kernel


@case("the loop over `4`, the number 4")
def loop_over_a_number(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in 4:  # here
            x[i] = 1

    return kernel


@case("`enumerate` of a value that is computed at run time")
def enumerated(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            v = lang.Vector([x[i], 2.0])
            for j, one in lang.static(enumerate(v)):  # here
                x[j] = one

    return kernel


@case("`break` of a static loop inside a branch whose condition is not static")
def static_break(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            for j in lang.static(range(3)):
                if x[i] > j:
                    break  # here

    return kernel


@case("`sin` of i32")
def sine_of_an_integer(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.sin(i)  # here

    return kernel


@case("an assignment to the parameter `x`")
def parameter(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        x = 1  # noqa: F841  # here

    return kernel


@case("an assignment to `a[i, :]`")
def row_at_an_index(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            a = lang.Matrix([[x[i], 1.0], [2.0, 3.0]])
            a[i, :] = lang.Vector([x[i], 0.0])  # here
            x[i] = a[0, 0]

    return kernel


@case("an assignment to a loop variable")
def loop_variable(lang):
    @lang.func
    def up(n: lang.template()):
        n += 1  # here

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            up(i)

    return kernel


@case("an assignment of a number to a struct")
def number_to_struct(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            p = lang.Struct(a=x[i], b=1.0)
            p = x[i]  # here
            x[i] = p.a

    return kernel


@case("an assignment of a struct with the members a, c to one with the members a, b")
def other_members(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            p = lang.Struct(a=x[i], b=1.0)
            p = lang.Struct(a=x[i], c=1.0)  # here
            x[i] = p.a

    return kernel


@case("a struct with the members a, b has no `c`")
def unknown_member(lang):
    pair = lang.types.struct(a=lang.f32, b=lang.f32)

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = pair(a=1.0, c=x[i]).a  # here

    return kernel


@case("3 values for a struct of 2 members: a, b")
def too_many_members(lang):
    pair = lang.types.struct(a=lang.f32, b=lang.f32)

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = pair(1.0, 2.0, x[i]).a  # here

    return kernel


@case("iteration over a number")
def unpacked_number(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            a, b = x[i]  # here
            x[i] = a + b

    return kernel


@case("a call of a number")
def called_number(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = x[i](1)  # here

    return kernel


@case("a call of an object of type `dict`")
def called_dict(lang):
    table = {}

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = table(1)  # here

    return kernel


@case("the array `x` as a whole, which is not a number")
def whole_array(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.exp(x)  # here

    return kernel


@case("a list of entries with a matrix of shape (2,) in it, for a matrix of shape (2,)")
def one_vector_in_a_list(lang):
    pair = lang.types.vector(2, lang.f32)

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = pair([lang.Vector([x[i], 1.0])])[0]  # here

    return kernel


@case("a `return` of 3 values, where the annotation lists 2")
def too_many_results(lang):
    @lang.func
    def three(v) -> (lang.f32, lang.f32):
        return v, v, v  # here

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = three(x[i])[0]

    return kernel


@case("calls inside each other")
def recursion(lang):
    @lang.func
    def again(v):
        return again(v)  # here

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = again(x[i])

    return kernel


@case("an early `return` inside a static loop")
def returns_from_a_static_loop(lang):
    @lang.real_func
    def function(v: lang.f32) -> lang.f32:
        for k in lang.static(range(3)):
            if v > k:
                return v  # here
        return 0.0

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = function(x[i])

    return kernel


@case("an early `return` of a value that is not a number, in `function`")
def returns_a_vector_early(lang):
    @lang.real_func
    def function(v: lang.f32) -> lang.math.vec2:
        if v > 0:
            return lang.math.vec2(v, 1.0)
        return lang.math.vec2(0.0, 0.0)

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = function(x[i]).x  # here

    return kernel


@case("`sum` with the argument `start`")
def named_argument(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = sum([x[i], 1.0], start=2.0)  # here

    return kernel


@case("`lambda")
def unknown_expression(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = (lambda v: v)(1)  # here

    return kernel


@case("`with open('x'):`")
def unknown_statement(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        with open("x"):  # here
            x[0] = 1

    return kernel


@case("the function `frexp`")
def engine_function(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.frexp(x[i])  # here

    return kernel


@pytest.mark.parametrize("name", CASES)
def test_unsupported_constructs_are_refused_with_their_line(name, lang):
    build, words = CASES[name]
    with pytest.raises(NotCovered) as refused:
        lower_kernel(build(lang), torch.zeros(4))
    assert words in str(refused.value)
    with open(__file__) as file:
        line = file.read().splitlines()[refused.value.line - 1]
    assert "# here" in line
    assert refused.value.place == f"{__file__}:{refused.value.line}"


def test_a_sparse_field_is_no_range(lang):
    field = lang.field(lang.f32)
    lang.root.pointer(lang.i, 4).place(field)

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in field:
            x[i] = 1

    with pytest.raises(NotCovered, match="the loop over `field`, a sparse field"):
        lower_kernel(kernel, torch.zeros(4))


def test_the_call_of_an_engine_function_is_named(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.Matrix([[1.0, 2, 3], [3, 4, 5]]).inverse()[0, 0]  # the call

    with pytest.raises(NotCovered) as refused:
        lower_kernel(kernel, torch.zeros(4))
    with open(__file__) as file:
        assert "# the call" in file.read().splitlines()[refused.value.line - 1]
