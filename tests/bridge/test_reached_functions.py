"""Functions that a kernel reaches through objects, lists, arguments and locals: what they do is the kernel's doing."""

import pytest
import torch

import cases
import tinsmith as ts


class Tools:
    """Functions of one engine, and objects whose methods call each other, of this object and of another one."""

    def __init__(self, lang):
        self.lang = lang
        self.put, self.put_here, self.fill, self.look = stores(lang)
        self.apply, self.apply_here = appliers(lang)
        self.inner = inner_class(lang)()
        self.owner = owner_class(lang)(self.inner)
        self.listed, self.named = [self.look, self.put_here], {"put": self.put_here}


def stores(lang):
    @lang.func
    def put(a: lang.template(), i, v):
        a[i] = v

    @lang.func
    def put_here(a: lang.template(), v):
        a = v  # noqa: F841

    @lang.func
    def fill(a: lang.template(), v):
        a.fill(v)

    @lang.func
    def look(a: lang.template(), v):
        b = a * v  # noqa: F841

    return put, put_here, fill, look


def appliers(lang):
    @lang.func
    def apply(a: lang.template(), i, v, do: lang.template()):
        do(a, i, v)

    @lang.func
    def apply_here(a: lang.template(), v, stores: lang.template()):
        stores(a, v)  # the parameter, not the function of this name

    return apply, apply_here


def inner_class(lang):
    @lang.data_oriented
    class Inner:
        def __init__(self):
            self.half = 0.5

        @lang.func
        def put(this, a: lang.template(), v):
            this.put_half(a, v)

        @lang.func
        def put_half(self, a: lang.template(), v):
            a = v * self.half  # noqa: F841

        @lang.func
        def take(self, count: lang.template()):
            return self.take_one(count)

        @lang.func
        def take_one(self, count: lang.template()):
            return lang.atomic_add(count, 1)

        @lang.func
        def noise(self):
            return self.draw()

        @lang.func
        def draw(self):
            return lang.random(lang.f64)

        @lang.func
        def below(self, i):
            return self.divide() + i

        @lang.func
        def divide(self):
            seven = -7
            return seven // 2

    return Inner


def owner_class(lang):
    array = lang.types.ndarray()

    @lang.data_oriented
    class Owner:
        def __init__(self, inner):
            self.inner = inner

        @lang.kernel
        def compact(self, x: array, y: array, count: array):
            for i in x:
                if x[i] > 0.0:
                    slot = self.inner.take(count[None])
                    y[slot] = x[i] ** 2

        @lang.kernel
        def noisy(self, x: array, y: array):
            for i in x:
                y[i] = x[i] ** 2 * self.inner.noise()

        @lang.kernel
        def floors(self, x: array, y: array):
            for i in x:
                y[i] = x[i] * self.inner.below(i)

    return Owner


