"""Programs in the style of public Taichi and DiffTaichi code, as layers on fields: each is a function in torch, too."""

import pytest
import torch

import tinsmith as ts

D = torch.float64
N = 6


def F(ti, *shape):
    return ti.field(ti.f64, shape=shape, needs_grad=True)


def R(*shape):
    return torch.randn(*shape, dtype=D, requires_grad=True)


def check(layer, twin, ins, weights=()):
    """Assert that values and gradients of two calls are those of the twin."""
    given = [*ins, *weights]
    for _ in range(2):
        ours, theirs = layer(*ins), twin(*ins)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)
        seed = torch.randn_like(theirs)
        gradients, wanted = torch.autograd.grad(ours, given, seed), torch.autograd.grad(theirs, given, seed)
        torch.testing.assert_close(gradients, wanted, rtol=1e-9, atol=1e-10)


def L(ins, outs, kernels, internal=(), weights=()):
    layer = ts.EmptyTin(adjoint="source")
    for x in ins:
        layer.register_input_field(x)
    for y in outs:
        layer.register_output_field(y)
    for place, (w, value) in enumerate(weights):
        layer.register_weight_field(w, name=f"w{place}", value=value)
    for t in internal:
        layer.register_internal_field(t, clear=True)
    for place, kernel in enumerate(kernels):
        launch = kernel if isinstance(kernel, tuple) else (kernel,)
        layer.register_kernel(launch[0], *launch[1:], kernel_name=f"k{place}")
    return layer.finish()


def mass_spring_time(ti):
    T = 5
    x, v, x0 = F(ti, T, N), F(ti, T, N), F(ti, N)
    loss = F(ti)

    @ti.kernel
    def start():
        for i in x0:
            x[0, i] = x0[i]

    @ti.kernel
    def step(t: ti.i32):
        for i in range(N):
            j = (i + 1) % N
            f = -(x[t - 1, i] - x[t - 1, j]) * 2.0
            v[t, i] = 0.9 * v[t - 1, i] + 0.1 * f
            x[t, i] = x[t - 1, i] + 0.1 * v[t, i]

    @ti.kernel
    def comp():
        for i in range(N):
            loss[None] += x[T - 1, i] ** 2

    def twin(a):
        xx = a
        vv = torch.zeros_like(a)
        for _ in range(1, T):
            f = -(xx - xx.roll(-1)) * 2
            vv = 0.9 * vv + 0.1 * f
            xx = xx + 0.1 * vv
        return (xx**2).sum()

    check(L([x0], [loss], [start, *[(step, t) for t in range(1, T)], comp], internal=[x, v]), twin, [R(N)])


def mass_spring_inplace(ti):
    x, v, y = F(ti, N), F(ti, N), F(ti, N)

    @ti.kernel
    def force():
        for i in x:
            v[i] = 0.9 * v[i] - 0.1 * ti.sin(x[i])

    @ti.kernel
    def move():
        for i in x:
            x[i] += 0.1 * v[i]

    @ti.kernel
    def out():
        for i in x:
            y[i] = x[i] * v[i]

    def twin(a):
        xx = a
        vv = torch.zeros_like(a)
        for _ in range(4):
            vv = 0.9 * vv - 0.1 * xx.sin()
            xx = xx + 0.1 * vv
        return xx * vv

    check(L([x], [y], [k for _ in range(4) for k in (force, move)] + [out], internal=[v]), twin, [R(N)])


def diffusion_pingpong(ti):
    a, b = F(ti, N), F(ti, N)

    @ti.kernel
    def s1():
        for i in range(1, N - 1):
            b[i] = a[i] + 0.1 * (a[i - 1] - 2 * a[i] + a[i + 1]) * a[i]
        b[0] = a[0]
        b[N - 1] = a[N - 1]

    @ti.kernel
    def s2():
        for i in range(1, N - 1):
            a[i] = b[i] + 0.1 * (b[i - 1] - 2 * b[i] + b[i + 1]) * b[i]
        a[0] = b[0]
        a[N - 1] = b[N - 1]

    def st(x):
        m = x[1:-1] + 0.1 * (x[:-2] - 2 * x[1:-1] + x[2:]) * x[1:-1]
        return torch.cat([x[:1], m, x[-1:]])

    def twin(x):
        for _ in range(6):
            x = st(x)
        return x

    check(L([a], [a], [s1, s2] * 3, internal=[b]), twin, [R(N)])


