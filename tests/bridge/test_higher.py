"""Forward mode and higher derivatives, against torch's own of the same function in float64."""

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which torch 2.6 could not load it
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, jvp, vjp, vmap

import tinsmith as ts

# torch's forward mode compiles its own formulas by torch.jit.script when it is first used
pytestmark = [
    pytest.mark.thinned(4),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def draw_floats(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + len(shape))
    return torch.rand(shape, generator=generator, dtype=torch.float64) - 0.3


def decays(lang, **options):
    """Build a kernel with a product that a loop carries, and a sum over it."""

    @ts.op("x[n], w[m] -> y[n]", **options)
    @lang.kernel
    def decay(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            t = 1.0
            s = 0.0
            for k in range(w.shape[0]):
                t = t * lang.exp(-w[k] * x[i])
                s += t * w[k]
            y[i] = s

    return decay


def decays_in_torch(x, w):
    t = torch.exp(-(torch.cumsum(w, 0)[None, :]) * x[:, None])
    return (t * w).sum(1)


def two_tasks(lang, **options):
    """Build a kernel whose second loop reads what the first wrote, and sums it."""

    @ts.op("x[n] -> y[n], z[]", scratch="t[n]", **options)
    @lang.kernel
    def tasks(x: lang.types.ndarray(), t: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i in x:
            t[i] = lang.sin(x[i]) * x[i]
        for i in x:
            y[i] = t[i] * t[x.shape[0] - 1 - i]
            z[None] += t[i] ** 3

    return tasks


def two_tasks_in_torch(x):
    t = torch.sin(x) * x
    return t * t.flip(0), (t**3).sum()


@pytest.mark.parametrize("adjoint", ["auto", "source"])
def test_forward_mode_and_second_derivatives(lang64, adjoint):
    op, inputs = decays(lang64, adjoint=adjoint), (draw_floats(4).requires_grad_(), draw_floats(3).requires_grad_())
    assert gradcheck(op, inputs, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
    assert gradgradcheck(op, inputs, check_batched_grad=True, check_fwd_over_rev=True)


@pytest.mark.compiled_engine
def test_forward_mode_of_an_op_on_the_engines_reverse_mode(lang64):
    op, x, w, v = decays(lang64, adjoint="engine"), draw_floats(4), draw_floats(3), draw_floats(4, seed=5)
    torch.testing.assert_close(jvp(lambda x: op(x, w), (x,), (v,)), jvp(lambda x: decays_in_torch(x, w), (x,), (v,)))


def test_several_outputs_and_scratch(lang64):
    op, x = two_tasks(lang64), draw_floats(5).requires_grad_()
    assert gradcheck(op, (x,), check_forward_ad=True)
    assert gradgradcheck(op, (x,), check_batched_grad=True)


TRANSFORMS = {
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "hessian": hessian,
    "reverse over reverse": lambda f: jacrev(jacrev(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
    "forward over forward": lambda f: jacfwd(jacfwd(f)),
    "third": lambda f: jacrev(jacrev(jacfwd(f))),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.compiled_engine if name == "third" else ()) for name in TRANSFORMS]
)
def test_functional_transforms(lang64, name):
    op, w, x = decays(lang64), draw_floats(3), draw_floats(4, seed=3)
    transform = TRANSFORMS[name]
    torch.testing.assert_close(transform(lambda x: op(x, w))(x), transform(lambda x: decays_in_torch(x, w))(x))
    torch.testing.assert_close(transform(lambda w: op(x, w))(w), transform(lambda w: decays_in_torch(x, w))(w))
    squared = transform(lambda x: op(x, w) ** 2)(x)
    torch.testing.assert_close(squared, transform(lambda x: decays_in_torch(x, w) ** 2)(x))


def test_a_tangent_of_each_input_alone_and_of_both(lang64):
    op, x, w, v, u = decays(lang64), draw_floats(4), draw_floats(3), draw_floats(4, seed=5), draw_floats(3, seed=6)
    for given, moved in (((x,), (v,)), ((x, w), (v, u))):
        rest = (w,)[: 2 - len(given)]
        ours = jvp(lambda *a: op(*a, *rest), given, moved)  # noqa: B023  # called at once
        theirs = jvp(lambda *a: decays_in_torch(*a, *rest), given, moved)  # noqa: B023
        torch.testing.assert_close(ours, theirs)


def test_a_batch_of_second_derivatives_is_one_launch_each(lang64):
    op, x, w = decays(lang64), draw_floats(3, 4), draw_floats(3)
    ours = vmap(hessian(lambda row: op(row, w).sum()))(x)
    theirs = vmap(hessian(lambda row: decays_in_torch(row, w).sum()))(x)
    torch.testing.assert_close(ours, theirs)
    ours = vmap(jvp, (None, 0, 0), randomness="error")(lambda row: op(row, w), (x,), (x * 2,))
    torch.testing.assert_close(ours[1], jvp(lambda x: vmap(decays_in_torch, (0, None))(x, w), (x,), (x * 2,))[1])


def test_batch_dims_of_the_spec(lang64):
    @ts.op("x[*b, n] -> y[*b]")
    @lang64.kernel
    def energy(x: lang64.types.ndarray(ndim=1), y: lang64.types.ndarray(ndim=0)):
        for i in x:
            y[None] += lang64.sin(x[i]) * x[i] ** 2

    x = draw_floats(2, 3, 4)
    torch.testing.assert_close(hessian(lambda x: energy(x).sum())(x), hessian(lambda x: (torch.sin(x) * x**2).sum())(x))
    assert gradcheck(energy, (x.requires_grad_(),), check_forward_ad=True)
    assert gradgradcheck(energy, (x,))


def test_state_that_is_overwritten(lang64):
    """A moving average in its own place: the gradient of its gradient too."""

    @ts.op("x[n, t], a[] -> y[n]")
    @lang64.kernel
    def average(x: lang64.types.ndarray(), a: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            for t in range(x.shape[1]):
                y[i] = lang64.tanh(a[None] * y[i] + x[i, t])

    x, a = draw_floats(3, 5).requires_grad_(), draw_floats().requires_grad_()
    assert gradcheck(average, (x, a), check_forward_ad=True)
    assert gradgradcheck(average, (x, a))


def test_vectors_and_functions(lang64):
    vec = lang64.types.vector(2, lang64.f64)

    @lang64.func
    def turned(p, angle):
        c, s = lang64.cos(angle), lang64.sin(angle)
        return lang64.Vector([c * p[0] - s * p[1], s * p[0] + c * p[1]])

    @ts.op("p[n, 2], angle[n] -> q[n, 2]")
    @lang64.kernel
    def turn(
        p: lang64.types.ndarray(dtype=vec, ndim=1),
        angle: lang64.types.ndarray(),
        q: lang64.types.ndarray(dtype=vec, ndim=1),
    ):
        for i in p:
            q[i] = turned(p[i], angle[i]).normalized() * angle[i]

    inputs = draw_floats(4, 2).requires_grad_(), draw_floats(4).requires_grad_()
    assert gradcheck(turn, inputs, check_forward_ad=True)
    assert gradgradcheck(turn, inputs)


def test_a_chain(lang64):
    @lang64.kernel
    def first(x: lang64.types.ndarray(), t: lang64.types.ndarray()):
        for i in x:
            t[i] = lang64.exp(x[i])

    @lang64.kernel
    def second(t: lang64.types.ndarray(), x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in t:
            y[i] = t[i] * t[(i + 1) % t.shape[0]] * x[i]

    op = ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]")
    x = draw_floats(4).requires_grad_()
    assert gradcheck(op, (x,), check_forward_ad=True)
    assert gradgradcheck(op, (x,))


def test_integers_have_no_tangent(lang64):
    @ts.op("x[n] -> y[n], k[n]: i32")
    @lang64.kernel
    def parts(x: lang64.types.ndarray(), y: lang64.types.ndarray(), k: lang64.types.ndarray(dtype=lang64.i32)):
        for i in x:
            k[i] = lang64.cast(lang64.floor(x[i]), lang64.i32)
            y[i] = x[i] ** 2 - k[i]

    x, v = draw_floats(4) * 5, draw_floats(4, seed=1)
    with forward_ad.dual_level():
        y, k = parts(forward_ad.make_dual(x, v))
        torch.testing.assert_close(forward_ad.unpack_dual(y).tangent, 2 * x * v)
        assert forward_ad.unpack_dual(k).tangent is None


def test_single_precision(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] ** 3

    x = draw_floats(4).float()
    second = hessian(lambda x: cube(x).sum())(x)
    torch.testing.assert_close(second, torch.diag(6 * x))
    assert second.dtype == torch.float32


def test_a_gradient_penalty_trains(lang64):
    """The reason for second derivatives: a loss of a gradient, in plain eager mode."""
    op, x, w = decays(lang64), draw_floats(4).requires_grad_(), draw_floats(3).requires_grad_()
    (slope,) = torch.autograd.grad(op(x, w).sum(), x, create_graph=True)
    (slope**2).sum().backward()
    twin_x, twin_w = x.detach().requires_grad_(), w.detach().requires_grad_()
    (twin,) = torch.autograd.grad(decays_in_torch(twin_x, twin_w).sum(), twin_x, create_graph=True)
    (twin**2).sum().backward()
    torch.testing.assert_close((x.grad, w.grad), (twin_x.grad, twin_w.grad))


def test_under_compile(lang64):
    op, x, w = decays(lang64), draw_floats(4), draw_floats(3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss(x, w):
        return op(x, w).sum()

    x, w = x.requires_grad_(), w.requires_grad_()
    gradients = torch.autograd.grad(loss(x, w), (x, w))
    torch.testing.assert_close(gradients, torch.autograd.grad(decays_in_torch(x, w).sum(), (x, w)))


def test_a_hand_written_backward_has_no_other_derivative(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    @square.backward
    @lang64.kernel
    def square_backward(x: lang64.types.ndarray(), grad_y: lang64.types.ndarray(), grad_x: lang64.types.ndarray()):
        for i in grad_y:
            grad_x[i] = 2 * x[i] * grad_y[i]

    with pytest.raises(ts.GradientError, match=r"(?s)`square` has a hand-written backward.*Leave out `backward=`"):
        jvp(square, (draw_floats(3),), (draw_floats(3),))
    with pytest.raises(ts.GradientError, match="hand-written backward"):
        hessian(lambda x: square(x).sum())(draw_floats(3))


@pytest.mark.compiled_engine
def test_constructs_without_a_tangent_are_refused_with_their_line(lang64):
    @ts.op("x[n], k[n]: i32 -> y[m], p[n]", adjoint="engine")
    @lang64.kernel
    def ordered(
        x: lang64.types.ndarray(),
        k: lang64.types.ndarray(dtype=lang64.i32),
        y: lang64.types.ndarray(),
        p: lang64.types.ndarray(),
    ):
        for i in x:
            p[i] = lang64.atomic_add(y[k[i]], x[i])

    x, k = draw_floats(3), torch.zeros(3, dtype=torch.int32)
    with pytest.raises(ts.GradientError, match=r"(?s)`ordered`.*no forward-mode.*atomic_add.*test_higher.py:\d+"):
        jvp(lambda x: ordered(x, k, m=2), (x,), (x,))


def test_vjp_of_a_jvp_agrees_with_the_oracle(lang64):
    """<c, J v> is linear in c: its gradient in c is J v, and in x what the oracle's gradient changes by."""
    op, x, w, v, c = decays(lang64), draw_floats(4), draw_floats(3), draw_floats(4, seed=8), draw_floats(4, seed=9)
    _, pull = vjp(lambda x: jvp(lambda x: op(x, w), (x,), (v,))[1], x)
    (pulled,) = pull(c)
    step = 1e-5
    ends = [ts.oracle(op, x + sign * step * v, w, cotangents=c).gradients["x"] for sign in (1, -1)]
    torch.testing.assert_close(pulled, (ends[0] - ends[1]) / (2 * step), rtol=1e-7, atol=1e-8)


@pytest.mark.compiled_engine
def test_maxima_of_parallel_iterations(lang64):
    """Forward mode goes to the winners; ties share."""

    @ts.op("x[n], k[n]: i32 -> y[m]")
    @lang64.kernel
    def greatest(x: lang64.types.ndarray(), k: lang64.types.ndarray(dtype=lang64.i32), y: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_max(y[k[i]], lang64.exp(x[i]) + x[i])

    x, k = draw_floats(40), torch.randint(4, (40,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    x[7], k[7] = x[8], k[8]

    def twin(x):
        values = torch.exp(x) + x
        return torch.stack([values[k == m].amax() for m in range(4)])

    ours = jvp(lambda x: greatest(x, k, m=4), (x,), (draw_floats(40, seed=2),))
    torch.testing.assert_close(ours, jvp(twin, (x,), (draw_floats(40, seed=2),)))
    torch.testing.assert_close(jacrev(lambda x: greatest(x, k, m=4))(x), jacrev(twin)(x))
    # a tangent of a tangent has maxima of its own beside those of the first
    ours, theirs = (jacfwd(jacfwd(f)) for f in (lambda x: greatest(x, k, m=4), twin))
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(vmap(ours)(torch.stack([x, -x])), vmap(theirs)(torch.stack([x, -x])))


def test_maxima_in_order_have_tangents_of_tangents(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def greatest(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            lang64.atomic_max(y[i], lang64.cos(x[i]))
            y[i] *= x[i]

    x = draw_floats(4)
    ours, theirs = (jacfwd(jacfwd(jacfwd(f))) for f in (greatest, lambda x: torch.cos(x) * x))
    torch.testing.assert_close(ours(x), theirs(x))


def test_second_derivatives_need_nothing_that_the_first_did_not_save(lang64):
    """`w` decides about nothing, and `z` is stored when all that depends on it has been read."""

    @ts.op("x[n], w[n] -> y[n], z[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        scale = 2.0
        for i in x:
            for _ in range(2):
                y[i] += x[i] ** 3
                if w[i] > 0.0:
                    continue
        lang64.loop_config(serialize=True)
        for i in x:
            if z[i] < 1.0:
                scale *= 0.9
        for i in x:
            z[i] += w[i] * w[i]
            y[i] += scale * x[i] ** 2

    def twin(x, w):
        return 2 * x**3 + 2.0 * 0.9 ** len(x) * x**2, w * w

    x, w = draw_floats(3), draw_floats(3, seed=1)
    for argnums in (0, 1, (0, 1)):
        ours, theirs = (hessian(lambda *a, f=f: f(*a)[0].sum(), argnums)(x, w) for f in (op, twin))
        torch.testing.assert_close(ours, theirs)
    leaves = [x.requires_grad_(), w.requires_grad_()]
    (slope,) = torch.autograd.grad(op(*leaves)[0].sum(), leaves[:1], create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), leaves[:1])
    (slope,) = torch.autograd.grad(twin(*leaves)[0].sum(), leaves[:1], create_graph=True)
    torch.testing.assert_close(second, *torch.autograd.grad(slope.sum(), leaves[:1]))


def test_inputs_read_only_by_stores_are_not_saved(lang64):
    """The tangent reads `w` for a store; its gradient does not, and the first derivative has not kept it."""

    @ts.op("x[n], w[n, m], r[n], k[n]: i32 -> y[n], z[n], d[n]")
    @lang64.kernel
    def add(
        x: lang64.types.ndarray(),
        w: lang64.types.ndarray(),
        r: lang64.types.ndarray(),
        k: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        z: lang64.types.ndarray(),
        d: lang64.types.ndarray(),
    ):
        f = x[0]
        for i in range(x.shape[0]):
            y[i] += y[i] * f + w[k[i], i % w.shape[1]]
            lang64.atomic_sub(z[x.shape[0] - 1], x[x.shape[0] - 1])
            d[k[i]] += r[k[i]]

    k = torch.tensor([2, 0, 2, 1], dtype=torch.int32)

    def in_torch(x, w, r):
        z = torch.nn.functional.pad(-4.0 * x[3:], (3, 0))
        return w[k.long(), torch.arange(4) % 3], z, torch.zeros(4, dtype=r.dtype).index_add(0, k.long(), r[k.long()])

    def loss(function):
        return lambda *values: sum((one**2).sum() for one in function(*values))

    values = draw_floats(4), draw_floats(4, 3), draw_floats(4, seed=1)
    ours = hessian(loss(lambda *given: add(*given, k)), (0, 1, 2))(*values)
    theirs = hessian(loss(in_torch), (0, 1, 2))(*values)
    torch.testing.assert_close(ours, theirs)


def test_the_tangent_of_a_kernel_that_stores_nothing(lang64):
    """Loops that stay, for they may break, but store nothing: there is nothing to launch."""

    @ts.op("x[n] -> y[n]", adjoint="source")
    @lang64.kernel
    def fixed(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            total = 0.2
            for _ in range(i):
                if total > 2.0:
                    break
                total += 0.7
            y[i] = total

    x = draw_floats(4)
    values, tangents = jvp(fixed, (x,), (x,))
    assert values[3] > 2.0
    assert not tangents.any()


@pytest.mark.parametrize("is_added_to", [False, True])
def test_candidates_of_an_inactive_maximum_are_not_saved(lang64, is_added_to):
    """Its tangent is 0, and what its candidates are made of was not kept for the first derivative."""

    @ts.op("x[n], k[n]: i32, e[n]: i32 -> t[], c[n]")
    @lang64.kernel
    def op(
        x: lang64.types.ndarray(),
        k: lang64.types.ndarray(),
        e: lang64.types.ndarray(),
        t: lang64.types.ndarray(),
        c: lang64.types.ndarray(),
    ):
        for i in x:
            lang64.atomic_max(t[None], e[i] * 0.15)
            if lang64.static(is_added_to):
                c[k[i]] += x[i] ** 2
        for i in x:
            t[None] += lang64.sin(x[i])

    x = draw_floats(3)
    k, e = torch.tensor([2, 0, 2], dtype=torch.int32), torch.tensor([1, 5, 2], dtype=torch.int32)
    second = hessian(lambda x: op(x, k, e)[0])(x)
    torch.testing.assert_close(second, torch.diag(-torch.sin(x)))
    torch.testing.assert_close(op(x, k, e)[0], 0.75 + torch.sin(x).sum())


def test_the_rest_of_a_loop_whose_maxima_run_in_order_stays_parallel(lang64):
    """In order, the gradient of the tangent would ask for `w`, which is stored where nothing reads it again."""

    @ts.op("x[n], w[n] -> y[n], z[]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for i in x:
            y[i] = y[i] * x[0]
            lang64.atomic_sub(y[i], w[i])
            lang64.atomic_max(z[None], x[i] ** 2 + 1.0)

    def in_torch(x, w):
        return -w, (x**2 + 1.0).max()

    def loss(function):
        def scalar(*given):
            y, z = function(*given)
            return (y**2).sum() + z**3

        return scalar

    values = draw_floats(4), draw_floats(4, seed=1)
    torch.testing.assert_close(hessian(loss(op), (0, 1))(*values), hessian(loss(in_torch), (0, 1))(*values))
    tangents = draw_floats(4, seed=2), draw_floats(4, seed=3)
    torch.testing.assert_close(jvp(op, values, tangents), jvp(in_torch, values, tangents))


def test_only_entries_of_used_tapes_are_counted(lang64):
    """The local `f` decides over `z`, which has no gradient: its tape is left out, and the other one is counted."""

    @ts.op("x[n], e[n]: i32 -> y[n], z[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), e: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        f = 0.0
        lang64.loop_config(serialize=True)
        for i in range(x.shape[0]):
            for j in range(3):
                if x[j] > z[i]:
                    continue
                f = x[i]
            for _ in range(i):
                lang64.atomic_max(y[e[i]], 0.4)
            z[x.shape[0] - 1] = f > 0.3
            y[i] = x[i] ** 2

    def in_torch(x):
        y = list(torch.zeros(4, dtype=x.dtype))
        for i in range(4):
            y[e[i]] = torch.where(y[e[i]] > 0.4, y[e[i]], 0.4) if i else y[e[i]]
            y[i] = x[i] ** 2
        return torch.stack(y)

    x, e = torch.rand(4, dtype=torch.float64), torch.tensor([0, 3, 0, 1], dtype=torch.int32)
    torch.testing.assert_close(op(x, e)[0], in_torch(x))
    torch.testing.assert_close(jacrev(lambda x: op(x, e)[0])(x), jacrev(in_torch)(x))


def test_self_updating_scratch_needs_no_saved_input(lang64):
    """In the last loop `s` is made of `s`, and `y` of nothing: neither asks for `w`, which was not saved."""

    @ts.op("x[n], w[n] -> y[n], z[n]", scratch="s[n]")
    @lang64.kernel
    def op(
        x: lang64.types.ndarray(),
        w: lang64.types.ndarray(),
        s: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        z: lang64.types.ndarray(),
    ):
        for i in x:
            z[i] += w[i]
            s[i] = s[i] + 0.1 * w[i]
            y[i] = y[i] + 0.3 * x[i]
        for i in x:
            y[i] = y[i] * x[i] + s[i]
        lang64.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = 0.0
            s[i] = s[i] * s[i] + 1.5 * x[i]

    x, w = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    made = op(x, w)
    first = torch.autograd.grad((made.y**2).sum() + made.z.sin().sum(), (x, w), create_graph=True)
    torch.testing.assert_close(first[1], w.cos())
    second = torch.autograd.grad(first[0].sum() + first[1].sum(), (x, w))
    torch.testing.assert_close(second[0], torch.zeros_like(x))
    torch.testing.assert_close(second[1], -w.sin())