def by_item(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            tools.listed[1](y[i], x[i] ** 2)

    return kernel


def by_key(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            tools.named["put"](y[i], x[i] ** 2)

    return kernel


def by_local(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            look = tools.lang.static(tools.put_here)
            look(y[i], x[i] ** 2)

    return kernel


def by_argument(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            tools.apply(y, i, x[i] ** 2, tools.put)

    return kernel


def by_argument_of_a_name(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            tools.apply_here(y[i], x[i] ** 2, tools.put_here)

    return kernel


def by_method_of_a_method(tools, array):
    @tools.lang.kernel
    def kernel(x: array, y: array):
        for i in y:
            tools.inner.put(y[i], 2.0 * x[i] ** 2)

    return kernel


WAYS = [by_item, by_key, by_local, by_argument, by_argument_of_a_name, by_method_of_a_method]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("way", WAYS)
def test_arrays_stored_by_reached_functions_are_outputs(lang64, way):
    op = ts.op("x[n] -> y[n]")(way(Tools(lang64), lang64.types.ndarray()))
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    y = op(x)
    cases.assert_close(y, x**2)
    y.sum().backward()
    cases.assert_close(x.grad, 2 * x)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("way", WAYS)
def test_reached_functions_must_not_store_to_inputs(lang64, way):
    """`x` and `y` change their roles: the op would change the caller's `y`."""
    kernel = way(Tools(lang64), lang64.types.ndarray())
    with pytest.raises(ts.KernelError, match="writes its input `y`"):
        ts.op("y[n] -> x[n]")(kernel)


def by_choice(tools, array):
    @tools.lang.kernel
    def kernel(y: array, x: array):
        for i in y:
            x[i] = y[i]
            (tools.put_here if tools.lang.static(True) else tools.look)(y[i], 0.0)

    return kernel


def by_loop(tools, array):
    @tools.lang.kernel
    def kernel(y: array, x: array):
        for i in y:
            x[i] = y[i]
            for function in tools.lang.static(tools.listed):
                function(y[i], 0.0)

    return kernel


@pytest.mark.parametrize("way", [by_choice, by_loop])
def test_a_function_known_only_at_compilation_must_not_change_an_input(lang64, way):
    op = ts.op("y[n] -> x[n]")(way(Tools(lang64), lang64.types.ndarray()))
    y = torch.ones(3, dtype=torch.float64)
    with pytest.raises(ts.KernelError, match="changes the input `y` in a way that its source does not show"):
        op(y)
    assert y.eq(1).all()


def by_chosen_array(tools, array):
    @tools.lang.kernel
    def kernel(y: array, x: array):
        for i in y:
            x[i] = y[i]
            (y if tools.lang.static(True) else x)[i] = 0.0

    return kernel


def by_array_of_a_list(tools, array):
    @tools.lang.kernel
    def kernel(y: array, x: array):
        for i in y:
            for a, value in tools.lang.static(zip((x, y), (1.0, 0.0))):  # noqa: B905
                a[i] = value

    return kernel


@pytest.mark.parametrize("way", [by_chosen_array, by_array_of_a_list])
def test_an_array_known_only_at_compilation_must_not_be_changed(lang64, way):
    op = ts.op("y[n] -> x[n]")(way(Tools(lang64), lang64.types.ndarray()))
    y = torch.ones(3, dtype=torch.float64)
    with pytest.raises(ts.KernelError, match="changes the input `y` in a way that its source does not show"):
        op(y)
    assert y.eq(1).all()


def test_an_input_used_in_unanalyzable_code_is_refused(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            for a in lang64.static((x,)):
                y[i] = lang64.bit_cast(a[i], lang64.u64) * 1.0
                assert a.shape[0] > 0
            lang64.simt.warp.active_mask()

    op = ts.op("x[n] -> y[n]")(kernel)
    with pytest.raises(ts.KernelError, match="input `x` of op `kernel` is used as a whole"):
        op(torch.ones(3, dtype=torch.float64))


def arrays_in_a_loop(lang, array):
    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in y:
            for power, a in lang.static(enumerate((x, w))):
                y[i] += a[i] ** (power + 2)

    return kernel


def arrays_in_a_pair(lang, array):
    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in y:
            pair = lang.static((x, w))
            y[i] = pair[0][i] ** 2 + pair[1][i] ** 3

    return kernel


def chosen_arrays(lang, array):
    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for i in y:
            for k in lang.static(range(2)):
                y[i] += (x if lang.static(k == 0) else w)[i] ** (k + 2)

    return kernel


@pytest.mark.parametrize("make", [arrays_in_a_loop, arrays_in_a_pair, chosen_arrays])
def test_inputs_of_a_static_list(lang64, make):
    op = ts.op("x[n], w[n] -> y[n]")(make(lang64, lang64.types.ndarray()))
    given = [torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    ours, theirs = op(*given), given[0] ** 2 + given[1] ** 3
    cases.assert_close(ours, theirs)
    seeds = torch.randn(4, dtype=torch.float64)
    cases.assert_close(torch.autograd.grad(ours, given, seeds), torch.autograd.grad(theirs, given, seeds))
    batch = torch.randn(3, 4, dtype=torch.float64)
    cases.assert_close(torch.func.vmap(op)(batch, batch), batch**2 + batch**3)


def filled_input(tools, vectors):
    @tools.lang.kernel
    def kernel(x: vectors, y: tools.lang.types.ndarray()):
        for i in y:
            y[i] = x[i].sum()
            x[i].fill(0.0)

    return kernel


def filled_by_a_function(tools, vectors):
    @tools.lang.kernel
    def kernel(x: vectors, y: tools.lang.types.ndarray()):
        for i in y:
            y[i] = x[i].sum()
            tools.fill(x[i], 0.0)

    return kernel


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", [filled_input, filled_by_a_function])
def test_fill_is_a_store(lang64, make):
    tools = Tools(lang64)
    kernel = make(tools, lang64.types.ndarray(dtype=lang64.types.vector(2, lang64.f64), ndim=1))
    with pytest.raises(ts.KernelError, match="writes its input `x`"):
        ts.op("x[n, 2] -> y[n]")(kernel)
    op = ts.op("inout x[n, 2] -> y[n]")(kernel)
    given = torch.randn(3, 2, dtype=torch.float64)
    x = given.clone()
    cases.assert_close(op(x), given.sum(1))
    assert x.eq(0).all()


def test_fill_resets_a_sum_of_a_layer(lang64):
    """No warning that the sum goes on from call to call; a gradient may be cleared beside it."""
    x, t, y = (lang64.Vector.field(2, lang64.f64, shape=3, needs_grad=True) for _ in range(3))

    @lang64.kernel
    def clear():
        for i in t:
            t[i].fill(0.0)
            t.grad[i].fill(0.0)

    @lang64.kernel
    def square():
        for i in x:
            t[i] += x[i] * x[i]
            y[i] = t[i] * t[i]

    layer = ts.EmptyTin().register_kernel(clear).register_kernel(square)
    layer = layer.register_input_field(x, name="x").register_output_field(y, name="y").finish()
    for _ in range(2):
        given = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
        made = layer(given)
        cases.assert_close(made, given**4)
        made.sum().backward()
        cases.assert_close(given.grad, 4 * given**3)


def test_indices_that_a_method_of_a_method_hands_out(lang64):
    op = ts.op("x[n] -> y[n], count[]: i32")(Tools(lang64).owner.compact)
    x = torch.randn(30, dtype=torch.float64, requires_grad=True)
    made = op(x)
    assert made.count == (x > 0).sum()
    cases.assert_close(made.y.sum(), x.relu().square().sum())
    (made.y.sum() ** 2).backward()
    expected = 2 * x.relu().square().sum() * 2 * x.relu()
    cases.assert_close(x.grad, expected.detach())


def test_random_numbers_that_a_method_of_a_method_draws(lang64):
    op = ts.op("x[n] -> y[n]")(Tools(lang64).owner.noisy)
    x = torch.full((6,), 2.0, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(0)
    y = op(x)
    y.sum().backward()
    cases.assert_close(x.grad, (2 * y / x).detach())
    torch.manual_seed(0)
    cases.assert_close(op(x), y)


def test_divisions_in_a_method_of_a_method(lang64):
    op = ts.op("x[n] -> y[n]")(Tools(lang64).owner.floors)
    x = torch.randn(4, dtype=torch.float64, requires_grad=True)
    y = op(x)
    cases.assert_close(y, x * (torch.arange(4, dtype=torch.float64) - 4))
    y.sum().backward()
    cases.assert_close(x.grad, torch.arange(4, dtype=torch.float64) - 4)