def root_dense_place(ti):
    x = ti.field(ti.f64)
    y = ti.field(ti.f64)
    w = ti.field(ti.f64)
    ti.root.dense(ti.i, N).place(x, x.grad, y, y.grad)
    ti.root.place(w, w.grad)

    @ti.kernel
    def k():
        for i in x:
            y[i] = ti.exp(w[None] * x[i])

    wv = torch.tensor(0.4, dtype=D)
    layer = L([x], [y], [k], weights=[(w, wv)])
    W = layer.w0
    check(layer, lambda a: (W * a).exp(), [R(N)], [W])


def blocked_layout(ti):
    x = ti.field(ti.f64)
    y = ti.field(ti.f64)
    ti.root.dense(ti.ij, (2, 3)).dense(ti.ij, (2, 2)).place(x, x.grad)
    ti.root.dense(ti.j, 6).dense(ti.i, 4).place(y, y.grad)

    @ti.kernel
    def k():
        for i, j in x:
            y[i, j] = x[i, j] * x[(i + 1) % 4, j]

    check(L([x], [y], [k]), lambda a: a * a.roll(-1, 0), [R(4, 6)])


def offsets(ti):
    x = ti.field(ti.f64, shape=N, offset=-3, needs_grad=True)
    y = ti.field(ti.f64, shape=(N, 2), offset=(2, -1), needs_grad=True)

    @ti.kernel
    def k():
        for i in x:
            y[i + 5, -1] = x[i] ** 2
            y[i + 5, 0] = x[i] * x[ti.max(i - 1, -3)]

    @ti.kernel
    def k2():
        for at in ti.grouped(y):
            y[at] = y[at] * ti.sin(y[at])

    def twin(a):
        p = torch.cat([a[:1], a[:-1]])
        z = torch.stack([a**2, a * p], 1)
        return z * z.sin()

    check(L([x], [y], [k, k2]), twin, [R(N)])


def list_of_layers(ti):
    Ws = [F(ti, N, N) for _ in range(3)]
    hs = [F(ti, N) for _ in range(4)]

    @ti.data_oriented
    class Net:
        def __init__(s):
            s.W = Ws
            s.h = hs
            s.d = {"out": hs[3], "in": hs[0]}

        @ti.kernel
        def fwd(s):
            for k in ti.static(range(3)):
                for i in range(N):
                    a = 0.0
                    for j in range(N):
                        a += s.W[k][i, j] * s.h[k][j]
                    s.h[k + 1][i] = ti.tanh(a)

        @ti.kernel
        def last(s):
            for i in s.d["out"]:
                s.d["out"][i] *= 2.0

    n = Net()
    t = (
        ts.Tin(n)
        .register_kernel("fwd")
        .register_kernel("last")
        .register_input_field(hs[0])
        .register_output_field(hs[3])
    )
    for k, w in enumerate(Ws):
        t.register_weight_field(w, name=f"w{k}", value=torch.randn(N, N, dtype=D))
    t.finish()

    def twin(h):
        for k in range(3):
            h = torch.tanh(getattr(t, f"w{k}") @ h)
        return 2 * h

    check(t, twin, [R(N)], [t.w0, t.w1, t.w2])


def struct_members(ti):
    P = ti.Struct.field({"pos": ti.types.vector(2, ti.f64), "m": ti.f64}, shape=N, needs_grad=True)
    e = F(ti)

    @ti.kernel
    def k():
        for i in P:
            for j in range(N):
                if i != j:
                    e[None] += P[i].m * P[j].m * (P[i].pos - P[j].pos).norm(1e-3)

    def twin(p, m):
        d = ((p[:, None] - p[None]) ** 2).sum(-1)
        s = (d + 1e-3).sqrt()
        return ((m[:, None] * m[None] * s) * (1 - torch.eye(N, dtype=D))).sum()

    check(L([P.pos, P.m], [e], [k]), twin, [R(N, 2), R(N)])


def vectors_matrices(ti):
    v = ti.Vector.field(3, ti.f64, N, needs_grad=True)
    A = ti.Matrix.field(3, 3, ti.f64, N, needs_grad=True)
    o = ti.Vector.field(3, ti.f64, N, needs_grad=True)

    @ti.kernel
    def k():
        for i in v:
            o[i] = A[i] @ v[i]
            o[i] += v[i].cross(o[i])

    def twin(v, A):
        o = (A @ v[..., None])[..., 0]
        return o + torch.cross(v, o, dim=-1)

    check(L([v, A], [o], [k]), twin, [R(N, 3), R(N, 3, 3)])


