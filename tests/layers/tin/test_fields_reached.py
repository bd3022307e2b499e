"""However a kernel reaches the fields between its lines, a call's backward pass sees that call's values."""

import pytest
import torch

import cases
import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

N = 5


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def graded(lang, shape=N):
    return lang.field(lang.f64, shape=shape, needs_grad=True)


def in_a_list(lang, x, y):
    """Build a kernel that uses fields in a list of an object."""
    between = [graded(lang), graded(lang)]

    @lang.data_oriented
    class Powers:
        def __init__(self):
            self.m = between

        @lang.kernel
        def first(self):
            for i in x:
                for j in lang.static(range(2)):
                    self.m[j][i] += x[i] ** (j + 2)

        @lang.kernel
        def second(self):
            for i in x:
                y[i] = lang.sin(self.m[0][i]) * self.m[1][i]

    powers = Powers()
    return [powers.first, powers.second], between, lambda x: torch.sin(x**2) * x**3


def in_a_dict(lang, x, y):
    """Build a kernel that uses fields in a dict, by name."""
    between = {"square": graded(lang)}

    @lang.kernel
    def first():
        for i in x:
            between["square"][i] += x[i] * x[i]

    @lang.kernel
    def second():
        for i in x:
            y[i] = lang.sin(between["square"][i])

    return [first, second], between.values(), sine_of_square


def members_of_structs(lang, x, y):
    """Build a kernel with `p.a[i]`, where p is a field of structs."""
    p = lang.Struct.field({"a": lang.f64, "b": lang.f64}, shape=N, needs_grad=True)

    @lang.kernel
    def first():
        for i in x:
            p.a[i] += x[i] * x[i]

    @lang.kernel
    def second():
        for i in x:
            y[i] = lang.sin(p.a[i])

    return [first, second], [p.a], sine_of_square


def atomics_on_members(lang, x, y):
    """Build a kernel with `atomic_add(p[i].a, ...)`."""
    p = lang.Struct.field({"a": lang.f64, "b": lang.f64}, shape=N, needs_grad=True)

    @lang.kernel
    def first():
        for i in x:
            lang.atomic_add(p[i].a, x[i] * x[i])

    @lang.kernel
    def second():
        for i in x:
            y[i] = lang.sin(p[i].a)

    return [first, second], [p.a], sine_of_square


def atomics_by_their_bare_name(lang, x, y):
    """Build a kernel with an `atomic_add` imported by `from taichi import atomic_add`."""
    m, atomic_add = graded(lang), lang.atomic_add

    @lang.kernel
    def first():
        for i in x:
            atomic_add(m[i], x[i] * x[i])

    @lang.kernel
    def second():
        for i in x:
            y[i] = lang.sin(m[i])

    return [first, second], [m], sine_of_square


def elements_lent_to_a_function(lang, x, y):
    """Build a kernel with `put(m[i], v)`, whose template parameter stands for the element."""
    m = graded(lang)

    @lang.func
    def put(total: lang.template(), v):
        total += v * v

    @lang.kernel
    def first():
        for i in x:
            put(m[i], x[i])

    @lang.kernel
    def second():
        for i in x:
            y[i] = lang.sin(m[i])

    return [first, second], [m], sine_of_square


def elements_lent_to_a_method(lang, x, y):
    """Make the same with a method, and the argument by name."""

    @lang.data_oriented
    class Sums:
        def __init__(self):
            self.m = graded(lang)

        @lang.func
        def put(self, v, total: lang.template()):
            total += v * v

        @lang.kernel
        def first(self):
            for i in x:
                self.put(x[i], self.m[i])

        @lang.kernel
        def second(self):
            for i in x:
                y[i] = lang.sin(self.m[i])

    sums = Sums()
    return [sums.first, sums.second], [sums.m], sine_of_square


def in_objects_in_a_list(lang, x, y):
    """Build a kernel with methods of the objects in a list, each with a field of its own."""

    @lang.data_oriented
    class Part:
        def __init__(self):
            self.m = graded(lang)

        @lang.func
        def add(self, i, v):
            self.m[i] += v * v

    @lang.data_oriented
    class Whole:
        def __init__(self):
            self.parts = [Part(), Part()]

        @lang.kernel
        def first(self):
            for i in x:
                for part in lang.static(self.parts):
                    part.add(i, x[i])

        @lang.kernel
        def second(self):
            for i in x:
                y[i] = lang.sin(self.parts[0].m[i]) * self.parts[1].m[i]

    whole = Whole()
    between = [part.m for part in whole.parts]
    return [whole.first, whole.second], between, lambda x: torch.sin(x * x) * x * x


def sine_of_square(x):
    return torch.sin(x * x)


WAYS = [
    in_a_list,
    in_a_dict,
    in_objects_in_a_list,
    members_of_structs,
    atomics_on_members,
    atomics_by_their_bare_name,
    elements_lent_to_a_function,
    elements_lent_to_a_method,
]


@pytest.mark.filterwarnings("ignore:(?s)the gradient of EmptyTin is the engine's own.*in a way that no array can")
@pytest.mark.filterwarnings("ignore:kernels of EmptyTin add to the field")  # the test clears it itself
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_each_call_has_its_own_gradient_however_fields_are_reached(lang64, way):
    x, y = graded(lang64), graded(lang64)
    kernels, between, twin = way(lang64, x, y)
    layer = ts.EmptyTin().register_input_field(x).register_output_field(y)
    for kernel in kernels:
        layer.register_kernel(kernel)
    layer.finish()
    for _ in range(2):  # the second time with what the first left behind
        inputs = [rand(N).requires_grad_() for _ in range(2)]
        results = []
        for one in inputs:
            for field in between:
                field.fill(0)
            results.append(layer(one))
        for one, result in zip(inputs, results, strict=True):
            cases.assert_close(result, twin(one))
            c = rand(N)
            cases.assert_close(torch.autograd.grad(result, one, c), torch.autograd.grad(twin(one), one, c))