def atomic_max_field(ti):
    x, y = F(ti, N), F(ti)

    @ti.kernel
    def k():
        y[None] = -1e9
        for i in x:
            ti.atomic_max(y[None], x[i] * x[i])

    check(L([x], [y], [k]), lambda a: (a * a).max(), [R(N)])


def loop_carried_local(ti):
    x, y = F(ti, N), F(ti)

    @ti.kernel
    def k():
        for _ in range(1):
            s = 1.0
            for i in range(N):
                s = s * ti.exp(0.1 * x[i]) + x[i]
            y[None] = s

    def twin(a):
        s = torch.ones((), dtype=D)
        for i in range(N):
            s = s * (0.1 * a[i]).exp() + a[i]
        return s

    check(L([x], [y], [k]), twin, [R(N)])


def while_newton(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.kernel
    def k():
        for i in x:
            g = 1.0
            n = 0
            while n < 30:
                g = 0.5 * (g + (1 + x[i] ** 2) / g)
                n += 1
                if ti.abs(g * g - 1 - x[i] ** 2) < 1e-14:
                    break
            y[i] = g

    check(L([x], [y], [k]), lambda a: (1 + a**2).sqrt(), [R(N)])


def histogram_scatter(ti):
    x = F(ti, N)
    h = F(ti, 3)
    b = ti.field(ti.i32, N)
    b.from_torch(torch.tensor([0, 1, 2, 1, 0, 1], dtype=torch.int32))

    @ti.kernel
    def k():
        for i in x:
            h[b[i]] += x[i] ** 2

    @ti.kernel
    def norm():
        for j in h:
            h[j] = ti.sqrt(1 + h[j])

    layer = ts.EmptyTin().register_input_field(x).register_output_field(h, clear=True)
    layer.register_kernel(k).register_kernel(norm).finish()
    bins = torch.tensor([0, 1, 2, 1, 0, 1])
    check(layer, lambda a: (1 + torch.zeros(3, dtype=D).index_add(0, bins, a**2)).sqrt(), [R(N)])


def prefix_sum_inplace(ti):
    x = F(ti, N)

    @ti.kernel
    def k():
        ti.loop_config(serialize=True)
        for i in range(1, N):
            x[i] += x[i - 1] * x[i]

    def twin(a):
        o = [a[0]]
        for i in range(1, N):
            o.append(a[i] + o[-1] * a[i])
        return torch.stack(o)

    check(L([x], [x], [k]), twin, [R(N)])


def unregistered_state(ti):
    x, y = F(ti, N), F(ti, N)
    t = ti.field(ti.f64, N)

    @ti.kernel
    def a():
        for i in x:
            t[i] = x[i] ** 2

    @ti.kernel
    def b():
        for i in x:
            y[i] = t[i] * x[i]

    check(L([x], [y], [a, b]), lambda v: v**3, [R(N)])


def func_and_template(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.func
    def act(f: ti.template(), i):
        return ti.tanh(f[i]) * f[i]

    @ti.kernel
    def k(f: ti.template(), g: ti.template(), n: ti.template()):
        for i in f:
            for _ in ti.static(range(n)):
                g[i] += act(f, i)

    layer = (
        ts.EmptyTin().register_input_field(x).register_output_field(y, clear=True).register_kernel(k, x, y, 3).finish()
    )
    check(layer, lambda v: 3 * v.tanh() * v, [R(N)])


def global_scalar_changes(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.data_oriented
    class C:
        def __init__(s):
            s.lr = 2.0

        @ti.kernel
        def k(s):
            for i in x:
                y[i] = s.lr * x[i] * x[i]

    c = C()
    t = ts.Tin(c).register_kernel("k").register_input_field(x).register_output_field(y).finish()
    v = R(N)
    y1 = t(v)
    c.lr = 5.0
    y2 = t(v)
    (g1,) = torch.autograd.grad(y1.sum(), v, retain_graph=True)
    (g2,) = torch.autograd.grad(y2.sum(), v)
    (g3,) = torch.autograd.grad(y1.sum(), v)
    assert torch.allclose(g1, 4 * v) and torch.allclose(g2, 10 * v) and torch.allclose(g3, g1)


def two_calls_before_backward(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.kernel
    def k():
        for i in x:
            y[i] = x[i] * x[i] * x[i]
            x[i] = 0.0

    t = L([x], [y], [k])
    a, b = R(N), R(N)
    check(lambda a, b: t(a) * t(b) + t(t(a)), lambda a, b: a**3 * b**3 + a**9, [a, b])


def retain_twice(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.kernel
    def k():
        for i in x:
            y[i] = ti.log(1 + x[i] ** 2)

    t = L([x], [y], [k])
    a = R(N)
    o = t(a).sum()
    o.backward(retain_graph=True)
    g = a.grad.clone()
    o.backward()
    assert torch.allclose(a.grad, 2 * g) and torch.allclose(g, 2 * a / (1 + a**2))


def running_state_calls(ti):
    x, y, s = F(ti, N), F(ti, N), F(ti, N)

    @ti.kernel
    def k():
        for i in x:
            s[i] = 0.5 * s[i] + x[i] ** 2
            y[i] = s[i] * x[i]

    t = (
        ts.EmptyTin()
        .register_input_field(x)
        .register_output_field(y)
        .register_internal_field(s, name="s")
        .register_kernel(k)
        .finish()
    )
    st = torch.zeros(N, dtype=D)
    bad = []
    outs = []
    for _ in range(3):
        a = R(N)
        o = t(a)
        st = 0.5 * st + a.detach() ** 2
        base = st - a.detach() ** 2
        outs.append((a, o, base))
    for a, o, base in reversed(outs):
        z = (base + a**2) * a
        (g,) = torch.autograd.grad(o.sum(), a)
        (h,) = torch.autograd.grad(z.sum(), a)
        if not torch.allclose(o, z) or not torch.allclose(g, h):
            bad.append((g - h).abs().max().item())
    assert not bad


def vmap_and_jac(ti):
    x, y, w = F(ti, N), F(ti, N), F(ti, N)
    w.from_torch(torch.arange(N, dtype=D))

    @ti.kernel
    def k():
        for i in x:
            y[i] = w[i] * x[i] * x[(i + 1) % N]

    t = L([x], [y], [k])
    W = torch.arange(N, dtype=D)

    def f(a):
        return W * a * a.roll(-1)

    B = torch.randn(4, N, dtype=D)
    ok = torch.allclose(torch.vmap(t)(B), torch.vmap(f)(B))
    ok &= torch.allclose(torch.func.jacrev(t)(B[0]), torch.func.jacrev(f)(B[0]))
    ok &= torch.allclose(torch.func.jacfwd(t)(B[0]), torch.func.jacfwd(f)(B[0]))
    ok &= torch.allclose(
        torch.vmap(torch.func.grad(lambda a: t(a).sin().sum()))(B),
        torch.vmap(torch.func.grad(lambda a: f(a).sin().sum()))(B),
    )
    ok &= torch.allclose(
        torch.func.hessian(lambda a: t(a).sin().sum())(B[0]), torch.func.hessian(lambda a: f(a).sin().sum())(B[0])
    )
    assert ok


def no_grad_then_grad(ti):
    x, y, c = F(ti, N), F(ti, N), ti.field(ti.i32, ())

    @ti.kernel
    def k():
        for _ in range(1):
            c[None] += 1
        for i in x:
            y[i] = c[None] * x[i] ** 2

    t = L([x], [y], [k])
    a = R(N)
    with torch.no_grad():
        t(a)
        t(a)
    o = t(a)
    (g,) = torch.autograd.grad(o.sum(), a)
    assert torch.allclose(g, 6 * a) and c[None] == 3


def set_field_between(ti):
    x, y, w = F(ti, N), F(ti, N), F(ti, N)
    w.fill(2.0)

    @ti.kernel
    def k():
        for i in x:
            y[i] = w[i] * x[i] ** 2

    t = L([x], [y], [k])
    a = R(N)
    o = t(a)
    w.fill(7.0)
    x.fill(0.0)
    (g,) = torch.autograd.grad(o.sum(), a)
    assert torch.allclose(g, 4 * a)


def internal_gradient(ti):
    x, y, w = F(ti, N), F(ti, N), F(ti, N)
    w.fill(2.0)

    @ti.kernel
    def k():
        for i in x:
            y[i] = w[i] * x[i] ** 2

    t = (
        ts.EmptyTin(auto_clear_grad=False)
        .register_input_field(x)
        .register_output_field(y)
        .register_internal_field(w, name="w", needs_grad=True)
        .register_kernel(k)
        .finish()
    )
    a = R(N)
    t(a).sum().backward()
    t(a).sum().backward()
    assert torch.allclose(w.grad.to_torch(), 2 * a**2) and torch.allclose(a.grad, 8 * a)


def mpm_like(ti):  # noqa: C901  # two kernels over the cells around each particle, and their twin
    n = 5
    G = 4
    x = ti.Vector.field(2, ti.f64, n, needs_grad=True)
    v = ti.Vector.field(2, ti.f64, n, needs_grad=True)
    gv = ti.Vector.field(2, ti.f64, (G, G), needs_grad=True)
    gm = F(ti, G, G)
    out = ti.Vector.field(2, ti.f64, n, needs_grad=True)

    @ti.kernel
    def p2g():
        for p in x:
            base = ti.cast(x[p] * (G - 1), ti.i32)
            fx = x[p] * (G - 1) - ti.cast(base, ti.f64)
            for i, j in ti.static(ti.ndrange(2, 2)):
                wx = fx[0] if i == 1 else 1 - fx[0]
                wy = fx[1] if j == 1 else 1 - fx[1]
                gv[base + ti.Vector([i, j])] += wx * wy * v[p]
                gm[base + ti.Vector([i, j])] += wx * wy

    @ti.kernel
    def grid():
        for i, j in gm:
            if gm[i, j] > 1e-10:
                gv[i, j] = gv[i, j] / gm[i, j]

    @ti.kernel
    def g2p():
        for p in x:
            base = ti.cast(x[p] * (G - 1), ti.i32)
            fx = x[p] * (G - 1) - ti.cast(base, ti.f64)
            nv = ti.Vector([0.0, 0.0])
            for i, j in ti.static(ti.ndrange(2, 2)):
                wx = fx[0] if i == 1 else 1 - fx[0]
                wy = fx[1] if j == 1 else 1 - fx[1]
                nv += wx * wy * gv[base + ti.Vector([i, j])]
            out[p] = x[p] + 0.1 * nv

    def twin(x, v):
        b = (x * (G - 1)).floor().long()
        f = x * (G - 1) - b

        def ws():
            for i in (0, 1):
                for j in (0, 1):
                    wx = f[:, 0] if i else 1 - f[:, 0]
                    wy = f[:, 1] if j else 1 - f[:, 1]
                    yield (b[:, 0] + i) * G + b[:, 1] + j, wx * wy

        gv = torch.zeros(G * G, 2, dtype=D)
        gm = torch.zeros(G * G, dtype=D)
        for idx, w in ws():
            gv = gv.index_add(0, idx, w[:, None] * v)
            gm = gm.index_add(0, idx, w)
        gv = torch.where(gm[:, None] > 1e-10, gv / gm.clamp_min(1e-10)[:, None], gv)
        nv = sum(w[:, None] * gv[idx] for idx, w in ws())
        return x + 0.1 * nv

    check(
        L([x, v], [out], [p2g, grid, g2p], internal=[gv, gm]),
        twin,
        [torch.rand(n, 2, dtype=D).mul(0.9).add(0.05).requires_grad_(), R(n, 2)],
    )


def rigid_collide(ti):
    T = 8
    x = F(ti, T)
    v = F(ti, T)
    x0 = F(ti)
    v0 = F(ti)
    loss = F(ti)

    @ti.kernel
    def ini():
        x[0] = x0[None]
        v[0] = v0[None]

    @ti.kernel
    def step(t: ti.i32):
        for _ in range(1):
            nx = x[t - 1] + 0.1 * v[t - 1]
            nv = v[t - 1] - 0.5
            if nx < 0 and nv < 0:
                nv = -0.8 * nv
            x[t] = nx
            v[t] = nv

    @ti.kernel
    def end():
        loss[None] = x[T - 1] ** 2 + v[T - 1]

    def twin(a, b):
        for _ in range(1, T):
            na = a + 0.1 * b
            nb = b - 0.5
            if na < 0 and nb < 0:
                nb = -0.8 * nb
            a, b = na, nb
        return a**2 + b

    check(
        L([x0, v0], [loss], [ini, *[(step, t) for t in range(1, T)], end], internal=[x, v]),
        twin,
        [torch.tensor(0.1, dtype=D, requires_grad=True), torch.tensor(-0.3, dtype=D, requires_grad=True)],
    )


def returns_value(ti):
    x, y = F(ti, N), F(ti, N)

    @ti.kernel
    def k() -> ti.f64:
        s = 0.0
        for i in x:
            y[i] = x[i] ** 2
        return s

    check(L([x], [y], [k]), lambda a: a**2, [R(N)])


def random_kernel(ti):
    x, y = F(ti, N), F(ti, N)
    r = F(ti, N)

    @ti.kernel
    def k():
        for i in x:
            u = ti.random(ti.f64)
            r[i] = u
            y[i] = u * x[i] ** 2

    t = L([x], [y, r], [k])
    a = R(N)
    o, u = t(a)
    o2, u2 = t(a)
    (g,) = torch.autograd.grad(o.sum(), a)
    assert torch.allclose(g, 2 * u * a) and not torch.allclose(u, u2)


def silent_internal(ti):
    x, y, t = F(ti, N), F(ti, N), F(ti, N)

    @ti.kernel
    def a():
        for i in x:
            t[i] = x[i] ** 2

    @ti.kernel
    def b():
        for i in x:
            y[i] = t[i] * x[i]

    layer = (
        ts.EmptyTin()
        .register_input_field(x)
        .register_output_field(y)
        .register_internal_field(t, needs_grad=False)
        .register_kernel(a)
        .register_kernel(b)
        .finish()
    )
    check(layer, lambda v: v.detach() ** 2 * v, [R(N)])


def array_argument(ti):
    x, y = F(ti, N), F(ti, N)
    w = torch.randn(N, dtype=D)

    @ti.kernel
    def k(a: ti.types.ndarray()):
        for i in x:
            y[i] = a[i] * x[i] ** 2

    layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(k, w).finish()
    check(layer, lambda v: w * v**2, [R(N)])


def compare_exchange_sort(ti):
    x = F(ti, N)

    @ti.kernel
    def k(o: ti.i32):
        for i in range(N // 2):
            a = 2 * i + o
            if a + 1 < N:
                if x[a] > x[a + 1]:
                    t = x[a]
                    x[a] = x[a + 1]
                    x[a + 1] = t

    check(L([x], [x], [(k, t % 2) for t in range(N)]), lambda v: v.sort().values, [R(N)])


def bool_and_int_state(ti):
    x, y = F(ti, N), F(ti, N)
    m = ti.field(ti.i32, N)

    @ti.kernel
    def a():
        for i in x:
            m[i] = 1 if x[i] > 0 else 0

    @ti.kernel
    def b():
        for i in x:
            y[i] = m[i] * x[i] ** 2

    check(L([x], [y], [a, b]), lambda v: (v > 0) * v**2, [R(N)])


def grad_clear_kernel(ti):
    x, y, s = F(ti, N), F(ti, N), F(ti, N)

    @ti.kernel
    def clr():
        for i in s:
            s.grad[i] = 0.0

    @ti.kernel
    def k():
        for i in x:
            s[i] = x[i] ** 2
            s.grad[i] = 0.0

    @ti.kernel
    def b():
        for i in x:
            y[i] = s[i] * x[i]

    check(L([x], [y], [clr, k, b]), lambda v: v**3, [R(N)])


PROGRAMS = [
    mass_spring_time,
    mass_spring_inplace,
    diffusion_pingpong,
    root_dense_place,
    blocked_layout,
    offsets,
    list_of_layers,
    struct_members,
    vectors_matrices,
    atomic_max_field,
    loop_carried_local,
    while_newton,
    histogram_scatter,
    prefix_sum_inplace,
    unregistered_state,
    func_and_template,
    global_scalar_changes,
    two_calls_before_backward,
    retain_twice,
    running_state_calls,
    vmap_and_jac,
    no_grad_then_grad,
    set_field_between,
    internal_gradient,
    mpm_like,
    rigid_collide,
    returns_value,
    random_kernel,
    silent_internal,
    array_argument,
    compare_exchange_sort,
    bool_and_int_state,
    grad_clear_kernel,
]


@pytest.mark.thinned(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program(lang64, program):
    program(lang64)