def two_of_one_name(lang):
    """Make a kernel and its function, which both call their field `x`."""
    mine, theirs, y = graded(lang), graded(lang), graded(lang)

    def made():
        x = theirs

        @lang.func
        def doubled(i):
            return x[i] * 2

        return doubled

    doubled, x = made(), mine

    @lang.kernel
    def product():
        for i in y:
            y[i] = x[i] * doubled(i)

    return mine, theirs, y, product


@pytest.mark.parametrize("on_tensors", [False, True])
def test_a_function_may_call_another_field_by_the_same_name(lang64, on_tensors):
    mine, theirs, y, product = two_of_one_name(lang64)
    layer = ts.EmptyTin(on_tensors=on_tensors).register_input_field(mine).register_output_field(y)
    layer.register_kernel(product).finish()
    table, x, c = rand(N), rand(N).requires_grad_(), rand(N)
    theirs.from_torch(table)
    y = layer(x)
    cases.assert_close(y, 2 * x * table)
    cases.assert_close(torch.autograd.grad(y, x, c), (2 * table * c,))


def test_two_inputs_of_the_same_name_in_kernel_and_function(lang64):
    mine, theirs, y, product = two_of_one_name(lang64)
    layer = ts.EmptyTin().register_input_field(mine).register_input_field(theirs).register_output_field(y)
    layer.register_kernel(product).finish()
    a, b, c = rand(N).requires_grad_(), rand(N).requires_grad_(), rand(N)
    cases.assert_close(torch.autograd.grad(layer(a, b), (a, b), c), (2 * c * b, 2 * c * a))


def test_an_input_in_a_list_is_an_array_of_the_op(lang64):
    x, y = graded(lang64), graded(lang64)
    fields = [x]

    @lang64.kernel
    def triple():
        for i in y:
            y[i] = fields[0][i] * 3

    layer = (
        ts.EmptyTin(on_tensors=True).register_input_field(x).register_output_field(y).register_kernel(triple).finish()
    )
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, 3 * given)
    cases.assert_close(torch.autograd.grad(result, given, c), (3 * c,))


def test_a_kernel_on_a_field_of_structs_runs(lang64):
    x, y = graded(lang64), graded(lang64)
    p = lang64.Struct.field({"a": lang64.f64, "b": lang64.f64}, shape=N, needs_grad=True)
    p.a.from_torch(torch.full((N,), 1.5, dtype=torch.float64))

    @lang64.kernel
    def scaled():
        for i in p:
            y[i] = x[i] * p[i].a

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(scaled).finish()
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, 1.5 * given)
    cases.assert_close(torch.autograd.grad(result, given, c), (1.5 * c,))


def looked_up_by_an_alias(lang, table, x, y):
    @lang.kernel
    def kernel():
        t = lang.static(table)
        for i in x:
            y[i] = x[i] * t[i]

    return kernel


def looked_up_in_a_function(lang, table, x, y):
    @lang.func
    def squared(v: lang.template()):
        return v * v

    @lang.kernel
    def kernel():
        for i in x:
            y[i] = x[i] * lang.sqrt(squared(table[i]))

    return kernel


def looked_up_whole_in_a_function(lang, table, x, y):
    @lang.func
    def looked(t: lang.template(), i):
        return t[i]

    @lang.kernel
    def kernel():
        for i in x:
            y[i] = x[i] * looked(table, i)

    return kernel


@pytest.mark.parametrize("on_tensors", [False, True])
@pytest.mark.parametrize("look", [looked_up_by_an_alias, looked_up_in_a_function, looked_up_whole_in_a_function])
def test_fields_that_are_only_read_keep_their_values(lang64, look, on_tensors):
    """On tensors, what kernels write between them starts at zero. What they read alone does not."""
    table, x, y = graded(lang64), graded(lang64), graded(lang64)
    values = torch.rand(N, dtype=torch.float64) + 0.5
    table.from_torch(values)
    layer = ts.EmptyTin(on_tensors=on_tensors).register_input_field(x).register_output_field(y)
    layer.register_kernel(look(lang64, table, x, y)).finish()
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, given * values)
    cases.assert_close(torch.autograd.grad(result, given, c), (values * c,))


@pytest.mark.parametrize("on_tensors", [False, True])
def test_a_loop_over_an_alias_of_an_object_s_field(lang64, on_tensors):
    x, y, m = graded(lang64), graded(lang64), graded(lang64)

    @lang64.data_oriented
    class Cubes:
        def __init__(self):
            self.x, self.y, self.m = x, y, m

        @lang64.kernel
        def first(self):
            a, b = lang64.static(self.x, self.m)
            for i in a:
                b[i] = a[i] * a[i]

        @lang64.kernel
        def second(self):
            b = lang64.static(self.m)
            for i in b:
                self.y[i] = b[i] * self.x[i]

    cubes = Cubes()
    layer = ts.EmptyTin(on_tensors=on_tensors).register_input_field(x).register_output_field(y)
    layer.register_kernel(cubes.first).register_kernel(cubes.second).finish()
    given, c = rand(N).requires_grad_(), rand(N)
    result = layer(given)
    cases.assert_close(result, given**3)
    cases.assert_close(torch.autograd.grad(result, given, c), (3 * given**2 * c,))
